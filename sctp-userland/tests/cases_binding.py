"""Binding: which addresses and ports a socket may have, alone or with others."""

import ctypes
import errno
import socket
import struct

from sctp_api import (
    COMM_UP,
    addresses_of,
    bindx,
    expect,
    libc,
    listener,
    one_to_many,
    one_to_one,
    pack_addresses,
    peeloff,
    receive_change,
    receive_data,
    send,
)


def case_address_in_use() -> None:
    with listener() as waiting, one_to_one() as other:
        expect(errno.EADDRINUSE, other.bind, waiting.getsockname())


def case_address_not_local() -> None:
    with one_to_one() as fresh:
        expect(errno.EADDRNOTAVAIL, fresh.bind, ("192.0.2.1", 0))


def case_addresses_of_groups_cannot_be_bound() -> None:
    for group in ("127.255.255.255", "255.255.255.255", "224.0.0.1"):
        with one_to_one() as fresh:
            expect(errno.EADDRNOTAVAIL, fresh.bind, (group, 0))
            expect(errno.EADDRNOTAVAIL, bindx, fresh, [(group, 0)])
    with one_to_one(socket.AF_INET6) as fresh:
        expect(errno.EADDRNOTAVAIL, fresh.bind, ("ff0e::1", 0))


def case_bind_again_after_close() -> None:
    with listener() as waiting:
        name = waiting.getsockname()
    with one_to_one() as other:
        other.bind(name)
        other.listen(1)


def case_listen_again_beside_accepted() -> None:
    with one_to_one() as waiting:
        waiting.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        waiting.bind(("127.0.0.1", 0))
        waiting.listen(1)
        name = waiting.getsockname()
        with one_to_one() as client:
            client.connect(name)
            server, _ = waiting.accept()
            waiting.close()
            with server, one_to_one() as again:
                again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                again.bind(name)
                again.listen(1)
                server.send(b"still here")
                assert client.recv(100) == b"still here"


def case_port_of_accepted_connections_is_in_use() -> None:
    """Though who listened there has ended; only those who share it by SO_REUSEADDR may have it."""
    with listener() as waiting, one_to_one() as client:
        name = waiting.getsockname()
        client.connect(name)
        server, _ = waiting.accept()
        waiting.close()
        with one_to_one() as again:
            expect(errno.EADDRINUSE, again.bind, name)
            expect(errno.EADDRINUSE, again.bind, ("0.0.0.0", name[1]))
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            expect(errno.EADDRINUSE, again.bind, name)
            again.bind(("127.0.0.2", name[1]))
        server.close()
        assert client.recv(10) == b""
        with one_to_one() as again:
            again.bind(name)


def case_port_of_peeled_off_associations_is_in_use() -> None:
    with one_to_many() as server, one_to_one() as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        name = server.getsockname()
        client.connect(name)
        association = int.from_bytes(receive_change(server, COMM_UP).data[16:20], "little")
        with peeloff(server, association), one_to_many() as again:
            server.close()
            expect(errno.EADDRINUSE, again.bind, name)


def bound_to(sock: socket.socket) -> list[str]:
    return sorted(host for host, _ in addresses_of(sock, peer=False))


def case_bindx_adds_all_or_none() -> None:
    with one_to_one() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        both = [("127.0.0.2", port), ("192.0.2.1", port)]
        expect(errno.EADDRNOTAVAIL, bindx, sock, both)
        assert bound_to(sock) == ["127.0.0.1"]
        sock.listen(1)
        expect(errno.EADDRNOTAVAIL, bindx, sock, both)
        assert bound_to(sock) == ["127.0.0.1"]


def case_bindx_removes_all_or_none() -> None:
    with one_to_one() as sock:
        bindx(sock, [("127.0.0.1", 0), ("127.0.0.2", 0), ("127.0.0.3", 0)])
        port = sock.getsockname()[1]
        all_three = [(f"127.0.0.{last}", port) for last in (1, 2, 3)]
        expect(errno.EINVAL, bindx, sock, [("127.0.0.9", port)], 2)
        expect(errno.EINVAL, bindx, sock, [("127.0.0.3", port), ("127.0.0.9", port)], 2)
        expect(errno.EINVAL, bindx, sock, [("127.0.0.3", port), ("127.0.0.3", port)], 2)
        expect(errno.EBUSY, bindx, sock, all_three, 2)
        assert bound_to(sock) == [host for host, _ in all_three]
        bindx(sock, all_three[:2], 2)
        assert bound_to(sock) == ["127.0.0.3"]


