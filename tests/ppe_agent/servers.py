"""Servers to check, in processes of their own that can be killed and stopped."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

DATA = Path(__file__).parent / "data"

TCP_SERVER = """
import os, select, signal, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[3] else socket.AF_INET
listener = socket.create_server((sys.argv[3], int(sys.argv[1])), family=family)
idle_timeout_s = float(sys.argv[2])
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    if idle_timeout_s >= 0:
        select.select([connection], [], [], idle_timeout_s)
        connection.close()
"""


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Kill the process and all it started when the test is done with it."""
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextlib.contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that says nothing, with all that it starts, until the end of the block."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with ended(process):
        yield process


@contextlib.contextmanager
def tcp_server(port: int, idle_timeout_s: float = -1) -> Iterator[subprocess.Popen[str]]:
    """Accept one connection after the other; close each after `idle_timeout_s`, never if negative."""
    process = subprocess.Popen(
        [sys.executable, "-c", TCP_SERVER, str(port), str(idle_timeout_s), "127.0.0.1"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with ended(process):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


@contextlib.contextmanager
def sipp(port: int, transport: str = "u1") -> Iterator[subprocess.Popen[str]]:
    """Run SIPp as a server that answers OPTIONS on 127.0.0.1."""
    where = ["-i", "127.0.0.1", "-p", str(port), "-t", transport]
    with running("sipp", "-sf", str(DATA / "options.xml"), *where, "-nostdin", "-timeout", "60") as process:
        yield process


@contextlib.contextmanager
def kamailio(port: int, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Run Kamailio, several processes in one group, answering OPTIONS over UDP and TCP on 127.0.0.1."""
    where = ["-l", f"udp:127.0.0.1:{port}", "-l", f"tcp:127.0.0.1:{port}"]
    files = ["-Y", str(directory), "-P", str(directory / "pid")]
    memory = ["-m", "32", "-M", "4"]
    with running(
        "kamailio", "-f", str(DATA / "kamailio.cfg"), "-DD", "-E", *memory, *where, *files
    ) as process:
        yield process


@contextlib.contextmanager
def http_server(port: int, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Run Python's plain web server on 127.0.0.1, serving `directory`."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", str(port), "--bind", "127.0.0.1", "-d", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with ended(process):
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Serving HTTP")
        yield process
