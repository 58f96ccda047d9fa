"""`via = "sctp"`: what clients send to a pool's front goes to the member's ppe-agent, embedded in SCTP.

`Channels` has the associations, one with each ppe-agent, made when there is something to send. nftables
redirects a front's UDP datagrams to its `DatagramFront`, and its TCP connections to `ppu_agent.relay`. The
messages are those of data channels in `rserpool`.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final

from daemon_kit.errors import FatalError

from ppu_agent.destinations import Address, Destination
from ppu_agent.kernel.datagrams import Ancillary, RedirectedDatagrams, Source
from ppu_agent.relay import RelayLimits
from ppu_agent.status_model import ChannelStatus
from rserpool import (
    MAX_DATAGRAM_BYTES,
    AssociationFailed,
    AssociationLost,
    AssociationUp,
    DataChannels,
    DataMessage,
    DataMessageType,
    Notification,
)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CLIENT_IDLE_S: Final = 180.0
"""A client that sends and gets no datagram for so long is forgotten."""
MOST_WAITING: Final = 64
"""Datagrams that wait for an association; of more the oldest are dropped, as a network does."""


@dataclass(slots=True)
class _Peer:
    """The ppe-agent of one member: its association once that is up, and what waits for it."""

    association: int | None = None
    is_wanted: bool = False
    used_at_s: float = 0.0
    waiting: deque[DataMessage] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    is_up: asyncio.Event = field(default_factory=asyncio.Event)


class Channels:
    """Associations with the ppe-agents of members, at this SCTP port of theirs.

    `on_datagram` gets each datagram that comes back, with the server's address and the flow.
    """

    def __init__(self, on_datagram: Callable[[Address, int, bytes], None], *, ipv6: bool) -> None:
        self._on_datagram = on_datagram
        self.has_v6 = ipv6
        """Whether members may have IPv6 addresses."""
        self._channels: DataChannels | None = None
        self._peers: dict[tuple[Address, int], _Peer] = {}
        self._numbers = itertools.count(1)
        self._passing: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Open the socket. Raises FatalError, SctpUnavailable."""
        try:
            self._channels = DataChannels(on_message=self._take, on_change=self._changed, ipv6=self.has_v6)
        except OSError as problem:
            raise FatalError(f"via: no SCTP socket: {problem.strerror}") from None

    async def close(self) -> None:
        """End every association."""
        if self._channels is not None:
            self._channels.close()
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def describe(self) -> list[ChannelStatus]:
        """For status."""
        return [
            {"address": str(address), "port": port, "up": peer.association is not None}
            for (address, port), peer in self._peers.items()
        ]

    async def open(self, server: Destination, port: int) -> Streams:
        """A TCP connection to a server through its ppe-agent at this SCTP port. Raises OSError."""
        peer = self._reached(server.address, port)
        await peer.is_up.wait()
        if self._channels is None or peer.association is None:
            raise ConnectionError("the association could not be set up")
        number = next(self._numbers) % 2**32
        if not self._channels.send(peer.association, DataMessage(DataMessageType.OPEN, number, server.port)):
            raise ConnectionError("the association has no room")
        passing = self._channels.begin(peer.association, number)
        inner, outer = socket.socketpair()
        task = asyncio.create_task(passing.run(*await asyncio.open_connection(sock=inner)))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        return await asyncio.open_connection(sock=outer)

    def send(self, server: Destination, port: int, flow: int, data: bytes) -> None:
        """Send a datagram to a server, at once or when its association is up."""
        peer = self._reached(server.address, port)
        message = DataMessage(DataMessageType.DATAGRAM, flow, server.port, data)
        if self._channels is not None and peer.association is not None:
            self._channels.send(peer.association, message)
        else:
            peer.waiting.append(message)

    def died(self, server: Destination) -> None:
        """A member's host has no server any more: the association with its ppe-agent ends."""
        for (address, _), peer in list(self._peers.items()):
            if address == server.address and peer.association is not None and self._channels is not None:
                self._channels.end(peer.association)
                self._lost(peer)

    def tidy(self, idle_s: float) -> None:
        """End the associations that no flow has, and that nothing used for so long."""
        if self._channels is None:
            return
        busy = self._channels.busy_associations
        for peer in list(self._peers.values()):
            if peer.association is None or peer.association in busy:
                continue
            if _now() - peer.used_at_s > idle_s:
                self._channels.end(peer.association)
                self._lost(peer)

    def _reached(self, address: Address, port: int) -> _Peer:
        peer = self._peers.setdefault((address, port), _Peer())
        peer.used_at_s = _now()
        if peer.association is None and not peer.is_wanted and self._channels is not None:
            peer.is_wanted = True
            peer.is_up.clear()
            try:
                self._channels.endpoint.connect((str(address), port))
            except OSError:
                self._lost(peer)
        return peer

    def _changed(self, notification: Notification) -> None:
        match notification:
            case AssociationUp(association):
                for host, port in self._peers_of(association, notification.peer):
                    peer = self._peers.get((ip_address(host), port))
                    if peer is not None:
                        self._up(peer, association)
            case AssociationLost(association):
                for peer in list(self._peers.values()):
                    if peer.association == association:
                        self._lost(peer)
            case AssociationFailed(_, (host, port)):
                for key, peer in list(self._peers.items()):
                    if not host or key == (ip_address(host), port):
                        self._lost(peer)

    def _peers_of(self, association: int, peer: tuple[str, int]) -> list[tuple[str, int]]:
        others = self._channels.endpoint.peers(association) if self._channels is not None else []
        return [peer, *(one for one in others if one != peer)]

    def _up(self, peer: _Peer, association: int) -> None:
        peer.association = association
        peer.is_wanted = False
        peer.is_up.set()
        while peer.waiting and self._channels is not None:
            self._channels.send(association, peer.waiting.popleft())

    def _lost(self, peer: _Peer) -> None:
        """What waits for the association is told, and drops its request."""
        for key in [key for key, one in self._peers.items() if one is peer]:
            del self._peers[key]
        peer.association = None
        peer.is_wanted = False
        peer.waiting.clear()
        peer.is_up.set()

    def _take(self, association: int, message: DataMessage, _source: tuple[str, int]) -> None:
        if message.type is not DataMessageType.DATAGRAM:
            return
        for (address, _), peer in self._peers.items():
            if peer.association == association:
                peer.used_at_s = _now()
                self._on_datagram(address, message.flow, message.data)
                return


