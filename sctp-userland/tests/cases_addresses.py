"""Addresses: several of them, IPv4 beside IPv6, and what is told of them."""

import contextlib
import errno
import socket
import struct

from cases_binding import two_addresses
from sctp_api import (
    CANT_START,
    COMM_UP,
    SCTP_PRIMARY_ADDR,
    SOL_SCTP,
    addresses_of,
    associated,
    connectx,
    expect,
    get_option,
    listener,
    loopback,
    one_to_many,
    one_to_one,
    pack_addresses,
    peeloff,
    readable,
    receive_change,
    receive_data,
    send,
    unpack_addresses,
)


def case_loopback_address_is_its_binders_alone() -> None:
    """An address on no interface isn't announced for others, while it is bound and afterwards."""
    with one_to_one() as holder, one_to_many() as server:
        holder.bind(("127.0.0.9", 0))
        server.bind(("127.0.0.1", 0))
        server.listen(5)
        for _ in range(2):
            with one_to_many() as client:
                send(client, b"x", to=server.getsockname())
                association = receive_data(server).association
                assert "127.0.0.9" not in [host for host, _ in addresses_of(server, association, peer=True)]
            holder.close()


def case_loopback_address_that_nobody_bound_refuses() -> None:
    """All of 127.0.0.0/8 is this host's, though only 127.0.0.1 stands on an interface."""
    with one_to_one() as client, one_to_one() as waiting, one_to_many() as many:
        expect(errno.ECONNREFUSED, client.connect, ("127.0.0.88", 9))
        expect(errno.ECONNREFUSED, connectx, waiting, [("127.0.0.89", 9)])
        send(many, b"x", to=("127.3.2.1", 9))
        assert receive_change(many, CANT_START).is_notification


def case_no_route() -> None:
    """It is told at once, of the first address that connectx() is given; nothing has begun then."""
    nowhere, elsewhere, also6 = ("10.255.1.1", 77), ("10.255.1.2", 77), ("::ffff:10.255.1.1", 77)
    for make in (one_to_one, one_to_many):
        with make() as client, make(socket.AF_INET6) as client6:
            for _ in range(2):
                expect(errno.ENETUNREACH, client.connect, nowhere)
                expect(errno.ENETUNREACH, client.sendto, b"x", nowhere)
            expect(errno.ENETUNREACH, connectx, client, [nowhere, elsewhere])
            expect(errno.ENETUNREACH, client6.connect, also6)
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            assert not readable(client, 0)
            with listener() as waiting:
                port = waiting.getsockname()[1]
                expect(
                    errno.ENETUNREACH,
                    connectx,
                    client,
                    [(nowhere[0], port), (loopback(socket.AF_INET), port)],
                )
                connectx(client, [(loopback(socket.AF_INET), port), (nowhere[0], port)])


def case_wildcard_ipv6_listener_takes_ipv4() -> None:
    with one_to_one(socket.AF_INET6) as waiting, one_to_one() as client:
        waiting.bind(("::", 0))
        waiting.listen(1)
        client.connect((loopback(socket.AF_INET), waiting.getsockname()[1]))
        server, address = waiting.accept()
        with server:
            assert address[0].endswith("127.0.0.1")
            client.send(b"mixed")
            assert server.recv(10) == b"mixed"


def case_connect_again_after_refusal() -> None:
    with listener() as waiting, one_to_one() as client:
        expect(errno.ECONNREFUSED, client.connect, ("127.0.0.1", 9))
        client.connect(waiting.getsockname())
        server, _ = waiting.accept()
        with server:
            client.send(b"second try")
            assert server.recv(100) == b"second try"
            server.send(b"answer")
            assert client.recv(100) == b"answer"


def case_ipv4_seen_by_an_ipv6_socket() -> None:
    """IPv4 peers have mapped addresses there, in and out."""
    with one_to_many(socket.AF_INET6) as server, one_to_many() as client:
        server.bind(("::", 0))
        server.listen(1)
        send(client, b"x", to=("127.0.0.1", server.getsockname()[1]))
        got = receive_data(server)
        assert got.address is not None
        assert got.address[0] == "::ffff:127.0.0.1"
        server.sendto(b"y", got.address)
        assert receive_data(client).data == b"y"
        assert addresses_of(server, got.association, peer=True)[0][0] == "::ffff:127.0.0.1"


def ipv6_alone() -> socket.socket:
    """Return a one-to-many socket on the wildcard that takes IPv6 only."""
    server = one_to_many(socket.AF_INET6)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    server.bind(("::", 0))
    server.listen(5)
    return server


def case_ipv6_only_refuses_ipv4() -> None:
    with ipv6_alone() as server, one_to_one() as stranger, one_to_many(socket.AF_INET6) as client:
        port = server.getsockname()[1]
        expect(errno.ECONNREFUSED, stranger.connect, ("127.0.0.1", port))
        send(client, b"x", to=("::1", port))
        assert receive_data(server).data == b"x"


def case_ipv6_only_leaves_ipv4_to_others() -> None:
    with ipv6_alone() as server, one_to_many() as other, one_to_many() as client:
        port = server.getsockname()[1]
        other.bind(("0.0.0.0", port))
        other.listen(5)
        send(client, b"four", to=("127.0.0.1", port))
        assert receive_data(other).data == b"four"
        with one_to_many(socket.AF_INET6) as newer:
            send(newer, b"six", to=("::1", port))
            assert receive_data(server).data == b"six"


