"""What one user may not do to another through sctpd: connections, sockets, addresses."""

# ruff: noqa: E501  (programs given as text)

import json
import subprocess
import sys

import pytest

from tests.sctp.shared_daemon import ECHO, FLOOD, PRELUDE, start
from tests.sctp.test_daemon import SCTPD, as_nobody, library_for_all, serves, wait_for
from tests.support.namespaces import Namespace

pytestmark = pytest.mark.integration


MANY_THREADS = """
import socket, threading
made, over, lock = [], threading.Event(), threading.Lock()
def use():
    try:
        socket.socket(2, 1, 132)
        outcome = True
    except OSError:
        outcome = False
    with lock:
        made.append(outcome)
    over.wait()
threads = [threading.Thread(target=use, daemon=True) for _ in range(60)]
for thread in threads:
    thread.start()
while len(made) < 60:
    over.wait(0.05)
print(0 < sum(made) < 40, flush=True)
import sys
sys.stdin.readline()
"""


def test_connections_of_one_user_are_limited(shared: Namespace) -> None:
    """Sixty threads of one user don't keep another one out."""
    assert as_nobody(shared, MANY_THREADS).stdout == "True\n"
    run = shared.run(sys.executable, "-c", PRELUDE + "one_to_one(); print('made')", sctp=True)
    assert run.stdout == "made\n", run.stderr


TAKES_ALL = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (5000, 5000))
held = []
for _ in range(4300):
    held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    held[-1].connect("\\0sctp-userland")
print("taken", flush=True)
sys.stdin.readline()
"""


def test_connections_are_left_for_others(namespace: Namespace) -> None:
    """However many one user may have: he gets half of all, and another one half of what is left."""
    namespace.start(str(SCTPD), "--everyone", "--connection-limit", "1000000")
    assert wait_for(lambda: serves(namespace))
    user = ("setpriv", "--reuid", "12345", "--clear-groups", "--bounding-set", "-all")
    taker = subprocess.Popen(
        namespace.command(*user, "/usr/bin/python3", "-c", TAKES_ALL),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with taker:
        assert taker.stdout is not None
        assert taker.stdout.readline() == "taken\n"
        assert serves(namespace)
        taker.communicate("\n")


FULL = """
waiting = listener()
first, second = one_to_one(), one_to_one()
first.connect(waiting.getsockname())
first.send(b"first")
second.connect(waiting.getsockname())
second.send(b"second")
more = one_to_one()
for _ in range(3):
    try:
        print(waiting.accept())
    except OSError as error:
        assert error.errno == 24, error
    assert readable(waiting, 10)
for gone, client, text in ((more, first, b"first"), (None, second, b"second")):
    if gone is not None:
        gone.close()
    server, name = waiting.accept()
    assert name == client.getsockname()
    assert server.recv(100) == text
    server.close()
    client.close()
print("done")
"""


def test_a_connection_that_is_one_too_many_waits(namespace: Namespace) -> None:
    """As with a kernel's limit on descriptors: it is accepted when there is room, and those behind it after it."""
    namespace.start(str(SCTPD), "--socket-limit", "4")
    assert wait_for(lambda: serves(namespace))
    run = namespace.run(sys.executable, "-c", PRELUDE + FULL, sctp=True)
    assert run.stdout == "done\n", run.stdout + run.stderr


def test_one_program_is_limited(namespace: Namespace) -> None:
    """What one program holds neither another one of the same user is refused for, nor a child of it."""
    limits = ("--client-socket-limit", "210", "--client-queue-limit", "4")
    namespace.start(str(SCTPD), *limits)
    assert wait_for(lambda: serves(namespace))
    more = """
held = []
try:
    while len(held) < 200:
        held.append(one_to_one())
except OSError as error:
    print(error.errno == 24, flush=True)
if os.fork() == 0:
    kept = one_to_one()
    print("full", flush=True)
time.sleep(100)
"""
    flood = start(namespace, FLOOD.replace('print("full", flush=True)\ntime.sleep(100)\n', more), "True")
    assert flood.stdout is not None
    assert flood.stdout.readline() == "full\n"
    run = namespace.run(sys.executable, "-c", ECHO, sctp=True)
    assert run.stdout == "served\n", run.stderr
    listed = json.loads(namespace.run(str(SCTPD), "--status", "--json").stdout)
    processes = [one["process"] for one in listed]
    assert processes.count(flood.pid) == 210
    assert len(set(processes)) == 2


BINDS_MANY = """
import socket, time
held = []
try:
    for number in range(1100):
        held.append(socket.socket(2, 1, 132))
        held[-1].bind((f"127.1.{number >> 8}.{number & 255}", 0))
    print("all are bound", flush=True)
except OSError as error:
    print(len(held) > 100, error.errno, flush=True)
time.sleep(100)
"""


def test_addresses_on_no_interface_are_left_for_others(namespace: Namespace) -> None:
    """Who binds all he can of 127/8 leaves some for others, and gives his back."""
    namespace.start(str(SCTPD), "--everyone")
    assert wait_for(lambda: serves(namespace))
    with library_for_all() as library:
        user = ("setpriv", "--reuid", "12345", "--clear-groups", "--bounding-set", "-all")
        taker = namespace.start(*user, "env", f"LD_PRELOAD={library}", "/usr/bin/python3", "-c", BINDS_MANY)
        assert taker.stdout is not None
        assert taker.stdout.readline() == "True 99\n"
        binds = PRELUDE + "one_to_one().bind(('127.0.0.2', 0)); print('bound')"
        run = namespace.run(sys.executable, "-c", binds, sctp=True)
        assert run.stdout == "bound\n", run.stderr
        taker.kill()
        taker.wait(10)
    again = BINDS_MANY.replace("1100", "400").replace("127.1.", "127.2.").replace("time.sleep(100)", "")
    assert wait_for(lambda: as_nobody(namespace, again).stdout == "all are bound\n"), "they aren't given back"
