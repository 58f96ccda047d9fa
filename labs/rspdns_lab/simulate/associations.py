"""A model of SCTP (RFC 9260) with the interface of `rserpool`'s own socket, message by message.

Kept: the four-way handshake and its repeats, order, loss and repetition (T3 with its doubling), an
association that breaks after too many repeats, heartbeats, the graceful and the abrupt end, ABORT for what
belongs to no association, and the restart of an association by a peer that lost its memory. A process that is
frozen or slow does not matter to SCTP: its kernel acknowledges.

Left out: congestion, the receiver's window, several paths, streams. Heartbeats are made only while a way is
cut or an end is gone: all others would be answered.
"""

import errno
from collections import deque
from collections.abc import Sequence
from typing import Final

from rserpool import (
    AssociationFailed,
    AssociationLost,
    AssociationUp,
    Notification,
    SctpMessage,
    Timers,
)
from rspdns_lab.simulate.kernel import SimulatedProcess
from rspdns_lab.simulate.network import SimulatedHost, SimulatedNetwork

INIT_ATTEMPTS: Final = 4
MOST_REPEATS: Final = 10
"""Association.Max.Retrans."""
RTO_INITIAL_S, RTO_MIN_S, RTO_MAX_S = 0.1, 0.05, 0.3
HEARTBEAT_S: Final = 1.0

SctpAddress = tuple[str, int]


class _End:
    """One end of an association, as its socket's kernel sees it."""

    def __init__(self, sock: "SimulatedSctpSocket", number: int, peer: SctpAddress) -> None:
        self.socket = sock
        self.number = number
        self.peer = peer
        self.other: _End | None = None
        self.is_open = True
        self.errors = 0
        self.rto_s = RTO_INITIAL_S
        self.sent = 0
        self.unacknowledged: dict[int, tuple[int, bytes]] = {}
        self.is_timed = False
        self.expected = 0
        self.early: dict[int, tuple[int, bytes]] = {}


