"""Each bit that poll() and epoll say of a socket, above all when its connection ends.

If the stacks differ (the README of sctp-userland says why) both have their bits here, the kernel's first.
"""

import errno
import select
import socket
import struct
import time
from pathlib import Path

from sctp_api import (
    ABORT,
    COMM_LOST,
    EOF,
    SHUTDOWN_COMP,
    associated,
    connected,
    expect,
    listener,
    one_to_many,
    one_to_one,
    readable,
    receive_change,
    send,
)

KERNEL = Path("/proc/net/sctp").exists()
NAMES = {
    select.EPOLLIN: "IN",
    select.EPOLLPRI: "PRI",
    select.EPOLLOUT: "OUT",
    select.EPOLLERR: "ERR",
    select.EPOLLHUP: "HUP",
    select.EPOLLRDHUP: "RDHUP",
}
AT_END = "IN OUT RDHUP"


def named(events: int) -> str:
    return " ".join(name for bit, name in NAMES.items() if events & bit)


def bits(sock: socket.socket) -> tuple[str, str]:
    """Return what epoll and poll() say, asked for everything."""
    with select.epoll() as asked:
        asked.register(sock, sum(NAMES))
        by_epoll = dict(asked.poll(0)).get(sock.fileno(), 0)
    polled = select.poll()
    polled.register(sock, sum(NAMES))
    return named(by_epoll), named(dict(polled.poll(0)).get(sock.fileno(), 0))


def settles(sock: socket.socket, kernel: str, sctpd: str | None = None) -> None:
    """Assert that both come to say these bits, all and no others, and stay with them."""
    expected = kernel if KERNEL or sctpd is None else sctpd
    deadline = time.monotonic() + 10
    while bits(sock) != (expected, expected) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert bits(sock) == (expected, expected), f"{bits(sock)} instead of {expected!r}"


def abort(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def case_never_connected() -> None:
    with one_to_one() as sock:
        settles(sock, "")
        sock.bind(("127.0.0.1", 0))
        settles(sock, "")


def case_listening() -> None:
    with listener() as waiting, one_to_one() as client:
        settles(waiting, "")
        client.connect(waiting.getsockname())
        settles(waiting, "IN")
        waiting.accept()[0].close()
        settles(waiting, "")


def case_connected() -> None:
    with connected() as (client, server):
        settles(server, "OUT")
        client.send(b"x")
        settles(server, "IN OUT")
        assert server.recv(10) == b"x"
        settles(server, "OUT")


def case_the_peer_closes() -> None:
    with connected() as (client, server):
        client.close()
        settles(server, AT_END)
        assert server.recv(10) == b""
        settles(server, AT_END)


def case_the_peer_closes_behind_data() -> None:
    with connected() as (client, server):
        client.send(b"x")
        client.close()
        settles(server, AT_END)
        assert server.recv(10) == b"x"
        settles(server, AT_END)


def case_the_peer_shuts_down() -> None:
    """In one direction or both; of the other one alone nobody is told."""
    for how, expected in ((socket.SHUT_WR, AT_END), (socket.SHUT_RDWR, AT_END), (socket.SHUT_RD, "OUT")):
        with connected() as (client, server):
            client.shutdown(how)
            settles(server, expected)


def case_own_shutdown() -> None:
    with connected() as (client, server):
        client.shutdown(socket.SHUT_WR)
        settles(client, "OUT", "IN OUT")
        server.close()
        settles(client, "OUT", "IN OUT")


def case_own_shutdown_before_unread_data() -> None:
    with connected() as (client, server):
        server.send(b"x")
        assert readable(client, 5)
        client.shutdown(socket.SHUT_WR)
        settles(client, "IN OUT")


def case_own_shutdown_both_ways() -> None:
    with connected() as (client, _):
        client.shutdown(socket.SHUT_RDWR)
        settles(client, "IN OUT HUP RDHUP", AT_END)


def case_own_shutdown_of_reading() -> None:
    with connected() as (client, _):
        client.shutdown(socket.SHUT_RD)
        settles(client, AT_END)


def case_the_peer_aborts() -> None:
    with connected() as (client, server):
        abort(client)
        settles(server, "OUT ERR", AT_END)
        expect(errno.ECONNRESET, server.recv, 10)
        settles(server, "OUT", AT_END)


def case_the_peer_aborts_behind_data() -> None:
    with connected() as (client, server):
        client.send(b"x")
        assert readable(server, 5)
        abort(client)
        settles(server, "IN OUT ERR", AT_END)
        assert server.recv(10) == b"x"
        settles(server, "OUT ERR", AT_END)


def case_refused() -> None:
    with one_to_one() as client:
        client.setblocking(False)
        expect(errno.EINPROGRESS, client.connect, ("127.0.0.1", 9))
        settles(client, "ERR", "IN OUT")
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
        settles(client, "")
        with listener() as waiting:
            expect(errno.EINPROGRESS, client.connect, waiting.getsockname())
            settles(client, "OUT")


def case_refused_with_blocking() -> None:
    with one_to_one() as client:
        expect(errno.ECONNREFUSED, client.connect, ("127.0.0.1", 9))
        settles(client, "ERR", "IN OUT")
        expect(errno.ECONNREFUSED, client.send, b"x")
        settles(client, "")
        expect(errno.EPIPE, client.send, b"x")


def case_one_to_many() -> None:
    with one_to_many() as sock:
        settles(sock, "OUT")
        sock.bind(("127.0.0.1", 0))
        sock.listen(1)
        settles(sock, "OUT")


def case_one_to_many_lives_on() -> None:
    """However an association of it ends: that is something to be received, no more."""
    for flags, state in ((EOF, SHUTDOWN_COMP), (ABORT, COMM_LOST)):
        with associated() as (client, to_server, server, _):
            send(client, b"", flags=flags, association=to_server)
            for sock in (server, client):
                settles(sock, "IN OUT")
                receive_change(sock, state)
                settles(sock, "OUT")
