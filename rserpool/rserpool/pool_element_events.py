"""What a pool element's registration asks its surroundings to do (actions) and tells them (events)."""

from dataclasses import dataclass
from enum import Enum

from rserpool.asap import AsapMessage
from rserpool.errors import Cause
from rserpool.registrar_choice import RegistrarAddress


class EventKind(Enum):
    """What happened to a registration."""

    REGISTERED = "registered"
    """A registrar confirmed, after a time without a registration or at another registrar than before."""
    RENEWING = "renewing"
    """A renewal out of turn was asked for; `detail` says why."""
    REGISTRAR_LOST = "registrar-lost"
    """The association with the registrar in charge ended."""
    REGISTRAR_LEFT = "registrar-left"
    """The registrar in charge was left, though it confirms the registration; `detail` says why."""
    UNREACHABLE = "unreachable"
    """A registrar cannot be reached."""
    UNANSWERED = "unanswered"
    """A registrar did not answer in time; another is tried, the old association stays for now."""
    REJECTED = "rejected"
    """A registrar refused; `causes` and `detail` say why."""
    TAKEN_OVER = "taken-over"
    """Another registrar declared itself home, and was accepted."""
    TAKEOVER_REFUSED = "takeover-refused"
    """Somebody declared itself home, but the element is pinned, or it is no configured registrar, or one that
    was left lately."""
    DEREGISTERED = "deregistered"
    STOPPED = "stopped"
    """Over; `detail` says why."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth a line in the log; `at_s` is monotonic time, `registrar` the one concerned."""

    kind: EventKind
    at_s: float
    registrar: RegistrarAddress | None = None
    detail: str = ""
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class Connect:
    """Set up an association with this registrar."""

    registrar: RegistrarAddress


@dataclass(frozen=True, slots=True)
class Send:
    """Send `message` on `association`."""

    association: int
    message: AsapMessage


@dataclass(frozen=True, slots=True)
class Close:
    """Close `association` gracefully."""

    association: int


@dataclass(frozen=True, slots=True)
class CloseAll:
    """Close the socket, it is over."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell whoever listens."""

    event: Event


Action = Connect | Send | Close | CloseAll | Tell


class Outbox:
    """Collects actions in the order in which they are to be done."""

    def __init__(self) -> None:
        self._actions: list[Action] = []

    def take(self) -> list[Action]:
        """Return what was collected, and forget it."""
        actions, self._actions = self._actions, []
        return actions

    def add(self, action: Action) -> None:
        """Ask for an action."""
        self._actions.append(action)

    def send(self, association: int, message: AsapMessage) -> None:
        """Ask to send a message."""
        self.add(Send(association, message))

    def tell(
        self,
        kind: EventKind,
        at_s: float,
        registrar: RegistrarAddress | None,
        detail: str = "",
        causes: tuple[Cause, ...] = (),
    ) -> None:
        """Tell of an event."""
        self.add(Tell(Event(kind, at_s, registrar, detail, causes)))
