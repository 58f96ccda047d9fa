"""SIGPIPE: who sends where nothing can go any more is sent it, unless he says otherwise."""

import contextlib
import errno
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator

from sctp_api import (
    SHUTDOWN_COMP,
    associated,
    connected,
    expect,
    listener,
    one_to_many,
    one_to_one,
    readable,
    receive_change,
    send,
)


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """Yield a list that grows by each SIGPIPE."""
    came: list[int] = []
    before = signal.signal(signal.SIGPIPE, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGPIPE, before)


def is_signalled(attempt: Callable[[int], object]) -> None:
    """Assert EPIPE both ways: with the signal, and without it when MSG_NOSIGNAL is given."""
    with counted() as came:
        for flags, signals in ((0, 1), (socket.MSG_NOSIGNAL, 0)):
            expect(errno.EPIPE, attempt, flags)
            time.sleep(0.01)  # Python has its handler called between two instructions
            assert len(came) == signals, (flags, came)
            came.clear()


def abort(sock: socket.socket) -> None:
    """End the association by ABORT."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def case_after_own_shutdown() -> None:
    with connected() as (client, _):
        client.shutdown(socket.SHUT_WR)
        is_signalled(lambda flags: client.send(b"x", flags))


def case_after_the_peers_end() -> None:
    with connected() as (client, server):
        client.close()
        assert server.recv(10) == b""
        is_signalled(lambda flags: server.send(b"x", flags))


def case_by_every_call_that_sends() -> None:
    with connected() as (client, server), counted() as came:
        client.close()
        assert server.recv(10) == b""
        for attempt in (
            lambda: os.write(server.fileno(), b"x"),
            lambda: os.writev(server.fileno(), [b"x", b"y"]),
            lambda: server.sendmsg([b"x"]),
            lambda: send(server, b"x"),
        ):
            expect(errno.EPIPE, attempt)
            time.sleep(0.01)
            assert len(came) == 1
            came.clear()


def case_an_abort_is_told_before_it() -> None:
    """Once, without a signal; from then on each attempt is signalled."""
    with connected() as (client, server), counted() as came:
        abort(client)
        assert readable(server, 5)
        expect(errno.ECONNRESET, server.send, b"x")
        time.sleep(0.01)
        assert not came
        is_signalled(lambda flags: server.send(b"x", flags))
        expect(errno.ENOTCONN, server.recv, 10)


def case_after_an_abort_that_was_received() -> None:
    with connected() as (client, server):
        abort(client)
        assert readable(server, 5)
        expect(errno.ECONNRESET, server.recv, 10)
        is_signalled(lambda flags: server.send(b"x", flags))


def case_after_an_abort_that_was_asked_for() -> None:
    with connected() as (client, server):
        abort(client)
        assert readable(server, 5)
        assert server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET
        assert server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        expect(errno.ENOTCONN, server.recv, 10)
        is_signalled(lambda flags: server.send(b"x", flags))


def case_without_a_connection() -> None:
    with one_to_one() as fresh, listener() as waiting, one_to_many() as many:
        for sock in (fresh, waiting, many):
            is_signalled(lambda flags, to=sock: to.send(b"x", flags))  # type: ignore[misc]


def case_to_an_association_that_is_over() -> None:
    with associated() as (client, _, server, to_client):
        client.close()
        receive_change(server, SHUTDOWN_COMP)
        is_signalled(lambda flags: send(server, b"x", association=to_client, socket_flags=flags))


def case_an_unknown_association() -> None:
    with associated() as (client, to_server, _, _):
        is_signalled(lambda flags: send(client, b"x", association=to_server + 1000, socket_flags=flags))


def ends_of_senders(flags: int) -> int:
    """Return how a process ends that sends where nobody is, with nothing done about the signal."""
    with connected() as (client, server):
        client.close()
        assert server.recv(10) == b""
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            with contextlib.suppress(OSError):
                server.send(b"x", flags)
            os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def case_it_ends_a_process() -> None:
    assert ends_of_senders(0) == -signal.SIGPIPE
    assert ends_of_senders(socket.MSG_NOSIGNAL) == 7
