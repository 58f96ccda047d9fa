"""One-to-one sockets (SOCK_STREAM)."""

import errno
import os
import select
import socket
import struct
import threading
import time

from tests.sctp.sctp_api import (
    ABORT,
    ASSOC_CHANGE,
    COMM_LOST,
    EOF,
    SCTP_INITMSG,
    SCTP_NODELAY,
    SOL_SCTP,
    connected,
    listener,
    loopback,
    one_to_one,
    readable,
    receive,
    receive_data,
    send,
    subscribe,
    writable,
)


def expect(number: int, call: object, *arguments: object) -> None:
    """Assert that a call fails with this errno."""
    try:
        call(*arguments)  # type: ignore[operator]
    except OSError as error:
        got = error.errno or 0
    else:
        got = 0
    assert got == number, f"{errno.errorcode.get(got, 'no error')} instead of {errno.errorcode[number]}"


def echo(family: int) -> None:
    with connected(family) as (client, server):
        for i in range(100):
            client.sendall(b"question %d" % i)
            assert server.recv(1000) == b"question %d" % i
            server.sendall(b"answer %d" % i)
            assert client.recv(1000) == b"answer %d" % i


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


def case_refused_without_blocking() -> None:
    with one_to_one() as client:
        client.setblocking(False)
        expect(errno.EINPROGRESS, client.connect, ("127.0.0.1", 9))
        assert writable(client, 5)
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def case_connect_without_blocking() -> None:
    with listener() as waiting, one_to_one() as client:
        client.setblocking(False)
        expect(errno.EINPROGRESS, client.connect, waiting.getsockname())
        assert writable(client, 5)
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        expect(errno.EISCONN, client.connect, waiting.getsockname())
        waiting.accept()[0].close()


def case_accept_without_blocking() -> None:
    with listener() as waiting, one_to_one() as client:
        waiting.setblocking(False)
        expect(errno.EAGAIN, waiting.accept)
        assert not readable(waiting)
        client.connect(waiting.getsockname())
        assert readable(waiting, 5)
        waiting.accept()[0].close()
        expect(errno.EAGAIN, waiting.accept)


def case_accept_needs_listening() -> None:
    with one_to_one() as fresh:
        fresh.bind(("127.0.0.1", 0))
        expect(errno.EINVAL, fresh.accept)


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


def case_flags_for_one_to_many_only() -> None:
    with connected() as (client, server):
        expect(errno.EINVAL, lambda: send(client, b"", flags=EOF))
        expect(errno.EINVAL, lambda: send(client, b"", flags=ABORT))
        client.send(b"a")
        assert server.recv(10) == b"a"


def case_send_unconnected() -> None:
    with one_to_one() as fresh:
        expect(errno.EPIPE, lambda: fresh.send(b"nowhere", socket.MSG_NOSIGNAL))


def case_address_in_use() -> None:
    with listener() as waiting, one_to_one() as other:
        expect(errno.EADDRINUSE, other.bind, waiting.getsockname())


def case_address_not_local() -> None:
    with one_to_one() as fresh:
        expect(errno.EADDRNOTAVAIL, fresh.bind, ("192.0.2.1", 0))


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


def case_blocking_reader_wakes() -> None:
    with connected() as (client, server):
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(server.recv(100)))
        thread.start()
        time.sleep(0.1)
        client.send(b"wake up")
        thread.join(5)
        assert got == [b"wake up"]


def case_receive_timeout() -> None:
    with connected() as (client, _):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100000))
        started = time.monotonic()
        expect(errno.EAGAIN, client.recv, 100)
        assert 0.05 < time.monotonic() - started < 2


def case_full_buffer() -> None:
    """EAGAIN when the peer doesn't read; not writable then; writable when it reads; nothing lost."""
    with connected() as (client, server):
        client.setblocking(False)
        sent = 0
        while sent < 20000 and writable(client, 0.3):
            try:
                client.send(b"%09d" % sent + b"x" * 1000)
                sent += 1
            except BlockingIOError:
                pass
        assert 10 < sent < 20000
        expect(errno.EAGAIN, client.send, b"x" * 1009)
        for number in range(sent):
            assert server.recv(2000)[:9] == b"%09d" % number
        assert writable(client, 5)
        client.send(b"goes on")
        assert server.recv(100) == b"goes on"


def case_blocking_send_waits() -> None:
    with connected() as (client, server):
        count = 3000

        def write() -> None:
            for number in range(count):
                client.send(b"%09d" % number + b"x" * 1000)

        thread = threading.Thread(target=write)
        thread.start()
        time.sleep(0.3)
        for number in range(count):
            assert server.recv(2000)[:9] == b"%09d" % number
        thread.join(10)
        assert not thread.is_alive()


def case_too_large() -> None:
    with connected() as (client, _):
        expect(errno.EMSGSIZE, client.send, bytes(10_000_000))


def case_epoll() -> None:
    with connected() as (client, server), select.epoll() as poll:
        poll.register(server, select.EPOLLIN | select.EPOLLRDHUP)
        assert poll.poll(0.05) == []
        client.send(b"x")
        assert poll.poll(5) == [(server.fileno(), select.EPOLLIN)]
        assert server.recv(10) == b"x"
        assert poll.poll(0.05) == []
        client.close()
        events = dict(poll.poll(5))[server.fileno()]
        assert events & select.EPOLLIN
        assert events & select.EPOLLRDHUP


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
