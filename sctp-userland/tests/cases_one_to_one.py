"""One-to-one sockets (SOCK_STREAM)."""

import contextlib
import ctypes
import errno
import os
import socket
import struct
import tempfile
import time

from sctp_api import (
    ABORT,
    EOF,
    SCTP_INITMSG,
    SCTP_NODELAY,
    SNDRCV,
    SOL_SCTP,
    connected,
    expect,
    libc,
    listener,
    one_to_one,
    readable,
    receive,
    receive_data,
    send,
    subscribe,
)


def echo(family: int) -> None:
    with connected(family) as (client, server):
        for i in range(100):
            client.sendall(b"question %d" % i)
            assert server.recv(1000) == b"question %d" % i
            server.sendall(b"answer %d" % i)
            assert client.recv(1000) == b"answer %d" % i


def case_no_byte_is_urgent() -> None:
    with connected() as (client, server):
        client.send(b"before")
        client.send(b"urgent", socket.MSG_OOB)
        assert [server.recv(100) for _ in range(2)] == [b"before", b"urgent"]


def case_echo_ipv4() -> None:
    echo(socket.AF_INET)


def case_echo_ipv6() -> None:
    echo(socket.AF_INET6)


def case_names() -> None:
    with listener() as waiting:
        assert waiting.getsockname()[0] == "127.0.0.1"
        assert waiting.getsockname()[1] > 0
        assert waiting.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        with one_to_one() as client:
            client.connect(waiting.getsockname())
            server, address = waiting.accept()
            with server:
                assert client.getpeername() == waiting.getsockname()
                assert server.getpeername() == address
                assert address[1] == client.getsockname()[1]
                assert server.getsockname() == waiting.getsockname()
    with one_to_one() as fresh:
        expect(errno.ENOTCONN, fresh.getpeername)


def case_socket_type() -> None:
    with connected() as (client, server):
        for sock in (client, server):
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_SCTP
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def case_message_boundaries() -> None:
    with connected() as (client, server):
        for size in (1, 10, 1000, 1452, 1500, 9000, 60000):
            client.send(b"x" * size)
        for size in (1, 10, 1000, 1452, 1500, 9000, 60000):
            got = receive(server)
            assert len(got.data) == size
            assert got.flags & socket.MSG_EOR


def case_partial_reads() -> None:
    with connected() as (client, server):
        client.send(b"abcdefghij")
        client.send(b"second")
        first = receive(server, room=4)
        assert (first.data, first.flags & socket.MSG_EOR) == (b"abcd", 0)
        assert readable(server, 1)
        again = receive(server, room=4)
        assert (again.data, again.flags & socket.MSG_EOR) == (b"efgh", 0)
        last = receive(server, room=4)
        assert last.data == b"ij"
        assert last.flags & socket.MSG_EOR
        assert receive(server).data == b"second"
        assert not readable(server, 0.05)


def case_peek() -> None:
    with connected() as (client, server):
        client.send(b"once and again")
        assert receive(server, flags=socket.MSG_PEEK).data == b"once and again"
        assert receive(server, room=4, flags=socket.MSG_PEEK).data == b"once"
        assert receive(server, room=4).data == b"once"
        assert receive(server, flags=socket.MSG_PEEK).data == b" and again"
        assert receive(server).data == b" and again"


def case_ancillary_data_is_cut() -> None:
    """Room without the padding is enough; where there is less, what fits is told, and that it was cut."""
    whole = SNDRCV.size
    with connected() as (client, server):
        subscribe(server, data_io=True)
        for room in (whole, whole - 1, 8, 0):
            send(client, b"x", ppid=11, stream=3)
            _, items, flags, _ = server.recvmsg(10, socket.CMSG_LEN(room))
            assert [len(data) for _, _, data in items] == [room]
            assert bool(flags & socket.MSG_CTRUNC) == (room < whole)
        send(client, b"x")
        _, items, flags, _ = server.recvmsg(10, socket.CMSG_LEN(0) - 1)
        assert (items, flags & socket.MSG_CTRUNC) == ([], socket.MSG_CTRUNC)


def case_ppid_and_streams() -> None:
    with connected() as (client, server):
        subscribe(server, data_io=True)
        send(client, b"first", ppid=11, stream=3)
        send(client, b"second", ppid=12, stream=5, flags=1)
        got = receive_data(server)
        assert (got.data, got.ppid, got.stream, got.unordered) == (b"first", 11, 3, False)
        got = receive_data(server)
        assert (got.data, got.ppid, got.stream, got.unordered) == (b"second", 12, 5, True)


def case_stream_out_of_range() -> None:
    with connected() as (client, _):
        expect(errno.EINVAL, lambda: send(client, b"x", stream=60000))