def case_ipv6_only_beside_an_ipv4_wildcard() -> None:
    """The other way round, and one-to-one."""
    with one_to_one() as other, one_to_one(socket.AF_INET6) as waiting:
        other.bind(("0.0.0.0", 0))
        other.listen(1)
        waiting.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        waiting.bind(("::", other.getsockname()[1]))
        waiting.listen(1)
        with one_to_one(socket.AF_INET6) as client:
            client.connect(("::1", other.getsockname()[1]))
            server, _ = waiting.accept()
            with server:
                client.send(b"x")
                assert server.recv(10) == b"x"


def case_ipv6_only_is_decided_before_binding() -> None:
    with one_to_one(socket.AF_INET6) as sock, one_to_one() as of_ipv4:
        option = (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        expect(errno.ENOPROTOOPT, of_ipv4.setsockopt, *option, 1)
        sock.setsockopt(*option, 256)
        assert sock.getsockopt(*option) == 1
        expect(errno.EINVAL, sock.bind, ("::ffff:127.0.0.1", 0))
        sock.bind(("::", 0))
        expect(errno.EINVAL, sock.setsockopt, *option, 0)
        assert sock.getsockopt(*option) == 1


def case_mapped_address_connects() -> None:
    with listener() as waiting, one_to_one(socket.AF_INET6) as client:
        client.connect(("::ffff:127.0.0.1", waiting.getsockname()[1]))
        server, _ = waiting.accept()
        with server:
            assert client.getpeername()[0] == "::ffff:127.0.0.1"
            assert client.getsockname()[0] == "::ffff:127.0.0.1"
            client.send(b"x")
            assert server.recv(10) == b"x"


def case_name_of_a_connected_wildcard_socket() -> None:
    with one_to_one() as waiting, one_to_one() as client:
        waiting.bind(("0.0.0.0", 0))
        waiting.listen(1)
        client.connect(("127.0.0.1", waiting.getsockname()[1]))
        server, _ = waiting.accept()
        with server:
            assert client.getsockname()[0] == "127.0.0.1"
            assert server.getsockname()[0] == "127.0.0.1"


def case_connectx_to_several_addresses() -> None:
    server, port = two_addresses()
    with server, one_to_many() as client:
        both = [("127.0.0.2", port), ("127.0.0.1", port)]
        association = connectx(client, both)
        assert receive_change(client, COMM_UP).changed_association == association
        assert sorted(addresses_of(client, association, peer=True)) == sorted(both)
        send(client, b"x", association=association)
        assert receive_data(server).data == b"x"


def case_connectx_without_blocking() -> None:
    server, port = two_addresses()
    with server, one_to_many() as client:
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connectx(client, [("127.0.0.1", port)])
        assert receive_change(client, COMM_UP).is_notification


def case_connectx_to_two_ports() -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        for sock in (one_to_one(family), one_to_many(family)):
            with sock:
                expect(errno.EINVAL, connectx, sock, [("127.0.0.1", 9), ("127.0.0.2", 10)])


def case_an_address_decides_whom_a_message_is_for() -> None:
    """Not the association that is named beside it."""
    with associated() as (client, association, server, _), one_to_many() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        send(client, b"x", to=other.getsockname(), association=association)
        assert receive_data(other).data == b"x"
        send(client, b"y", to=server.getsockname(), association=association)
        assert receive_data(server).data == b"y"


def case_connectx_refused() -> None:
    with one_to_one() as client:
        expect(errno.ECONNREFUSED, connectx, client, [("127.0.0.1", 9)])


def case_addresses_of_an_association() -> None:
    server, port = two_addresses()
    with server, one_to_many() as client:
        client.bind(("127.0.0.3", 0))
        send(client, b"x", to=("127.0.0.1", port))
        got = receive_data(server)
        assert addresses_of(server, got.association, peer=True) == [client.getsockname()]
        assert sorted(addresses_of(server, got.association, peer=False)) == [
            ("127.0.0.1", port),
            ("127.0.0.2", port),
        ]


def case_primary_address() -> None:
    server, port = two_addresses()
    with server, one_to_many() as client:
        association = connectx(client, [("127.0.0.1", port)])
        receive_change(client, COMM_UP)
        chosen = struct.pack("=i", association) + pack_addresses([("127.0.0.2", port)]).ljust(128, b"\0")
        client.setsockopt(SOL_SCTP, SCTP_PRIMARY_ADDR, chosen)
        answer = get_option(client, SCTP_PRIMARY_ADDR, struct.pack("=i", association) + bytes(128))
        assert unpack_addresses(answer[4:], 1) == [("127.0.0.2", port)]


def case_peeled_off_keeps_its_addresses() -> None:
    server, port = two_addresses()
    with server, one_to_many() as client:
        association = connectx(client, [("127.0.0.1", port)])
        receive_change(client, COMM_UP)
        with peeloff(client, association) as peeled:
            assert sorted(addresses_of(peeled, peer=True)) == [("127.0.0.1", port), ("127.0.0.2", port)]
