"""A pool element's registration, without sockets and clocks (RFC 5352, sections 2.2 and 3).

`PoolElementMachine` is told what happened, and `take_actions` says what is to be done. Associations are the
numbers that the SCTP socket gives them; an endpoint is the other side's (IP address, port).
"""

import dataclasses
from collections.abc import Sequence

from rserpool import asap
from rserpool.errors import Cause
from rserpool.policies import Policy
from rserpool.pool_element_associations import LEAVE_AFTER_S, Endpoint
from rserpool.pool_element_events import Close, EventKind
from rserpool.pool_element_registering import RESPONSE_TIMEOUT_S, Registering
from rserpool.pool_element_states import AWAITED_IN, DEAF, Input, State
from rserpool.registrar_choice import RegistrarAddress, preference


class PoolElementMachine(Registering):
    """Keeps one pool element registered at one of `registrars`.

    `pinned`: takeovers are refused; once registered, losing the registrar ends it.
    """

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
            elif self.state not in DEAF:
                self._failed(Input.LOST, EventKind.REGISTRAR_LOST, now, "it is no longer configured")

    def retry(self, now: float) -> None:
        """Make the next attempt at once, after a rejection whose cause is gone, say."""
        if self.state is State.WAITING:
            self._timer_s = now
            self.advance(now)

    def leave_registrar(self, reason: str, now: float) -> None:
        """Register at another registrar, and let the one in charge not take over for a while."""
        if self.is_registered and not self._pinned:
            self._rotation.distrust(self._chosen, now)
            self._failed(Input.LOST, EventKind.REGISTRAR_LEFT, now, reason)

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

    # Keep-alive and takeover

    def _keep_alive(self, association: int, message: asap.EndpointKeepAlive, now: float) -> None:
        ours = association == self._current
        if self.state in DEAF or (self._pinned and not ours and not message.home):
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
        is_distrusted = registrar is not None and self._rotation.is_distrusted(registrar, now)
        if self._pinned or registrar is None or is_distrusted:
            why = "the element is pinned" if self._pinned else "it is none of the configured registrars"
            if is_distrusted:
                why = "it was left a short time ago"
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

    # Helpers

    def _is_awaited(self, message: asap.AsapMessage) -> bool:
        return self.state in AWAITED_IN.get(type(message), ()) and self._identity.is_answered_by(message)
