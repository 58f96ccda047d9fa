"""A pool element's registration, kept alive, for asyncio."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Sequence

from rserpool.aio.driver import ASAP, DeadlineTimer, MessageEndpoint
from rserpool.aio.sctp import (
    AssociationFailed,
    AssociationLost,
    AssociationRestarted,
    AssociationUp,
    Notification,
    PathChanged,
    SctpSocket,
    SctpUnavailable,
)
from rserpool.asap import AsapMessage, Registration
from rserpool.machine import element as events
from rserpool.machine.element import Event as Event
from rserpool.machine.element import EventKind as EventKind
from rserpool.machine.element import PoolElementMachine
from rserpool.machine.element import State as State
from rserpool.machine.peer_identity import Endpoint, PeerIdentities
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.parameters import PoolElement, Protocol
from rserpool.policies import Policy
from rserpool.rspregistrar import check_safe

UNKNOWN = ("", 0)
"""Stands for the address of an association that told none before it ended."""


class PoolElementClient:
    """Keeps one pool element registered at one of several registrars until `deregister` or `close`.

    It registers at one registrar, renews the registration every `reregistration_ms`, answers keep-alives,
    follows a takeover by another of `registrars`, and registers at the next one at once when its registrar is
    lost or silent. `element.life_ms` should be three times `reregistration_ms`. `element`'s addresses must be
    among `local_addresses`: a registrar refuses those that are not the association's. A user transport with
    port 0 gets the port of this client's own SCTP socket. `pinned`: takeovers are refused, and after a
    registration was lost nothing is registered again (state STOPPED): whoever pins one makes a new one,
    when it is time. `on_event` is called with each Event; it must not raise, and may call any method here
    that is not async.
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
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._machine = PoolElementMachine(
            registrars, handle, element, reregistration_s=reregistration_ms / 1000, pinned=pinned
        )
        self._ipv6 = any(":" in host for host in (*local_addresses, *(each.host for each in registrars)))
        self._local_addresses = tuple(local_addresses)
        self._on_event = on_event
        self._endpoint: MessageEndpoint[AsapMessage] | None = None
        self._associations: set[int] = set()
        self._identities: PeerIdentities[AsapMessage] = PeerIdentities(each.endpoint for each in registrars)
        self._timer: DeadlineTimer | None = None
        self._stopped: asyncio.Event = asyncio.Event()
        self._was_deregistered = False
        self._is_running = False
        transport = element.user_transport
        self._uses_own_port = transport.protocol is Protocol.SCTP and transport.port == 0

    def start(self) -> None:
        """Begin to register; must run in an event loop.

        Raise SctpUnavailable where there is no SCTP, OSError when an address cannot be bound,
        UnsafeMessageError for a handle or transport that must not be sent.
        """
        check_safe(Registration(self._machine.handle, self._machine.element))
        self._timer = DeadlineTimer(self._advance)
        self._open()
        self._machine.start(time.monotonic())
        self._run()

    @property
    def state(self) -> State:
        """Where the registration stands."""
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
    def confirmed_at_s(self) -> float | None:
        """When (monotonic) a registrar last confirmed the registration; None: never."""
        return self._machine.confirmed_at_s

    @property
    def element(self) -> PoolElement:
        """What is registered, with the policy as last updated."""
        return self._machine.element

    @property
    def local_port(self) -> int:
        """The SCTP port of this element's socket, 0 while there is none."""
        return self._endpoint.port if self._endpoint else 0

    def update_policy(self, policy: Policy) -> None:
        """Change the policy (a new load, say) and tell the registrar at once."""
        self._machine.update_policy(policy, time.monotonic())
        self._run()

    def update_registrars(self, registrars: Sequence[RegistrarAddress]) -> None:
        """Use these registrars from now on; it moves at once when its own is none of them."""
        self._identities.registrars = frozenset(each.endpoint for each in registrars)
        self._machine.update_registrars(registrars, time.monotonic())
        self._run()

    def register_again(self, reason: str) -> None:
        """Renew the registration at once (a look-up missed it, say)."""
        self._machine.register_again(reason, time.monotonic())
        self._run()

    def retry(self) -> None:
        """Make the next attempt at once, after a rejection whose cause is gone, say."""
        self._machine.retry(time.monotonic())
        self._run()

    def leave_registrar(self, reason: str) -> None:
        """Register at another registrar: what the one in charge says is not what the others say.

        It is not chosen, and may not take over, for 10 s; for longer each time, up to a minute.
        """
        self._machine.leave_registrar(reason, time.monotonic())
        self._run()

    def heed_silence(self, is_heeded: bool) -> None:
        """Whether to renew the registration at once when the registrar's keep-alives stop.

        For pools so large that a look-up does not tell whether the element is listed.
        """
        if is_heeded != self._machine.silence.is_heeded:
            self._machine.silence.is_heeded = is_heeded
            self._run()

    async def deregister(self, timeout_ms: int = 500) -> bool:
        """Leave the pool; return True when the registrar confirmed it. Ends in state STOPPED either way."""
        self._machine.deregister(time.monotonic(), timeout_ms / 1000)
        self._run()
        await self._stopped.wait()
        return self._was_deregistered

    async def close(self) -> None:
        """Close the socket without a word; the registrar sees the association end and drops the element."""
        self._machine.stop(time.monotonic())
        self._run()

    # What the socket tells

    def _open(self) -> MessageEndpoint[AsapMessage]:
        """Open the socket: at the start, and again should it ever fail."""
        self._endpoint = MessageEndpoint(
            ASAP,
            SctpSocket(local_addresses=self._local_addresses, ipv6=self._ipv6, listens=True),
            on_message=self._message,
            on_notification=self._notification,
            on_dead=self._dead,
        )
        transport = self._machine.element.user_transport
        if self._uses_own_port:
            transport = dataclasses.replace(transport, port=self._endpoint.port)
            self._machine.element = dataclasses.replace(self._machine.element, user_transport=transport)
        return self._endpoint

    def _message(self, association: int, message: AsapMessage, _source: Endpoint) -> None:
        if association not in self._associations:
            self._up(association, None)
        if self._identities.is_held(association):
            self._identities.keep(association, message)
        else:
            self._machine.received(association, message, time.monotonic())
        self._run()

    def _notification(self, notification: Notification) -> None:
        now = time.monotonic()
        match notification:
            case AssociationUp(association, peer):
                self._up(association, peer)
            case AssociationRestarted(association, peer):
                self._down(association, "the registrar started anew")
                self._up(association, peer)
            case PathChanged(association) if self._identities.is_held(association):
                self._up(association, None)
            case AssociationLost(association, _, reason):
                self._down(association, reason)
            case AssociationFailed(_, peer):
                self._machine.connect_failed(peer, now, "no answer, or refused")
        self._run()

    def _up(self, association: int, primary: Endpoint | None) -> None:
        """Introduce the other side by the address that is configured, should it have several; as long as a
        registrar's address is only claimed, not at all."""
        if self._endpoint is None:
            return
        self._associations.add(association)
        now = time.monotonic()
        registrar = self._identities.registrar(self._endpoint, association, primary)
        if registrar is None and self._identities.hold(self._endpoint, association, now):
            return
        self._machine.associated(association, registrar or primary or UNKNOWN, now)
        for message in self._identities.release(association):
            self._machine.received(association, message, now)

    def _down(self, association: int, reason: str) -> None:
        self._associations.discard(association)
        self._identities.release(association)
        self._machine.lost(association, time.monotonic(), reason)

    def _abort(self, association: int, reason: str) -> None:
        """End an association that claims a registrar's address without proof."""
        if self._endpoint:
            self._endpoint.abort_association(association)
        self._down(association, reason)

    def _dead(self, reason: str) -> None:
        self._endpoint = None
        for association in tuple(self._associations):
            self._down(association, f"the SCTP socket failed: {reason}")
        self._run()

    # What the machine asks for

    def _advance(self) -> None:
        if self._endpoint:
            self._endpoint.read_waiting()
        now = time.monotonic()
        for association in self._identities.due(now):
            self._abort(association, "it did not prove a registrar's address")
        self._machine.advance(now)
        self._run()

    def _run(self) -> None:
        """Do what the machine asks for; doing it may ask for more."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while actions := self._machine.take_actions():
                for action in actions:
                    self._do(action)
        finally:
            self._is_running = False
        if self._timer:
            deadlines = (self._machine.next_deadline_s, self._identities.next_deadline_s)
            self._timer.set(min((one for one in deadlines if one is not None), default=None))

    def _do(self, action: events.Action) -> None:
        match action:
            case events.Connect(registrar):
                self._connect(registrar)
            case events.Send(association, message):
                if self._endpoint:
                    self._endpoint.send(association, message)
            case events.Close(association):
                if self._endpoint:
                    self._endpoint.close_association(association)
            case events.CloseAll():
                if self._endpoint:
                    self._endpoint.close()
                self._endpoint = None
                self._stopped.set()
            case events.Tell(event):
                self._was_deregistered |= event.kind is EventKind.DEREGISTERED
                if self._on_event:
                    self._on_event(event)

    def _connect(self, registrar: RegistrarAddress) -> None:
        try:
            endpoint = self._endpoint or self._open()
            for one in self._identities.pretenders(endpoint, tuple(self._associations), registrar.endpoint):
                self._abort(one, f"it claims to be registrar {registrar}, which is to be reached")
            endpoint.connect(registrar.endpoint)
        except (OSError, SctpUnavailable) as problem:
            self._machine.connect_failed(registrar.endpoint, time.monotonic(), str(problem))