@dataclass(slots=True)
class _Client:
    """Who sends datagrams to a front, where they go, and what has answers come from the address it asked."""

    source: Source
    address: Address
    server: Destination
    flow: int
    told: Ancillary
    used_at_s: float = 0.0


class DatagramFront:
    """Takes the datagrams to one front. `choose` says where a client's datagrams go, `send` sends them there.

    `numbers` are those of flows, of all fronts.
    """

    def __init__(
        self,
        front: Destination,
        choose: Callable[[Destination, Address], Destination | None],
        send: Callable[[Destination, Destination, int, bytes], None],
        numbers: Iterator[int],
        limits: RelayLimits,
    ) -> None:
        self.front = front
        self.limits = limits
        self._choose = choose
        self._send = send
        self._clients: OrderedDict[Source, _Client] = OrderedDict()
        self._of_address: dict[Address, OrderedDict[Source, _Client]] = {}
        self._by_flow: dict[int, _Client] = {}
        self._numbers = numbers
        self._datagrams = RedirectedDatagrams(f"a socket for {front}", MAX_DATAGRAM_BYTES, self._take)

    @property
    def port(self) -> int:
        """The UDP port, once it was started."""
        return self._datagrams.port

    def start(self) -> None:
        """Open the socket. Raises FatalError."""
        self._datagrams.start()

    def close(self) -> None:
        """Take nothing any more; safe to repeat."""
        self._datagrams.close()

    def died(self, server: Destination) -> None:
        """A server died, by whatever transport it was registered: its clients' datagrams go elsewhere."""
        for client in [one for one in self._clients.values() if one.server.endpoint == server.endpoint]:
            self._forget(client)

    def answer(self, address: Address, flow: int, data: bytes) -> None:
        """A datagram came back from a server."""
        client = self._by_flow.get(flow)
        if client is not None and client.server.address == address:
            client.used_at_s = _now()
            self._datagrams.answer(data, client.told, client.source)

    def tidy(self) -> None:
        """Forget the clients that are idle."""
        for client in list(self._clients.values()):
            if _now() - client.used_at_s > CLIENT_IDLE_S:
                self._forget(client)

    def _take(self, data: bytes, told: Ancillary, source: Source) -> None:
        client = self._clients.get(source) or self._begun(source)
        if client is not None:
            self._clients.move_to_end(source)
            self._of_address[client.address].move_to_end(source)
            client.told, client.used_at_s = told, _now()
            self._send(self.front, client.server, client.flow, data)

    def _begun(self, source: Source) -> _Client | None:
        address: Address = ip_address(source[0].partition("%")[0])
        if isinstance(address, IPv6Address):
            address = address.ipv4_mapped or address
        server = self._choose(self.front, address)
        if server is None:
            return None
        flow = (next(self._numbers) % 2**16) << 16 | source[1]
        if flow in self._by_flow:
            self._forget(self._by_flow[flow])
        client = _Client(source, address, server, flow, [])
        self._clients[source] = self._by_flow[flow] = client
        own = self._of_address.setdefault(address, OrderedDict())
        own[source] = client
        most = self.limits.clients
        if len(own) > most * self.limits.share and len(own) > self.limits.allowed(most, address):
            self._forget(next(iter(own.values())))
        elif len(self._clients) > most:
            self._forget(next(iter(self._clients.values())))
        return client

    def _forget(self, client: _Client) -> None:
        del self._clients[client.source]
        del self._by_flow[client.flow]
        own = self._of_address[client.address]
        del own[client.source]
        if not own:
            del self._of_address[client.address]


def _now() -> float:
    return asyncio.get_running_loop().time()
