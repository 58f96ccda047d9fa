"""A message with a time to live that couldn't be sent in that time is not sent, and its sender is told."""

import contextlib
import socket
import time

from sctp_api import (
    CMSG_SNDINFO,
    SCTP_DEFAULT_SEND_PARAM,
    SEND_FAILED,
    SEND_FAILED_HEADER,
    SNDINFO,
    SNDRCV,
    SOL_SCTP,
    associated,
    connected,
    listener,
    one_to_one,
    readable,
    receive_data,
    receive_notification,
    send,
    subscribe,
    writable,
)

SIZE = 20_000
LITTLE_BYTES = 50_000
MORE_BYTES = 212_992  # what a kernel lets anyone have


def fill(sock: socket.socket, association: int = 0) -> int:
    """Send messages until there is no room, then make some; return how many there are."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LITTLE_BYTES)
    sent = 0
    while sent < 1000 and writable(sock, 0.3):
        with contextlib.suppress(BlockingIOError):
            send(sock, bytes(SIZE), association=association, socket_flags=socket.MSG_DONTWAIT)
            sent += 1
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MORE_BYTES)
    return sent


def make_room(client: socket.socket, server: socket.socket, message: bytes, time_to_live_ms: int = 0) -> int:
    """Send this message as soon as it is taken; return how many others the peer had to read until then."""
    read = 0
    while True:
        with contextlib.suppress(BlockingIOError):
            send(client, message, time_to_live_ms=time_to_live_ms, socket_flags=socket.MSG_DONTWAIT)
            return read
        assert len(receive_data(server).data) == SIZE
        read += 1
        writable(client, 0.1)


def case_expired_messages_are_not_sent() -> None:
    with associated() as (client, to_server, server, _):
        subscribe(client, data_io=True, association=True, send_failure=True)
        sent = fill(client, to_server)
        send(client, b"in time", association=to_server, time_to_live_ms=60_000)
        send(client, b"too late", association=to_server, time_to_live_ms=200, ppid=77)
        send(client, b"without a limit", association=to_server)
        time.sleep(0.5)
        for _ in range(sent):
            assert receive_data(server).data == bytes(SIZE)
        assert receive_data(server).data == b"in time"
        assert receive_data(server).data == b"without a limit"
        failed = receive_notification(client, SEND_FAILED)
        assert failed.data[SEND_FAILED_HEADER:] == b"too late"


def case_what_waits_is_sent_before_close() -> None:
    with associated() as (client, to_server, server, _):
        sent = fill(client, to_server)
        send(client, b"in time", association=to_server, time_to_live_ms=60_000)
        client.close()
        for _ in range(sent):
            assert receive_data(server).data == bytes(SIZE)
        assert receive_data(server).data == b"in time"


def case_messages_with_a_limit_follow_each_other() -> None:
    """Without congestion none of them is lost, nor late."""
    with connected() as (client, server):
        server.settimeout(20)
        for number in range(500):
            send(client, b"%d" % number, time_to_live_ms=20_000)
        for number in range(500):
            assert server.recv(100) == b"%d" % number


def case_a_peer_that_does_not_read() -> None:
    """The same of a one-to-one socket."""
    with connected() as (client, server):
        unread = fill(client)
        unread -= make_room(client, server, b"too late", time_to_live_ms=200)
        time.sleep(0.5)
        unread -= make_room(client, server, b"last")
        for _ in range(unread):
            assert len(receive_data(server).data) == SIZE
        assert receive_data(server).data == b"last"


def case_a_time_to_live_for_all() -> None:
    """The limit of DEFAULT_SEND_PARAM counts for messages without one of their own; the rest of it does,
    too."""
    with connected() as (client, server):
        subscribe(server, data_io=True)
        unread = fill(client)
        limited = SNDRCV.pack(3, 0, 0, socket.htonl(7), 0, 300, 0, 0, 0)
        client.setsockopt(SOL_SCTP, SCTP_DEFAULT_SEND_PARAM, limited)
        assert SNDRCV.unpack(client.getsockopt(SOL_SCTP, SCTP_DEFAULT_SEND_PARAM, 32))[5] == 300
        client.send(b"too late")
        client.sendmsg([b"too late, too"], [(SOL_SCTP, CMSG_SNDINFO, SNDINFO.pack(1, 0, 0, 0, 0))])
        send(client, b"without a limit")
        time.sleep(0.6)
        for _ in range(unread):
            assert len(receive_data(server).data) == SIZE
        assert receive_data(server).data == b"without a limit"
        client.send(b"in time")
        got = receive_data(server)
        assert (got.data, got.stream, got.ppid) == (b"in time", 3, 7)


def case_a_small_receive_buffer_closes_the_window() -> None:
    """Unread data counts against it, so that a message with a limit waits with its sender, and ends there."""
    with listener() as waiting, one_to_one() as client:
        waiting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 3000)
        client.connect(waiting.getsockname())
        server, _ = waiting.accept()
        with server:
            messages = [bytes([number]) * 500 for number in range(20)]
            for message in messages:
                client.send(message)
            send(client, b"too late", time_to_live_ms=300)
            client.send(b"last")
            time.sleep(0.7)
            for message in [*messages, b"last"]:
                assert readable(server, 10)
                assert server.recv(1000, socket.MSG_PEEK) == message
                assert server.recv(1000) == message
            assert not readable(server, 0.05)
            client.close()
            assert readable(server, 10)
            assert server.recv(1000) == b""
