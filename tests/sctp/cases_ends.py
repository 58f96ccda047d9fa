"""How connections end: in order, by ABORT, half."""

import contextlib
import errno
import socket
import struct
import threading
import time

from tests.sctp.sctp_api import (
    ASSOC_CHANGE,
    COMM_LOST,
    connected,
    expect,
    listener,
    one_to_one,
    readable,
    receive,
    subscribe,
    writable,
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


def case_abort_wakes_a_blocked_writer() -> None:
    with connected() as (client, server):
        failures: list[int | None] = []

        def write() -> None:
            try:
                for _ in range(20000):
                    client.send(b"x" * 1000)
            except OSError as error:
                failures.append(error.errno)

        thread = threading.Thread(target=write)
        thread.start()
        deadline = time.monotonic() + 20
        while writable(client) and time.monotonic() < deadline:
            time.sleep(0.05)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()
        thread.join(10)
        assert not thread.is_alive()
        assert failures
        assert failures[0] in (errno.ECONNRESET, errno.EPIPE, errno.ESRCH), failures  # Linux: ESRCH


def case_unaccepted_connection_ends_with_the_listener() -> None:
    with one_to_one() as client:
        with listener() as waiting:
            client.connect(waiting.getsockname())
        assert readable(client, 10)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(100) == b""
        expect(errno.EPIPE, client.send, b"to nobody")
