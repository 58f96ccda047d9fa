"""Unread data at the end decides how it ends; and data and notifications keep their order."""

import contextlib
import errno
import socket
import time

from sctp_api import (
    ASSOC_CHANGE,
    COMM_UP,
    expect,
    listener,
    one_to_many,
    one_to_one,
    readable,
    receive,
    receive_change,
    receive_data,
    send,
    subscribe,
)

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
    """The peer needn't know of a notification: it gets all that was sent, and an end in order."""
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


def leave_unread(server: socket.socket, first: socket.socket, second: socket.socket) -> None:
    """Have data of the first association lie unread while the second one begins."""
    first.connect(server.getsockname())
    first.send(b"first")
    receive_change(server, COMM_UP)
    assert readable(server, 5)
    second.connect(server.getsockname())


def case_close_of_one_to_many_with_an_unread_notification() -> None:
    """That of the second association came while data of the first lay unread; only the data was read."""
    with one_to_many() as server, one_to_one() as first, one_to_one() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(5)
        leave_unread(server, first, second)
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
        leave_unread(server, first, second)
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
        leave_unread(server, first, second)
        second.send(b"second")
        server.settimeout(10)
        server.connect(other.getsockname())
        assert receive(server).data == b"first"
        assert receive(server).state == COMM_UP
        assert receive(server).data == b"second"
        assert receive(server).state == COMM_UP
