"""A pool element's registration, without sockets and clocks (RFC 5352, sections 2.2 and 3).

`PoolElementMachine` is told what happened, and `take_actions` says what is to be done. Associations are the
numbers that the SCTP socket gives them; an endpoint is the other side's (IP address, port).
"""

import dataclasses
from collections.abc import Mapping, Sequence

from rserpool import asap
from rserpool.causes import Cause
from rserpool.errors import RegistrationRejected
from rserpool.parameters import PoolElement
from rserpool.policies import Policy
from rserpool.pool_element_associations import LEAVE_AFTER_S, Associations, Endpoint
from rserpool.pool_element_events import Action, Close, CloseAll, Connect, EventKind, Outbox
from rserpool.pool_element_identity import Identity
from rserpool.pool_element_silence import Silence
from rserpool.pool_element_states import TRANSITIONS, Input, State
from rserpool.registrar_choice import RegistrarAddress, Rotation, preference

CONNECT_TIMEOUT_S = 0.5
RESPONSE_TIMEOUT_S = 0.5
PINNED_RESPONSE_TIMEOUT_S = 2.0
"""A pinned element has no other registrar to turn to: it ends, so a moment's weakness must not count."""
WARY_INTERVAL_S = 0.05
"""How often to renew while a registrar that was left catches up with what it missed."""

_REGISTERED = frozenset({State.REGISTERED, State.RENEWING})
_AWAITED_IN: Mapping[type[asap.AsapMessage], frozenset[State]] = {
    asap.RegistrationResponse: frozenset({State.REGISTERING, State.RENEWING}),
    asap.AsapError: frozenset({State.REGISTERING, State.RENEWING}),
    asap.DeregistrationResponse: frozenset({State.DEREGISTERING}),
}
_DEAF = frozenset({State.IDLE, State.DEREGISTERING, State.STOPPED})


