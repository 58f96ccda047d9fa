"""A model of SCTP (RFC 9260), message by message.

Kept: the four-way handshake and its repeats, order, loss and repetition (T3 with its doubling), an
association that breaks after too many repeats, heartbeats, the graceful and the abrupt end, ABORT for what
belongs to no association, and the restart of an association by a peer that lost its memory. A process that is
frozen or slow does not matter to SCTP: its kernel acknowledges.

Left out: congestion, the receiver's window, several paths, streams. Heartbeats are made only while a way is
cut or an end is gone: all others would be answered.
"""

from collections.abc import Sequence
from typing import Final

from rserpool import AssociationFailed, AssociationLost, AssociationUp, SctpMessage
from rspdns_lab.simulate.network import SimulatedNetwork
from rspdns_lab.simulate.sctp_socket import RTO_INITIAL_S, AssociationEnd, SctpAddress, SimulatedSctpSocket

INIT_ATTEMPTS: Final = 4
MOST_REPEATS: Final = 10
"""Association.Max.Retrans."""
RTO_MIN_S, RTO_MAX_S = 0.05, 0.3
HEARTBEAT_S: Final = 1.0


class SctpNetwork:
    """All SCTP of one scenario."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.kernel = network.kernel
        self._ends: list[AssociationEnd] = []
        self._is_beating = False
        network.on_impairment = self._beat_on
        network.sctp_ends = lambda host: sum(end.is_open and end.socket.host is host for end in self._ends)

    # Set-up

    def connect(self, sock: SimulatedSctpSocket, peer: SctpAddress, attempt: int = 1) -> None:
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

    def _refused(self, sock: SimulatedSctpSocket, peer: SctpAddress) -> None:
        if not sock.is_closed and sock.end_to(peer) is None:
            sock.take(AssociationFailed(0, peer))

    def _set_up(self, sock: SimulatedSctpSocket, peer: SctpAddress) -> None:
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

    def send(self, end: AssociationEnd, ppid: int, data: bytes) -> None:
        """Send a message; it is repeated until it is acknowledged, or the association breaks."""
        end.socket.process.messages += 1
        if self._is_folded(end, ppid, data):
            return
        number, end.sent = end.sent, end.sent + 1
        end.unacknowledged[number] = ppid, data
        self._transmit(end, (number,))

    def is_answered_at_once(self, end: AssociationEnd) -> bool:
        """Whether the other side of an association answers at once: nothing is lost, late or frozen."""
        other = end.other
        if other is None or not other.is_open or not other.socket.process.is_responsive:
            return False
        return self.network.is_sound(end.socket.host, other.socket.host)

    def _is_folded(self, end: AssociationEnd, ppid: int, data: bytes) -> bool:
        """Whether a question and its answer are one event, in the order of all that the other side sends.

        So it is when nothing before it is on its way, and the answer comes at once and changes nothing there.
        """
        other = end.other
        answers = None if other is None else other.socket.answer_at_once
        if other is None or answers is None or end.sent != other.expected:
            return False
        answer = answers(data)
        if answer is None or not self.is_answered_at_once(end):
            return False
        there_s = self.network.delay_s(end.socket.host, other.socket.host)
        back_s = self.network.delay_s(other.socket.host, end.socket.host)
        if there_s is None or back_s is None:
            return False
        number, other.sent = other.sent, other.sent + 1
        self.kernel.after(there_s + back_s, self._arrive, other, [(number, ppid, answer)])
        return True

    def _transmit(self, end: AssociationEnd, numbers: Sequence[int]) -> None:
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

    def _arrive_after(self, delay_s: float, end: AssociationEnd, numbers: Sequence[int]) -> None:
        messages = [(number, *end.unacknowledged[number]) for number in numbers]
        self.kernel.after(delay_s, self._arrive, end, messages)

    def _repeat(self, end: AssociationEnd) -> None:
        end.is_timed = False
        if not end.is_open or not end.unacknowledged or not end.socket.host.is_up:
            return
        if self._counts_error(end):
            end.rto_s = min(RTO_MAX_S, 2 * end.rto_s)
            self._transmit(end, tuple(end.unacknowledged))

    def _counts_error(self, end: AssociationEnd) -> bool:
        """Note that nothing came back; return False when that was too often, and the association broke."""
        end.errors += 1
        if end.errors <= MOST_REPEATS:
            return True
        self._forget(end)
        end.socket.take(AssociationLost(end.number, end.peer, "the association broke"))
        if end.other is not None and end.other.is_open:
            self._tell_end(end, "the association broke", 1, end.socket.host.boots)
        return False

    def _arrive(self, end: AssociationEnd, messages: Sequence[tuple[int, int, bytes]]) -> None:
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

    def close(self, end: AssociationEnd, reason: str = "the association was closed") -> None:
        """End an association from this side; the other side is told, again and again while that is lost."""
        if end.is_open:
            self._forget(end)
            self._tell_end(end, reason, 1, end.socket.host.boots)

    def _tell_end(self, end: AssociationEnd, reason: str, attempt: int, boots: int) -> None:
        other = end.other
        if other is None or not other.is_open or end.socket.host.boots != boots:
            return
        delay_s = self.network.delay_s(end.socket.host, other.socket.host)
        if delay_s is not None:
            self.kernel.after(delay_s, self._ended, other, reason)
        elif attempt < MOST_REPEATS:
            self.kernel.after(RTO_MAX_S, self._tell_end, end, reason, attempt + 1, boots)
        self._beat_on()

    def _ended(self, end: AssociationEnd, reason: str) -> None:
        if end.is_open and end.socket.host.is_up:
            self._forget(end)
            end.socket.take(AssociationLost(end.number, end.peer, reason))

    def _forget(self, end: AssociationEnd) -> None:
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