def case_bindx_adds_no_wildcard() -> None:
    with one_to_one() as sock:
        sock.bind(("127.0.0.1", 0))
        expect(errno.EINVAL, bindx, sock, [("0.0.0.0", sock.getsockname()[1])])
        assert bound_to(sock) == ["127.0.0.1"]


def case_no_addresses_before_binding() -> None:
    for sock in (one_to_one(), one_to_many()):
        with sock:
            assert bound_to(sock) == []


def case_two_sockets_on_one_port() -> None:
    """Different addresses, the same port: each gets its own."""
    with one_to_many() as first, one_to_many() as second, one_to_many() as client:
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        second.bind(("127.0.0.2", port))
        for sock in (first, second):
            sock.listen(1)
        send(client, b"to the second", to=("127.0.0.2", port))
        assert receive_data(second).data == b"to the second"
        send(client, b"to the first", to=("127.0.0.1", port))
        assert receive_data(first).data == b"to the first"


def case_listening_port_with_equal_client_port() -> None:
    """Both ends use the same port number, on two addresses."""
    with one_to_many() as first, one_to_many() as second:
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        second.bind(("127.0.0.2", port))
        for sock in (first, second):
            sock.listen(5)
        send(first, b"from the first", to=("127.0.0.2", port))
        got = receive_data(second)
        assert (got.data, got.address) == (b"from the first", ("127.0.0.1", port))
        send(second, b"back", association=got.association)
        assert receive_data(first).address == ("127.0.0.2", port)


def two_addresses() -> tuple[socket.socket, int]:
    """Return a listening one-to-many socket on 127.0.0.1 and 127.0.0.2, and its port."""
    server = one_to_many()
    server.bind(("127.0.0.1", 0))
    port: int = server.getsockname()[1]
    bindx(server, [("127.0.0.2", port)])
    server.listen(4)
    return server, port


def case_bind_to_another_family() -> None:
    """A family that a socket can't have, and one that doesn't exist."""
    ipv6 = pack_addresses([("::1", 0)])
    unknown = struct.pack("=H26x", 77)
    for address, number in ((ipv6, errno.EINVAL), (unknown, errno.EAFNOSUPPORT)):
        with one_to_one() as sock:
            assert libc.bind(sock.fileno(), ctypes.create_string_buffer(address), len(address)) == -1
            assert ctypes.get_errno() == number


def case_bind_twice() -> None:
    with one_to_one() as sock:
        sock.bind(("127.0.0.1", 0))
        expect(errno.EINVAL, sock.bind, ("127.0.0.1", 0))


def case_bindx_removes() -> None:
    server, port = two_addresses()
    with server:
        bindx(server, [("127.0.0.2", port)], flags=2)
        assert addresses_of(server, peer=False) == [("127.0.0.1", port)]
        with one_to_one() as client:
            expect(errno.ECONNREFUSED, client.connect, ("127.0.0.2", port))
            expect(0, client.connect, ("127.0.0.1", port))


def case_bindx_of_another_port() -> None:
    server, port = two_addresses()
    with server:
        expect(errno.EINVAL, bindx, server, [("127.0.0.3", port + 1)])


def case_ipv4_wildcard_of_an_ipv6_socket() -> None:
    """::ffff:0.0.0.0 is a wildcard, whose port stays in use while a connection has it."""
    with one_to_one(socket.AF_INET6) as waiting, one_to_one() as client, one_to_one() as another:
        waiting.bind(("::ffff:0.0.0.0", 0))
        waiting.listen(5)
        here = ("127.0.0.1", waiting.getsockname()[1])
        client.connect(here)
        server, _ = waiting.accept()
        with server:
            waiting.close()
            expect(errno.EADDRINUSE, another.bind, here)
            client.send(b"still")
            assert server.recv(10) == b"still"
