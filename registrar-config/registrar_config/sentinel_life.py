"""When a sentinel is to be registered and dropped. Sans-IO: changes and `now` in, actions out.

state     change                               next      action
DOWN      UP: registrar reachable              SETTLING  -
SETTLING  `settle_s` later, and it is READY    IN        Enter(fresh identifier)
SETTLING  DOWN: registrar lost                 DOWN      -
IN        DOWN: registrar lost                 DOWN      Leave

STARTED and READY come from whoever runs the registrar: it takes registrations long before it has the
handlespace of its peers, and says READY when it has.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass


class Change(enum.Enum):
    """What happens to a registrar."""

    UP = "up"
    DOWN = "down"
    STARTED = "started"
    READY = "ready"


class State(enum.Enum):
    """Where a sentinel is in the life of its registrar."""

    DOWN = "down"
    SETTLING = "settling"
    IN = "in"


@dataclass(frozen=True)
class Enter:
    """Register a new pool element under this identifier."""

    identifier: int


@dataclass(frozen=True)
class Leave:
    """Forget the pool element: its registrar, and with it all that it was good for, is gone."""


Action = Enter | Leave


class SentinelLife:
    """Follows one registrar.

    `settle_s`: so long it must be reachable without a break. `is_ready`: False when READY will be told,
    True when nobody can tell.
    """

    def __init__(self, settle_s: float, new_identifier: Callable[[], int], *, is_ready: bool) -> None:
        self.state = State.DOWN
        self._settle_s = settle_s
        self._new_identifier = new_identifier
        self._is_ready = is_ready
        self._settled_at_s: float | None = None

    @property
    def next_deadline_s(self) -> float | None:
        """When `advance()` has something to do next, or None."""
        return self._settled_at_s if self._is_ready else None

    def change(self, change: Change, now: float) -> Action | None:
        """Take in what happened. A repeated change changes nothing."""
        if change in (Change.STARTED, Change.READY):
            self._is_ready = change is Change.READY
        elif change is Change.UP and self.state is State.DOWN:
            self.state, self._settled_at_s = State.SETTLING, now + self._settle_s
        elif change is Change.DOWN:
            was, self.state, self._settled_at_s = self.state, State.DOWN, None
            return Leave() if was is State.IN else None
        return None

    def advance(self, now: float) -> Action | None:
        """Take in that it is `now`."""
        if self.next_deadline_s is None or now < self.next_deadline_s:
            return None
        self.state, self._settled_at_s = State.IN, None
        return Enter(self._new_identifier())
