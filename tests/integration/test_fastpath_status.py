"""The status of rspdns-fastpath with many names and many decisions: changes of the backend never wait for
it."""

import ctypes
import json
import os
import socket
import struct
import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from rspdns.fastpath.connection import Lease
from rspdns.fastpath.messages import STATUS_OF_ALL, STATUS_OF_ASKED, commit, hello, put
from rspdns.fastpath.ready import Answer, Question

from tests.support.fast_path import FAST, built, connect, needs_bpf
from tests.support.namespaces import Namespace
from tests.support.waiting import until

MANY = 50_000
LONG = f"{'x' * 60}.{'y' * 40}"
"""In each of the names: a status of all is longer than the 8 MB that a client may leave unread."""
TRACE, DETACH = (struct.pack("=IB", 1, ord(kind)) for kind in "TD")
LIBC = ctypes.CDLL(None, use_errno=True)
SETRESUID = {"x86_64": 117, "aarch64": 147}[os.uname().machine]
SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}[os.uname().machine]
SCHED_ATTR = struct.Struct("=IIQiIQQQ")
"""Size, policy, flags, nice value, priority, slice, deadline, period."""
SHORT_SLICE_NS = 100_000
NOBODY = 65534
ASKED = 2500
NAMES_A_STATUS = 2000
"""The names in one status of those that were asked about: MOST_ASKED in fastpath/daemon/messages.h."""
ANSWER = Answer(1, 0, b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4\x0a\0\0\1")
ASK = """
import socket, sys
server, text, first, end = sys.argv[1:]
file = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
file.connect((server, 53))
for number in range(int(first), int(end)):
    labels = f"n{number}.{text}".split(".")
    name = b"".join(bytes([len(one)]) + one.encode() for one in labels) + bytes(1)
    try:
        file.send(bytes([0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + name + bytes([0, 1, 0, 1]))
    except ConnectionRefusedError:
        pass  # nobody listens where the kernel does not answer
"""


def messages_until(connection: socket.socket, last: str) -> list[tuple[str, bytes]]:
    """Each message with its kind, up to the last of that kind."""
    found: list[tuple[str, bytes]] = []
    while not found or found[-1][0] != last:
        size, kind = struct.unpack("=IB", received(connection, 5))
        found.append((chr(kind), received(connection, size - 1)))
    return found


def received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the daemon ended the connection"
        data += more
    return bytes(data)


def names_told(told: list[tuple[str, bytes]]) -> list[str]:
    """The names in a status."""
    status = json.loads(b"".join(body for kind, body in told if kind in "ps"))
    return [row["name"] for row in status["asked"]]


@dataclass
class Crowd:
    """A daemon with many names, and their backend."""

    server: Namespace
    client: Namespace
    backend: socket.socket
    path: str
    lease: Lease
    daemon: subprocess.Popen[str]

    def another(self) -> socket.socket:
        """One more connection to the daemon."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(60)
        client.connect(self.path)
        return client


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    needs_bpf()
    folder = tmp_path_factory.mktemp("fast")
    path, log, name = folder / "s", folder / "log", f"rspdns-test-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    server, client = Namespace(name), Namespace(f"{name}c")
    try:
        connect(server, client)
        options = ("--names", "65536", "--answers", "65536", "--socket", str(path))
        program = str(built("asan"))
        daemon = server.start(program, "run", "--interface", "server", "--address", FAST, *options, log=log)
        try:
            until(lambda: path.exists() or daemon.poll() is not None, told=log)
            assert daemon.poll() is None, log.read_text()
            lease = Lease()
            made = Crowd(server, client, socket.socket(socket.AF_UNIX), str(path), lease, daemon)
            with made.backend as backend:
                backend.settimeout(60)
                backend.connect(str(path))
                backend.sendall(hello(1232))
                said, (file,), _, _ = socket.recv_fds(backend, 7, 1)
                lease.number = struct.unpack("=IBH", said)[2]
                lease.take(file)
                puts = (put(Question(f"n{number}.{LONG}", "A"), (ANSWER,)) for number in range(MANY))
                backend.sendall(b"".join((*puts, commit(1))))
                assert messages_until(backend, "c")[-1][1] == struct.pack("=QI", 1, 0)
                yield made
                lease.close()
            assert daemon.poll() is None, log.read_text()
        finally:
            daemon.terminate()
            daemon.wait(30)
    finally:
        client.close()
        server.close()


def test_status_of_many_names_is_whole_and_a_change_does_not_wait_for_its_reader(crowd: Crowd) -> None:
    with crowd.another() as reader:
        reader.sendall(STATUS_OF_ALL)
        crowd.backend.sendall(commit(2))
        assert [kind for kind, _ in messages_until(crowd.backend, "c")] == ["c"]
        told = messages_until(reader, "s")
    assert sum(len(body) for _, body in told) > 8 << 20
    assert max(len(body) for _, body in told) < 1 << 18
    assert sorted(names_told(told)) == sorted(f"n{number}.{LONG}" for number in range(MANY))
    printed = crowd.server.run(str(built("asan")), "status", "--socket", crowd.path)
    assert printed.returncode == 0
    assert len(json.loads(printed.stdout)["asked"]) == MANY


def slice_ns(process: int) -> int:
    """How long the kernel lets a process run at a time; 0 where it has no slice of its own."""
    attributes = ctypes.create_string_buffer(SCHED_ATTR.size)
    assert LIBC.syscall(SCHED_GETATTR, process, attributes, SCHED_ATTR.size, 0) == 0
    return int(SCHED_ATTR.unpack(attributes.raw)[5])


def test_daemon_asks_to_run_as_soon_as_a_change_comes(crowd: Crowd) -> None:
    """A waking process with a short slice need not wait until a busy one has had its own."""
    if slice_ns(0) == 0:
        pytest.skip("this kernel gives no process a slice of its own (Linux before 6.12)")
    assert slice_ns(crowd.daemon.pid) == SHORT_SLICE_NS


def test_change_is_visible_before_the_status_that_was_asked_for_first_is_told(crowd: Crowd) -> None:
    """Both stand in one message of the backend: the commit is done between two pages."""
    crowd.backend.sendall(STATUS_OF_ALL + commit(3) + STATUS_OF_ALL)
    told = messages_until(crowd.backend, "s")
    assert [kind for kind, _ in told[:2]] == ["p", "c"]
    assert len(names_told(told)) == MANY
    assert len(names_told(messages_until(crowd.backend, "s"))) == MANY


def test_names_that_were_asked_about_are_told_in_turn_some_at_a_time(crowd: Crowd) -> None:
    missing = {f"n{number}.{LONG}" for number in range(ASKED)}
    largest = 0

    def are_told() -> bool:
        nonlocal largest
        # A machine that stands still may lose some: asked again until all were counted.
        crowd.lease.renew()
        assert crowd.client.run("python3", "-c", ASK, FAST, LONG, "0", str(ASKED)).returncode == 0
        crowd.backend.sendall(STATUS_OF_ASKED)
        names = names_told(messages_until(crowd.backend, "s"))
        largest = max(largest, len(names))
        missing.difference_update(names)
        return not missing

    until(are_told, 60)
    assert 0 < largest <= NAMES_A_STATUS


def test_trace_of_a_flood_tells_some_decisions_and_how_many_more_there_were(crowd: Crowd) -> None:
    with crowd.another() as tracing:
        tracing.settimeout(1)
        tracing.sendall(TRACE)
        said = bytearray()

        def says_how_many_more() -> bool:
            crowd.lease.renew()
            crowd.client.run("python3", "-c", ASK, FAST, LONG, "0", "1000")
            try:
                while b" more, above 1000 a second\n" not in said:
                    said.extend(tracing.recv(1 << 16))
            except TimeoutError:
                return False
            return True

        until(says_how_many_more, 60)
        assert b" A " in said
        crowd.backend.sendall(commit(4))
        assert messages_until(crowd.backend, "c")[-1][1] == struct.pack("=QI", 4, 0)


def test_user_of_the_socket_reads_the_status_but_does_not_trace_or_end_the_daemon(crowd: Crowd) -> None:
    for path, mode in ((Path(crowd.path).parent, 0o711), (Path(crowd.path), 0o666)):
        path.chmod(mode)

    def connected() -> socket.socket:
        """As another user: its connection keeps that. Credentials are a thread's own for the kernel."""
        os.chdir(Path(crowd.path).parent)
        assert LIBC.syscall(SETRESUID, -1, NOBODY, -1) == 0
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(60)
        client.connect(Path(crowd.path).name)
        return client

    before = Path.cwd()
    for message, words in ((TRACE, b"only root"), (DETACH, b"only root"), (STATUS_OF_ASKED, b"")):
        with ThreadPoolExecutor(1) as thread:
            try:
                connection = thread.submit(connected).result()
            finally:
                os.chdir(before)
        with connection:
            connection.send(message)
            told = messages_until(connection, "e" if words else "s")
            assert told[-1][1].startswith(words)
    with crowd.another() as root:
        root.send(STATUS_OF_ASKED)
        assert messages_until(root, "s"), "it goes on"
