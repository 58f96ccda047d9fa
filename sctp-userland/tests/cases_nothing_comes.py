"""recv() where no association can come says so, and calls that succeed leave errno alone."""

import ctypes
import errno
import socket

from sctp_api import connected, expect, libc, listener, one_to_many, one_to_one, receive_data, send


def case_one_to_one_that_is_new() -> None:
    with one_to_one() as sock:
        expect(errno.ENOTCONN, sock.recv, 10)
        sock.setblocking(False)
        expect(errno.EAGAIN, sock.recv, 10)


def case_one_to_many_without_associations() -> None:
    with one_to_many(events=False) as sock:
        expect(errno.ENOTCONN, sock.recv, 10)
        sock.setblocking(False)
        expect(errno.EAGAIN, sock.recv, 10)


def case_each_new_socket_knows_it_at_once() -> None:
    """Also in the moment after socket() returns: of some hundred, one recv() used to wait for ever."""
    for _ in range(1000):
        with one_to_many(events=False) as sock:
            expect(errno.ENOTCONN, sock.recv, 10)


def case_listening_one_to_one() -> None:
    with listener() as sock:
        expect(errno.ENOTCONN, sock.recv, 10)
        sock.setblocking(False)
        expect(errno.ENOTCONN, sock.recv, 10)


def case_one_to_many_that_listens_waits() -> None:
    with one_to_many() as server, one_to_many() as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        server.settimeout(0.2)
        try:
            server.recv(10)
        except TimeoutError:
            pass
        else:
            raise AssertionError("something came")
        send(client, b"x", to=server.getsockname())
        assert receive_data(server).data == b"x"


def case_errno_stays() -> None:
    untouched = 77
    room = ctypes.create_string_buffer(10)
    with connected() as (client, server):
        server.send(b"1")
        server.send(b"2")
        ctypes.set_errno(untouched)
        assert libc.recv(client.fileno(), room, 10, 0) == 1
        assert libc.send(client.fileno(), b"x", 1, 0) == 1
        assert libc.recv(client.fileno(), room, 10, 0) == 1
        assert ctypes.get_errno() == untouched
    with listener() as waiting, one_to_one() as client:
        name = (
            b"\x02\x00"
            + socket.htons(waiting.getsockname()[1]).to_bytes(2, "little")
            + b"\x7f\0\0\x01"
            + bytes(8)
        )
        ctypes.set_errno(untouched)
        assert libc.connect(client.fileno(), name, 16) == 0
        assert ctypes.get_errno() == untouched