class PoolElementMachine:
    """Keeps one pool element registered at one of `registrars`.

    `pinned`: takeovers are refused; once registered, losing the registrar ends it.
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
        return self.state in _REGISTERED

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

    # What the owner wants

    def start(self, now: float) -> None:
        """Begin to register."""
        if self._move(Input.START):
            self._try_next(now)

    def update_policy(self, policy: Policy, now: float) -> None:
        """Change the policy, and tell the registrar at once."""
        if policy != self.element.policy:
            self.element = dataclasses.replace(self.element, policy=policy)
            self._renew(now)

    def update_registrars(self, registrars: Sequence[RegistrarAddress], now: float) -> None:
        """Use these registrars from now on; move at once, still registered, when ours is none of them."""
        if not registrars:
            raise ValueError("a pool element needs at least one registrar")
        self._rotation.replace(preference(registrars, self.handle, self.element.identifier))
        if self._rotation.at(self._chosen.endpoint) is None:
            if self.state is State.IDLE:
                self._chosen = self._rotation.next(now)
            elif self.state not in _DEAF:
                self._failed(Input.LOST, EventKind.REGISTRAR_LOST, now, "it is no longer configured")

    def register_again(self, reason: str, now: float) -> None:
        """Renew the registration at once."""
        if self.is_registered:
            self._outbox.tell(EventKind.RENEWING, now, self._chosen, reason)
        self._renew(now)

    def deregister(self, now: float, timeout_s: float = RESPONSE_TIMEOUT_S) -> None:
        """Leave the pool; ends STOPPED, with a DEREGISTERED event before if the registrar confirmed."""
        if not self._move(Input.DEREGISTER):
            return
        self._current = self._current if self._current is not None else self._confirmed
        if self.state is State.STOPPED:
            self._stop(now, "it was never registered")
        elif self._current is None:
            self._move(Input.LOST)
            self._stop(now, "there is no registrar to tell")
        else:
            self._timer_s = now + timeout_s
            self._outbox.send(self._current, self._identity.deregistration())

    def stop(self, now: float) -> None:
        """End without a word."""
        if self._move(Input.STOP):
            self._stop(now, "closed")

    # What the socket tells

    def associated(self, association: int, endpoint: Endpoint, now: float) -> None:
        """Take note of a new association, whoever began it."""
        is_stranger = self._rotation.at(endpoint) is None
        if self.state is State.STOPPED or (is_stranger and self._associations.is_full):
            self._outbox.add(Close(association))
            return
        self._associations.add(association, endpoint, now)
        if self.state is State.CONNECTING and self._chosen.endpoint == endpoint:
            self._register_on(association, now)

    def lost(self, association: int, now: float, reason: str = "the association ended") -> None:
        """Take note that an association is gone."""
        self._associations.remove(association)
        if association == self._confirmed:
            self._confirmed = None
        if association != self._current:
            return
        self._current = None
        if self.state is State.DEREGISTERING:
            self._move(Input.LOST)
            self._stop(now, f"the registrar did not confirm the deregistration: {reason}")
        else:
            self._failed(Input.LOST, EventKind.REGISTRAR_LOST, now, reason)

    def connect_failed(self, endpoint: Endpoint, now: float, reason: str) -> None:
        """Take note that no association with this endpoint could be set up."""
        if self.state is State.CONNECTING and self._chosen.endpoint == endpoint:
            self._failed(Input.LOST, EventKind.UNREACHABLE, now, reason)

    def received(self, association: int, message: asap.AsapMessage, now: float) -> None:
        """Take a message; what is late, not for us or out of place is counted and ignored."""
        if self._associations.heard(association, now):
            self._wary_until_s = now + LEAVE_AFTER_S
            self._renew(now)
        if isinstance(message, asap.EndpointKeepAlive) and self._identity.is_asked_by(message):
            self._keep_alive(association, message, now)
        elif association != self._current or not self._is_awaited(message):
            self.ignored += 1
        elif isinstance(message, asap.DeregistrationResponse):
            self._deregistered(message.error, now)
        elif isinstance(message, asap.RegistrationResponse) and not message.rejected:
            self._accepted(association, now)
        elif isinstance(message, asap.RegistrationResponse | asap.AsapError):
            self._rejected(message.error, now)

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

    # Registration

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

    # Keep-alive and takeover

    def _keep_alive(self, association: int, message: asap.EndpointKeepAlive, now: float) -> None:
        ours = association == self._current
        if self.state in _DEAF or (self._pinned and not ours and not message.home):
            self.ignored += 1
            return
        if message.home and not ours and not self._follow(association, now):
            return
        if association == self._current:
            self.home_registrar = message.registrar
            self.silence.kept_alive(now)
        self._outbox.send(association, self._identity.acknowledgement())
        if message.home and not ours:
            self._send_registration(now)

    def _follow(self, association: int, now: float) -> bool:
        """Make the sender of a takeover the registrar in charge, unless it must not be."""
        endpoint = self._associations.endpoint(association)
        registrar = self._rotation.at(endpoint)
        if self._pinned or registrar is None:
            why = "the element is pinned" if self._pinned else "it is none of the configured registrars"
            words = f"{endpoint[0]} port {endpoint[1]}" if endpoint else "an unknown sender"
            words += f" wants to be home, but {why}"
            self._outbox.tell(EventKind.TAKEOVER_REFUSED, now, registrar, words)
            return False
        if not self._move(Input.TAKEN_OVER):
            return False
        self._chosen = registrar
        self._use(association)
        self._outbox.tell(EventKind.TAKEN_OVER, now, self._chosen)
        return True

    # Deregistration and the end

    def _deregistered(self, causes: tuple[Cause, ...], now: float) -> None:
        self._move(Input.DEREGISTERED)
        if causes:
            self._stop(now, "; ".join(cause.explain() for cause in causes))
        else:
            self._outbox.tell(EventKind.DEREGISTERED, now, self._chosen)
            self._stop(now, "deregistered")

    def _stop(self, now: float, reason: str) -> None:
        self._timer_s = self._current = self._confirmed = None
        self._associations.clear()
        self._outbox.tell(EventKind.STOPPED, now, self._chosen, reason)
        self._outbox.add(CloseAll())

    # Helpers

    def _is_awaited(self, message: asap.AsapMessage) -> bool:
        return self.state in _AWAITED_IN.get(type(message), ()) and self._identity.is_answered_by(message)

    def _move(self, what: Input) -> bool:
        target = TRANSITIONS[self.state].get(what)
        if target is None:
            return False
        self.state = target
        return True
