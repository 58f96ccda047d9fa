"""The error that ended a connection is told once, to whoever asks first: by recv(), send() or SO_ERROR.

Unread data before it doesn't matter.
"""

import errno
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sctp_api import (
    SCTP_STATUS,
    connected,
    expect,
    get_option,
    listener,
    one_to_one,
    readable,
    wait_for_error,
)


def wait_until_sent(sock: socket.socket, timeout_s: float = 10) -> None:
    """Wait until the peer has acknowledged everything (SCTP_STATUS)."""
    deadline = time.monotonic() + timeout_s
    while any(struct.unpack_from("=iiIHH", get_option(sock, SCTP_STATUS, bytes(176)))[3:]):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def abort(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def error_of(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


@contextmanager
def aborted_behind_data() -> Iterator[socket.socket]:
    """Yield the end of a connection that has a message unread, and behind it the peer's ABORT."""
    with connected() as (client, server):
        client.send(b"x")
        assert readable(server, 5)
        abort(client)
        yield server


def case_asked_for_before_the_data() -> None:
    with aborted_behind_data() as server:
        assert wait_for_error(server) == errno.ECONNRESET
        assert error_of(server) == 0
        assert server.recv(10) == b"x"
        expect(errno.ENOTCONN, server.recv, 10)
        expect(errno.EPIPE, server.send, b"y", socket.MSG_NOSIGNAL)


def case_told_by_send_before_the_data() -> None:
    with aborted_behind_data() as server:
        while True:
            try:
                server.send(b"y", socket.MSG_NOSIGNAL)
            except ConnectionResetError:
                break
        assert error_of(server) == 0
        assert server.recv(10) == b"x"
        expect(errno.ENOTCONN, server.recv, 10)


def case_received_behind_the_data() -> None:
    with aborted_behind_data() as server:
        assert server.recv(10) == b"x"
        expect(errno.ECONNRESET, server.recv, 10)
        assert error_of(server) == 0
        expect(errno.ENOTCONN, server.recv, 10)


def case_asked_for_between_them() -> None:
    with aborted_behind_data() as server:
        assert server.recv(10) == b"x"
        assert wait_for_error(server) == errno.ECONNRESET
        expect(errno.ENOTCONN, server.recv, 10)


def case_a_look_tells_it_too() -> None:
    with aborted_behind_data() as server:
        assert server.recv(10) == b"x"
        expect(errno.ECONNRESET, server.recv, 10, socket.MSG_PEEK)
        assert error_of(server) == 0
        expect(errno.ENOTCONN, server.recv, 10)


def refused(client: socket.socket) -> None:
    """Have a connect() refused; it isn't told of that."""
    client.setblocking(False)
    expect(errno.EINPROGRESS, client.connect, ("127.0.0.1", 9))
    client.settimeout(10)


def told_by_receiving(client: socket.socket) -> None:
    expect(errno.ECONNREFUSED, client.recv, 10)


def told_by_sending(client: socket.socket) -> None:
    assert readable(client, 5)
    expect(errno.ECONNREFUSED, client.send, b"x", socket.MSG_NOSIGNAL)


def told_when_asked(client: socket.socket) -> None:
    assert wait_for_error(client) == errno.ECONNREFUSED


WAYS: tuple[Callable[[socket.socket], None], ...] = (told_by_receiving, told_by_sending, told_when_asked)


def case_refused_connection() -> None:
    for told in WAYS:
        with one_to_one() as client:
            refused(client)
            told(client)
            assert error_of(client) == 0
            client.setblocking(False)
            expect(errno.EAGAIN, client.recv, 10)
            assert not readable(client)


def case_refused_while_connect_waits() -> None:
    """It is told by connect(), and once more."""
    with one_to_one() as client:
        expect(errno.ECONNREFUSED, client.connect, ("127.0.0.1", 9))
        expect(errno.ECONNREFUSED, client.recv, 10)
        client.setblocking(False)
        expect(errno.EAGAIN, client.recv, 10)


def not_told(client: socket.socket) -> None:
    assert readable(client, 5)


def case_connected_after_a_refusal() -> None:
    """A refusal, told or not, leaves nothing behind."""
    for told in (*WAYS, not_told):
        with one_to_one() as client, listener() as waiting:
            refused(client)
            told(client)
            try:
                client.connect(waiting.getsockname())
            except ConnectionRefusedError:  # now it is told
                client.connect(waiting.getsockname())
            server, _ = waiting.accept()
            with server:
                assert not readable(client)
                server.send(b"first")
                assert client.recv(10) == b"first"


def case_what_comes_after_the_end_of_reading_is_thrown_away() -> None:
    """So the peer never finds a window closed, and a close() of this end is one in order."""
    with connected() as (client, server):
        client.shutdown(socket.SHUT_RD)
        server.settimeout(10)
        for _ in range(1000):
            server.send(bytes(1000))
        assert client.recv(10) == b""
        client.send(b"still")
        assert server.recv(10) == b"still"
        wait_until_sent(server)
        client.close()
        assert server.recv(10) == b""


def case_what_came_before_the_end_of_reading_counts_as_unread() -> None:
    with connected() as (client, server):
        server.send(b"before")
        assert readable(client, 5)
        client.shutdown(socket.SHUT_RD)
        client.close()
        expect(errno.ECONNRESET, server.recv, 10)


def case_aborted_after_the_end_of_reading() -> None:
    for told in (wait_for_error, told_of_reset_by_sending):
        with connected() as (client, server):
            client.shutdown(socket.SHUT_RD)
            abort(server)
            assert told(client) == errno.ECONNRESET
            assert error_of(client) == 0
            assert client.recv(10) == b""
            expect(errno.EPIPE, client.send, b"y", socket.MSG_NOSIGNAL)


def told_of_reset_by_sending(client: socket.socket) -> int:
    while True:
        try:
            client.send(b"y", socket.MSG_NOSIGNAL)
        except OSError as error:
            return error.errno or 0
