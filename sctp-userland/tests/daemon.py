"""sctpd as the tests start it (plain, for every user, with sanitizers), and the programs that use it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.builds import build
from tests.support.namespaces import Namespace
from tests.support.waiting import until

MEMORY_LIMIT_MB = 24
HERE = Path(__file__).parent
SCTP_USERLAND = HERE.parent
SCTPD = SCTP_USERLAND / "build" / "sctpd"
BESIDE = f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
"""The beginning of a program that imports modules of this folder."""
PRELUDE = BESIDE + "from sctp_api import *\nimport os, threading, time\n"
FLOOD = """
server = one_to_many()
server.bind(("127.0.0.1", 5602))
server.listen(1000)
clients = []
for _ in range(100):
    client = one_to_one()
    client.connect(("127.0.0.1", 5602))
    client.setblocking(False)
    clients.append(client)
deadline = time.monotonic() + 60
refused_by_all = 0
while time.monotonic() < deadline and refused_by_all < 20:
    sent = 0
    for client in clients:
        try:
            sent += client.send(bytes(20000))
        except BlockingIOError:
            pass
    refused_by_all = 0 if sent else refused_by_all + 1
    time.sleep(0.01)
print("full", flush=True)
time.sleep(100)
"""
ECHO = """
import socket
a = socket.socket(2, 1, 132); a.bind(('127.0.0.1', 0)); a.listen(1)
b = socket.socket(2, 1, 132); b.connect(a.getsockname()); c = a.accept()[0]
b.settimeout(20); c.settimeout(20)
for number in range(10):
    b.send(b"%d" % number); assert c.recv(100) == b"%d" % number
print("served")
"""

EXIT_RUNNING = 3
CONNECT = (
    "import socket; a = socket.socket(2, 1, 132); a.bind(('127.0.0.1', 0)); a.listen(1);"
    "b = socket.socket(2, 1, 132); b.connect(a.getsockname()); print('connected')"
)
FORKS = """
import os, socket, threading, time
def connections():
    found = 0
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(number)) as copy:
                found += copy.getpeername() == b"\\0sctp-userland"
        except OSError:
            pass
    return found
def use():
    socket.socket(2, 1, 132).close()
    ready.wait()
    over.wait()
ready, over = threading.Barrier(6), threading.Event()
threads = [threading.Thread(target=use) for _ in range(5)]
for thread in threads:
    thread.start()
ready.wait()
print(connections(), end=" ", flush=True)
pid = os.fork()
if pid == 0:
    print(connections(), end=" ")
    with socket.socket(2, 1, 132) as first, socket.socket(2, 1, 132) as second:
        first.bind(("127.0.0.1", 0)); first.listen(1); second.connect(first.getsockname())
    print(connections(), end=" ", flush=True)
    os._exit(0)
os.waitpid(pid, 0)
over.set()
for thread in threads:
    thread.join()
with socket.socket(2, 1, 132):
    deadline = time.monotonic() + 10
    while connections() > 1 and time.monotonic() < deadline:  # a thread is joined a moment before its end
        time.sleep(0.05)
    print(connections())
"""
"""Counts the connections of this process to sctpd, before and after a fork."""
STRANGER = """
import os, socket, sys, time
os.setuid(12345)
name = "\\0sctp-userland"
taker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
taker.bind(name)
if sys.argv[1] != "bound":
    taker.listen(0)
if sys.argv[1] == "full":
    waiting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    waiting.connect(name)
print("sits", flush=True)
while sys.argv[1] == "accepts":
    kept = taker.accept()
time.sleep(100)
"""
"""A program of another user that takes sctpd's abstract name, in the way of its argument."""


def sanitized() -> Path:
    """Return the folder with sctpd, and in `library/` the library, built with the sanitizers."""
    build(SCTP_USERLAND, "asan")
    return SCTP_USERLAND / "build-asan"


def sctpd() -> str:
    """Return the program sctp-run would start."""
    return str(Path(os.environ.get("SCTP_USERLAND_BUILD", SCTPD.parent)) / "sctpd")


def daemons(namespace: Namespace) -> list[int]:
    """Return the sctpd processes of a namespace."""
    listed = subprocess.run(
        ["ip", "netns", "pids", namespace.name], capture_output=True, text=True, check=True
    )
    found = []
    for pid in listed.stdout.split():
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == "sctpd":
                found.append(int(pid))
        except OSError:
            continue
    return found


def serves(namespace: Namespace) -> bool:
    """Whether an sctpd answers there: it runs some time before it does."""
    return namespace.run(str(SCTPD), "--status").returncode == 0


def python(namespace: Namespace, code: str, timeout_s: float = 30) -> subprocess.CompletedProcess[str]:
    return namespace.run(sys.executable, "-c", code, sctp=True, timeout_s=timeout_s)


def start_sctpd(
    namespace: Namespace, *options: str, before: Sequence[str] = (), **more: Any
) -> subprocess.Popen[str]:
    """Start sctpd by the command `before`, and wait until it serves; `more` goes to `Namespace.start`."""
    daemon = namespace.start(*before, str(SCTPD), *options, **more)
    until(lambda: serves(namespace), told="sctpd does not serve")
    return daemon


@contextmanager
def library_for_all() -> Iterator[str]:
    """Yield a copy of the library that every user may read, as an installed one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield str(shutil.copy(SCTPD.parent / "libsctp-userland.so", folder))


def as_nobody(namespace: Namespace, code: str, *before: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a user without any right, by a command that runs another one."""
    with library_for_all() as library:
        options = ("setpriv", "--reuid", "12345", "--clear-groups", "--bounding-set", "-all")
        return namespace.run(
            *before, *options, "env", f"LD_PRELOAD={library}", "/usr/bin/python3", "-c", code
        )


@pytest.fixture(scope="module")
def shared() -> Iterator[Namespace]:
    """Return a namespace with an sctpd for everyone, and tight limits."""
    namespace = Namespace(f"rspdns-limits-{os.getpid()}")
    try:
        limits = ("--memory-limit", str(MEMORY_LIMIT_MB), "--connection-limit", "30")
        start_sctpd(namespace, "--everyone", *limits)
        yield namespace
    finally:
        namespace.close()


def resident_mb(namespace: Namespace) -> float:
    status = Path(f"/proc/{daemons(namespace)[0]}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024


def start(namespace: Namespace, code: str, expected: str) -> subprocess.Popen[str]:
    """Start a program of root and wait for its first line."""
    process = namespace.start(sys.executable, "-c", PRELUDE + code, sctp=True)
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line == expected + "\n", line + process.stderr.read()
    return process


@pytest.fixture(scope="module")
def sanitized_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Have sctp-run and `sctpd()` take it, and return it; afterwards none may have reported anything.

    Leaks aren't looked for: most of these tests kill their daemons. `test_sanitizers.py` does.
    """
    build, reports = sanitized(), tmp_path_factory.mktemp("reports")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCTP_USERLAND_BUILD", str(build))
        patch.setenv("ASAN_OPTIONS", f"log_path={reports}/report:detect_leaks=0:quarantine_size_mb=16")
        patch.setenv("UBSAN_OPTIONS", f"log_path={reports}/report:print_stacktrace=1")
        yield build / "sctpd"
    found = [report.read_text() for report in reports.iterdir()]
    assert not found, "\n".join(found)
