"""How connections end: in order, by ABORT, half."""

import contextlib
import errno
import socket
import struct
import threading
import time

from tests.sctp.sctp_api import (
    ASSOC_CHANGE,
    COMM_LOST,
    COMM_UP,
    SCTP_STATUS,
    connected,
    expect,
    get_option,
    listener,
    one_to_many,
    one_to_one,
    readable,
    receive,
    receive_change,
    receive_data,
    send,
    subscribe,
    writable,
)


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


def case_send_unconnected() -> None:
    with one_to_one() as fresh:
        expect(errno.EPIPE, lambda: fresh.send(b"nowhere", socket.MSG_NOSIGNAL))


def case_linger_can_be_read_back() -> None:
    with one_to_one() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 7))
        assert struct.unpack("ii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)) == (1, 7)


def case_shutdown_both_ways() -> None:
    with connected() as (client, server):
        client.send(b"last words")
        client.shutdown(socket.SHUT_RDWR)
        assert server.recv(100) == b"last words"
        assert server.recv(100) == b""
        expect(errno.EPIPE, client.send, b"more")


def case_close_delivers_what_was_sent() -> None:
    with connected() as (client, server):
        for number in range(100):
            client.send(b"%09d" % number + b"x" * 500)
        client.close()
        for number in range(100):
            assert server.recv(1000)[:9] == b"%09d" % number
        assert server.recv(1000) == b""


def case_close_with_time_to_linger() -> None:
    with connected() as (client, server):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
        client.send(b"last words")
        client.close()
        assert server.recv(100) == b"last words"
        assert server.recv(100) == b""


def case_abort_wakes_a_blocked_reader() -> None:
    with connected() as (client, server):
        failures: list[int | None] = []

        def read() -> None:
            try:
                server.recv(100)
                failures.append(None)
            except OSError as error:
                failures.append(error.errno)

        thread = threading.Thread(target=read)
        thread.start()
        time.sleep(0.1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        thread.join(10)
        assert failures == [errno.ECONNRESET]


def case_abort_wakes_a_blocked_writer() -> None:
    with connected() as (client, server):
        failures: list[int | None] = []

        def write() -> None:
            try:
                for _ in range(20000):
                    client.send(b"x" * 1000)
            except OSError as error:
                failures.append(error.errno)

        thread = threading.Thread(target=write)
        thread.start()
        deadline = time.monotonic() + 20
        while writable(client) and time.monotonic() < deadline:
            time.sleep(0.05)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()
        thread.join(10)
        assert not thread.is_alive()
        assert failures
        assert failures[0] in (errno.ECONNRESET, errno.EPIPE, errno.ESRCH), failures  # Linux: ESRCH


def case_unaccepted_connection_ends_with_the_listener() -> None:
    with one_to_one() as client:
        with listener() as waiting:
            client.connect(waiting.getsockname())
        assert readable(client, 10)
        assert client.recv(100) == b""
        expect(errno.EPIPE, client.send, b"to nobody")


def wait_until_acknowledged(sock: socket.socket) -> None:
    """Wait until the peer's stack has all that was sent."""
    deadline = time.monotonic() + 10
    while any(struct.unpack_from("=HH", get_option(sock, SCTP_STATUS, bytes(176)), 12)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def case_unaccepted_connection_with_unread_data_ends_by_abort() -> None:
    with one_to_one() as client:
        with listener() as waiting:
            client.connect(waiting.getsockname())
            client.send(b"never read")
            wait_until_acknowledged(client)
        assert readable(client, 10)
        expect(errno.ECONNRESET, client.recv, 100)


MANY, SIZE = 60, 1000


def send_much(sock: socket.socket, association: int = 0) -> None:
    for number in range(MANY):
        send(sock, b"%d" % number + bytes(SIZE), association=association)


def receive_much(sock: socket.socket) -> None:
    """Receive what send_much() sent, all of it."""
    for number in range(MANY):
        got = receive_data(sock)
        assert got.data == b"%d" % number + bytes(SIZE), (number, got.data[:10])


def case_close_with_an_unread_notification() -> None:
    """Of a notification the peer needn't know: it gets all that was sent, and an end in order."""
    with listener() as waiting, one_to_one() as client:
        subscribe(waiting, association=True)
        client.connect(waiting.getsockname())
        server, _ = waiting.accept()
        with server:
            assert readable(server, 5)
            send_much(server)
        receive_much(client)
        assert client.recv(100) == b""


def case_close_with_an_unread_notification_after_data() -> None:
    with listener() as waiting, one_to_one() as client:
        subscribe(waiting, association=True, shutdown=True)
        client.connect(waiting.getsockname())
        server, _ = waiting.accept()
        with server:
            client.send(b"first")
            assert receive_data(server).data == b"first"
            send_much(server)
            client.shutdown(socket.SHUT_WR)
            assert readable(server, 5)
        receive_much(client)
        expect(errno.ENOTCONN, client.recv, 100)  # the end in order of who has shut down itself


def case_close_with_data_unread_after_a_notification() -> None:
    with listener() as waiting, one_to_one() as client:
        subscribe(waiting, association=True)
        client.connect(waiting.getsockname())
        server, _ = waiting.accept()
        with server:
            assert receive(server).state == COMM_UP
            client.send(b"never read")
            assert readable(server, 5)
        assert readable(client, 5)
        expect(errno.ECONNRESET, client.recv, 100)


def case_close_of_one_to_many_with_an_unread_notification() -> None:
    """That of the second association came while data of the first lay unread; only the data was read."""
    with one_to_many() as server, one_to_one() as first, one_to_one() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(5)
        first.connect(server.getsockname())
        first.send(b"first")
        receive_change(server, COMM_UP)
        assert readable(server, 5)
        second.connect(server.getsockname())
        got = receive(server)
        assert got.data == b"first"
        assert readable(server, 5)
        send_much(server, got.association)
        server.close()
        receive_much(first)
        assert first.recv(100) == b""
        assert second.recv(100) == b""


def case_close_of_one_to_many_with_unread_data() -> None:
    with one_to_many() as server, one_to_one() as first, one_to_one() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(5)
        first.connect(server.getsockname())
        first.send(b"never read")
        receive_change(server, COMM_UP)
        assert readable(server, 5)
        second.connect(server.getsockname())
        server.close()
        for client in (first, second):
            assert readable(client, 5)
            expect(errno.ECONNRESET, client.recv, 100)


def case_data_and_notifications_stay_in_order() -> None:
    count = 5
    with one_to_many() as server, contextlib.ExitStack() as stack:
        server.bind(("127.0.0.1", 0))
        server.listen(count)
        for number in range(count):
            client = stack.enter_context(one_to_one())
            client.connect(server.getsockname())
            client.send(b"%d" % number)
            time.sleep(0.1)
        for number in range(count):
            got = receive(server)
            assert (got.notification, got.state) == (ASSOC_CHANGE, COMM_UP), (number, got)
            assert receive(server).data == b"%d" % number


def case_connect_with_data_and_a_notification_unread() -> None:
    """That the new association is made is known although nobody has read what came before."""
    with one_to_many() as server, one_to_many() as other, one_to_one() as first, one_to_one() as second:
        for sock in (server, other):
            sock.bind(("127.0.0.1", 0))
            sock.listen(5)
        first.connect(server.getsockname())
        first.send(b"first")
        receive_change(server, COMM_UP)
        assert readable(server, 5)
        second.connect(server.getsockname())
        second.send(b"second")
        server.settimeout(10)
        server.connect(other.getsockname())
        assert receive(server).data == b"first"
        assert receive(server).state == COMM_UP
        assert receive(server).data == b"second"
        assert receive(server).state == COMM_UP