def case_streams_by_initmsg() -> None:
    with listener() as waiting, one_to_one() as client:
        client.setsockopt(SOL_SCTP, SCTP_INITMSG, struct.pack("=HHHH", 20, 20, 0, 0))
        client.connect(waiting.getsockname())
        server, _ = waiting.accept()
        with server:
            send(client, b"x", stream=19)
            assert receive_data(server).data == b"x"
            expect(errno.EINVAL, lambda: send(client, b"x", stream=20))


def case_refused() -> None:
    with one_to_one() as client:
        started = time.monotonic()
        expect(errno.ECONNREFUSED, client.connect, ("127.0.0.1", 9))
        assert time.monotonic() - started < 2


def case_accept_needs_listening() -> None:
    with one_to_one() as fresh:
        fresh.bind(("127.0.0.1", 0))
        expect(errno.EINVAL, fresh.accept)


def case_flags_for_one_to_many_only() -> None:
    with connected() as (client, server):
        expect(errno.EINVAL, lambda: send(client, b"", flags=EOF))
        expect(errno.EINVAL, lambda: send(client, b"", flags=ABORT))
        client.send(b"a")
        assert server.recv(10) == b"a"


def case_too_large() -> None:
    with connected() as (client, _):
        expect(errno.EMSGSIZE, client.send, bytes(10_000_000))


def case_read_and_write() -> None:
    with connected() as (client, server):
        os.write(client.fileno(), b"by write")
        assert os.read(server.fileno(), 100) == b"by write"
        os.writev(client.fileno(), [b"in ", b"pieces"])
        first, second = bytearray(3), bytearray(10)
        assert os.readv(server.fileno(), [first, second]) == 9
        assert bytes(first + second[:6]) == b"in pieces"


def case_nodelay() -> None:
    with connected() as (client, _):
        assert client.getsockopt(SOL_SCTP, SCTP_NODELAY) == 0
        client.setsockopt(SOL_SCTP, SCTP_NODELAY, 1)
        assert client.getsockopt(SOL_SCTP, SCTP_NODELAY) == 1


def case_connect_to_no_family() -> None:
    """By that datagram sockets are disconnected; these can't be."""
    with connected() as (client, server):
        for length in (2, 16):
            address = ctypes.create_string_buffer(bytes(16))
            assert libc.connect(client.fileno(), address, length) == -1
            assert ctypes.get_errno() == errno.EOPNOTSUPP
        client.send(b"still there")
        assert server.recv(20) == b"still there"


def case_send_to_an_address() -> None:
    """To the peer's own it is as without; another one is refused, as there is a connection already."""
    with connected() as (client, server):
        client.sendto(b"to the peer", server.getsockname())
        assert server.recv(20) == b"to the peer"
        port = server.getsockname()[1]
        for other in (("127.0.0.1", 9), ("127.0.0.2", port)):
            expect(errno.EADDRNOTAVAIL, client.sendto, b"to others", other)
        client.send(b"last")
        assert server.recv(20) == b"last"


def case_send_to_an_address_connects() -> None:
    with listener() as waiting, one_to_one() as client:
        for number in range(3):
            client.sendto(b"%d" % number, waiting.getsockname())
        server, _ = waiting.accept()
        with server:
            for number in range(3):
                assert server.recv(20) == b"%d" % number
            client.sendto(b"last", waiting.getsockname())
            assert server.recv(20) == b"last"


def case_unknown_flags_of_a_message() -> None:
    with connected() as (client, server):
        for flags in (0x80, 0x100, 0x8000):
            expect(errno.EINVAL, lambda sent=flags: send(client, b"x", flags=sent))
        client.send(b"last")
        assert server.recv(20) == b"last"


def fill(waiting: socket.socket, stack: contextlib.ExitStack) -> int:
    """Connect until that is refused; return how often it was not."""
    for number in range(100):
        client = stack.enter_context(one_to_one())
        client.settimeout(20)
        try:
            client.connect(waiting.getsockname())
        except ConnectionRefusedError:
            return number
    raise AssertionError("never refused")


def case_backlog() -> None:
    """One connection more than listen() said waits to be accepted. Further ones are refused at once."""
    for backlog in (1, 3, 16):
        with contextlib.ExitStack() as stack:
            waiting = stack.enter_context(listener(backlog=backlog))
            assert fill(waiting, stack) == backlog + 1
            for _ in range(2):
                stack.enter_context(waiting.accept()[0])
            assert fill(waiting, stack) == 2
            waiting.listen(backlog + 3)
            assert fill(waiting, stack) == 3


