"""Calls that don't fit the state a socket is in, and what it still tells when its connection is over."""

import errno
import socket
import struct
import time
from collections.abc import Callable

from sctp_api import (
    ABORT,
    EOF,
    SHUTDOWN_COMP,
    associated,
    bindx,
    connected,
    expect,
    is_kernel_from,
    listener,
    one_to_many,
    one_to_one,
    readable,
    receive_change,
    send,
)


def abort(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def case_names_after_the_end() -> None:
    """Both ends keep their names, however it ended: programs write them to their logs."""
    ends: tuple[Callable[[socket.socket], object], ...] = (socket.socket.close, abort)
    for end in ends:
        with listener() as waiting, one_to_one() as client:
            client.connect(waiting.getsockname())
            server, peer = waiting.accept()
            own = server.getsockname()
            end(client)
            with server:
                assert readable(server, 5)
                time.sleep(0.1)
                assert (server.getpeername(), server.getsockname()) == (peer, own)
    with connected(socket.AF_INET6) as (client, server):
        peer, own = client.getpeername(), client.getsockname()
        server.close()
        assert client.recv(10) == b""
        time.sleep(0.1)
        assert (client.getpeername(), client.getsockname()) == (peer, own)


def case_a_peer_that_went_before_it_was_accepted() -> None:
    with listener() as waiting:
        with one_to_one() as client:
            client.connect(waiting.getsockname())
            name = client.getsockname()
        time.sleep(0.2)
        server, peer = waiting.accept()
        with server:
            assert peer == name
            expect(errno.ENOTCONN, server.getpeername)
            assert server.recv(10) == b""


def case_calls_on_a_listening_socket() -> None:
    with listener() as waiting, one_to_one() as client:
        for length in (1, 0):
            expect(errno.EPIPE, waiting.send, bytes(length))
        expect(errno.EPIPE, lambda: send(waiting, b"", flags=ABORT))
        expect(errno.EPIPE, lambda: send(waiting, b"", flags=EOF))
        waiting.shutdown(socket.SHUT_WR)
        if not is_kernel_from(6, 12):
            expect(errno.EOPNOTSUPP, waiting.shutdown, socket.SHUT_RD)
            expect(errno.EOPNOTSUPP, waiting.shutdown, socket.SHUT_RDWR)
        client.connect(waiting.getsockname())
        assert readable(waiting, 5)
        expect(errno.ENOTCONN, waiting.recv, 10)
        waiting.accept()[0].close()


def case_listening_after_the_end() -> None:
    with connected() as (client, server):
        expect(errno.EINVAL, client.listen, 1)
        server.close()
        assert client.recv(10) == b""
        expect(errno.EINVAL, client.listen, 1)


def case_shutdown_of_one_to_many() -> None:
    with associated() as (client, to_server, server, _):
        for how in (socket.SHUT_WR, socket.SHUT_RD, socket.SHUT_RDWR):
            expect(errno.ENOTCONN, one_to_many().shutdown, how)
        expect(errno.EINVAL, client.shutdown, 9)
        server.shutdown(socket.SHUT_WR)
        expect(errno.EOPNOTSUPP, server.shutdown, socket.SHUT_RD)
        send(client, b"", flags=EOF, association=to_server)
        receive_change(server, SHUTDOWN_COMP)


def case_an_address_is_bound_once() -> None:
    with one_to_many() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        expect(errno.EINVAL, bindx, sock, [("127.0.0.1", port)])
        expect(errno.EINVAL, bindx, sock, [("127.0.0.1", 0)])


def case_the_last_address_stays() -> None:
    with one_to_many() as fresh, one_to_many() as sock:
        expect(errno.EBUSY, bindx, fresh, [("127.0.0.1", 0)], 2)
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        expect(errno.EBUSY, bindx, sock, [("127.0.0.1", port)], 2)
        bindx(sock, [("127.0.0.5", port)])
        bindx(sock, [("127.0.0.1", port)], 2)
        expect(errno.EBUSY, bindx, sock, [("127.0.0.5", port)], 2)
