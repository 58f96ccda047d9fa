"""Sockets and the processes that hold them."""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from sctp_api import (
    COMM_LOST,
    SHUTDOWN_COMP,
    associated,
    connected,
    expect,
    listener,
    one_to_many,
    one_to_one,
    readable,
    receive,
    receive_change,
    receive_data,
    send,
)

TOLD_WITHIN_S = 3  # a broken mechanism takes until a timeout, many times this


def child(run: Callable[[], object]) -> int:
    """Fork; the child runs this and ends without a word."""
    pid = os.fork()
    if pid == 0:
        try:
            run()
        finally:
            os._exit(0)
    return pid


def case_forked_child_uses_the_socket() -> None:
    with connected() as (client, server):
        pid = child(lambda: (client.send(b"from the child"), client.send(client.recv(100))))
        assert server.recv(100) == b"from the child"
        server.send(b"to the child")
        assert server.recv(100) == b"to the child"
        os.waitpid(pid, 0)
        client.send(b"the parent has it still")
        assert server.recv(100) == b"the parent has it still"


def case_parent_closes_child_goes_on() -> None:
    with connected() as (client, server):

        def run() -> None:
            time.sleep(0.2)
            client.send(b"still open")

        pid = child(run)
        client.close()
        assert server.recv(100) == b"still open"
        assert server.recv(100) == b""
        os.waitpid(pid, 0)


def case_duplicates() -> None:
    with connected() as (client, server):
        copy = client.dup()
        client.close()
        copy.send(b"by the copy")
        assert server.recv(100) == b"by the copy"
        assert not readable(server, 0.1)
        copy.close()
        assert server.recv(100) == b""


def case_dup2_over_a_socket() -> None:
    with connected() as (client, server), connected() as (other, _):
        os.dup2(other.fileno(), client.fileno())
        assert server.recv(100) == b""


def case_exec_keeps_the_socket() -> None:
    with connected() as (client, server):
        code = (
            "import socket, sys; s = socket.socket(2, 1, 132, fileno=int(sys.argv[1]));"
            "s.send(b'after exec ' + s.recv(100)); s.detach()"
        )
        server.send(b"question")
        subprocess.run(
            [sys.executable, "-c", code, str(client.fileno())], pass_fds=[client.fileno()], check=True
        )
        assert server.recv(100) == b"after exec question"


def case_passed_to_another_process() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with connected() as (client, server), ours, theirs:

        def receiver() -> None:
            _, fds, _, _ = socket.recv_fds(theirs, 10, 1)
            os.write(fds[0], b"through a descriptor")

        pid = child(receiver)
        socket.send_fds(ours, [b"x"], [client.fileno()])
        assert server.recv(100) == b"through a descriptor"
        os.waitpid(pid, 0)


def killed_client(name: tuple[str, int], style: Callable[[], socket.socket]) -> int:
    """Fork a child with a socket of its own that connects, says `ready` and waits to be killed."""

    def run() -> None:
        with style() as sock:
            if sock.type == socket.SOCK_STREAM:
                sock.connect(name)
                sock.send(b"ready")
            else:
                send(sock, b"ready", to=name)
            time.sleep(60)

    return child(run)


def case_killed_one_to_one() -> None:
    with listener() as waiting:
        pid = killed_client(waiting.getsockname(), one_to_one)
        server, _ = waiting.accept()
        with server:
            assert server.recv(100) == b"ready"
            started = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            assert server.recv(100) == b""
            assert time.monotonic() - started < TOLD_WITHIN_S
        os.waitpid(pid, 0)


def case_killed_one_to_many() -> None:
    with one_to_many() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(5)
        pid = killed_client(server.getsockname(), lambda: one_to_many(events=False))
        assert receive_data(server).data == b"ready"
        started = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        receive_change(server, SHUTDOWN_COMP)
        assert time.monotonic() - started < TOLD_WITHIN_S
        os.waitpid(pid, 0)


def case_killed_with_unread_data() -> None:
    """Data that was never read makes the end an ABORT."""
    with one_to_many() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(5)
        pid = killed_client(server.getsockname(), lambda: one_to_many(events=False))
        got = receive_data(server)
        send(server, b"never read", association=got.association)
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        receive_change(server, COMM_LOST)
        os.waitpid(pid, 0)


def case_killed_group() -> None:
    """All of a process group at once, both ends among them: the survivor sees each end."""
    with listener() as waiting:
        servers = []
        pids = [killed_client(waiting.getsockname(), one_to_one) for _ in range(5)]
        for pid in pids:
            os.setpgid(pid, pids[0])
        for _ in pids:
            server, _ = waiting.accept()
            assert server.recv(100) == b"ready"
            servers.append(server)
        os.killpg(pids[0], signal.SIGKILL)
        for server in servers:
            assert readable(server, TOLD_WITHIN_S)
            assert server.recv(100) == b""
            server.close()
        for pid in pids:
            os.waitpid(pid, 0)


def case_stopped_process_keeps_its_association() -> None:
    with listener() as waiting:

        def run() -> None:
            with one_to_one() as sock:
                sock.connect(waiting.getsockname())
                sock.send(b"ready")
                while data := sock.recv(100):
                    sock.send(data)

        pid = child(run)
        server, _ = waiting.accept()
        with server:
            assert server.recv(100) == b"ready"
            os.kill(pid, signal.SIGSTOP)
            server.send(b"while stopped")
            assert not readable(server, 0.3)
            os.kill(pid, signal.SIGCONT)
            assert receive(server).data == b"while stopped"
        os.waitpid(pid, 0)


def case_port_is_free_at_once() -> None:
    with one_to_one() as first:
        first.bind(("127.0.0.1", 0))
        name = first.getsockname()
    for _ in range(20):
        with one_to_one() as again:
            again.bind(name)


def case_interrupted_receive() -> None:
    with connected() as (client, _):
        signal.signal(
            signal.SIGALRM, lambda *_: (_ for _ in ()).throw(InterruptedError(errno.EINTR, "alarm"))
        )
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        expect(errno.EINTR, client.recv, 100)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def case_threads_share_a_socket() -> None:
    import threading

    with associated() as (client, to_server, server, _):
        threads = [
            threading.Thread(
                target=lambda: [send(client, b"x" * 100, association=to_server) for _ in range(500)]
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for _ in range(2000):
            assert receive_data(server).data == b"x" * 100
        for thread in threads:
            thread.join(5)


def case_exec_without_the_socket() -> None:
    """A descriptor that closes on exec doesn't keep the association."""
    with connected() as (client, server):
        pid = child(lambda: os.execvp("sleep", ["sleep", "60"]))  # noqa: S606 - an argument list, no shell
        client.close()
        assert server.recv(100) == b""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def case_killed_group_of_holders() -> None:
    """Several processes hold one socket: it lives until the last of them is dead."""
    with connected() as (client, server):
        pids = [child(lambda: time.sleep(60)) for _ in range(3)]
        for pid in pids:
            os.setpgid(pid, pids[0])
        client.close()
        os.kill(pids[1], signal.SIGKILL)
        assert not readable(server, 0.2)
        os.killpg(pids[0], signal.SIGKILL)
        assert readable(server, 5)
        assert server.recv(100) == b""
        for pid in pids:
            os.waitpid(pid, 0)
