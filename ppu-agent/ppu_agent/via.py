"""`via = "sctp"`: what clients send to a pool's front goes to the member's ppe-agent, embedded in SCTP.

`Channels` has the associations, one with each ppe-agent, made when there is something to send. nftables
redirects a front's UDP datagrams to its `DatagramFront`, and its TCP connections to `ppu_agent.relay`. The
messages are those of data channels in `rserpool`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

from ppu_agent.destinations import Address, Destination
from ppu_agent.kernel.datagrams import Ancillary, RedirectedDatagrams, Source
from ppu_agent.relay import RelayLimits, StreamPair
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
    check_available,
)

_Key = tuple[Address, int]
"""Address and SCTP port of a ppe-agent."""

CLIENT_IDLE_S: Final = 180.0
"""A client that sends and gets no datagram for this time is forgotten."""
MOST_WAITING: Final = 64
"""Datagrams that wait for an association; of more the oldest are dropped, as a network does."""


class _Channel:
    """The ppe-agent at one address: a socket for it alone, the association, and what waits for that.

    A ppe-agent may list others' addresses as its own (RFC 9260, section 5.4). An association stands for the
    address that it was begun with, which a handshake proves; the others are paths at most. SCTP allows one
    association for each pair of addresses and ports: the socket's own port keeps a false claim from standing
    in the way of the true owner's association.
    """

    def __init__(
        self,
        key: _Key,
        on_datagram: Callable[[Address, int, bytes], None],
        on_lost: Callable[[_Channel], None],
        *,
        ipv6: bool,
    ) -> None:
        """Begin the association. Raises OSError."""
        self.key = key
        self.association: int | None = None
        self.used_at_s = _now()
        self.settled = asyncio.Event()
        """The association is up, or lost."""
        self._waiting: deque[DataMessage] = deque(maxlen=MOST_WAITING)
        self._on_datagram = on_datagram
        self._on_lost = on_lost
        self.channels = DataChannels(
            on_message=self._take, on_change=self._changed, on_dead=self._lost, ipv6=ipv6
        )
        try:
            self.channels.endpoint.connect((str(key[0]), key[1]))
        except OSError:
            self.channels.close()
            raise

    def send(self, message: DataMessage) -> None:
        """Send a datagram at once, or when the association is up."""
        if self.association is not None:
            self.channels.send(self.association, message)
        else:
            self._waiting.append(message)

    def end(self) -> None:
        """End the association and its flows at once; safe to repeat. Messages that wait for it are
        dropped."""
        if self.association is not None:
            self.channels.end(self.association)
            self.association = None
        self.channels.close()
        self._waiting.clear()
        self.settled.set()

    def _changed(self, notification: Notification) -> None:
        match notification:
            case AssociationUp(association):
                self.association = association
                self.settled.set()
                while self._waiting:
                    self.channels.send(association, self._waiting.popleft())
            case AssociationLost() | AssociationFailed():
                self._lost()

    def _lost(self) -> None:
        self.association = None
        self._on_lost(self)

    def _take(self, association: int, message: DataMessage, _source: tuple[str, int]) -> None:
        if association == self.association and message.type is DataMessageType.DATAGRAM:
            self.used_at_s = _now()
            self._on_datagram(self.key[0], message.flow, message.data)


class Channels:
    """Associations with the ppe-agents of members.

    `on_datagram` gets each datagram that comes back, with the server's address and the flow.
    """

    def __init__(self, on_datagram: Callable[[Address, int, bytes], None], *, ipv6: bool) -> None:
        self.has_v6 = ipv6
        """Whether new associations use IPv6 addresses, too."""
        self._on_datagram = on_datagram
        self._channels: dict[_Key, _Channel] = {}
        self._numbers = itertools.count(1)
        self._passing: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """See whether there is SCTP. Raises SctpUnavailable."""
        check_available()

    async def close(self) -> None:
        """End every association."""
        for channel in list(self._channels.values()):
            self._end(channel)
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def describe(self) -> list[ChannelStatus]:
        """For status."""
        return [
            {"address": str(address), "port": port, "up": channel.association is not None}
            for (address, port), channel in self._channels.items()
        ]

    async def open(self, server: Destination, port: int) -> StreamPair:
        """A TCP connection to a server through its ppe-agent at this SCTP port. Raises OSError."""
        channel = self._reached((server.address, port))
        await channel.settled.wait()
        if channel.association is None:
            raise ConnectionError("the association could not be set up")
        number = next(self._numbers) % 2**32
        opening = DataMessage(DataMessageType.OPEN, number, server.port)
        if not channel.channels.send(channel.association, opening):
            raise ConnectionError("the association has no room")
        passing = channel.channels.begin(channel.association, number)
        inner, outer = socket.socketpair()
        task = asyncio.create_task(passing.run(*await asyncio.open_connection(sock=inner)))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        return await asyncio.open_connection(sock=outer)

    def send(self, server: Destination, port: int, flow: int, data: bytes) -> None:
        """Send a datagram to a server, at once or when its association is up."""
        with contextlib.suppress(OSError):  # no association can be begun: the client repeats its request
            channel = self._reached((server.address, port))
            channel.send(DataMessage(DataMessageType.DATAGRAM, flow, server.port, data))

    def died(self, server: Destination) -> None:
        """A member's host has no server any more: the association with its ppe-agent ends."""
        for (address, _), channel in list(self._channels.items()):
            if address == server.address:
                self._end(channel)

    def tidy(self, idle_s: float) -> None:
        """End the associations that no flow has, and that nothing used for `idle_s`."""
        for channel in list(self._channels.values()):
            is_free = channel.association is not None and not channel.channels.flow_count
            if is_free and _now() - channel.used_at_s > idle_s:
                self._end(channel)

    def _reached(self, key: _Key) -> _Channel:
        """Raises OSError."""
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel(key, self._on_datagram, self._end, ipv6=self.has_v6)
        channel.used_at_s = _now()
        return channel

    def _end(self, channel: _Channel) -> None:
        if self._channels.get(channel.key) is channel:
            del self._channels[channel.key]
        channel.end()


@dataclass(slots=True)
class _Client:
    """A client that sends datagrams to a front, the server they go to, and the data by which answers come
    from the address it asked."""

    source: Source
    address: Address
    server: Destination
    flow: int
    ancillary: Ancillary
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
        for client in [
            client for client in self._clients.values() if client.server.endpoint == server.endpoint
        ]:
            self._forget(client)

    def answer(self, address: Address, flow: int, data: bytes) -> None:
        """A datagram came back from a server."""
        client = self._by_flow.get(flow)
        if client is not None and client.server.address == address:
            client.used_at_s = _now()
            self._datagrams.answer(data, client.ancillary, client.source)

    def tidy(self) -> None:
        """Forget the clients that are idle."""
        for client in list(self._clients.values()):
            if _now() - client.used_at_s > CLIENT_IDLE_S:
                self._forget(client)

    def _take(self, data: bytes, ancillary: Ancillary, source: Source) -> None:
        client = self._clients.get(source) or self._begun(source)
        if client is not None:
            self._clients.move_to_end(source)
            self._of_address[client.address].move_to_end(source)
            client.ancillary, client.used_at_s = ancillary, _now()
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
