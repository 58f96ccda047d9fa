"""How connections end: in order, by ABORT, half."""

import errno
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import partial

from sctp_api import (
    ABORT,
    ASSOC_CHANGE,
    COMM_LOST,
    SCTP_STATUS,
    associated,
    connected,
    expect,
    get_option,
    listener,
    one_to_one,
    readable,
    receive,
    send,
    subscribe,
)


def case_end_of_file() -> None:
    with connected() as (client, server):
        client.send(b"last words")
        client.close()
        assert server.recv(100) == b"last words"
        assert server.recv(100) == b""
        assert server.recv(100) == b""


def case_send_after_end() -> None:
    with connected() as (client, server):
        client.close()
        assert server.recv(100) == b""
        expect(errno.EPIPE, server.send, b"too late")


def case_shutdown_writing() -> None:
    with connected() as (client, server):
        client.send(b"all I have")
        client.shutdown(socket.SHUT_WR)
        assert server.recv(100) == b"all I have"
        assert server.recv(100) == b""
        expect(errno.EPIPE, client.send, b"more")
        expect(errno.ENOTCONN, client.recv, 100)


def case_shutdown_unconnected() -> None:
    with one_to_one() as fresh:
        expect(errno.ENOTCONN, fresh.shutdown, socket.SHUT_WR)


def case_abort_by_linger() -> None:
    with connected() as (client, server):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        assert readable(server, 5)
        expect(errno.ECONNRESET, server.recv, 100)
        expect(errno.ENOTCONN, server.recv, 100)
        expect(errno.ENOTCONN, server.recv, 100)


def case_abort_by_unread_data() -> None:
    with connected() as (client, server):
        server.send(b"never read")
        assert readable(client, 5)
        client.close()
        assert readable(server, 5)
        expect(errno.ECONNRESET, server.recv, 100)


def case_abort_is_notified() -> None:
    with listener() as waiting, one_to_one() as client:
        subscribe(waiting, association=True)
        client.connect(waiting.getsockname())
        server, _ = waiting.accept()
        with server:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            while True:
                got = receive(server)
                assert got.is_notification
                if got.notification == ASSOC_CHANGE and got.state == COMM_LOST:
                    break


def case_send_unconnected() -> None:
    with one_to_one() as fresh:
        expect(errno.EPIPE, lambda: fresh.send(b"nowhere", socket.MSG_NOSIGNAL))


def case_linger_can_be_read_back() -> None:
    with one_to_one() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 7))
        assert struct.unpack("ii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)) == (1, 7)


def case_shutdown_both_ways() -> None:
    with connected() as (client, server):
        client.send(b"last words")
        client.shutdown(socket.SHUT_RDWR)
        assert server.recv(100) == b"last words"
        assert server.recv(100) == b""
        expect(errno.EPIPE, client.send, b"more")
        assert client.recv(100) == b""


def case_close_delivers_what_was_sent() -> None:
    with connected() as (client, server):
        for number in range(100):
            client.send(b"%09d" % number + b"x" * 500)
        client.close()
        for number in range(100):
            assert server.recv(1000)[:9] == b"%09d" % number
        assert server.recv(1000) == b""


def case_close_with_time_to_linger() -> None:
    with connected() as (client, server):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
        client.send(b"last words")
        client.close()
        assert server.recv(100) == b"last words"
        assert server.recv(100) == b""


def case_abort_wakes_a_blocked_reader() -> None:
    with connected() as (client, server):
        failures: list[int | None] = []

        def read() -> None:
            try:
                server.recv(100)
                failures.append(None)
            except OSError as error:
                failures.append(error.errno)

        thread = threading.Thread(target=read)
        thread.start()
        time.sleep(0.1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        thread.join(10)
        assert failures == [errno.ECONNRESET]


def failure_while_waiting(attempt: Callable[[], int], end: Callable[[], object]) -> int:
    """Return how a send() fails that waits for room while the other end does this."""
    failures: list[int | None] = []
    sent: list[int] = []

    def write() -> None:
        try:
            while len(sent) < 20000:
                sent.append(attempt())
        except OSError as error:
            failures.append(error.errno)

    thread = threading.Thread(target=write)
    thread.start()
    before = -1
    while before < len(sent):  # still writing
        before = len(sent)
        time.sleep(0.3)
    end()
    thread.join(10)
    assert not thread.is_alive()
    assert len(failures) == 1
    return failures[0] or 0


def case_abort_wakes_a_blocked_writer() -> None:
    """Its association is over, says this call; what ended it, the next one."""
    with connected() as (client, server):
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert failure_while_waiting(lambda: client.send(b"x" * 1000), server.close) == errno.ESRCH
        expect(errno.ECONNRESET, client.recv, 100)
        expect(errno.EPIPE, client.send, b"too late")


def case_abort_wakes_a_blocked_writer_to_one_of_many() -> None:
    """It doesn't begin another association with that address, either."""
    with associated() as (client, _, server, to_client):
        end = partial(send, server, b"", flags=ABORT, association=to_client)
        name = server.getsockname()
        assert failure_while_waiting(lambda: client.sendto(b"x" * 1000, name), end) == errno.ESRCH
        assert client.sendto(b"anew", name) == 4


def case_shutdown_of_the_peer_wakes_a_blocked_writer() -> None:
    with connected() as (client, server):
        end = partial(server.shutdown, socket.SHUT_WR)
        assert failure_while_waiting(lambda: client.send(b"x" * 1000), end) == errno.EPIPE


def case_unaccepted_connection_ends_with_the_listener() -> None:
    with one_to_one() as client:
        with listener() as waiting:
            client.connect(waiting.getsockname())
        assert readable(client, 10)
        assert client.recv(100) == b""
        expect(errno.EPIPE, client.send, b"to nobody")


def wait_until_acknowledged(sock: socket.socket) -> None:
    """Wait until the peer's stack has all that was sent."""
    deadline = time.monotonic() + 10
    while any(struct.unpack_from("=HH", get_option(sock, SCTP_STATUS, bytes(176)), 12)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def case_unaccepted_connection_with_unread_data_ends_by_abort() -> None:
    with one_to_one() as client:
        with listener() as waiting:
            client.connect(waiting.getsockname())
            client.send(b"never read")
            wait_until_acknowledged(client)
        assert readable(client, 10)
        expect(errno.ECONNRESET, client.recv, 100)


def case_shutdown_of_reading() -> None:
    """Data that lies there is still received, then the end; the peer isn't told."""
    with connected() as (client, server):
        server.send(b"before")
        assert readable(client, 5)
        client.shutdown(socket.SHUT_RD)
        assert client.recv(100) == b"before"
        assert client.recv(100) == b""
        client.send(b"still")
        assert server.recv(100) == b"still"
        client.close()
        assert server.recv(100) == b""


def case_shutdown_wakes_a_blocked_reader() -> None:
    for how in (socket.SHUT_RD, socket.SHUT_RDWR):
        with connected() as (client, _):
            got: list[bytes] = []
            thread = threading.Thread(target=lambda sock=client, to=got: to.append(sock.recv(100)))
            thread.start()
            time.sleep(0.1)
            client.shutdown(how)
            thread.join(10)
            assert got == [b""]
