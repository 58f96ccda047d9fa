"""The effects of socket options, as the peer sees them: attempts, retransmissions, heartbeats."""

import contextlib
import errno
import socket
import struct
import time
from collections.abc import Callable

from played_peer import DATA, HEARTBEAT, INIT, OURS, PLAYED, PORT, SACK, Peer, played
from sctp_api import (
    ADDR_UNREACHABLE,
    ASSOC_CHANGE,
    COMM_LOST,
    COMM_UP,
    PATH_PARAMETERS,
    PEER_ADDR_CHANGE,
    SCTP_ASSOCINFO,
    SCTP_DELAYED_SACK,
    SCTP_INITMSG,
    SCTP_PEER_ADDR_PARAMS,
    SCTP_RTOINFO,
    SOL_SCTP,
    Received,
    one_to_many,
    one_to_one,
    readable,
    receive,
    receive_change,
    send,
    subscribe,
    writable,
)

SHORT_MS, LONG_MS = 100, 30_000
WATCHED_S = 1.2  # longer than what the programs' sctpd, or a kernel, does by itself with short timers
HEARTBEATS, NO_HEARTBEATS = 1, 2
PATIENT = 100


def begin(
    style: Callable[[], socket.socket], rto_ms: int, initmsg: tuple[int, ...] = ()
) -> tuple[socket.socket, int]:
    """Return a bound socket whose retransmission timeout is `rto_ms`, always, and its port."""
    sock = style()
    sock.bind((OURS, 0))
    sock.setsockopt(SOL_SCTP, SCTP_RTOINFO, struct.pack("=iIII", 0, rto_ms, rto_ms, rto_ms))
    # Unless it is asked about, so many that this program may be stopped for some seconds meanwhile.
    sock.setsockopt(SOL_SCTP, SCTP_INITMSG, struct.pack("=HHHH", *(initmsg or (0, 0, PATIENT, 0))))
    sock.setsockopt(SOL_SCTP, SCTP_ASSOCINFO, struct.pack("=iHHIII", 0, PATIENT, 0, 0, 0, 0))
    return sock, sock.getsockname()[1]


def start_connecting(sock: socket.socket) -> None:
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        sock.connect((PLAYED, PORT))


def associate(peer: Peer, rto_ms: int) -> tuple[socket.socket, int, int]:
    """Return a one-to-many socket associated with the peer, its port, and the association."""
    sock, port = begin(one_to_many, rto_ms)
    subscribe(sock, data_io=True, association=True, address=True)
    sock.setblocking(False)
    send(sock, b"open", to=(PLAYED, PORT))
    peer.play(lambda: peer.of(port, DATA) and readable(sock))
    up = receive_change(sock, COMM_UP)
    return sock, port, up.changed_association


def check_path(sock: socket.socket, association: int, interval_ms: int, most_timeouts: int = 0) -> None:
    """Set how often an idle path is checked (0: never), and how many timeouts it survives (0: as it was)."""
    flags = HEARTBEATS if interval_ms else NO_HEARTBEATS
    parameters = PATH_PARAMETERS.pack(association, bytes(128), interval_ms, most_timeouts, 0, 0, flags, 0, 0)
    sock.setsockopt(SOL_SCTP, SCTP_PEER_ADDR_PARAMS, parameters)


def case_attempts_to_begin() -> None:
    """INITMSG: how often INIT is sent, the longest wait, the streams asked for. RTOINFO: the first wait."""
    with played() as peer, contextlib.ExitStack() as stack:

        def connecting(rto_ms: int, *initmsg: int) -> tuple[socket.socket, int]:
            sock, port = begin(one_to_one, rto_ms, initmsg)
            peer.ignores[port] = {INIT}
            start_connecting(stack.enter_context(sock))
            return sock, port

        def over(sock: socket.socket) -> bool:
            return writable(sock)

        _, patient = connecting(LONG_MS)
        two, two_port = connecting(SHORT_MS, 7, 9, 2, 0)
        five, five_port = connecting(SHORT_MS, 0, 0, 5, 0)
        # Doubled eight times from 100 ms it would take 25 s.
        capped, _ = begin(one_to_one, SHORT_MS, (0, 0, 8, SHORT_MS))
        capped.setsockopt(SOL_SCTP, SCTP_RTOINFO, struct.pack("=iIII", 0, SHORT_MS, LONG_MS, SHORT_MS))
        start_connecting(stack.enter_context(capped))
        peer.ignores[capped.getsockname()[1]] = {INIT}
        started_s = time.monotonic()
        peer.play(lambda: over(two) and over(five) and over(capped))
        for sock in (two, five, capped):
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ETIMEDOUT
        seen = [len(peer.of(port, INIT)) for port in (two_port, five_port)]
        assert seen == [3, 6], f"once, and two or five attempts more, not {seen}"
        assert struct.unpack(">HH", peer.of(two_port, INIT)[0].value[8:12]) == (7, 9)
        assert struct.unpack(">HH", peer.of(five_port, INIT)[0].value[8:12]) != (7, 9)
        peer.play(timeout_s=started_s + WATCHED_S - time.monotonic())
        assert len(peer.of(patient, INIT)) == 1


