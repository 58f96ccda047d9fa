"""A pool element's registration: theory, table, machine and client (RFC 5352, sections 2.2 and 3).

The machine begins IDLE, out of the pool. When its owner wants it in, a *stay* begins: the element registers
at one of its registrars, which becomes its *home*, and renews the registration at an interval. When its owner
wants it out, it deregisters and is IDLE again. Each stay has a socket of its own.

Each element has an order of its own among the registrars (`registrar_choice`). Four things make it change its
home:

1. The association is lost, or the registrar does not answer in time: the next one is tried in the same
   instant. When all failed in a row, a growing pause follows.
2. The registrar refuses: the pause grows from 1 s, since another registrar will hardly differ.
3. Another registrar takes over: a keep-alive with the home flag, on an association that it set up. It is
   followed when it is one of the configured registrars and was not left lately.
4. The owner has it leave a registrar that says what no other registrar says.

A registrar that was left may only have been frozen. When it wakes, it may remove the element everywhere:
because it reads of the association's end before it reads of the element's new home, or because its keep-alive
timed out. So the old association stays open, the element asks something on it, and the first word that comes
back starts a second of frequent renewals.

When another host has the element's identifier, each registration of one hides the other. The element then
ends its stay without a word, since a deregistration would take the other host out, and begins another stay
with a fresh identifier.

A **pinned** element refuses takeovers, and its stay ends as soon as its registrar is lost.

The file holds, in this order: the states and every transition between them, the events for the owner, the
associations, the silence of a registrar, the machine, and its client for asyncio.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rserpool import asap
from rserpool.aio.driver import ASAP, Driver
from rserpool.asap import AsapMessage
from rserpool.errors import ErrorCause, RegistrationRejected
from rserpool.machine.base import Close, CloseSocket, Connect, SctpAddress, Send, TableMachine
from rserpool.machine.registrar_choice import RegistrarAddress, Rotation, preference
from rserpool.parameters import PoolElement, Protocol
from rserpool.policies import Policy
from rserpool.rspregistrar import SHORTEST_KEEP_ALIVE_S, check_safe

# The states, and every transition between them


class ElementState(Enum):
    """The state of a registration."""

    IDLE = "idle"
    """Out of the pool, as it is wanted; there is no socket."""
    PAUSED = "paused"
    """Wanted in the pool, but no stay has begun: a pause passes first (often none). There is no socket."""
    CONNECTING = "connecting"
    """An association with a registrar is being set up."""
    REGISTERING = "registering"
    """The registration was sent, its answer is awaited; no registrar has confirmed this one yet."""
    REGISTERED = "registered"
    """The registrar confirmed."""
    RENEWING = "renewing"
    """Registered, and a renewal was sent, its answer is awaited."""
    WAITING = "waiting"
    """No registrar took the registration; another attempt follows (often at once)."""
    DEREGISTERING = "deregistering"
    """The deregistration was sent, its answer is awaited."""
    RETURNING = "returning"
    """Deregistering still, but wanted again: another stay begins when this one is over."""


class ElementInput(Enum):
    """The things that move a registration from one state to another."""

    START = "start"
    """The owner wants it in the pool."""
    ASSOCIATED = "associated"
    """The association with the chosen registrar is up."""
    LOST = "lost"
    """The association in use is gone, or could not be set up."""
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    TIMEOUT = "timeout"
    """The registrar did not answer in time."""
    RENEW = "renew"
    """The re-registration interval is over, the policy changed, or somebody asked for it."""
    TAKEN_OVER = "taken over"
    """Another registrar declared itself home."""
    RETRY = "retry"
    """The pause is over."""
    IDENTIFIER_TAKEN = "identifier taken"
    """Another host has the identifier."""
    DEREGISTER = "deregister"
    """The owner wants it out of the pool."""
    DEREGISTERED = "deregistered"
    STOP = "stop"
    """The owner ends it without a word, or the registrar of a pinned element is lost."""


TRANSITIONS: Mapping[ElementState, Mapping[ElementInput, ElementState]] = {
    ElementState.IDLE: {
        ElementInput.START: ElementState.PAUSED,
    },
    ElementState.PAUSED: {
        ElementInput.RETRY: ElementState.CONNECTING,
        ElementInput.DEREGISTER: ElementState.IDLE,
        ElementInput.STOP: ElementState.IDLE,
    },
    ElementState.CONNECTING: {
        ElementInput.ASSOCIATED: ElementState.REGISTERING,
        ElementInput.LOST: ElementState.WAITING,
        ElementInput.TIMEOUT: ElementState.WAITING,
        ElementInput.TAKEN_OVER: ElementState.RENEWING,
        ElementInput.IDENTIFIER_TAKEN: ElementState.PAUSED,
        ElementInput.DEREGISTER: ElementState.DEREGISTERING,
        ElementInput.STOP: ElementState.IDLE,
    },
    ElementState.REGISTERING: {
        ElementInput.ACCEPTED: ElementState.REGISTERED,
        ElementInput.REJECTED: ElementState.WAITING,
        ElementInput.LOST: ElementState.WAITING,
        ElementInput.TIMEOUT: ElementState.WAITING,
        ElementInput.TAKEN_OVER: ElementState.RENEWING,
        ElementInput.IDENTIFIER_TAKEN: ElementState.PAUSED,
        ElementInput.DEREGISTER: ElementState.DEREGISTERING,
        ElementInput.STOP: ElementState.IDLE,
    },
    ElementState.REGISTERED: {
        ElementInput.RENEW: ElementState.RENEWING,
        ElementInput.LOST: ElementState.WAITING,
        ElementInput.TAKEN_OVER: ElementState.RENEWING,
        ElementInput.IDENTIFIER_TAKEN: ElementState.PAUSED,
        ElementInput.DEREGISTER: ElementState.DEREGISTERING,
        ElementInput.STOP: ElementState.IDLE,
    },
    ElementState.RENEWING: {
        ElementInput.ACCEPTED: ElementState.REGISTERED,
        ElementInput.REJECTED: ElementState.WAITING,
        ElementInput.LOST: ElementState.WAITING,
        ElementInput.TIMEOUT: ElementState.WAITING,
        ElementInput.TAKEN_OVER: ElementState.RENEWING,
        ElementInput.IDENTIFIER_TAKEN: ElementState.PAUSED,
        ElementInput.DEREGISTER: ElementState.DEREGISTERING,
        ElementInput.STOP: ElementState.IDLE,
    },
    ElementState.WAITING: {
        ElementInput.RETRY: ElementState.CONNECTING,
        ElementInput.TAKEN_OVER: ElementState.RENEWING,
        ElementInput.IDENTIFIER_TAKEN: ElementState.PAUSED,
        ElementInput.DEREGISTER: ElementState.DEREGISTERING,
        ElementInput.STOP: ElementState.IDLE,
    },
    ElementState.DEREGISTERING: {
        ElementInput.START: ElementState.RETURNING,
        ElementInput.DEREGISTERED: ElementState.IDLE,
        ElementInput.LOST: ElementState.IDLE,
        ElementInput.TIMEOUT: ElementState.IDLE,
        ElementInput.STOP: ElementState.IDLE,
    },
    ElementState.RETURNING: {
        ElementInput.DEREGISTER: ElementState.DEREGISTERING,
        ElementInput.DEREGISTERED: ElementState.PAUSED,
        ElementInput.LOST: ElementState.PAUSED,
        ElementInput.TIMEOUT: ElementState.PAUSED,
        ElementInput.STOP: ElementState.IDLE,
    },
}
"""An input that is not in here changes nothing."""

HAS_LEFT: Final = frozenset({ElementState.IDLE, ElementState.PAUSED})
"""No stay is under way: there is no socket, and nothing is registered from here."""
IS_LEAVING: Final = frozenset({ElementState.DEREGISTERING, ElementState.RETURNING})
IS_REGISTERED: Final = frozenset({ElementState.REGISTERED, ElementState.RENEWING})
DEAF: Final = HAS_LEFT | IS_LEAVING
"""Questions of registrars are not answered there."""
AWAITED_IN: Final[Mapping[type[asap.AsapMessage], frozenset[ElementState]]] = {
    asap.RegistrationResponse: frozenset({ElementState.REGISTERING, ElementState.RENEWING}),
    asap.AsapError: frozenset({ElementState.REGISTERING, ElementState.RENEWING}),
    asap.DeregistrationResponse: IS_LEAVING,
}
"""The states in which an answer of each kind counts."""


# Events for the owner


class ElementEventKind(Enum):
    """The kinds of things that happen to a registration."""

    REGISTERED = "registered"
    """A registrar confirmed, after a time without a registration or at another registrar than before."""
    RENEWING = "renewing"
    """A renewal out of turn was asked for; `detail` says why."""
    REGISTRAR_LOST = "registrar_lost"
    """The association with the registrar in charge ended."""
    REGISTRAR_LEFT = "registrar_left"
    """The registrar in charge was left, though it confirms the registration; `detail` says why."""
    UNREACHABLE = "unreachable"
    """A registrar cannot be reached."""
    UNANSWERED = "unanswered"
    """A registrar did not answer in time; another is tried, the old association stays for now."""
    REJECTED = "rejected"
    """A registrar refused; `causes` and `detail` say why."""
    TAKEN_OVER = "taken_over"
    """Another registrar declared itself home, and was accepted."""
    TAKEOVER_REFUSED = "takeover_refused"
    """Somebody declared itself home, but the element is pinned, or it is no configured registrar, or one that
    was left lately."""
    UNOPENED = "unopened"
    """No socket could be opened (no such address on this host, say); `detail` says why. It is tried again."""
    DEREGISTERED = "deregistered"
    """The stay is over: the registrar confirmed."""
    UNCONFIRMED = "unconfirmed"
    """The stay is over, but no registrar confirmed the deregistration; `detail` says why."""
    STOPPED = "stopped"
    """The stay is over without a deregistration; `detail` says why."""


ENDS: Final = frozenset(
    {ElementEventKind.DEREGISTERED, ElementEventKind.UNCONFIRMED, ElementEventKind.STOPPED}
)
"""Each stay ends with one of these."""


@dataclass(frozen=True, slots=True)
class ElementEvent:
    """Something worth a line in the log; `at_s` is monotonic time, `registrar` the one concerned."""

    kind: ElementEventKind
    at_s: float
    registrar: RegistrarAddress | None = None
    detail: str = ""
    causes: tuple[ErrorCause, ...] = ()


# The associations, and for how long they stay

LEAVE_AFTER_S = 1.0
"""How long the old association stays after a move once its registrar was heard from again."""
LEAVE_SILENT_AFTER_S = 60.0
"""How long an old association stays after a move when nothing is heard on it."""
UNASKED_STAY_S = 5.0
"""How long an association that a registrar set up stays, unless a takeover comes on it."""
MAX_ASSOCIATIONS = 64
"""With all others together; a further one is taken only from a configured registrar."""


class Associations:
    """Associations by the number that the socket gives them; some have a time at which to close them."""

    def __init__(self) -> None:
        self.current: int | None = None
        """The association with the registrar in charge, or with the registrar that is tried."""
        self.confirmed: int | None = None
        """The association on which the registration was confirmed last; during a move the old one."""
        self._endpoints: dict[int, SctpAddress] = {}
        self._close_at_s: dict[int, float] = {}
        self._left: set[int] = set()

    def add(self, association: int, endpoint: SctpAddress, now: float) -> None:
        """Take a new association, to be closed after UNASKED_STAY_S unless `keep` is called before."""
        self._endpoints[association] = endpoint
        self._close_at_s[association] = now + UNASKED_STAY_S

    def keep(self, association: int) -> None:
        """Do not close the association."""
        self._close_at_s.pop(association, None)
        self._left.discard(association)

    def leave_others(self, association: int, now: float) -> list[int]:
        """Close all but `association` when the time has come; return those left by this call."""
        left = [other for other in self._endpoints if other != association and other not in self._close_at_s]
        for other in left:
            self._close_at_s[other] = now + LEAVE_SILENT_AFTER_S
            self._left.add(other)
        return left

    def woke(self, association: int, now: float) -> bool:
        """Return True for the first sign of life on an association since it was left."""
        if association not in self._left:
            return False
        self._left.discard(association)
        self._close_at_s[association] = now + LEAVE_AFTER_S
        return True

    def remove(self, association: int) -> None:
        """Forget an association that ended."""
        self.current = None if association == self.current else self.current
        self.confirmed = None if association == self.confirmed else self.confirmed
        self._endpoints.pop(association, None)
        self._close_at_s.pop(association, None)
        self._left.discard(association)

    def endpoint(self, association: int) -> SctpAddress | None:
        """Return the other side of an association."""
        return self._endpoints.get(association)

    @property
    def is_full(self) -> bool:
        """True when there are as many as strangers may bring."""
        return len(self._endpoints) >= MAX_ASSOCIATIONS

    def to(self, endpoint: SctpAddress) -> int | None:
        """Return the newest association with `endpoint`."""
        return next(
            (number for number, other in reversed(self._endpoints.items()) if other == endpoint), None
        )

    @property
    def next_deadline_s(self) -> float | None:
        """When `due` has something to give."""
        return min(self._close_at_s.values(), default=None)

    def due(self, now: float) -> list[int]:
        """Return the associations to close now, and forget them."""
        due = [association for association, at_s in self._close_at_s.items() if now >= at_s]
        for association in due:
            self.remove(association)
        return due


# The silence of the registrar in charge

STEPS: Final = 2
"""Keep-alives in a row that did not come when a registrar counts as silent."""
MARGIN_S: Final = 0.05
"""How much later than expected a keep-alive may come."""


class Silence:
    """Follows the keep-alives of the registrar in charge, and learns how far apart they are: the step."""

    def __init__(self) -> None:
        self.is_heeded = False
        """Whether silence counts: for an element that can't see in a look-up whether it is listed."""
        self._last_sign_s: float | None = None
        self._step_s: float | None = None

    @property
    def deadline_s(self) -> float | None:
        """When it has been silent for too long; None while that is not known, or nobody heeds it."""
        if not self.is_heeded or self._step_s is None or self._last_sign_s is None:
            return None
        return self._last_sign_s + STEPS * self._step_s + MARGIN_S

    def reset(self) -> None:
        """Take in that another registrar is in charge."""
        self._last_sign_s = self._step_s = None

    def confirmed(self, now: float) -> None:
        """Take in that the registrar confirmed the registration."""
        self._last_sign_s = now

    def kept_alive(self, now: float) -> None:
        """Take in a keep-alive, and how long its step was."""
        if self._last_sign_s is not None:
            self._step_s = max(SHORTEST_KEEP_ALIVE_S, now - self._last_sign_s)
        self._last_sign_s = now

    def take_due(self, now: float) -> bool:
        """Return whether it is silent for too long; once, until the next keep-alive."""
        if self.deadline_s is None or now < self.deadline_s:
            return False
        self._step_s = None
        return True


