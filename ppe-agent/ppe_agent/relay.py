"""`relay = true`: the sidecar's end of the data channels that ppu-agents set up (`via = "sctp"`).

What comes embedded in SCTP is handed to the server over TCP and UDP, and its answers go back the same way.
Only servers with `relay = true` are reached, each at its own port. Only associations from `[relay] accept`
are taken. Connections, senders of datagrams and buffered bytes are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

from rserpool import (
    MAX_DATAGRAM_BYTES,
    AssociationLost,
    AssociationUp,
    DataChannels,
    DataMessage,
    DataMessageType,
    Notification,
    Passing,
    Protocol,
)

Address = IPv4Address | IPv6Address
Networks = Sequence[Any]
Servers = Mapping[tuple[Protocol, int], Address]
"""The server's address, by transport and port."""

MOST_CONNECTIONS: Final = 1000
MOST_SENDERS: Final = 2000
"""Of datagrams; of more the one that was silent for longest is forgotten."""
SENDER_IDLE_S: Final = 180.0
CONNECT_TIMEOUT_S: Final = 1.5
_READS_IN_A_ROW: Final = 64


@dataclass(slots=True)
class _Sender:
    """One client's datagrams to one server: a socket of their own, so that answers find their way."""

    socket: socket.socket
    used_at_s: float


@dataclass
class _Counts:
    connections: int = 0
    datagrams: int = 0
    refused: int = 0


@dataclass
class RelayEnd:
    """Listens for data channels at an SCTP port. `servers` may be replaced at any time."""

    port: int
    accept: Networks
    servers: Servers = field(default_factory=dict)
    counts: _Counts = field(default_factory=_Counts)

    def __post_init__(self) -> None:
        self._channels: DataChannels | None = None
        self._peers: dict[int, str] = {}
        self._senders: OrderedDict[tuple[int, int, int], _Sender] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = get_logger("relay")

    def start(self) -> None:
        """Listen. Raises FatalError."""
        try:
            self._channels = DataChannels(
                on_message=self._take,
                on_change=self._changed,
                port=self.port,
                ipv6=any(network.version == 6 for network in self.accept),
                listens=True,
            )
        except OSError as problem:
            raise FatalError(f"[relay] can't listen at SCTP port {self.port}: {problem.strerror}") from None
        self.port = self._channels.endpoint.port

    async def close(self) -> None:
        """End everything; safe to repeat."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._channels is not None:
            self._channels.close()
        for key in list(self._senders):
            self._forget(key)

    def describe(self) -> dict[str, Any]:
        """For status."""
        return {
            "port": self.port,
            "agents": sorted(self._peers.values()),
            "connections": self._channels.flow_count if self._channels is not None else 0,
            "senders": len(self._senders),
            "connections_count": self.counts.connections,
            "datagrams_count": self.counts.datagrams,
            "refused_count": self.counts.refused,
            "is_open": self._channels is not None and not self._channels.endpoint.is_closed,
        }

    def _changed(self, notification: Notification) -> None:
        if isinstance(notification, AssociationUp):
            peer = notification.peer[0]
            if any(ip_address(peer) in network for network in self.accept):
                self._peers[notification.association] = peer
            else:
                self.counts.refused += 1
                self._log.warning("association_refused", peer=peer, hint="not in [relay] accept")
                self._end(notification.association)
        elif isinstance(notification, AssociationLost):
            self._peers.pop(notification.association, None)
            for key in [key for key in self._senders if key[0] == notification.association]:
                self._forget(key)

    def _end(self, association: int) -> None:
        if self._channels is not None:
            self._channels.end(association)

    def _take(self, association: int, message: DataMessage, _peer: tuple[str, int]) -> None:
        channels = self._channels
        if association not in self._peers or channels is None:
            return
        protocol = Protocol.UDP if message.type is DataMessageType.DATAGRAM else Protocol.TCP
        address = self.servers.get((protocol, message.port))
        if protocol is Protocol.UDP:
            if address is not None:
                self._pass_datagram(association, message, address)
            return
        if address is None or len(self._tasks) >= MOST_CONNECTIONS:
            self.counts.refused += 1
            self._send(association, DataMessage(DataMessageType.RESET, message.flow))
            return
        self.counts.connections += 1
        passing = channels.begin(association, message.flow)
        task = asyncio.create_task(_connect(passing, (str(address), message.port)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _pass_datagram(self, association: int, message: DataMessage, server: Address) -> None:
        key = (association, message.flow, message.port)
        now = asyncio.get_running_loop().time()
        sender = self._senders.get(key)
        if sender is None:
            try:
                made = self._open(key, server)
            except OSError:  # no descriptor left: the client repeats its request
                self.counts.refused += 1
                return
            sender = self._senders[key] = _Sender(made, now)
        sender.used_at_s = now
        self._senders.move_to_end(key)
        self.counts.datagrams += 1
        with contextlib.suppress(OSError):  # the server is not there: its check finds out
            sender.socket.send(message.data)
        oldest = next(iter(self._senders))
        if len(self._senders) > MOST_SENDERS or now - self._senders[oldest].used_at_s > SENDER_IDLE_S:
            self._forget(oldest)

    def _open(self, key: tuple[int, int, int], server: Address) -> socket.socket:
        """A socket for one client's datagrams. Raises OSError.

        SIP answers go to the port that the request names (RFC 3261, section 18.2.2): the client's. So over
        IPv4 the socket has that port, at a loopback address of its own; the flow's number is both.
        """
        association, flow, port = key
        family = socket.AF_INET if server.version == 4 else socket.AF_INET6
        made = socket.socket(family, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            if family == socket.AF_INET:
                with contextlib.suppress(OSError):  # taken: another port serves all but such SIP
                    made.bind((_loopback(association, flow), flow & 0xFFFF))
            made.connect((str(server), port))
        except OSError:
            made.close()
            raise
        asyncio.get_running_loop().add_reader(made, self._answered, key, made)
        return made

    def _answered(self, key: tuple[int, int, int], made: socket.socket) -> None:
        association, flow, port = key
        for _ in range(_READS_IN_A_ROW):
            try:
                data = made.recv(MAX_DATAGRAM_BYTES)
            except OSError:  # nothing more, or an ICMP error
                return
            self._send(association, DataMessage(DataMessageType.DATAGRAM, flow, port, data))

    def _forget(self, key: tuple[int, int, int]) -> None:
        sender = self._senders.pop(key)
        asyncio.get_running_loop().remove_reader(sender.socket)
        sender.socket.close()

    def _send(self, association: int, message: DataMessage) -> None:
        if self._channels is not None:
            self._channels.send(association, message)


def _loopback(association: int, flow: int) -> str:
    return f"127.{64 + (flow >> 24 & 63)}.{flow >> 16 & 255}.{1 + association % 254}"


async def _connect(passing: Passing, server: tuple[str, int]) -> None:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(*server)
    except (OSError, TimeoutError):
        passing.refuse()
        return
    await passing.run(reader, writer)
