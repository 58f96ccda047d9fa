"""Data that send() took goes out, whatever the sender does next: it may still wait on the way to the
stack."""

import contextlib
import errno
import socket
import threading
import time

from sctp_api import (
    SHUTDOWN_COMP,
    SOL_SCTP,
    associated,
    connected,
    expect,
    receive_change,
    receive_data,
    send,
    writable,
)

SIZE = 1000
SCTP_DISABLE_FRAGMENTS = 8


def fill(sock: socket.socket) -> int:
    """Send numbered messages until there is no room; return how many."""
    sock.setblocking(False)
    sent = 0
    while sent < 20000 and writable(sock, 0.3):
        try:
            sock.send(b"%09d" % sent + bytes(SIZE))
            sent += 1
        except BlockingIOError:
            pass
    return sent


def assert_all_arrive(sock: socket.socket, count: int) -> None:
    sock.settimeout(20)
    for number in range(count):
        assert sock.recv(2 * SIZE)[:9] == b"%09d" % number


def case_before_close() -> None:
    with connected() as (client, server):
        sent = fill(client)
        client.close()
        assert_all_arrive(server, sent)
        assert server.recv(10) == b""


def case_before_close_while_the_peer_sends() -> None:
    """Data that comes after close() is thrown away. It doesn't break off what goes out."""
    with connected() as (client, server):
        sent = fill(client)
        client.close()
        time.sleep(0.1)  # sctpd hears of it a moment later
        with contextlib.suppress(BrokenPipeError):  # all has arrived already: the peer is shut down
            for _ in range(5):
                server.send(b"nobody reads this")
                time.sleep(0.02)
        assert_all_arrive(server, sent)
        assert server.recv(10) == b""


def case_before_close_of_a_one_to_many_socket_while_the_peer_sends() -> None:
    with associated() as (client, to_server, server, to_client):
        message, sent = bytes(50_000), 0
        with contextlib.suppress(BlockingIOError):
            for _ in range(200):
                sent += send(client, message, association=to_server, socket_flags=socket.MSG_DONTWAIT)
        client.close()
        time.sleep(0.1)  # sctpd hears of it a moment later
        with contextlib.suppress(BrokenPipeError):  # all has arrived already: the peer is shut down
            for _ in range(5):
                send(server, b"nobody reads this", association=to_client)
                time.sleep(0.02)
        received = 0
        while received < sent:
            received += len(receive_data(server).data)
        receive_change(server, SHUTDOWN_COMP)


def case_before_shutdown() -> None:
    with connected() as (client, server):
        sent = fill(client)
        client.shutdown(socket.SHUT_WR)
        assert_all_arrive(server, sent)
        assert server.recv(10) == b""


def case_before_the_peers_shutdown() -> None:
    """It takes no new messages then, but those that send() took before."""
    with connected() as (client, server):
        sent = fill(client)
        server.shutdown(socket.SHUT_WR)
        assert_all_arrive(server, sent)


def case_while_the_peer_shuts_down() -> None:
    """Each message that send() took arrives; the first one that came too late is EPIPE."""
    for _ in range(60):
        with connected() as (client, server):
            taken: list[int] = []
            sender = threading.Thread(target=send_until_refused, args=(client, taken))
            sender.start()
            assert server.recv(10) == b"%09d" % 0
            server.shutdown(socket.SHUT_WR)
            received = 1
            with contextlib.suppress(OSError):  # ENOTCONN: both have shut down
                while message := server.recv(10):
                    assert message == b"%09d" % received
                    received += 1
            sender.join(20)
            assert taken == [received]


def send_until_refused(sock: socket.socket, taken: list[int]) -> None:
    sent = 0
    with contextlib.suppress(OSError):
        while True:
            sock.send(b"%09d" % sent)
            sent += 1
    taken.append(sent)


def case_small_messages_in_order() -> None:
    with connected() as (client, server):
        for number in range(3000):
            client.send(b"%d" % number)
            if number % 100 == 0:  # a call comes after what was sent before it
                client.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            if number % 50 == 49:
                for expected in range(number - 49, number + 1):
                    assert server.recv(100) == b"%d" % expected


def case_too_long_for_a_packet() -> None:
    """Without fragments that is an error, told to the sender."""
    with connected() as (client, server):
        client.send(b"first")
        client.setsockopt(SOL_SCTP, SCTP_DISABLE_FRAGMENTS, 1)
        expect(errno.EMSGSIZE, client.send, bytes(100_000))
        client.send(b"second")
        assert server.recv(10) == b"first"
        assert server.recv(10) == b"second"
