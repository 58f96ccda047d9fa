"""Waiting: select, poll, epoll, event loops, calls that block and calls that do not."""

import asyncio
import contextlib
import errno
import select
import socket
import struct
import threading
import time

from sctp_api import (
    SCTP_NODELAY,
    SOL_SCTP,
    associated,
    connected,
    expect,
    listener,
    one_to_many,
    one_to_one,
    readable,
    receive_data,
    send,
    writable,
)


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


def case_hang_up_is_polled() -> None:
    with connected() as (client, server), select.epoll() as poll:
        poll.register(server, select.EPOLLIN | select.EPOLLRDHUP)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        events = dict(poll.poll(5))[server.fileno()]
        assert events, "nothing woke it"
        expect(errno.ECONNRESET, server.recv, 10)


def case_asyncio() -> None:
    async def talk() -> None:
        loop = asyncio.get_running_loop()
        with listener() as waiting, one_to_one() as client:
            for sock in (waiting, client):
                sock.setblocking(False)
            accepting = asyncio.create_task(loop.sock_accept(waiting))
            await loop.sock_connect(client, waiting.getsockname())
            server, _ = await accepting
            with server:
                for number in range(50):
                    await loop.sock_sendall(client, b"%d" % number)
                    assert await loop.sock_recv(server, 100) == b"%d" % number
                client.close()
                assert await loop.sock_recv(server, 100) == b""

    asyncio.run(asyncio.wait_for(talk(), 20))


def case_asyncio_refused() -> None:
    async def talk() -> None:
        with one_to_one() as client:
            client.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", 9))
            except ConnectionRefusedError:
                return
            raise AssertionError("not refused")

    asyncio.run(asyncio.wait_for(talk(), 20))


def case_add_reader() -> None:
    async def talk() -> None:
        loop, got = asyncio.get_running_loop(), asyncio.Event()
        with associated() as (client, association, server, _):
            loop.add_reader(server, got.set)
            await asyncio.sleep(0.05)
            assert not got.is_set()
            send(client, b"x", association=association)
            await asyncio.wait_for(got.wait(), 5)
            loop.remove_reader(server)
            assert receive_data(server).data == b"x"

    asyncio.run(talk())