class SctpNetwork:
    """All SCTP of one scenario."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.kernel = network.kernel
        self._ends: list[_End] = []
        self._is_beating = False
        network.on_impairment = self._beat_on
        network.sctp_ends = lambda host: sum(end.is_open and end.socket.host is host for end in self._ends)

    # Set-up

    def connect(self, sock: "SimulatedSctpSocket", peer: SctpAddress, attempt: int = 1) -> None:
        """Try to set an association up, again until it has been tried often enough."""
        if sock.is_closed or sock.end_to(peer) is not None:
            return
        target = self.network.by_address.get(peer[0])
        ways = () if target is None else ((sock.host, target), (target, sock.host)) * 2
        delays = [self.network.delay_s(*way) for way in ways]
        if target is not None and delays[0] is not None and ("sctp", peer[1]) not in target.listeners:
            back_s = self.network.delay_s(target, sock.host)
            if back_s is not None:
                self.kernel.after(delays[0] + back_s, self._refused, sock, peer)
                return
        if not delays or None in delays:
            if attempt > INIT_ATTEMPTS:
                self.kernel.after(RTO_MAX_S, self._refused, sock, peer)
            else:
                wait_s = min(RTO_MAX_S, RTO_INITIAL_S * 2 ** (attempt - 1))
                self.kernel.after(wait_s, self.connect, sock, peer, attempt + 1)
            return
        self.kernel.after(sum(delay for delay in delays if delay is not None), self._set_up, sock, peer)

    def _refused(self, sock: "SimulatedSctpSocket", peer: SctpAddress) -> None:
        if not sock.is_closed and sock.end_to(peer) is None:
            sock.take(AssociationFailed(0, peer))

    def _set_up(self, sock: "SimulatedSctpSocket", peer: SctpAddress) -> None:
        target = self.network.by_address[peer[0]]
        listener = target.listeners.get(("sctp", peer[1]))
        if sock.is_closed or sock.end_to(peer) is not None:
            return
        if listener is None or not target.is_up:
            self._refused(sock, peer)
            return
        own = sock.host.address, sock.port
        mine = sock.new_end(peer)
        former = listener.end_to(own)
        if former is not None:  # the peer lost its memory: what it had not acknowledged is lost as well
            self._forget(former)
            listener.take(AssociationLost(former.number, own, "the peer started anew"))
        theirs = listener.new_end(own)
        mine.other, theirs.other = theirs, mine
        self._ends += (mine, theirs)
        listener.take(AssociationUp(theirs.number, own))
        sock.take(AssociationUp(mine.number, peer))

    # Messages

    def send(self, end: _End, ppid: int, data: bytes) -> None:
        """Send a message; it is repeated until it is acknowledged, or the association breaks."""
        number, end.sent = end.sent, end.sent + 1
        end.unacknowledged[number] = ppid, data
        self._transmit(end, (number,))

    def _transmit(self, end: _End, numbers: Sequence[int]) -> None:
        other = end.other
        assert other is not None  # noqa: S101 - it is set up
        delay_s = self.network.delay_s(end.socket.host, other.socket.host)
        if delay_s is not None:
            self._arrive_after(delay_s, end, numbers)
            if self.network.doubling and self.kernel.random.random() < self.network.doubling:
                self._arrive_after(2 * delay_s, end, numbers)
            if other.is_open and self.network.delay_s(other.socket.host, end.socket.host) is not None:
                end.errors = 0
                end.rto_s = RTO_MIN_S
                if len(numbers) == len(end.unacknowledged):
                    end.unacknowledged.clear()
                else:
                    for number in numbers:
                        end.unacknowledged.pop(number, None)
        if end.unacknowledged and not end.is_timed:
            end.is_timed = True
            self.kernel.after(end.rto_s, self._repeat, end)

    def _arrive_after(self, delay_s: float, end: _End, numbers: Sequence[int]) -> None:
        messages = [(number, *end.unacknowledged[number]) for number in numbers]
        self.kernel.after(delay_s, self._arrive, end, messages)

    def _repeat(self, end: _End) -> None:
        end.is_timed = False
        if not end.is_open or not end.unacknowledged or not end.socket.host.is_up:
            return
        if self._counts_error(end):
            end.rto_s = min(RTO_MAX_S, 2 * end.rto_s)
            self._transmit(end, tuple(end.unacknowledged))

    def _counts_error(self, end: _End) -> bool:
        """Note that nothing came back; return False when that was too often, and the association broke."""
        end.errors += 1
        if end.errors <= MOST_REPEATS:
            return True
        self._forget(end)
        end.socket.take(AssociationLost(end.number, end.peer, "the association broke"))
        if end.other is not None and end.other.is_open:
            self._tell_end(end, "the association broke", 1, end.socket.host.boots)
        return False

    def _arrive(self, end: _End, messages: Sequence[tuple[int, int, bytes]]) -> None:
        other = end.other
        assert other is not None  # noqa: S101 - it is set up
        if not other.socket.host.is_up:
            return
        if not other.is_open:
            self._tell_end(other, "the association broke", MOST_REPEATS, other.socket.host.boots)
            return
        for number, ppid, data in messages:
            if number >= other.expected:
                other.early[number] = ppid, data
        while other.expected in other.early:
            ppid, data = other.early.pop(other.expected)
            other.expected += 1
            other.socket.take(SctpMessage(other.number, ppid, data, other.peer))

    # The end

    def close(self, end: _End, reason: str = "the association was closed") -> None:
        """End an association from this side; the other side is told, again and again while that is lost."""
        if end.is_open:
            self._forget(end)
            self._tell_end(end, reason, 1, end.socket.host.boots)

    def _tell_end(self, end: _End, reason: str, attempt: int, boots: int) -> None:
        other = end.other
        if other is None or not other.is_open or end.socket.host.boots != boots:
            return
        delay_s = self.network.delay_s(end.socket.host, other.socket.host)
        if delay_s is not None:
            self.kernel.after(delay_s, self._ended, other, reason)
        elif attempt < MOST_REPEATS:
            self.kernel.after(RTO_MAX_S, self._tell_end, end, reason, attempt + 1, boots)
        self._beat_on()

    def _ended(self, end: _End, reason: str) -> None:
        if end.is_open and end.socket.host.is_up:
            self._forget(end)
            end.socket.take(AssociationLost(end.number, end.peer, reason))

    def _forget(self, end: _End) -> None:
        end.is_open = False
        end.unacknowledged.clear()
        end.socket.drop(end)

    # Heartbeats

    def _beat_on(self) -> None:
        if not self._is_beating:
            self._is_beating = True
            self.kernel.after(HEARTBEAT_S, self._beat)

    def _beat(self) -> None:
        """Beat for every association for once; only where nothing comes back that matters."""
        self._ends = [end for end in self._ends if end.is_open]
        is_any = False
        for end in self._ends:
            other = end.other
            if not end.is_open or other is None or not end.socket.host.is_up:
                continue
            here, there = end.socket.host, other.socket.host
            if self.network.is_cut(here, there) or self.network.is_cut(there, here):
                is_any = True
                self._counts_error(end)
            elif not other.is_open:
                is_any = True
                self._tell_end(other, "the association broke", MOST_REPEATS, there.boots)
            elif not end.unacknowledged:
                end.errors = 0
        self._is_beating = False
        if is_any:
            self._beat_on()


class SimulatedSctpSocket:
    """One socket, in place of `rserpool`'s `SctpSocket`. `sctp` is set by the scenario."""

    sctp: SctpNetwork

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
        process = self.sctp.kernel.running
        assert process is not None  # noqa: S101 - sockets are made by processes
        self.host: SimulatedHost = network.here
        self.process: SimulatedProcess = process
        if any(address not in (self.host.address, "0.0.0.0") for address in local_addresses):  # noqa: S104
            raise OSError(errno.EADDRNOTAVAIL, "no such address on this host")
        self.port = port or self.host.free_port()
        self.is_closed = False
        self._number = network.descriptor()
        self._arrived: deque[SctpMessage | Notification] = deque()
        self._ends: dict[int, _End] = {}
        self._by_peer: dict[SctpAddress, _End] = {}
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

    def new_end(self, peer: SctpAddress) -> _End:
        """Begin an association."""
        self._last += 1
        end = self._ends[self._last] = self._by_peer[peer] = _End(self, self._last, peer)
        return end

    def is_answered_at_once(self, association: int) -> bool:
        """Whether the other side of this association answers at once: nothing is lost, late or frozen."""
        end = self._ends.get(association)
        other = None if end is None else end.other
        if other is None or not other.is_open or not other.socket.process.is_responsive:
            return False
        return self.sctp.network.is_sound(self.host, other.socket.host)

    def end_to(self, peer: SctpAddress) -> _End | None:
        """The association with this peer, if there is one."""
        return self._by_peer.get(peer)

    def drop(self, end: _End) -> None:
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