# The machine

CONNECT_TIMEOUT_S = 0.5
RESPONSE_TIMEOUT_S = 0.5
PINNED_RESPONSE_TIMEOUT_S = 2.0
"""A pinned element has no other registrar to turn to: it ends, so a moment's weakness must not count."""
WARY_INTERVAL_S = 0.05
"""How often to renew while a registrar that was left catches up with what it missed."""
REOPEN_AFTER_S = 1.0
"""After no socket could be opened."""
REJOIN_EVERY_S = 1.0
"""With a fresh identifier another stay begins at once, but no more often than this. A host that takes
identifiers must not win by making the others wait."""


class PoolElementMachine(TableMachine[ElementState, ElementInput, AsapMessage, ElementEvent]):
    """Keeps one pool element registered at one of `registrars` while it is wanted in its pool.

    `pinned`: takeovers are refused; once registered, losing the registrar ends the stay.
    `new_identifier` gives a fresh PE identifier; without it the identifier never changes.
    `is_keyed`: no two stays have the same identifier (`rserpool.identity`). `last_choice`: registrars that
    are tried only when all others failed.
    """

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        handle: bytes,
        element: PoolElement,
        *,
        reregistration_s: float = 2.0,
        pinned: bool = False,
        new_identifier: Callable[[], int] | None = None,
        is_keyed: bool = False,
        last_choice: Collection[RegistrarAddress] = (),
    ) -> None:
        if not registrars:
            raise ValueError("a pool element needs at least one registrar")
        super().__init__(ElementState.IDLE, TRANSITIONS)
        self.registrars = tuple(registrars)
        self.handle = handle
        self.element = element
        """The element that is registered, now or next, with the policy as last updated."""
        self.home_registrar: int | None = None
        """The identifier of the registrar in charge, known from its first keep-alive on."""
        self.silence = Silence()
        """The silence of the registrar in charge; when it is heeded, a silent one is registered at again."""
        self._reregistration_s = reregistration_s
        self._pinned = pinned
        self._new_identifier = new_identifier or (lambda: self.element.identifier)
        self._is_keyed = is_keyed
        self._last_choice = frozenset(last_choice)
        self._was_used = True
        """Whether a stay had the identifier: this machine's, or one before it."""
        self._rejoined_at_s = float("-inf")
        self._rotation = Rotation(self._preferred())
        self._chosen = self._rotation.next(0.0)
        """The registrar in charge, or the one that is tried."""
        self._associations = Associations()
        self._renew_again = False
        """Whether something changed while an answer was awaited."""
        self._wary_until_s = float("-inf")
        self._timer_s: float | None = None

    @property
    def is_registered(self) -> bool:
        """True while a registrar has confirmed the registration and was not lost since."""
        return self.state in IS_REGISTERED

    @property
    def registrar(self) -> RegistrarAddress | None:
        """The registrar in charge."""
        return self._chosen if self.is_registered else None

    # Wishes of the owner

    def start(self, now: float) -> None:
        """Register, and stay registered; when it is leaving just now, as soon as it has left."""
        if self._move(ElementInput.START) and self.state is ElementState.PAUSED:
            self._timer_s = max(now, self._rejoined_at_s)
            self.advance(now)

    def update_policy(self, policy: Policy, now: float) -> None:
        """Change the policy, and tell the registrar at once."""
        if policy != self.element.policy:
            self.element = dataclasses.replace(self.element, policy=policy)
            self._renew(now)

    def update_registrars(self, registrars: Sequence[RegistrarAddress], now: float) -> None:
        """Use these registrars from now on; move at once, still registered, when ours is none of them."""
        if not registrars:
            raise ValueError("a pool element needs at least one registrar")
        self.registrars = tuple(registrars)
        self._rotation.replace(self._preferred())
        if self.state not in DEAF and self._rotation.at(self._chosen.endpoint) is None:
            self._failed(
                ElementInput.LOST, ElementEventKind.REGISTRAR_LOST, now, "it is no longer configured"
            )

    def register_again(self, reason: str, now: float) -> None:
        """Renew the registration at once."""
        if self.is_registered:
            self._tell(ElementEventKind.RENEWING, now, reason)
        self._renew(now)

    def retry(self, now: float) -> None:
        """Make the next attempt at once, after a rejection whose cause is gone, say."""
        if self.state is ElementState.WAITING:
            self._timer_s = now
            self.advance(now)

    def leave_registrar(self, reason: str, now: float) -> None:
        """Register at another registrar, and let the one in charge not take over for a while."""
        if self.is_registered and not self._pinned:
            self._rotation.distrust(self._chosen, now)
            self._failed(ElementInput.LOST, ElementEventKind.REGISTRAR_LEFT, now, reason)

    def identifier_taken(self, now: float, *, is_certain: bool) -> bool:
        """Begin another stay with a fresh identifier: another host has this one.

        Without a fresh one (that of a remote server is its address) another stay begins only if it
        `is_certain` that another host has it. Return whether another stay begins.
        """
        if ElementInput.IDENTIFIER_TAKEN not in TRANSITIONS[self.state]:
            return False
        identifier = self._new_identifier()
        if identifier == self.element.identifier and not is_certain:
            return False
        self._rejoined_at_s = max(now, self._rejoined_at_s + REJOIN_EVERY_S)
        self._end(
            ElementInput.IDENTIFIER_TAKEN, ElementEventKind.STOPPED, now, "another host has its identifier"
        )
        self.element = dataclasses.replace(self.element, identifier=identifier)
        self._was_used = False
        return True

    def deregister(self, now: float, timeout_s: float = RESPONSE_TIMEOUT_S) -> None:
        """Leave the pool: the stay ends with DEREGISTERED, or with UNCONFIRMED when no registrar confirms."""
        before = self.state
        if not self._move(ElementInput.DEREGISTER) or before in IS_LEAVING:
            return
        if self.state is ElementState.IDLE:
            self._timer_s = None
            return
        associations = self._associations
        if associations.current is None:
            associations.current = associations.confirmed
        if associations.current is None:
            self._end(ElementInput.LOST, ElementEventKind.UNCONFIRMED, now, "there is no registrar to tell")
        else:
            self._timer_s = now + timeout_s
            self._send(associations.current, asap.Deregistration(self.handle, self.element.identifier))

    def stop(self, now: float) -> None:
        """End without a word; a stay that has not begun just does not begin."""
        if self.state is ElementState.PAUSED:
            self._move(ElementInput.STOP)
            self._timer_s = None
            return
        self._end(ElementInput.STOP, ElementEventKind.STOPPED, now, "closed")

    # News from the socket

    def associated(
        self, association: int, peer: SctpAddress, now: float, local: Sequence[SctpAddress] = ()
    ) -> None:
        """Take note of a new association, whoever began it."""
        del local
        is_stranger = self._rotation.at(peer) is None
        if self.state in HAS_LEFT or (is_stranger and self._associations.is_full):
            self._actions.append(Close(association))
            return
        self._associations.add(association, peer, now)
        if self.state is ElementState.CONNECTING and self._chosen.endpoint == peer:
            self._register_on(association, now)

    def lost(self, association: int, now: float, reason: str = "the association ended") -> None:
        """Take note that an association is gone."""
        was_current = association == self._associations.current
        self._associations.remove(association)
        if not was_current:
            return
        if self.state in IS_LEAVING:
            self._end(ElementInput.LOST, ElementEventKind.UNCONFIRMED, now, reason)
        else:
            self._failed(ElementInput.LOST, ElementEventKind.REGISTRAR_LOST, now, reason)

    def connect_failed(self, peer: SctpAddress, now: float, reason: str) -> None:
        """Take note that no association with this endpoint could be set up."""
        if self.state is ElementState.CONNECTING and self._chosen.endpoint == peer:
            self._failed(ElementInput.LOST, ElementEventKind.UNREACHABLE, now, reason)

    def unopened(self, now: float, reason: str) -> None:
        """Take note that no socket could be opened to connect with."""
        if self.state is ElementState.CONNECTING:
            self._move(ElementInput.LOST)
            self._actions.append(ElementEvent(ElementEventKind.UNOPENED, now, None, reason))
            self._wait(now, REOPEN_AFTER_S)

    def received(self, association: int, message: AsapMessage, now: float) -> None:
        """Take a message; what is late, not for us or not expected is ignored."""
        if self._associations.woke(association, now):
            self._wary_until_s = now + LEAVE_AFTER_S
            self._renew(now)
        if isinstance(message, asap.EndpointKeepAlive) and self._is_asked_by(message):
            self._keep_alive(association, message, now)
        elif association != self._associations.current or not self._is_awaited(message):
            return
        elif isinstance(message, asap.DeregistrationResponse):
            self._deregistered(message.error, now)
        elif isinstance(message, asap.RegistrationResponse) and not message.rejected:
            self._accepted(association, now)
        elif isinstance(message, asap.RegistrationResponse | asap.AsapError):
            self._rejected(message.error, now)

    def _is_asked_by(self, message: asap.EndpointKeepAlive) -> bool:
        """True for a keep-alive meant for this element; only rsplib's registrar names the identifier."""
        return message.handle == self.handle and message.identifier in (None, self.element.identifier)

    def _is_awaited(self, message: AsapMessage) -> bool:
        """True for an answer to what was sent last, about this element; an error names none."""
        if self.state not in AWAITED_IN.get(type(message), ()):
            return False
        if isinstance(message, asap.RegistrationResponse | asap.DeregistrationResponse):
            return (message.handle, message.identifier) == (self.handle, self.element.identifier)
        return isinstance(message, asap.AsapError)

    # Deadlines

    @property
    def next_deadline_s(self) -> float | None:
        """When `advance` has something to do; None: not before something else happens."""
        silent_s = self.silence.deadline_s if self.state is ElementState.REGISTERED else None
        timers = (self._timer_s, self._associations.next_deadline_s, silent_s)
        return min((timer for timer in timers if timer is not None), default=None)

    def advance(self, now: float) -> None:
        """Do what is due."""
        for association in self._associations.due(now):
            self._actions.append(Close(association))
        if self.state is ElementState.REGISTERED and self.silence.take_due(now):
            self.register_again("its keep-alives have stopped", now)
        if self._timer_s is None or now < self._timer_s:
            return
        self._timer_s = None
        match self.state:
            case ElementState.REGISTERED:
                self._renew(now)
            case ElementState.PAUSED:
                self._begin(now)
            case ElementState.WAITING:
                self._move(ElementInput.RETRY)
                self._try_next(now)
            case ElementState.CONNECTING:
                self._failed(
                    ElementInput.TIMEOUT, ElementEventKind.UNREACHABLE, now, "no association in time"
                )
            case ElementState.REGISTERING | ElementState.RENEWING:
                self._failed(
                    ElementInput.TIMEOUT,
                    ElementEventKind.UNANSWERED,
                    now,
                    "no answer to the registration in time",
                )
            case ElementState.DEREGISTERING | ElementState.RETURNING:
                self._end(ElementInput.TIMEOUT, ElementEventKind.UNCONFIRMED, now, "no answer in time")

    # The beginning of a stay

    def _preferred(self) -> tuple[RegistrarAddress, ...]:
        return preference(self.registrars, self.handle, self.element.identifier, self._last_choice)

    def _begin(self, now: float) -> None:
        if self._is_keyed and self._was_used:
            self.element = dataclasses.replace(self.element, identifier=self._new_identifier())
        self._was_used = True
        self._rotation = Rotation(self._preferred())
        self._wary_until_s = float("-inf")
        self._move(ElementInput.RETRY)
        self._try_next(now)

    # Reaching a registrar, registering there

    def _try_next(self, now: float) -> None:
        """Go to the best registrar there is; the state is CONNECTING."""
        self._chosen = chosen = self._rotation.next(now)
        association = self._associations.to(chosen.endpoint)
        if association is not None:
            self._register_on(association, now)
        else:
            self._timer_s = now + CONNECT_TIMEOUT_S
            self._actions.append(Connect(chosen.endpoint))

    def _register_on(self, association: int, now: float) -> None:
        self._move(ElementInput.ASSOCIATED)
        self._use(association)
        self._send_registration(association, now)

    def _use(self, association: int) -> None:
        if association != self._associations.current:
            self.home_registrar = None
            self.silence.reset()
        self._associations.current = association
        self._associations.keep(association)

    def _send_registration(self, association: int, now: float) -> None:
        self._renew_again = False
        self._timer_s = now + (PINNED_RESPONSE_TIMEOUT_S if self._pinned else RESPONSE_TIMEOUT_S)
        self._send(association, asap.Registration(self.handle, self.element))

    def _renew(self, now: float) -> None:
        """Register again, or as soon as the answer is here that is awaited."""
        if self._associations.current is not None and self._move(ElementInput.RENEW):
            self._send_registration(self._associations.current, now)
        else:
            self._renew_again = True

    # How it went

    def _accepted(self, association: int, now: float) -> None:
        is_news = self.state is ElementState.REGISTERING or self._associations.confirmed != association
        self._move(ElementInput.ACCEPTED)
        self._rotation.succeeded()
        self._associations.confirmed = association
        self.silence.confirmed(now)
        self._timer_s = now + (WARY_INTERVAL_S if now < self._wary_until_s else self._reregistration_s)
        for left in self._associations.leave_others(association, now):
            # A frozen registrar answers this when it wakes: the moment at which it may remove us everywhere.
            self._send(left, asap.HandleResolution(self.handle, 1))
        if is_news:
            self._tell(ElementEventKind.REGISTERED, now)
        if self._renew_again:
            self._renew(now)

    def _rejected(self, causes: tuple[ErrorCause, ...], now: float) -> None:
        wait_s = self._rotation.rejected(self._chosen, now)
        words = f"{RegistrationRejected(causes)}; next attempt in {wait_s:.0f} s"
        self._move(ElementInput.REJECTED)
        self._tell(ElementEventKind.REJECTED, now, words, causes)
        self._wait(now, wait_s)

    def _failed(self, what: ElementInput, kind: ElementEventKind, now: float, reason: str) -> None:
        """Leave the registrar for the next one: at once, unless all failed in a row."""
        was_registered = self.is_registered
        if not self._move(what):
            return
        self._tell(kind, now, reason)
        if self._pinned and was_registered:
            words = f"pinned to a registrar that is gone: {reason}"
            self._end(ElementInput.STOP, ElementEventKind.STOPPED, now, words)
            return
        self._wait(now, self._rotation.failed(self._chosen, now))

    def _wait(self, now: float, wait_s: float) -> None:
        self._associations.current = None
        self._timer_s = now + wait_s
        if wait_s <= 0:
            self.advance(now)

    # Keep-alive and takeover

    def _keep_alive(self, association: int, message: asap.EndpointKeepAlive, now: float) -> None:
        ours = association == self._associations.current
        if self.state in DEAF or (self._pinned and not ours and not message.home):
            return
        if message.home and not ours and not self._follow(association, now):
            return
        if association == self._associations.current:
            self.home_registrar = message.registrar
            self.silence.kept_alive(now)
        self._send(association, asap.EndpointKeepAliveAck(self.handle, self.element.identifier))
        if message.home and not ours:
            self._send_registration(association, now)

    def _follow(self, association: int, now: float) -> bool:
        """Make the sender of a takeover the registrar in charge, unless it must not be."""
        endpoint = self._associations.endpoint(association)
        registrar = self._rotation.at(endpoint)
        is_distrusted = registrar is not None and self._rotation.is_distrusted(registrar, now)
        if self._pinned or registrar is None or is_distrusted:
            why = "the element is pinned" if self._pinned else "it is none of the configured registrars"
            if is_distrusted:
                why = "it was left a short time ago"
            words = f"{endpoint[0]} port {endpoint[1]}" if endpoint else "an unknown sender"
            words += f" wants to be home, but {why}"
            self._actions.append(ElementEvent(ElementEventKind.TAKEOVER_REFUSED, now, registrar, words))
            return False
        if not self._move(ElementInput.TAKEN_OVER):
            return False
        self._chosen = registrar
        self._use(association)
        self._tell(ElementEventKind.TAKEN_OVER, now)
        return True

    # The end of a stay

    def _deregistered(self, causes: tuple[ErrorCause, ...], now: float) -> None:
        words = "; ".join(cause.explain() for cause in causes)
        kind = ElementEventKind.UNCONFIRMED if causes else ElementEventKind.DEREGISTERED
        self._end(ElementInput.DEREGISTERED, kind, now, words)

    def _end(self, what: ElementInput, kind: ElementEventKind, now: float, detail: str) -> None:
        """Close the socket. When it is wanted, the timer begins another stay: after the owner was told."""
        if not self._move(what):
            return
        self._timer_s = max(now, self._rejoined_at_s) if self.state is ElementState.PAUSED else None
        self.home_registrar = None
        self._associations = Associations()
        self._tell(kind, now, detail)
        self._actions.append(CloseSocket())

    # Actions

    def _send(self, association: int, message: AsapMessage) -> None:
        self._actions.append(Send(association, message))

    def _tell(
        self, kind: ElementEventKind, now: float, detail: str = "", causes: tuple[ErrorCause, ...] = ()
    ) -> None:
        """Tell of an event that concerns the registrar in charge."""
        self._actions.append(ElementEvent(kind, now, self._chosen, detail, causes))


