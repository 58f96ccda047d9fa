"""Associations that are taken out of a one-to-many socket."""

import errno
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sctp_api import (
    COMM_UP,
    SCTP_GET_ASSOC_ID_LIST,
    addresses_of,
    associated,
    expect,
    get_option,
    one_to_many,
    one_to_one,
    peeloff,
    readable,
    receive,
    receive_change,
    receive_data,
    send,
)


def case_peeloff() -> None:
    with associated() as (client, to_server, server, to_client), peeloff(server, to_client) as peeled:
        send(client, b"for the new one", association=to_server)
        assert readable(peeled, 5)
        data = peeled.recv(100)
        assert data == b"for the new one"
        assert not readable(server, 0.05)
        peeled.send(b"from it")
        assert receive_data(client).data == b"from it"
        assert peeled.getpeername()[1] == client.getsockname()[1]


def two_associations(server: socket.socket, *clients: socket.socket) -> list[int]:
    """Connect both clients and return the server's identifiers of their associations; nothing is read."""
    server.bind(("127.0.0.1", 0))
    server.listen(5)
    for client in clients:
        client.connect(server.getsockname())
    _, *identifiers = struct.unpack("=3I", get_option(server, SCTP_GET_ASSOC_ID_LIST, bytes(12)))
    ports = {addresses_of(server, identifier, peer=True)[0][1]: identifier for identifier in identifiers}
    return [ports[client.getsockname()[1]] for client in clients]


def case_peeloff_takes_along_what_was_not_read() -> None:
    with one_to_many() as server, one_to_one() as first, one_to_one() as second:
        association, other = two_associations(server, first, second)
        for number in range(3):
            first.send(b"first %d" % number)
            time.sleep(0.1)
            second.send(b"second %d" % number)
            time.sleep(0.1)
        with peeloff(server, association) as peeled:
            assert receive(peeled).changed_association == association
            for number in range(3):
                assert receive(peeled).data == b"first %d" % number
            assert not readable(peeled, 0.1)
            assert receive(server).changed_association == other
            for number in range(3):
                got = receive(server)
                assert (got.data, got.association) == (b"second %d" % number, other)
            assert not readable(server, 0.1)


@contextmanager
def two_clients() -> Iterator[tuple[socket.socket, socket.socket, socket.socket, int]]:
    """Yield a server, two clients it has been told of, and its identifier of the first one's association."""
    with one_to_many() as server, one_to_one() as first, one_to_one() as second:
        association, _ = two_associations(server, first, second)
        receive_change(server, COMM_UP)
        receive_change(server, COMM_UP)
        yield server, first, second, association


def case_peeloff_takes_along_the_rest_of_a_message() -> None:
    with two_clients() as (server, first, second, association):
        first.send(b"partly read")
        assert server.recv(7) == b"partly "
        second.send(b"other")
        time.sleep(0.3)
        with peeloff(server, association) as peeled:
            assert receive(peeled).data == b"read"
            assert receive(server).data == b"other"


def case_peeloff_leaves_the_rest_of_a_message_of_another() -> None:
    with two_clients() as (server, first, second, association):
        second.send(b"partly read")
        assert server.recv(7) == b"partly "
        first.send(b"first")
        time.sleep(0.3)
        with peeloff(server, association) as peeled:
            assert receive(peeled).data == b"first"
            assert receive(server).data == b"read"


def case_peeloff_unknown_association() -> None:
    with associated() as (_, _, server, to_client):
        expect(errno.EINVAL, peeloff, server, to_client + 1000)