def case_odd_backlogs() -> None:
    """A negative one is as many as may be, and none is no backlog to begin with."""
    with one_to_one() as waiting, contextlib.ExitStack() as stack:
        waiting.bind(("127.0.0.1", 0))
        expect(errno.EINVAL, waiting.listen, 0)
        assert libc.listen(waiting.fileno(), -1) == 0
        clients = [stack.enter_context(one_to_one()) for _ in range(20)]
        for client in clients:
            client.connect(waiting.getsockname())
        waiting.listen(0)
        expect(errno.ECONNREFUSED, stack.enter_context(one_to_one()).connect, waiting.getsockname())
        expect(errno.EINVAL, waiting.listen, 0)


def case_accepted_inherits() -> None:
    """Timeouts and the like are those of who listened, for accepted and peeled-off ones."""
    limit = struct.pack("@ll", 0, 200_000)
    given = (
        (socket.SO_RCVTIMEO, limit),
        (socket.SO_SNDTIMEO, limit),
        (socket.SO_KEEPALIVE, struct.pack("=i", 1)),
    )
    with listener() as waiting, one_to_one() as client:
        for option, value in given:
            waiting.setsockopt(socket.SOL_SOCKET, option, value)
        client.connect(waiting.getsockname())
        server, _ = waiting.accept()
        with server:
            server.setblocking(True)
            for option, value in given:
                assert server.getsockopt(socket.SOL_SOCKET, option, len(value)) == value
            expect(errno.EAGAIN, server.recv, 10)


def case_many_connections() -> None:
    with listener(backlog=128) as waiting:
        clients, servers = [], []
        for _ in range(100):
            client = one_to_one()
            client.connect(waiting.getsockname())
            clients.append(client)
            servers.append(waiting.accept()[0])
        for number, client in enumerate(clients):
            client.send(b"%d" % number)
        for number, server in enumerate(servers):
            assert server.recv(100) == b"%d" % number
        for sock in clients + servers:
            sock.close()


class MessageHeader(ctypes.Structure):
    """struct msghdr, then the length that makes it a struct mmsghdr."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("parts", ctypes.c_void_p),
        ("part_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_size_t),  # an int, and what fills the structure up
        ("length", ctypes.c_uint32),
    )


def case_several_messages_by_one_call() -> None:
    """sendmmsg() and recvmmsg(): with MSG_WAITFORONE as many as there are."""
    until_first = 0x10000
    with connected() as (client, server):
        client.setsockopt(SOL_SCTP, SCTP_NODELAY, 1)
        texts = [ctypes.create_string_buffer(b"%d" % number, 1) for number in range(3)]
        rooms = [ctypes.create_string_buffer(10) for _ in range(4)]
        parts: list[list[ctypes.Array[ctypes.c_size_t]]] = []
        messages = []
        for buffers in (texts, rooms):
            vectors = [(ctypes.c_size_t * 2)(ctypes.addressof(buffer), len(buffer)) for buffer in buffers]
            headers = (MessageHeader * len(buffers))()
            for header, vector in zip(headers, vectors, strict=True):
                header.parts, header.part_count = ctypes.addressof(vector), 1
            parts.append(vectors)
            messages.append(headers)
        assert libc.sendmmsg(client.fileno(), messages[0], 3, 0) == 3
        assert [message.length for message in messages[0]] == [1, 1, 1]
        assert libc.recvmmsg(server.fileno(), messages[1], 2, 0, None) == 2
        rest = ctypes.byref(messages[1], 2 * ctypes.sizeof(MessageHeader))
        assert libc.recvmmsg(server.fileno(), rest, 2, until_first, None) == 1
        lengths = [header.length for header in messages[1]]
        assert [room.raw[:length] for room, length in zip(rooms, lengths, strict=True)] == [
            b"0",
            b"1",
            b"2",
            b"",
        ]


def case_sendfile_arrives() -> None:
    """If the call itself isn't served, it says so, and Python sends otherwise."""
    with connected() as (client, server), tempfile.TemporaryFile() as file:
        file.write(b"of a file")
        file.seek(0)
        client.settimeout(20)
        assert client.sendfile(file) == 9
        assert server.recv(100) == b"of a file"


def case_names_have_no_flow_label() -> None:
    """Programs compare them byte by byte, and some leave in connect() what was on the stack."""
    with listener(socket.AF_INET6) as waiting, one_to_one(socket.AF_INET6) as client:
        host, port, *_ = waiting.getsockname()
        client.connect((host, port, 0x12345, 0))
        server, _ = waiting.accept()
        with server:
            assert client.getpeername() == server.getsockname() == (host, port, 0, 0)
            assert server.getpeername() == client.getsockname()
