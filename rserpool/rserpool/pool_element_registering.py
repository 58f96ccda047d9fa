"""A pool element's way into its pool and from registrar to registrar, without sockets and clocks.

`Registering` registers, renews, and goes to the next registrar when one fails or refuses (RFC 5352, sections
2.2.1 and 3.1). What owner, socket and registrars begin is `pool_element`'s.
"""

from collections.abc import Sequence

from rserpool import asap
from rserpool.errors import Cause, RegistrationRejected
from rserpool.parameters import PoolElement
from rserpool.pool_element_associations import Associations
from rserpool.pool_element_events import Action, Close, CloseAll, Connect, EventKind, Outbox
from rserpool.pool_element_identity import Identity
from rserpool.pool_element_silence import Silence
from rserpool.pool_element_states import IS_REGISTERED, TRANSITIONS, Input, State
from rserpool.registrar_choice import RegistrarAddress, Rotation, preference

CONNECT_TIMEOUT_S = 0.5
RESPONSE_TIMEOUT_S = 0.5
PINNED_RESPONSE_TIMEOUT_S = 2.0
"""A pinned element has no other registrar to turn to: it ends, so a moment's weakness must not count."""
WARY_INTERVAL_S = 0.05
"""How often to renew while a registrar that was left catches up with what it missed."""


class Registering:
    """Gets one pool element registered at one of `registrars`, and again.

    `pinned`: once registered, losing the registrar ends it.
    """

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        handle: bytes,
        element: PoolElement,
        *,
        reregistration_s: float = 2.0,
        pinned: bool = False,
    ) -> None:
        if not registrars:
            raise ValueError("a pool element needs at least one registrar")
        self.handle = handle
        self.element = element
        self._identity = Identity(handle, element.identifier)
        self.state = State.IDLE
        self.ignored = 0
        """Messages that were not for us, late, or out of place."""
        self.home_registrar: int | None = None
        """The identifier of the registrar in charge, known from its first keep-alive on."""
        self.confirmed_at_s: float | None = None
        """When a registrar last confirmed the registration."""
        self.silence = Silence()
        """Of the registrar in charge; when it is heeded, a silent one is registered at again."""
        self._rotation = Rotation(preference(registrars, handle, element.identifier))
        self._reregistration_s = reregistration_s
        self._pinned = pinned
        self._outbox = Outbox()
        self._associations = Associations()
        self._chosen = self._rotation.next(0.0)
        self._current: int | None = None
        self._confirmed: int | None = None
        self._renew_again = False
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

    @property
    def next_deadline_s(self) -> float | None:
        """When `advance` has something to do; None: not before something else happens."""
        silent_s = self.silence.deadline_s if self.state is State.REGISTERED else None
        timers = (self._timer_s, self._associations.next_deadline_s, silent_s)
        return min((timer for timer in timers if timer is not None), default=None)

    def take_actions(self) -> list[Action]:
        """Return what is to be done, in order, and forget it."""
        return self._outbox.take()

    def register_again(self, reason: str, now: float) -> None:
        """Renew the registration at once."""
        if self.is_registered:
            self._outbox.tell(EventKind.RENEWING, now, self._chosen, reason)
        self._renew(now)

    def advance(self, now: float) -> None:
        """Do what is due."""
        for association in self._associations.due(now):
            self._outbox.add(Close(association))
        if self.state is State.REGISTERED and self.silence.take_due(now):
            self.register_again("its keep-alives have stopped", now)
        if self._timer_s is None or now < self._timer_s:
            return
        self._timer_s = None
        if self.state is State.REGISTERED:
            self._renew(now)
        elif self.state is State.WAITING:
            if self._move(Input.RETRY):
                self._try_next(now)
        elif self.state is State.CONNECTING:
            self._failed(Input.TIMEOUT, EventKind.UNREACHABLE, now, "no association in time")
        elif self.state is State.DEREGISTERING:
            self._move(Input.TIMEOUT)
            self._stop(now, "the registrar did not confirm the deregistration in time")
        else:
            self._failed(Input.TIMEOUT, EventKind.UNANSWERED, now, "no answer to the registration in time")

    def _try_next(self, now: float) -> None:
        """Go to the best registrar there is; the state is CONNECTING."""
        self._chosen = chosen = self._rotation.next(now)
        association = self._associations.to(chosen.endpoint)
        if association is not None:
            self._register_on(association, now)
        else:
            self._timer_s = now + CONNECT_TIMEOUT_S
            self._outbox.add(Connect(chosen))

    def _register_on(self, association: int, now: float) -> None:
        self._move(Input.ASSOCIATED)
        self._use(association)
        self._send_registration(now)

    def _use(self, association: int) -> None:
        if association != self._current:
            self.home_registrar = None
            self.silence.begin_anew()
        self._current = association
        self._associations.keep(association)

    def _send_registration(self, now: float) -> None:
        assert self._current is not None  # noqa: S101 - every caller has just set it
        self._renew_again = False
        self._timer_s = now + (PINNED_RESPONSE_TIMEOUT_S if self._pinned else RESPONSE_TIMEOUT_S)
        self._outbox.send(self._current, asap.Registration(self.handle, self.element))

    def _renew(self, now: float) -> None:
        if self._move(Input.RENEW):
            self._send_registration(now)
        else:
            self._renew_again = True

    def _rejected(self, causes: tuple[Cause, ...], now: float) -> None:
        wait_s = self._rotation.rejected(self._chosen, now)
        words = f"{RegistrationRejected(causes)}; next attempt in {wait_s:.0f} s"
        self._move(Input.REJECTED)
        self._outbox.tell(EventKind.REJECTED, now, self._chosen, words, causes)
        self._wait(now, wait_s)

    def _accepted(self, association: int, now: float) -> None:
        is_news = self._confirmed != association
        self._move(Input.ACCEPTED)
        self._rotation.succeeded()
        self._confirmed = association
        self.confirmed_at_s = now
        self.silence.confirmed(now)
        self._timer_s = now + (WARY_INTERVAL_S if now < self._wary_until_s else self._reregistration_s)
        for left in self._associations.leave_others(association, now):
            # Frozen, it answers when it wakes: that is the moment at which it may remove us everywhere.
            self._outbox.send(left, asap.HandleResolution(self.handle, 1))
        if is_news:
            self._outbox.tell(EventKind.REGISTERED, now, self._chosen)
        if self._renew_again:
            self._renew(now)

    def _failed(self, what: Input, kind: EventKind, now: float, reason: str) -> None:
        """Leave the registrar for the next one: at once, unless all failed in a row."""
        was_registered = self.is_registered
        if not self._move(what):
            return
        self._outbox.tell(kind, now, self._chosen, reason)
        if self._pinned and was_registered:
            self._move(Input.STOP)
            self._stop(now, f"pinned to a registrar that is gone: {reason}")
            return
        self._wait(now, self._rotation.failed(self._chosen, now))

    def _wait(self, now: float, wait_s: float) -> None:
        self._current = None
        self._timer_s = now + wait_s
        if wait_s <= 0:
            self.advance(now)

    def _stop(self, now: float, reason: str) -> None:
        self._timer_s = self._current = self._confirmed = None
        self._associations.clear()
        self._outbox.tell(EventKind.STOPPED, now, self._chosen, reason)
        self._outbox.add(CloseAll())

    def _move(self, what: Input) -> bool:
        target = TRANSITIONS[self.state].get(what)
        if target is None:
            return False
        self.state = target
        return True
