"""A model of rspregistrar 3.4, on real messages, with the timers of docs/reference/registrar-timers.md.

Kept: elements that live as long as their association and their keep-alives, the life of foreign ones, every
registration passed on at once, deletions obeyed from anybody, the mentor at the start ("not found" until
then), presences with checksums, the request for the owner's table where one does not fit, the search for
silent peers, and the takeover that needs every peer's acknowledgement (`registrar_peers`). Left out: policies
(it lists all elements), the gate, announcements, the end of idle associations after 300 s.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from rserpool import (
    AssociationLost,
    AssociationUp,
    Deregistration,
    DeregistrationResponse,
    EndpointKeepAlive,
    EndpointKeepAliveAck,
    HandleResolution,
    HandleTableRequest,
    HandleTableResponse,
    HandleUpdate,
    PoolElement,
    Presence,
    Protocol,
    RegistrarAddress,
    Registration,
    RegistrationResponse,
    SctpMessage,
    ServerInformation,
    Transport,
    UpdateAction,
    asap,
    enrp,
    fresh_identifier,
)
from rspdns_lab.simulate.handlespace import KnownElements, KnownKey
from rspdns_lab.simulate.registrar_peers import RegistrarPeers
from rspdns_lab.simulate.sctp_socket import SctpAddress, SimulatedSctpSocket, next_news, send_quietly

KEEP_ALIVE_S, KEEP_ALIVE_TIMEOUT_S = 0.3, 0.5
HEARTBEAT_S: Final = 1.0
MENTOR_S: Final = 5.0
"""How long it looks for a peer at its start."""
MENTOR_ASKED_EVERY_S: Final = 0.15
_decoded, _decoded_enrp = lru_cache(256)(asap.decode), lru_cache(256)(enrp.decode)
"""The same questions and presences come again and again."""


class RegistrarModel:
    """One life of a registrar; made in its process. `peers` are those that it was given."""

    def __init__(
        self,
        own: RegistrarAddress,
        peers: Sequence[RegistrarAddress],
        loop: asyncio.AbstractEventLoop,
        on_ready: Callable[[], object],
    ) -> None:
        self.identifier = fresh_identifier()
        self.is_ready = False
        self._loop = loop
        self._on_ready = on_ready
        self._given = tuple(peer.enrp_endpoint for peer in peers)
        self._handlespace = KnownElements(loop)
        self._peers = RegistrarPeers(self.identifier, loop, self._say_to, self._presence, self._take_over)
        self._taking: dict[SctpAddress, list[KnownKey]] = {}
        """Elements that are to be told of their new home as soon as there is an association."""
        transport = Transport(Protocol.SCTP, own.enrp_port, (ip_address(own.host),))
        self._server = ServerInformation(self.identifier, transport)
        self._asap = SimulatedSctpSocket(local_addresses=(own.host,), port=own.asap_port, listens=True)
        self._enrp = SimulatedSctpSocket(local_addresses=(own.host,), port=own.enrp_port, listens=True)
        self._asap.answer_at_once = self._answer_to_question
        self._waiting: dict[SctpAddress, bytes] = {}
        """The last message to each peer with whom an association is being set up."""
        loop.add_reader(self._asap.fileno(), self._read_asap)
        loop.add_reader(self._enrp.fileno(), self._read_enrp)
        self._mentor: int | None = None
        loop.call_later(MENTOR_S, self._ready)
        self._look_for_mentor()
        self._heartbeat()

    def is_home_of(self, address: str) -> bool:
        """Whether it keeps an element at this address alive."""
        return self._handlespace.has_at(address, self.identifier)

    # The start

    def _look_for_mentor(self) -> None:
        if self.is_ready:
            return
        if self._mentor is None:
            for endpoint in self._given:
                self._say_to(endpoint, self._presence(0, True))
        self._loop.call_later(MENTOR_ASKED_EVERY_S, self._look_for_mentor)

    def _ready(self) -> None:
        if not self.is_ready:
            self.is_ready = True
            self._on_ready()
            for peer in self._peers:
                self._peers.say(peer, self._presence(peer))

    # ASAP

    def _read_asap(self) -> None:
        match news := next_news(self._asap):
            case AssociationUp(association, peer):
                for key in self._taking.pop(peer, ()):
                    self._tell_home(key, association)
            case AssociationLost(association):
                for key, known in tuple(self._handlespace.elements.items()):
                    if known.association == association:
                        self._remove(key)
            case SctpMessage():
                self._asked(news.association, _decoded(news.data), news.peer)

    def _asked(self, association: int, message: asap.AsapMessage, source: SctpAddress) -> None:
        match message:
            case Registration(handle, element):
                host, port = source
                channel = Transport(Protocol.SCTP, port, (ip_address(host),))
                mine = dataclasses.replace(element, home_registrar=self.identifier, asap_transport=channel)
                entry = self._handlespace.put((handle, element.identifier), mine)
                if entry.association != association:
                    entry.association, entry.is_acquainted = association, False
                if entry.timer is None:
                    entry.timer = self._loop.call_later(
                        KEEP_ALIVE_S, self._keep_alive, (handle, mine.identifier)
                    )
                self._answer(association, RegistrationResponse(handle, element.identifier))
                self._tell(UpdateAction.ADD, handle, mine)
            case Deregistration(handle, identifier):
                if (handle, identifier) in self._handlespace.elements:
                    self._remove((handle, identifier))
                self._answer(association, DeregistrationResponse(handle, identifier))
            case EndpointKeepAliveAck(handle, identifier):
                key = handle, identifier
                kept = self._handlespace.elements.get(key)
                if kept is not None and kept.element.home_registrar == self.identifier:
                    kept.association, kept.is_acquainted = association, True
                    self._handlespace.set_timer(kept, KEEP_ALIVE_S, self._keep_alive, key)
            case HandleResolution(handle):
                send_quietly(self._asap, association, asap.PPID, self._handlespace.answer(handle))

    def _answer_to_question(self, data: bytes) -> bytes | None:
        message = _decoded(data)
        return self._handlespace.answer(message.handle) if isinstance(message, HandleResolution) else None

    def _answer(self, association: int, message: asap.AsapMessage) -> None:
        send_quietly(self._asap, association, asap.PPID, asap.encode(message))

    # Elements

    def _remove(self, key: KnownKey) -> None:
        """Remove an element, and tell the peers."""
        element = self._handlespace.remove(key)
        self._tell(UpdateAction.DELETE, key[0], dataclasses.replace(element, home_registrar=self.identifier))

    def _keep_alive(self, key: KnownKey, *, home: bool = False) -> None:
        entry = self._handlespace.elements[key]
        association = entry.association
        if entry.is_acquainted and association is not None and self._asap.is_answered_at_once(association):
            self._handlespace.set_timer(entry, KEEP_ALIVE_S, self._keep_alive, key)
            return
        if entry.association is not None:
            self._answer(entry.association, EndpointKeepAlive(self.identifier, key[0], key[1], home))
        self._handlespace.set_timer(entry, KEEP_ALIVE_TIMEOUT_S, self._remove, key)

    def _tell_home(self, key: KnownKey, association: int) -> None:
        entry = self._handlespace.elements.get(key)
        if (
            entry is not None
            and entry.element.home_registrar == self.identifier
            and entry.association is None
        ):
            entry.association = association
            self._keep_alive(key, home=True)

    # ENRP

    def _read_enrp(self) -> None:
        match news := next_news(self._enrp):
            case AssociationUp(association, peer):
                if (data := self._waiting.pop(peer, None)) is not None:
                    send_quietly(self._enrp, association, enrp.PPID, data)
            case SctpMessage():
                self._take_message(_decoded_enrp(news.data), news.association, news.peer)

    def _take_message(self, message: enrp.EnrpMessage, association: int, source: SctpAddress) -> None:
        sender = message.sender
        self._peers.note_message(message)
        match message:
            case Presence():
                self._present(message, sender)
            case HandleTableRequest(own_children_only=own):
                table = self._handlespace.table(self.identifier if own else None)
                reply = HandleTableResponse(self.identifier, sender, table, rejected=not self.is_ready)
                send_quietly(self._enrp, association, enrp.PPID, enrp.encode(reply))
            case HandleTableResponse():
                self._take_table(message)
            case HandleUpdate(action=action, handle=handle, pool_element=element):
                key = handle, element.identifier
                if action is UpdateAction.ADD:
                    self._take_foreign(key, element)
                elif key in self._handlespace.elements:
                    self._handlespace.remove(key)
            case enrp.InitTakeover(target=target):
                if target == self.identifier:
                    for other in self._peers:
                        self._peers.say(other, self._presence(other))
                else:
                    self._peers.yield_to(sender, target)
            case enrp.InitTakeoverAck(target=target):
                self._peers.acknowledged(sender, target)
            case enrp.TakeoverServer(target=target):
                self._peers.forget(target)
                self._handlespace.take_over(target, sender)

    def _present(self, message: Presence, sender: int) -> None:
        self._peers.give_up(sender)
        if message.reply_required:
            self._peers.say(sender, self._presence(sender))
        if not self.is_ready and self._mentor is None and self._peers.endpoint(sender) in self._given:
            self._mentor = sender
            self._peers.say(sender, HandleTableRequest(self.identifier, sender))
        elif self.is_ready and message.checksum != self._handlespace.ownership.checksum(sender):
            self._peers.say(sender, HandleTableRequest(self.identifier, sender, own_children_only=True))

    def _take_table(self, message: HandleTableResponse) -> None:
        if message.rejected:
            if self._mentor == message.sender:
                self._mentor = None
            return
        told = {(pool.handle, each.identifier): each for pool in message.pools for each in pool.pool_elements}
        if self._mentor != message.sender or self.is_ready:  # what its owner owns, and nothing else
            for key, known in tuple(self._handlespace.elements.items()):
                if known.element.home_registrar == message.sender and key not in told:
                    self._handlespace.remove(key)
        for key, element in told.items():
            self._take_foreign(key, element)
        if self._mentor == message.sender:
            self._ready()

    def _take_foreign(self, key: KnownKey, element: PoolElement) -> None:
        if element.home_registrar == self.identifier:
            return  # a memory of a former life, or a lie
        known = self._handlespace.put(key, element)
        self._handlespace.set_timer(known, element.life_ms / 1000, self._handlespace.remove, key)

    def _presence(self, receiver: int, reply_required: bool = False) -> Presence:
        own = self._handlespace.ownership.checksum(self.identifier)
        return Presence(self.identifier, receiver, own, self._server, reply_required)

    def _tell(self, action: UpdateAction, handle: bytes, element: PoolElement) -> None:
        data = enrp.encode(HandleUpdate(self.identifier, 0, action, handle, element))
        for peer in self._peers:
            self._send_to(self._peers.endpoint(peer), data[:8] + peer.to_bytes(4, "big") + data[12:])

    def _say_to(self, endpoint: SctpAddress, message: enrp.EnrpMessage) -> None:
        self._send_to(endpoint, enrp.encode(message))

    def _send_to(self, endpoint: SctpAddress, data: bytes) -> None:
        end = self._enrp.end_to(endpoint)
        if end is not None:
            send_quietly(self._enrp, end.number, enrp.PPID, data)
            return
        self._waiting[endpoint] = data  # an older one would be out of date
        self._enrp.connect(endpoint)

    def _heartbeat(self) -> None:
        known = self._peers.by_endpoint
        for endpoint in dict.fromkeys((*known, *self._given)):
            self._say_to(endpoint, self._presence(known.get(endpoint, 0)))
        self._loop.call_later(HEARTBEAT_S, self._heartbeat)

    def _take_over(self, target: int) -> None:
        self._peers.forget(target)
        for peer in self._peers:
            self._peers.say(peer, enrp.TakeoverServer(self.identifier, peer, target))
        for key in self._handlespace.take_over(target, self.identifier):
            entry = self._handlespace.elements[key]
            self._handlespace.set_timer(entry, KEEP_ALIVE_TIMEOUT_S, self._remove, key)
            channel = entry.element.asap_transport
            if channel is None:
                continue
            endpoint = str(channel.addresses[0]), channel.port
            end = self._asap.end_to(endpoint)
            if end is not None:
                self._tell_home(key, end.number)
            else:
                self._taking.setdefault(endpoint, []).append(key)
                self._asap.connect(endpoint)
