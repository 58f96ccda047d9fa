"""The sockets of the simulated SCTP, with the interface of `rserpool`'s own, and the ends of associations."""

import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol as Interface

from rserpool import AssociationLost, Notification, SctpMessage, Timers
from rspdns_lab.simulate.kernel import SimulatedProcess
from rspdns_lab.simulate.network import SimulatedHost, SimulatedNetwork

RTO_INITIAL_S = 0.1
SctpAddress = tuple[str, int]


class AssociationEnd:
    """One end of an association, as its socket's kernel sees it."""

    def __init__(self, sock: "SimulatedSctpSocket", number: int, peer: SctpAddress) -> None:
        self.socket = sock
        self.number = number
        self.peer = peer
        self.other: AssociationEnd | None = None
        self.is_open = True
        self.errors = 0
        self.rto_s = RTO_INITIAL_S
        self.sent = 0
        self.unacknowledged: dict[int, tuple[int, bytes]] = {}
        self.is_timed = False
        self.expected = 0
        self.early: dict[int, tuple[int, bytes]] = {}


class SctpLayer(Interface):
    """SCTP below the sockets."""

    network: SimulatedNetwork

    def connect(self, sock: "SimulatedSctpSocket", peer: SctpAddress) -> None:
        """Try to set an association up."""

    def send(self, end: AssociationEnd, ppid: int, data: bytes) -> None:
        """Send a message."""

    def close(self, end: AssociationEnd) -> None:
        """End an association from this side."""

    def is_answered_at_once(self, end: AssociationEnd) -> bool:
        """Whether the other side of an association answers at once: nothing is lost, late or frozen."""


class SimulatedSctpSocket:
    """One socket, in place of `rserpool`'s `SctpSocket`. `sctp` is set by the scenario."""

    sctp: SctpLayer

    def __init__(
        self,
        *,
        local_addresses: Sequence[str] = (),
        port: int = 0,
        ipv6: bool = False,
        listens: bool = False,
        timers: Timers | None = None,
    ) -> None:
        del ipv6, timers
        network = self.sctp.network
        process = self.sctp.network.kernel.running
        assert process is not None  # noqa: S101 - sockets are made by processes
        self.host: SimulatedHost = network.here
        self.process: SimulatedProcess = process
        if any(address not in (self.host.address, "0.0.0.0") for address in local_addresses):  # noqa: S104
            raise OSError(errno.EADDRNOTAVAIL, "no such address on this host")
        self.port = port or self.host.free_port()
        self.is_closed = False
        self.answer_at_once: Callable[[bytes], bytes | None] | None = None
        """The answer to a message that changes nothing here, None for any other message."""
        self._number = network.descriptor()
        self._arrived: deque[SctpMessage | Notification] = deque()
        self._ends: dict[int, AssociationEnd] = {}
        self._by_peer: dict[SctpAddress, AssociationEnd] = {}
        self._last = 0
        if listens:
            if ("sctp", self.port) in self.host.listeners:
                raise OSError(errno.EADDRINUSE, "the port is in use")
            self.host.listeners["sctp", self.port] = self
        process.on_end.append(self.close)

    # The model's side

    def take(self, news: SctpMessage | Notification) -> None:
        """Something arrived: the process reads it when it can."""
        if not self.is_closed:
            self._arrived.append(news)
            if len(self._arrived) == 1:
                self.process.readable(self._number)

    def new_end(self, peer: SctpAddress) -> AssociationEnd:
        """Begin an association."""
        self._last += 1
        end = self._ends[self._last] = self._by_peer[peer] = AssociationEnd(self, self._last, peer)
        return end

    def is_answered_at_once(self, association: int) -> bool:
        """Whether the other side of this association answers at once: nothing is lost, late or frozen."""
        end = self._ends.get(association)
        return end is not None and self.sctp.is_answered_at_once(end)

    def end_to(self, peer: SctpAddress) -> AssociationEnd | None:
        """The association with this peer, if there is one."""
        return self._by_peer.get(peer)

    def drop(self, end: AssociationEnd) -> None:
        """The association is over."""
        self._ends.pop(end.number, None)
        if self._by_peer.get(end.peer) is end:
            del self._by_peer[end.peer]

    # `SctpSocket`'s interface

    def fileno(self) -> int:
        """The number for the event loop; -1 once closed."""
        return -1 if self.is_closed else self._number

    def connect(self, peer: SctpAddress) -> None:
        """Begin an association; a notification tells how it went."""
        self.sctp.connect(self, peer)

    def send(
        self, association: int, ppid: int, data: bytes, stream: int = 0, *, unordered: bool = False
    ) -> None:
        """Send one message; raise OSError without association."""
        del stream, unordered
        end = self._ends.get(association)
        if end is None:
            raise OSError(errno.ENOTCONN, "no such association")
        self.sctp.send(end, ppid, data)

    def close_association(self, association: int) -> None:
        """End one association gracefully."""
        end = self._ends.get(association)
        if end is not None:
            self.sctp.close(end)
            self.take(AssociationLost(association, end.peer, "the association was closed"))

    abort_association = close_association

    def receive(self) -> SctpMessage | Notification | None:
        """Return what came next. Raise BlockingIOError when there is nothing."""
        if not self._arrived:
            raise BlockingIOError
        news = self._arrived.popleft()
        if self._arrived:
            self.process.readable(self._number)
        return news

    def peers(self, association: int) -> list[SctpAddress]:
        """Return every address of the other side of an association."""
        end = self._ends.get(association)
        return [] if end is None else [end.peer]

    def is_confirmed(self, association: int, peer: SctpAddress) -> bool:
        """Whether the other side is at `peer`: it has one address only, and proved it in the handshake."""
        return peer in self.peers(association)

    def locals(self, association: int) -> list[SctpAddress]:
        """Return every address of this side of an association."""
        return [] if association not in self._ends else [(self.host.address, self.port)]

    def forget(self, association: int) -> None:
        """Messages arrive whole: there is nothing to drop."""

    def close(self) -> None:
        """Close the socket, and all its associations gracefully."""
        if self.is_closed:
            return
        for end in tuple(self._ends.values()):
            self.sctp.close(end)
        self.is_closed = True
        if self.host.listeners.get(("sctp", self.port)) is self:
            del self.host.listeners["sctp", self.port]


def send_quietly(sock: SimulatedSctpSocket, association: int, ppid: int, data: bytes) -> None:
    """Send a message, if the association is still there."""
    try:
        sock.send(association, ppid, data)
    except OSError:
        return  # its end is on the way


def next_news(sock: SimulatedSctpSocket) -> SctpMessage | Notification | None:
    """Return what came next, None when there is nothing."""
    try:
        return sock.receive()
    except BlockingIOError:
        return None
