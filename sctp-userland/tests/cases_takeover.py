"""No socket takes over an association that another one has from the same port with the same peer.

Its INIT would be a restart to the peer: the older association would be dead, and the newer socket would get
what the peer sends to it.
"""

import ctypes
import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from sctp_api import (
    SOL_SCTP,
    associated,
    connected,
    expect,
    libc,
    listener,
    one_to_many,
    one_to_one,
    pack_addresses,
    peeloff,
    receive_data,
    send,
)

SOCKOPT_CONNECTX = 110


def connectx(sock: socket.socket, addresses: list[tuple[str, int]]) -> None:
    packed = pack_addresses(addresses)
    if libc.setsockopt(sock.fileno(), SOL_SCTP, SOCKOPT_CONNECTX, packed, len(packed)) < 0:
        raise OSError(ctypes.get_errno(), "connectx")


def name_of(sock: socket.socket) -> tuple[str, int]:
    """Return where it is, if its name is the wildcard."""
    return "127.0.0.1", sock.getsockname()[1]


@contextmanager
def peeled_off() -> Iterator[tuple[socket.socket, socket.socket, socket.socket]]:
    """Yield a one-to-many socket, one that was peeled off it, and that one's peer."""
    with associated() as (client, _, server, to_client), peeloff(server, to_client) as peeled:
        yield server, peeled, client


def assert_alive(peeled: socket.socket, client: socket.socket) -> None:
    peeled.send(b"still there")
    assert receive_data(client).data == b"still there"


def case_connect_after_peeloff() -> None:
    with peeled_off() as (server, peeled, client):
        expect(errno.EADDRNOTAVAIL, server.connect, name_of(client))
        assert_alive(peeled, client)


def case_connectx_after_peeloff() -> None:
    with peeled_off() as (server, peeled, client):
        expect(errno.EADDRNOTAVAIL, connectx, server, [name_of(client)])
        assert_alive(peeled, client)


def case_send_after_peeloff() -> None:
    with peeled_off() as (server, peeled, client):
        with one_to_many() as other:
            other.bind(("127.0.0.1", 0))
            other.listen(1)
            send(server, b"another peer", to=other.getsockname())
            assert receive_data(other).data == b"another peer"
        expect(errno.EADDRNOTAVAIL, server.sendto, b"x", name_of(client))
        assert_alive(peeled, client)


def shares_ports(sock: socket.socket) -> socket.socket:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return sock


def case_connect_from_the_port_of_an_accepted_socket() -> None:
    """Its listener is closed; both have SO_REUSEADDR."""
    with shares_ports(one_to_one()) as waiting, one_to_one() as client:
        waiting.bind(("127.0.0.1", 0))
        waiting.listen(1)
        name = waiting.getsockname()
        client.bind(("127.0.0.1", 0))
        client.connect(name)
        server, _ = waiting.accept()
        waiting.close()
        with server, shares_ports(one_to_one()) as second:
            second.bind(name)
            expect(errno.EADDRNOTAVAIL, second.connect, client.getsockname())
            server.send(b"to the first")
            assert client.recv(100) == b"to the first"
            client.send(b"from the peer")
            assert server.recv(100) == b"from the peer"


def case_another_peer_after_peeloff() -> None:
    """Only the association with that peer would be taken over."""
    with peeled_off() as (server, peeled, client), listener() as waiting:
        server.connect(waiting.getsockname())
        accepted, _ = waiting.accept()
        with accepted:
            assert_alive(peeled, client)


def case_ports_that_nobody_asked_for() -> None:
    """An accepted socket's port, whose listener is gone, isn't given to another one."""
    with connected() as (client, server):
        taken = {client.getsockname()[1], server.getsockname()[1]}
        for _ in range(200):
            with one_to_one() as other:
                other.bind(("127.0.0.1", 0))
                assert other.getsockname()[1] not in taken
