"""How long the event loop may work on one pool before all else has its turn.

The work on what changed is done by pure modules, which know no clock and never stop half-way. So the loop
chooses which pools it gives them. A pool on which the work takes long then rests, so that it never has more
than a part of the loop: other pools, questions and probes have the remainder, whatever strangers register.
Pools that others come before all the time have half of the work once they waited for as long as a rest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter

FREE_S = 0.001
"""Work on a pool that takes no longer than this counts for nothing."""
RESTS = 7
"""A pool rests for so many times as long as the work on it took: it has an eighth of the loop at most."""
LONGEST_REST_S = 0.06
"""The longest rest, and the wait after which a pool comes first: a server that died is shown meanwhile."""
MEMBERS_AT_ONCE = 500
"""The most members whose pools are worked on in one go, unless one pool alone has more."""

Sized = tuple[str, int]
"""A pool's handle, and the number of its members."""


class Fairness:
    """Chooses the pools to work on, each given with its number of members.

    `at_once`: the most members in one go; the others follow as soon as all else had its turn. `clock` is
    monotonic, `spent` the processor time of this thread, in seconds: a pause of the machine is no work.
    """

    def __init__(
        self,
        at_once: float = math.inf,
        *,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._at_once = at_once
        self._clock = clock
        self._spent = spent
        self._rest_until_s: dict[str, float] = {}
        self._passed_over_s: dict[str, float] = {}
        """Since when others come before these pools."""

    def choose(self, sized: Iterable[Sized]) -> tuple[list[Sized], float | None]:
        """Return those of the pools to work on now, in their order, but the late ones first; and when to come
        back for the others, None when there are none."""
        now, sized = self._clock(), tuple(sized)
        resting = self._rest_until_s.items()
        self._rest_until_s = {handle: until_s for handle, until_s in resting if until_s > now}
        chosen: list[Sized] = []
        members, back_s = 0.0, math.inf
        late = self._late(sized, now)
        waiting, self._passed_over_s = self._passed_over_s, {}
        for handle, size in sorted(sized, key=lambda item: item not in late) if late else sized:
            until_s = self._rest_until_s.get(handle, now)
            if until_s > now or members >= self._at_once:
                back_s = min(back_s, until_s)
                if until_s <= now:
                    self._passed_over_s[handle] = waiting.get(handle, now)
            else:
                chosen.append((handle, size))
                members += 1 + size
                if (handle, size) in late:
                    members = min(members, self._at_once / 2)  # the other half is for the others
        return chosen, None if math.isinf(back_s) else back_s

    def _late(self, sized: Sequence[Sized], now: float) -> set[Sized]:
        """The pools that waited for too long, the longest first, until they are half of what goes at once."""
        sizes, late, members = dict(sized), set(), 0
        for handle, since_s in sorted(self._passed_over_s.items(), key=itemgetter(1)):
            if members >= self._at_once / 2 or now <= since_s + LONGEST_REST_S:
                break
            if handle in sizes:
                late.add((handle, sizes[handle]))
                members += 1 + sizes[handle]
        return late

    @contextmanager
    def work(self, chosen: Sequence[Sized]) -> Iterator[None]:
        """Do the work on these pools inside; each has its share of that by its size."""
        began_s = self._spent()
        yield
        spent_s, now = self._spent() - began_s, self._clock()
        members = sum(1 + size for _, size in chosen)
        for handle, size in chosen:
            own_s = spent_s * (1 + size) / members
            if own_s > FREE_S:
                self._rest_until_s[handle] = now + min(RESTS * own_s, LONGEST_REST_S)

    def put_aside(self, handle: str, until_s: float) -> None:
        """The work on this pool failed: it is not chosen before then (monotonic)."""
        self._rest_until_s[handle] = until_s

    def forget(self) -> None:
        """No pool rests any more: the last work came once."""
        self._rest_until_s.clear()
        self._passed_over_s.clear()
