"""`relay = true`: the sidecar's end of the data channels that ppu-agents set up (`via = "sctp"`).

Data that comes embedded in SCTP is handed to the server over TCP and UDP, and its answers go back the same
way. Only servers with `relay = true` are reached, each at its own port. Only associations from `[relay]
accept` are taken. Connections, senders of datagrams and buffered bytes are bounded, of all and of each
host. A server sees each client at an address of `[relay] clients`: no client looks like a program of this
host.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

from ppe_agent.addresses import Address
from ppe_agent.client_addresses import client_socket, problem_of
from ppe_agent.status_model import RelayStatus
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

Networks = Sequence[Any]
_Key = tuple[int, int, int]
"""Association, flow and port of a sender of datagrams."""
RelayedServers = Mapping[tuple[Protocol, int], Address]
"""The server's address, by transport and port."""

SENDER_IDLE_S: Final = 180.0
"""A client that sends no datagram for this time is forgotten."""
TIDY_EVERY_S: Final = 10.0
MOST_AGENTS: Final = 256
"""Associations at a time; further ones are ended."""
MOST_OF_ONE_HOST: Final = 8
"""Associations: one for each of our addresses. If there are more the oldest ends: a killed agent may have
left one."""
CONNECT_TIMEOUT_S: Final = 1.5
_READS_IN_A_ROW: Final = 64
_ASSOCIATION_APART: Final = 40_503
"""Flows of two ppu-agents have other addresses, mostly: those of one association begin so far behind."""


@dataclass(slots=True)
class _Sender:
    """One client's datagrams to one server: a socket of their own, so that answers find their way."""

    socket: socket.socket
    used_at_s: float


@dataclass(frozen=True)
class PpuAgentLimits:
    """TCP connections and UDP clients at a time, which share of both one host may have, and how long a
    connection may be idle."""

    connections: int = 2000
    clients: int = 4000
    share: float = 0.5
    idle_s: float = 3600.0

    def share_of(self, most: int) -> int:
        """How many of `most` one host may have."""
        return max(1, int(most * self.share))


@dataclass
class _Counts:
    connections: int = 0
    datagrams: int = 0
    refused: int = 0