def case_retransmissions() -> None:
    """RTOINFO: when data is sent again. ASSOCINFO: how often, before the association is given up."""
    with played() as peer, contextlib.ExitStack() as stack:
        ports = {}
        for name, rto_ms, most in (("patient", LONG_MS, 9), ("two", SHORT_MS, 2), ("six", SHORT_MS, 6)):
            sock, port, association = associate(peer, rto_ms)
            stack.enter_context(sock)
            option = struct.pack("=iHHIII", association, most, 0, 0, 0, 0)
            sock.setsockopt(SOL_SCTP, SCTP_ASSOCINFO, option)
            check_path(sock, association, 0)
            peer.ignores[port] = {DATA}
            send(sock, b"unanswered", association=association)
            ports[name] = sock, port
        peer.play(timeout_s=WATCHED_S)
        times = {}
        for name in ("two", "six"):
            sock, port = ports[name]
            end_s = time.monotonic() + 20
            while not is_lost(received(sock)):
                assert time.monotonic() < end_s
                peer.play(timeout_s=0.1)
            times[name] = len([piece for piece in peer.of(port, DATA) if piece.value.endswith(b"unanswered")])
        assert times == {"two": 3, "six": 7}, times
        sent = [piece for piece in peer.of(ports["patient"][1], DATA) if piece.value.endswith(b"unanswered")]
        assert len(sent) == 1


def is_lost(came: Received | None) -> bool:
    return came is not None and came.notification == ASSOC_CHANGE and came.state == COMM_LOST


def is_unreachable(came: Received | None) -> bool:
    return (
        came is not None
        and came.notification == PEER_ADDR_CHANGE
        and came.changed_address[0] == ADDR_UNREACHABLE
    )


def received(sock: socket.socket) -> Received | None:
    """Return the next notification or message, if one is there."""
    return receive(sock) if readable(sock) else None


def case_heartbeats() -> None:
    """PEER_ADDR_PARAMS: how often an idle path is checked, and after how many timeouts it is given up."""
    with played() as peer, contextlib.ExitStack() as stack:
        sock, never, association = associate(peer, SHORT_MS)
        stack.enter_context(sock)
        check_path(sock, association, 0)
        before = len(peer.of(never, HEARTBEAT))
        assert unanswered_heartbeats(peer, 4) >= 5
        for _ in range(3):  # one that comes while this program is stopped would count too
            if (unanswered := unanswered_heartbeats(peer, 1)) <= 3:
                break
        assert unanswered in (2, 3)  # the third goes out as the path is given up, or does not
        assert len(peer.of(never, HEARTBEAT)) == before


def unanswered_heartbeats(peer: Peer, most_timeouts: int) -> int:
    """Return how many heartbeats come, after some that are answered, until the path is given up."""
    sock, port, association = associate(peer, SHORT_MS)
    with sock:
        check_path(sock, association, SHORT_MS // 2, PATIENT)
        peer.play_until(port, HEARTBEAT, 3)
        answered = len(peer.of(port, HEARTBEAT))
        peer.ignores[port] = {HEARTBEAT}
        check_path(sock, association, SHORT_MS // 2, most_timeouts)
        end_s = time.monotonic() + 20
        while not is_unreachable(received(sock)):
            assert time.monotonic() < end_s
            peer.play(timeout_s=0.02)
        return len(peer.of(port, HEARTBEAT)) - answered


def case_delayed_sack() -> None:
    """DELAYED_SACK: how long a lonely message waits for it; with a frequency of one, not at all."""
    with played() as peer, contextlib.ExitStack() as stack:
        waits: dict[int, float] = {}
        for delay_ms, frequency in ((500, 2), (500, 1)):
            sock, port, association = associate(peer, LONG_MS)
            stack.enter_context(sock)
            option = struct.pack("=iII", association, delay_ms, frequency)
            sock.setsockopt(SOL_SCTP, SCTP_DELAYED_SACK, option)
            peer.send_message(port, b"the first one is answered at once")
            peer.play_until(port, SACK, 1)
            for _ in range(1 if frequency == 2 else 6):
                before, sent_s = len(peer.of(port, SACK)), time.monotonic()
                peer.send_message(port, b"lonely")
                peer.play_until(port, SACK, before + 1)
                waits[frequency] = min(peer.of(port, SACK)[-1].at_s - sent_s, waits.get(frequency, 10.0))
                if waits[frequency] < 0.3:
                    break
        assert waits[1] < 0.3 < waits[2], waits
