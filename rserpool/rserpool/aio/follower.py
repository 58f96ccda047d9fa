"""Following registrars as a passive ENRP peer, for asyncio: one socket, an association with each."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address

from rserpool.aio.driver import ENRP, DeadlineTimer, MessageEndpoint
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
from rserpool.enrp import EnrpMessage
from rserpool.machine.follower import (
    LEAVE_AT_MOST_S,
    Action,
    Close,
    Connect,
    Ended,
    Event,
    Ownership,
    RegistrarFollower,
    Send,
    Table,
    Update,
    reply_to,
)
from rserpool.machine.follower import State as State
from rserpool.machine.peer_identity import Endpoint, PeerIdentities
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.parameters import Protocol, Transport
from rserpool.rspregistrar import check_transport

MAX_STRANGERS = 64
"""Associations with others than the configured registrars; further ones are closed."""
MAX_OWN_ADDRESSES = 16


class HandlespaceFollower:
    """Follows `registrars`, each from the moment in which `follow` is called for it.

    A registrar must have the handlespace by then (RSerPool's mentor discovery would else choose us, who have
    nothing to give). `on_event` is called with the registrar's place and what it tells; after `Ended` it may
    be followed again, a growing pause is kept. It must not raise. `is_wanted` picks the pools that tables
    tell of. The registrars send their own messages to the port that this socket listens at, should the
    association be gone.
    """

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        on_event: Callable[[int, Event], None],
        *,
        is_wanted: Callable[[bytes], bool] = lambda handle: True,
        local_addresses: Sequence[str] = (),
    ) -> None:
        if len({registrar.enrp_endpoint for registrar in registrars}) < len(registrars):
            raise ValueError("two registrars have the same address and ENRP port")
        self.identifier = 1 + secrets.randbelow(2**32 - 2)
        self._registrars = tuple(registrars)
        self._on_event = on_event
        self._local_addresses = tuple(local_addresses)
        self._ipv6 = any(":" in host for host in (*local_addresses, *(each.host for each in registrars)))
        ownership = Ownership()
        self._followers = [RegistrarFollower(self.identifier, ownership, is_wanted) for _ in registrars]
        self._place_of = {registrar.enrp_endpoint: place for place, registrar in enumerate(registrars)}
        self._identities: PeerIdentities[EnrpMessage] = PeerIdentities(self._place_of)
        self._places: dict[int, int] = {}
        self._strangers: set[int] = set()
        self._endpoint: MessageEndpoint[EnrpMessage] | None = None
        self._timer: DeadlineTimer | None = None
        self._all_left = asyncio.Event()
        self._is_running = False

    def start(self) -> None:
        """Open the socket; must run in an event loop. Raise SctpUnavailable, or OSError."""
        self._timer = DeadlineTimer(self._advance)
        self._open()

    def follow(self, place: int) -> None:
        """Follow the registrar at this place of the list from now on; again and again does no harm."""
        self._followers[place].follow(time.monotonic())
        self._run()

    def ask_for_everything(self) -> None:
        """Ask all that are followed for their whole handle table again (other pools are wanted, say)."""
        for follower in self._followers:
            follower.ask_for_everything(time.monotonic())
        self._run()

    def state(self, place: int) -> State:
        """How far a registrar is followed."""
        return self._followers[place].state

    def problem(self, place: int) -> str:
        """Why a registrar is not followed any more; empty while it is, and before."""
        return self._followers[place].problem

    async def leave(self, timeout_s: float = LEAVE_AT_MOST_S) -> None:
        """Stop following, and return when no registrar waits for us any more: then `close` harms nobody."""
        now = time.monotonic()
        for follower in self._followers:
            follower.leave(now)
        self._run()
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_left.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """Close the socket at once; registrars that were followed last may wait for us for two seconds."""
        for follower in self._followers:
            follower.close()
        if self._timer:
            self._timer.set(None)
        if self._endpoint:
            self._endpoint.close()
        self._endpoint = None

    # What the socket tells

    def _open(self) -> MessageEndpoint[EnrpMessage]:
        self._endpoint = MessageEndpoint(
            ENRP,
            SctpSocket(local_addresses=self._local_addresses, ipv6=self._ipv6, listens=True),
            on_message=self._message,
            on_notification=self._notification,
            on_dead=self._dead,
        )
        return self._endpoint

    def _message(self, association: int, message: EnrpMessage, _source: Endpoint) -> None:
        if association not in self._places and association not in self._strangers:
            self._up(association, None)
        if self._endpoint and (reply := reply_to(message, self.identifier)):
            self._endpoint.send(association, reply)
        place = self._places.get(association)
        if place is not None:
            self._followers[place].received(message, time.monotonic())
        elif self._identities.is_held(association):
            self._identities.keep(association, message)
        self._run()

    def _notification(self, notification: Notification) -> None:
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
                place = self._place_of.get(peer)
                if place is not None:
                    self._followers[place].connect_failed(time.monotonic(), "no answer, or refused")
        self._run()

    def _up(self, association: int, primary: Endpoint | None) -> None:
        if self._endpoint is None:
            return
        now = time.monotonic()
        registrar = self._identities.registrar(self._endpoint, association, primary)
        if registrar is not None:
            place = self._places[association] = self._place_of[registrar]
            self._strangers.discard(association)
            self._followers[place].associated(association, self._own_transport(association), now)
            for message in self._identities.release(association):
                self._followers[place].received(message, now)
        elif association in self._strangers or len(self._strangers) < MAX_STRANGERS:
            self._strangers.add(association)
            self._identities.hold(self._endpoint, association, now)
        else:
            self._endpoint.close_association(association)

    def _down(self, association: int, reason: str) -> None:
        self._strangers.discard(association)
        self._identities.release(association)
        place = self._places.pop(association, None)
        if place is not None:
            self._followers[place].lost(association, time.monotonic(), reason)

    def _abort(self, association: int, reason: str) -> None:
        """End an association that claims a registrar's address without proof."""
        if self._endpoint:
            self._endpoint.abort_association(association)
        self._down(association, reason)

    def _dead(self, reason: str) -> None:
        self._endpoint = None
        for association in (*self._places, *self._strangers):
            self._down(association, f"the SCTP socket failed: {reason}")
        self._run()

    def _own_transport(self, association: int) -> Transport:
        """Where we can be reached: a registrar passes over loopback and link-local addresses."""
        endpoint = self._endpoint
        found = endpoint.locals(association) if endpoint else []
        addresses = [ip_address(host) for host, _ in found]
        usable = [one for one in addresses if not one.is_loopback and not one.is_link_local] or addresses
        port = endpoint.port if endpoint else 0
        transport = Transport(Protocol.SCTP, port, tuple(dict.fromkeys(usable))[:MAX_OWN_ADDRESSES])
        check_transport(transport)
        return transport

    # What the followers ask for

    def _advance(self) -> None:
        if self._endpoint:
            self._endpoint.read_waiting()
        now = time.monotonic()
        for association in self._identities.due(now):
            self._abort(association, "it did not prove a registrar's address")
        for follower in self._followers:
            follower.advance(now)
        self._run()

    def _run(self) -> None:
        """Do what the followers ask for; doing it may ask for more."""
        if self._is_running:
            return
        self._is_running = True
        try:
            busy = True
            while busy:
                busy = False
                for place, follower in enumerate(self._followers):
                    for action in follower.take_actions():
                        busy = True
                        self._do(place, action)
        finally:
            self._is_running = False
        if all(follower.state is State.LEFT for follower in self._followers):
            self._all_left.set()
        if self._timer:
            deadlines = [self._identities.next_deadline_s]
            deadlines += [follower.next_deadline_s for follower in self._followers]
            self._timer.set(min((one for one in deadlines if one is not None), default=None))

    def _do(self, place: int, action: Action) -> None:
        match action:
            case Connect():
                self._connect(place)
            case Send(association, message):
                if self._endpoint:
                    self._endpoint.send(association, message)
            case Close(association):
                if self._endpoint:
                    self._endpoint.close_association(association)
            case Table() | Update() | Ended():
                self._on_event(place, action)

    def _connect(self, place: int) -> None:
        registrar = self._registrars[place]
        try:
            endpoint = self._endpoint or self._open()
            known = (*self._places, *self._strangers)
            for one in self._identities.pretenders(endpoint, known, registrar.enrp_endpoint):
                self._abort(one, f"it claims to be registrar {registrar}, which is to be reached")
            endpoint.connect(registrar.enrp_endpoint)
        except (OSError, SctpUnavailable) as problem:
            self._followers[place].connect_failed(time.monotonic(), str(problem))