@dataclass
class RelayEnd:
    """Listens for data channels at an SCTP port. `servers` may be replaced at any time, by `serve`."""

    port: int
    accept: Networks
    clients: Networks
    """The servers see each client at an address of these."""
    servers: RelayedServers = field(default_factory=dict)
    limits: PpuAgentLimits = PpuAgentLimits()
    counts: _Counts = field(default_factory=_Counts)

    def __post_init__(self) -> None:
        self._channels: DataChannels | None = None
        self._peers: dict[int, str] = {}
        self._senders: dict[str, OrderedDict[_Key, _Sender]] = {}
        self._connections: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._tidying: asyncio.TimerHandle | None = None
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
        self._tidy()

    def check(self, servers: RelayedServers) -> None:
        """Raise FatalError when these servers could not answer clients."""
        problem = problem_of(self.clients, servers.values())
        if problem is not None:
            raise FatalError(f"[relay] clients: {problem}")

    def serve(self, servers: RelayedServers) -> None:
        """Reach these servers from now on. Raises FatalError when they could not answer."""
        self.check(servers)
        self.servers = servers

    async def close(self) -> None:
        """End everything; safe to repeat."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._channels is not None:
            self._channels.close()
        if self._tidying is not None:
            self._tidying.cancel()
        for host, senders in list(self._senders.items()):
            for key in list(senders):
                self._forget(host, key)

    def describe(self) -> RelayStatus:
        """For status."""
        return {
            "port": self.port,
            "agents": sorted(self._peers.values()),
            "connections": self._channels.flow_count if self._channels is not None else 0,
            "senders": sum(map(len, self._senders.values())),
            "connections_count": self.counts.connections,
            "datagrams_count": self.counts.datagrams,
            "refused_count": self.counts.refused,
            "is_open": self._channels is not None and not self._channels.endpoint.is_closed,
        }

    def _changed(self, notification: Notification) -> None:
        if isinstance(notification, AssociationUp):
            self._begin(notification.association, notification.peer[0])
        elif isinstance(notification, AssociationLost):
            self._drop(notification.association)

    def _begin(self, association: int, peer: str) -> None:
        if not any(ip_address(peer) in network for network in self.accept):
            self._refuse(association, peer, "not in [relay] accept")
        elif len(self._peers) >= MOST_AGENTS:
            self._refuse(association, peer, f"{MOST_AGENTS} associations are up")
        else:
            self._peers[association] = peer
            of_host = [number for number, host in self._peers.items() if host == peer]
            if len(of_host) > MOST_OF_ONE_HOST:
                self._end(of_host[0])
                self._drop(of_host[0])

    def _refuse(self, association: int, peer: str, hint: str) -> None:
        self.counts.refused += 1
        self._log.warning("association_refused", peer=peer, hint=hint)
        self._end(association)

    def _drop(self, association: int) -> None:
        host = self._peers.pop(association, "")
        for key in [key for key in self._senders.get(host, ()) if key[0] == association]:
            self._forget(host, key)
        if not self._senders.get(host):
            self._senders.pop(host, None)

    def _end(self, association: int) -> None:
        if self._channels is not None:
            self._channels.end(association)

    def _take(self, association: int, message: DataMessage, _peer: tuple[str, int]) -> None:
        channels, host = self._channels, self._peers.get(association)
        if host is None or channels is None:
            return
        protocol = Protocol.UDP if message.type is DataMessageType.DATAGRAM else Protocol.TCP
        address = self.servers.get((protocol, message.port))
        if protocol is Protocol.UDP:
            if address is not None:
                self._pass_datagram(host, association, message, address)
            return
        if address is None or not self._has_room(host):
            self.counts.refused += 1
            self._send(association, DataMessage(DataMessageType.RESET, message.flow))
            return
        self.counts.connections += 1
        self._connections[host] += 1
        passing = channels.begin(association, message.flow)
        server = (address, message.port)
        number = message.flow + _ASSOCIATION_APART * association
        made = functools.partial(client_socket, self.clients, socket.SOCK_STREAM, server, number, 0)
        connecting = _connect(passing, made, (str(address), message.port), self.limits.idle_s)
        task = asyncio.create_task(connecting)
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._done(task, host))

    def _has_room(self, host: str) -> bool:
        """Whether one more connection of this host's is within the limits."""
        most = self.limits.connections
        return len(self._tasks) < most and self._connections[host] < self.limits.share_of(most)

    def _done(self, task: asyncio.Task[None], host: str) -> None:
        self._tasks.discard(task)
        self._connections[host] -= 1
        if not self._connections[host]:
            del self._connections[host]

    def _pass_datagram(self, host: str, association: int, message: DataMessage, server: Address) -> None:
        key = (association, message.flow, message.port)
        now = asyncio.get_running_loop().time()
        sender = self._senders.setdefault(host, OrderedDict()).get(key)
        if sender is None:
            try:
                made = self._open(key, server)
            except OSError:  # no descriptor left: the client repeats its request
                self.counts.refused += 1
                return
            sender = self._senders[host][key] = _Sender(made, now)
            self._make_room(host)
        sender.used_at_s = now
        self._senders[host].move_to_end(key)
        self.counts.datagrams += 1
        with contextlib.suppress(OSError):  # the server is not there: its check finds out
            sender.socket.send(message.data)

    def _make_room(self, host: str) -> None:
        """Forget the oldest sender of a host that has more than its share; else of the host that has most."""
        if len(self._senders[host]) <= self.limits.share_of(self.limits.clients):
            if sum(map(len, self._senders.values())) <= self.limits.clients:
                return
            host = max(self._senders, key=lambda candidate: len(self._senders[candidate]))
        self._forget(host, next(iter(self._senders[host])))

    def _tidy(self) -> None:
        """Forget the senders that are idle; again and again."""
        loop = asyncio.get_running_loop()
        for host, senders in list(self._senders.items()):
            for key, sender in list(senders.items()):
                if loop.time() - sender.used_at_s > SENDER_IDLE_S:
                    self._forget(host, key)
        self._tidying = loop.call_later(TIDY_EVERY_S, self._tidy)

    def _open(self, key: _Key, server: Address) -> socket.socket:
        """A socket for one client's datagrams. Raises OSError.

        SIP answers go to the port that the request names (RFC 3261, section 18.2.2): the client's. So the
        socket has that port, at an address of its own; the flow's number says both.
        """
        association, flow, port = key
        number = (flow >> 16) + _ASSOCIATION_APART * association
        made = client_socket(self.clients, socket.SOCK_DGRAM, (server, port), number, flow & 0xFFFF)
        asyncio.get_running_loop().add_reader(made, self._answered, key, made)
        return made

    def _answered(self, key: _Key, made: socket.socket) -> None:
        association, flow, port = key
        for _ in range(_READS_IN_A_ROW):
            try:
                data = made.recv(MAX_DATAGRAM_BYTES)
            except OSError:  # nothing more, or an ICMP error
                return
            self._send(association, DataMessage(DataMessageType.DATAGRAM, flow, port, data))

    def _forget(self, host: str, key: _Key) -> None:
        sender = self._senders[host].pop(key)
        asyncio.get_running_loop().remove_reader(sender.socket)
        sender.socket.close()

    def _send(self, association: int, message: DataMessage) -> None:
        if self._channels is not None:
            self._channels.send(association, message)


async def _connect(
    passing: Passing, made: Callable[[], socket.socket], server: tuple[str, int], idle_s: float
) -> None:
    try:
        client = made()
    except OSError:
        passing.refuse()
        return
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await asyncio.get_running_loop().sock_connect(client, server)
            reader, writer = await asyncio.open_connection(sock=client)
    except (OSError, TimeoutError):
        client.close()
        passing.refuse()
        return
    except asyncio.CancelledError:
        client.close()
        raise
    await passing.run(reader, writer, idle_s)
