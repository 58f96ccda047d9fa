"""sctpd with too few descriptors: newcomers wait or are refused, the others are served on, nothing spins."""

import sys

import pytest
from daemon import SCTPD, daemons
from rspdns_lab.net.processes import processor_s

from tests.support.namespaces import Namespace
from tests.support.waiting import until

pytestmark = pytest.mark.integration

LIMIT = 64

EXHAUST = """
import socket, threading, time
held = []
try:
    while len(held) < 200:
        held.append(socket.socket(2, 1, 132))
except OSError as error:
    print('sockets', 36 < len(held) < 64, error.errno)
over = threading.Event()
def one_more_connection():
    try:
        socket.socket(2, 1, 132)
        print('made')
    except OSError:
        pass
    over.wait()
threads = [threading.Thread(target=one_more_connection, daemon=True) for _ in range(8)]
for thread in threads:
    thread.start()
time.sleep(0.5)
held[0].bind(('127.0.0.1', 0))
held[0].listen(1)
held[1].connect(held[0].getsockname())
held[1].send(b'kept')
try:
    held[0].accept()
except OSError as error:
    print('served', error.errno, flush=True)
time.sleep(2)
over.set()
for thread in threads:
    thread.join()
for one in held[2:]:
    one.close()
time.sleep(0.3)
assert held[0].accept()[0].recv(100) == b'kept'
socket.socket(2, 1, 132)
print('again')
"""


def test_without_descriptors_the_present_are_served_and_nothing_spins(namespace: Namespace) -> None:
    """64 descriptors: sockets, then connections of more threads, ask for more than there are."""
    daemon = namespace.start("prlimit", f"--nofile={LIMIT}", str(SCTPD))
    until(lambda: daemons(namespace))
    client = namespace.start(sys.executable, "-c", EXHAUST, sctp=True)
    assert client.stdout is not None
    assert client.stdout.readline() == "sockets True 24\n"
    assert client.stdout.readline() == "served 24\n", "a call on a socket that was there failed"
    before_s = processor_s(daemon.pid)
    assert client.stdout.readline() == "again\n"
    assert processor_s(daemon.pid) - before_s < 0.5, "busy while there were no descriptors"
    assert client.wait(20) == 0
    assert daemon.poll() is None


def test_soft_limit_is_raised(namespace: Namespace) -> None:
    """A small soft limit, as most systems set it, isn't what ends service."""
    namespace.start("prlimit", "--nofile=64:256", str(SCTPD))
    until(lambda: daemons(namespace))
    code = "import socket; held = [socket.socket(2, 1, 132) for _ in range(150)]; print(len(held))"
    assert namespace.run(sys.executable, "-c", code, sctp=True).stdout == "150\n"
