"""An sctpd that every user may use, with tight limits, its memory, and programs that use it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sctp.test_daemon import SCTPD, daemons, serves, wait_for
from tests.support.namespaces import Namespace

MEMORY_LIMIT_MB = 24
HERE = Path(__file__).parent
PRELUDE = (
    f"import sys; sys.path.insert(0, {str(HERE)!r})\nfrom sctp_api import *\nimport os, threading, time\n"
)
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


@pytest.fixture(scope="module")
def shared() -> Iterator[Namespace]:
    """Return a namespace with an sctpd for everyone, and tight limits."""
    namespace = Namespace(f"rspdns-limits-{os.getpid()}")
    try:
        limits = ("--memory-limit", str(MEMORY_LIMIT_MB), "--connection-limit", "30")
        namespace.start(str(SCTPD), "--everyone", *limits)
        assert wait_for(lambda: serves(namespace))
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