# The machine on a socket


class PoolElementClient:
    """Keeps one pool element registered at one of several registrars while it is wanted in its pool.

    It registers at one registrar, renews the registration every `reregistration_ms`, answers keep-alives,
    follows a takeover by another of `registrars`, and registers at the next one at once when its registrar is
    lost or silent. `element.life_ms` should be three times `reregistration_ms`. `element`'s addresses must be
    among `local_addresses`: a registrar refuses those that are not the association's. A user transport with
    port 0 gets the port of this client's own SCTP socket. `pinned`: takeovers are refused, and after a
    registration was lost nothing is registered again until the next `start`. `new_identifier`, `is_keyed` and
    `last_choice` are the machine's. `on_event` is called with each ElementEvent; it must not raise, and may
    call any method here that is not async.
    """

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        handle: bytes,
        element: PoolElement,
        *,
        local_addresses: Sequence[str],
        reregistration_ms: int = 2000,
        pinned: bool = False,
        new_identifier: Callable[[], int] | None = None,
        is_keyed: bool = False,
        last_choice: Collection[RegistrarAddress] = (),
        on_event: Callable[[ElementEvent], None] | None = None,
    ) -> None:
        self._machine = PoolElementMachine(
            registrars,
            handle,
            element,
            reregistration_s=reregistration_ms / 1000,
            pinned=pinned,
            new_identifier=new_identifier,
            is_keyed=is_keyed,
            last_choice=last_choice,
        )
        self._driver: Driver[AsapMessage, ElementEvent] = Driver(
            self._machine,
            ASAP,
            self._happened,
            registrars=(each.endpoint for each in registrars),
            local_addresses=local_addresses,
            on_open=self._opened,
            on_unopened=lambda problem: self._machine.unopened(time.monotonic(), problem),
        )
        self._on_event = on_event
        self._end = asyncio.Event()
        self._was_deregistered = False
        transport = element.user_transport
        self._uses_own_port = transport.protocol is Protocol.SCTP and transport.port == 0

    def start(self) -> None:
        """Begin to register, as `want(True)` does, once the socket is open; must run in an event loop.

        Raise SctpUnavailable where there is no SCTP, OSError when an address cannot be bound,
        UnsafeMessageError for a handle or transport that must not be sent.
        """
        check_safe(asap.Registration(self._machine.handle, self._machine.element))
        self._driver.start()
        self.want(True)

    def want(self, wanted: bool) -> None:
        """Be in the pool from now on, or leave it; must run in an event loop.

        Raise UnsafeMessageError for a handle or transport that must not be sent. If no socket can be
        opened, that is tried again (event UNOPENED).
        """
        if wanted:
            check_safe(asap.Registration(self._machine.handle, self._machine.element))
            self._machine.start(time.monotonic())
        else:
            self._machine.deregister(time.monotonic())
        self._driver.run()

    @property
    def state(self) -> ElementState:
        """The state of the registration."""
        return self._machine.state

    @property
    def is_registered(self) -> bool:
        """True while a registrar has confirmed the registration and was not lost since."""
        return self._machine.is_registered

    @property
    def registrar(self) -> RegistrarAddress | None:
        """The registrar in charge, None while there is none."""
        return self._machine.registrar

    @property
    def home_registrar(self) -> int | None:
        """The identifier of the registrar in charge, known from its first keep-alive on."""
        return self._machine.home_registrar

    @property
    def element(self) -> PoolElement:
        """The element that is registered, with the policy as last updated."""
        return self._machine.element

    def update_policy(self, policy: Policy) -> None:
        """Change the policy (a new load, say) and tell the registrar at once."""
        self._machine.update_policy(policy, time.monotonic())
        self._driver.run()

    def update_registrars(self, registrars: Sequence[RegistrarAddress]) -> None:
        """Use these registrars from now on; it moves at once when its own is none of them."""
        self._driver.set_registrars(each.endpoint for each in registrars)
        self._machine.update_registrars(registrars, time.monotonic())
        self._driver.run()

    def register_again(self, reason: str) -> None:
        """Renew the registration at once (a look-up missed it, say)."""
        self._machine.register_again(reason, time.monotonic())
        self._driver.run()

    def leave_registrar(self, reason: str) -> None:
        """Register at another registrar; nothing happens while there is no registration."""
        self._machine.leave_registrar(reason, time.monotonic())
        self._driver.run()

    def retry(self) -> None:
        """Make the next attempt at once, after a rejection whose cause is gone, say."""
        self._machine.retry(time.monotonic())
        self._driver.run()

    async def deregister(self, timeout_ms: int = 500) -> bool:
        """Leave the pool; return True when the registrar confirmed it."""
        self._machine.deregister(time.monotonic(), timeout_ms / 1000)
        self._driver.run()
        await self.until_out()
        return self._was_deregistered

    async def until_out(self) -> None:
        """Return when no stay is under way: the pool element was never in, or has left."""
        while self.state not in HAS_LEFT:
            await self._end.wait()

    async def close(self) -> None:
        """Close the socket without a word; the registrar sees the association end and drops the element."""
        self._machine.stop(time.monotonic())
        self._driver.run()

    def _opened(self, port: int) -> None:
        """Register the port of the socket where no other is given: at the start, and when it is replaced."""
        if self._uses_own_port:
            transport = dataclasses.replace(self.element.user_transport, port=port)
            self._machine.element = dataclasses.replace(self.element, user_transport=transport)

    def _happened(self, event: ElementEvent) -> None:
        if event.kind in ENDS:
            self._was_deregistered = event.kind is ElementEventKind.DEREGISTERED
            self._end.set()
            self._end = asyncio.Event()
        if self._on_event:
            self._on_event(event)
