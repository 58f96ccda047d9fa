"""sctpd dies, is stuck, or has no descriptor left, while programs wait in each kind of call."""

# ruff: noqa: E501  (programs given as text)
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from daemon import SCTPD, python, start_sctpd
from rspdns_lab.net.processes import processor_s

from tests.support.namespaces import Namespace

pytestmark = pytest.mark.integration

WAITING = """
import errno, select, socket, sys, threading, time

def listener():
    made = socket.socket(2, 1, 132); made.bind(('127.0.0.1', 0)); made.listen(5)
    return made

def pair():
    with listener() as waiting:
        client = socket.socket(2, 1, 132); client.connect(waiting.getsockname())
        return client, waiting.accept()[0]

def in_recv():
    client, keep = pair()
    yield
    client.recv(100)

def in_poll():
    client, keep = pair()
    poll = select.poll(); poll.register(client, select.POLLIN)
    yield
    assert poll.poll(60000), "poll() was not woken"
    client.recv(100)

def in_accept():
    waiting = listener()
    yield
    waiting.accept()

def in_connect():
    client = socket.socket(2, 1, 132)
    yield
    client.connect(('10.99.0.2', 5000))

def in_send():
    client, keep = pair()
    yield
    while True:
        client.send(bytes(50000), socket.MSG_NOSIGNAL)

def one_to_many():
    client = socket.socket(2, 5, 132); client.bind(('127.0.0.1', 0)); client.listen(5)
    yield
    client.recv(100)

outcomes, begun, lock = {}, threading.Semaphore(0), threading.Lock()

def run(function):
    steps = function()
    next(steps)
    begun.release()
    try:
        next(steps, None)
        outcome = 'returned'
    except OSError as error:
        outcome = errno.errorcode.get(error.errno, str(error))
    except Exception as error:
        outcome = repr(error)
    with lock:
        outcomes[function.__name__] = outcome

functions = [in_recv, in_poll, in_accept, in_connect, in_send, one_to_many]
threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
for thread in threads:
    thread.start()
for _ in threads:
    begun.acquire()
time.sleep(1)
print('waiting', sorted(outcomes.items()), flush=True)
deadline = time.monotonic() + 20
for thread in threads:
    thread.join(max(0, deadline - time.monotonic()))
print(sorted(outcomes.items()), flush=True)
while True:
    try:
        client, server = pair()
        break
    except OSError as error:
        assert error.errno in (errno.EPROTONOSUPPORT, errno.ECONNRESET), error
        time.sleep(0.05)
client.send(b'new')
print(server.recv(100), flush=True)
"""
NAMES = ("in_accept", "in_connect", "in_poll", "in_recv", "in_send", "one_to_many")


def test_killed_while_programs_wait_and_started_again(namespace: Namespace) -> None:
    """Each waiting call fails with ECONNRESET at once; the same program goes on with the next sctpd."""
    namespace.ip("link", "add", "silent0", "type", "veth", "peer", "name", "silent1")
    namespace.ip("addr", "add", "10.99.0.1/24", "dev", "silent0")
    namespace.ip("link", "set", "silent0", "up")  # its other end is down: what goes there is lost
    daemon = start_sctpd(namespace)
    client = namespace.start(sys.executable, "-c", WAITING, sctp=True)
    assert client.stdout is not None
    assert client.stderr is not None
    assert client.stdout.readline() == "waiting []\n", client.stderr.read()
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    outcomes = client.stdout.readline()
    assert outcomes == f"{[(name, 'ECONNRESET') for name in NAMES]}\n"
    namespace.start(str(SCTPD))
    assert client.stdout.readline() == "b'new'\n", client.stderr.read()


def test_another_daemons_socket_is_reset(namespace: Namespace) -> None:
    """A program that did nothing while sctpd was exchanged learns it from its next call."""
    first = start_sctpd(namespace)
    code = """
import signal, socket
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
held = socket.socket(2, 1, 132)
print('made', flush=True)
signal.sigwait([signal.SIGUSR1])
try:
    held.bind(('127.0.0.1', 0))
except OSError as error:
    print(error.errno, flush=True)
"""
    client = namespace.start(sys.executable, "-c", code, sctp=True)
    assert client.stdout is not None
    assert client.stdout.readline() == "made\n"
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    start_sctpd(namespace)
    os.kill(client.pid, signal.SIGUSR1)
    assert client.stdout.readline() == "104\n"


def says(manager: socket.socket) -> bool:
    """Whether a message comes before the time is over."""
    try:
        return bool(manager.recv(100))
    except TimeoutError:
        return False


def test_tells_its_watchdog_until_it_is_stuck(namespace: Namespace, tmp_path: Path) -> None:
    """The bound of a stuck sctpd is the service manager's (WatchdogSec=), as its clients wait for it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        daemon = namespace.start(str(SCTPD), environment=environment)
        assert manager.recv(100) == b"READY=1"
        for _ in range(5):
            assert manager.recv(100) == b"WATCHDOG=1"
        os.kill(daemon.pid, signal.SIGSTOP)
        manager.settimeout(2)
        while says(manager):
            pass
        os.kill(daemon.pid, signal.SIGCONT)
        manager.settimeout(20)
        assert manager.recv(100) == b"WATCHDOG=1"


NEWCOMER = """
import socket
try:
    socket.socket(2, 1, 132)
    print('made')
except OSError as error:
    print('refused')
"""


def limit_descriptors(process: int, number: int) -> None:
    """As the user that sctpd has become: a root without CAP_SYS_RESOURCE may not."""
    status = dict(line.split(":\t") for line in Path(f"/proc/{process}/status").read_text().splitlines())
    user, group = status["Uid"].split()[0], status["Gid"].split()[0]
    command = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
    command += ["prlimit", f"--pid={process}", f"--nofile={number}:"]
    subprocess.run(command, check=True, timeout=20)


def test_no_descriptor_at_all(namespace: Namespace) -> None:
    """Not one free: newcomers are turned away by the spare descriptor, not left to wait, and nothing spins."""
    daemon = start_sctpd(namespace)
    code = """
import socket, sys
a = socket.socket(2, 1, 132); a.bind(('127.0.0.1', 5700)); a.listen(5)
print('listening', flush=True)
while True:
    b, _ = a.accept()
    b.send(b'x')
"""
    holder = namespace.start(sys.executable, "-c", code, sctp=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "listening\n"
    time.sleep(0.3)
    used = sorted(int(entry.name) for entry in Path(f"/proc/{daemon.pid}/fd").iterdir())
    lowest_free = next(number for number in range(1000) if number not in used)
    limit_descriptors(daemon.pid, lowest_free)
    before_s = processor_s(daemon.pid)
    for _ in range(3):
        assert python(namespace, NEWCOMER).stdout == "refused\n"
    time.sleep(1)
    assert processor_s(daemon.pid) - before_s < 0.5
    limit_descriptors(daemon.pid, 256)
    connect = "import socket; s = socket.socket(2, 1, 132); s.connect(('127.0.0.1', 5700)); print(s.recv(10))"
    run = python(namespace, connect)
    assert run.stdout == "b'x'\n", run.stderr