def case_poll() -> None:
    with connected() as (client, server):
        poll = select.poll()
        poll.register(server, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
        assert poll.poll(1000) == [(server.fileno(), select.POLLOUT)]
        client.send(b"x")
        assert readable(server, 5)
        assert poll.poll(1000) == [(server.fileno(), select.POLLIN | select.POLLOUT)]
        assert server.recv(10) == b"x"
        client.close()
        assert readable(server, 5)
        (events,) = (events for _, events in poll.poll(1000))
        assert events & select.POLLIN
        assert events & select.POLLRDHUP
        assert server.recv(10) == b""


def selected(sock: socket.socket, timeout_s: float = 5) -> tuple[bool, bool, bool]:
    """Return what select() says of all three: readable, writable, exceptional."""
    ready = select.select([sock], [sock], [sock], timeout_s)
    return bool(ready[0]), bool(ready[1]), bool(ready[2])


def case_select() -> None:
    with connected() as (client, server):
        assert selected(server) == (False, True, False)
        client.send(b"x")
        assert readable(server, 5)
        assert selected(server) == (True, True, False)
        assert server.recv(10) == b"x"
        assert selected(server) == (False, True, False)


def case_select_while_full() -> None:
    """Not writable, then writable as soon as the peer has read."""
    with connected() as (client, server):
        client.setblocking(False)
        sent = 0
        while writable(client, 0.3):
            with contextlib.suppress(BlockingIOError):
                sent += client.send(bytes(1000))
        assert selected(client, 0) == (False, False, False)
        woken: list[bool] = []
        thread = threading.Thread(target=lambda: woken.append(writable(client, 20)))
        thread.start()
        while sent > 0:
            sent -= len(server.recv(2000))
        thread.join(30)
        assert woken == [True]
        assert selected(client) == (False, True, False)


def case_select_sees_hang_up() -> None:
    """A thread that waits for something to read is woken by the peer's end, be it in order or an ABORT."""
    for abort in (False, True):
        with connected() as (client, server):
            woken: list[bool] = []
            thread = threading.Thread(target=lambda sock=server, to=woken: to.append(readable(sock, 20)))
            thread.start()
            assert not readable(server, 0.05)
            if abort:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            thread.join(30)
            assert woken == [True]
            assert selected(server)[::2] == (True, False)
            if abort:
                expect(errno.ECONNRESET, server.recv, 10)
            else:
                assert server.recv(10) == b""


def case_edge_triggered() -> None:
    with associated() as (client, association, server, _), select.epoll() as poll:
        poll.register(server, select.EPOLLIN | select.EPOLLET)
        poll.poll(0.05)
        for text in (b"first", b"second"):
            send(client, text, association=association)
            assert poll.poll(5) == [(server.fileno(), select.EPOLLIN)]
            assert poll.poll(0.05) == []
        for text in (b"first", b"second"):
            assert receive_data(server).data == text


def case_one_to_many_is_writable_at_once() -> None:
    with one_to_many() as sock:
        assert writable(sock, 1)
        assert not readable(sock)


def case_one_call_without_waiting() -> None:
    with connected() as (client, server):
        expect(errno.EAGAIN, server.recv, 100, socket.MSG_DONTWAIT)
        client.send(b"x", socket.MSG_DONTWAIT)
        assert readable(server, 5)
        assert server.recv(100, socket.MSG_DONTWAIT) == b"x"


def case_send_timeout() -> None:
    with connected() as (client, _):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 100000))

        def fill() -> None:
            for _ in range(20000):
                client.send(b"x" * 1000)

        expect(errno.EAGAIN, fill)


def case_connection_waits_to_be_accepted() -> None:
    """Data that the client sends before accept() is there after it."""
    with listener() as waiting, one_to_one() as client, select.epoll() as poll:
        poll.register(waiting, select.EPOLLIN)
        assert poll.poll(0.05) == []
        client.connect(waiting.getsockname())
        client.send(b"early")
        assert poll.poll(5) == [(waiting.fileno(), select.EPOLLIN)]
        server, _ = waiting.accept()
        with server:
            assert server.recv(100) == b"early"
        assert poll.poll(0.05) == []


def case_received_without_waiting_right_after_it_was_sent() -> None:
    """Data that a program sends to its own host has arrived when send() returns."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with connected(family) as (client, server):
            for sock in (client, server):
                sock.setsockopt(SOL_SCTP, SCTP_NODELAY, 1)
            server.setblocking(False)
            for number in range(200):
                client.send(b"%d" % number)
                assert server.recv(100) == b"%d" % number
                expect(errno.EAGAIN, server.recv, 100)
                server.send(b"back")
                assert client.recv(100, socket.MSG_DONTWAIT) == b"back"


def case_one_to_many_received_without_waiting_right_after_it_was_sent() -> None:
    with associated() as (client, to_server, server, to_client):
        for sock in (client, server):
            sock.setsockopt(SOL_SCTP, SCTP_NODELAY, 1)
        server.setblocking(False)
        for number in range(200):
            send(client, b"%d" % number, association=to_server)
            assert server.recv(100) == b"%d" % number
            expect(errno.EAGAIN, server.recv, 100)
            send(server, b"back", association=to_client)
            assert client.recv(100, socket.MSG_DONTWAIT) == b"back"


def case_accepted_without_waiting_right_after_connecting() -> None:
    with listener() as waiting:
        waiting.setblocking(False)
        for _ in range(20):
            with one_to_one() as client:
                client.setblocking(False)
                client.connect_ex(waiting.getsockname())
                accepted, _ = waiting.accept()
                accepted.close()
