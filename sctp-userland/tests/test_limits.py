"""The limits of all clients of sctpd together: sockets, connections, memory."""

# ruff: noqa: E501  (programs given as text)
import sys
from pathlib import Path

import pytest
from daemon import (
    ECHO,
    FLOOD,
    MEMORY_LIMIT_MB,
    PRELUDE,
    as_nobody,
    library_for_all,
    resident_mb,
    start,
    start_sctpd,
)

from tests.support.namespaces import Namespace
from tests.support.waiting import until

pytestmark = pytest.mark.integration

MANY_THREADS = """
import errno, socket, threading
made, over, lock = [], threading.Event(), threading.Lock()
def use():
    try:
        socket.socket(2, 1, 132)
        outcome = 0
    except OSError as error:
        outcome = error.errno
    with lock:
        made.append(outcome)
    over.wait()
threads = [threading.Thread(target=use, daemon=True) for _ in range(60)]
for thread in threads:
    thread.start()
while len(made) < 60:
    over.wait(0.05)
print(0 < made.count(0) < 40, set(made) == {0, errno.EUSERS}, flush=True)
"""


def test_connections_are_limited(shared: Namespace) -> None:
    """One for each thread; when the program is gone, so are they."""
    assert as_nobody(shared, MANY_THREADS).stdout == "True True\n"
    run = shared.run(sys.executable, "-c", PRELUDE + "one_to_one(); print('made')", sctp=True)
    assert run.stdout == "made\n", run.stderr


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


def test_a_connection_that_is_one_too_many_waits(namespace: Namespace, tmp_path: Path) -> None:
    """As with a kernel's limit on descriptors: it is accepted when there is room, and those behind it after it.

    The log names the limit, once a minute at most.
    """
    log = tmp_path / "log"
    start_sctpd(namespace, "--socket-limit", "4", log=log)
    run = namespace.run(sys.executable, "-c", PRELUDE + FULL, sctp=True)
    assert run.stdout == "done\n", run.stdout + run.stderr
    assert log.read_text().count("--socket-limit") == 1, log.read_text()


def test_the_limit_on_descriptors_is_named(namespace: Namespace, tmp_path: Path) -> None:
    log = tmp_path / "log"
    start_sctpd(namespace, before=("prlimit", "--nofile=40:40"), log=log)
    code = "import socket\nheld = []\nwhile True: held.append(socket.socket(2, 1, 132))"
    assert "Errno 24" in namespace.run(sys.executable, "-c", code, sctp=True).stderr
    assert "LimitNOFILE" in log.read_text()


BEYOND_LIMIT_MB = 40
"""The program itself, and what is queued between two measurements; the flood would queue far more."""


FLOOD_OF_ONE_TO_MANY = FLOOD.replace("one_to_one()", "one_to_many(events=False)").replace(
    "client.send(bytes(20000))", "client.sendto(bytes(20000), ('127.0.0.1', 5602))"
)


@pytest.mark.parametrize("code_of_flood", [FLOOD, FLOOD_OF_ONE_TO_MANY], ids=["one-to-one", "one-to-many"])
def test_memory_is_limited(namespace: Namespace, tmp_path: Path, code_of_flood: str) -> None:
    """A program that never reads fills it: sends then wait, connect() says ENOBUFS; when it is gone all is well."""
    log = tmp_path / "log"
    start_sctpd(namespace, "--memory-limit", str(MEMORY_LIMIT_MB), log=log)
    flood = start(namespace, code_of_flood, "full")
    assert resident_mb(namespace) < MEMORY_LIMIT_MB + BEYOND_LIMIT_MB
    code = (
        PRELUDE
        + "sock = one_to_one()\nsock.settimeout(5)\nexpect(105, sock.connect, ('127.0.0.1', 5602))\nprint('told')"
    )
    told = namespace.run(sys.executable, "-c", code, sctp=True)
    assert told.stdout == "told\n", told.stderr
    assert "--memory-limit" in log.read_text()
    flood.kill()
    flood.wait(10)
    until(lambda: namespace.run(sys.executable, "-c", ECHO, sctp=True).stdout == "served\n")


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


def test_addresses_on_no_interface_are_limited(namespace: Namespace) -> None:
    """A program that binds all it can of 127/8 gives the addresses back when it ends."""
    start_sctpd(namespace, "--everyone")
    with library_for_all() as library:
        user = ("setpriv", "--reuid", "12345", "--clear-groups", "--bounding-set", "-all")
        taker = namespace.start(*user, "env", f"LD_PRELOAD={library}", "/usr/bin/python3", "-c", BINDS_MANY)
        assert taker.stdout is not None
        assert taker.stdout.readline() == "True 99\n"
        taker.kill()
        taker.wait(10)
    again = BINDS_MANY.replace("1100", "400").replace("127.1.", "127.2.").replace("time.sleep(100)", "")
    until(lambda: as_nobody(namespace, again).stdout == "all are bound\n", told="they aren't given back")


BINDS_IN_TURN = """
import socket
for number in range(3000):
    with socket.socket(2, 1, 132) as sock:
        sock.bind((f"127.7.{number // 250}.{number % 250 + 1}", 9000))
print("all were bound")
"""


def test_addresses_on_no_interface_count_while_they_are_bound(namespace: Namespace) -> None:
    """However fast others follow."""
    start_sctpd(namespace)
    assert namespace.run(sys.executable, "-c", BINDS_IN_TURN, sctp=True).stdout == "all were bound\n"


THREADS_ARE_REFUSED = """
import collections, errno, socket, threading
told = collections.Counter()

def ask():
    for _ in range(100):
        try:
            socket.socket(2, 1, 132)
        except OSError as error:
            told[errno.errorcode[error.errno]] += 1

threads = [threading.Thread(target=ask) for _ in range(40)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(dict(told))
"""


def test_refused_user_is_told_so_each_time(namespace: Namespace) -> None:
    """EACCES, whichever was faster: the request or the answer."""
    start_sctpd(namespace)
    assert as_nobody(namespace, THREADS_ARE_REFUSED).stdout == "{'EACCES': 4000}\n"


THREADS_TAKE_PARTS = """
import socket, threading
listening = socket.socket(2, 1, 132)
listening.bind(("127.0.0.1", 0))
listening.listen(1)
client = socket.socket(2, 1, 132)
client.connect(listening.getsockname())
server, _ = listening.accept()
client.send(b"0123456789")
server.recv(100, socket.MSG_PEEK)
got, refused, done = [], [], threading.Event()

def take(begun):
    try:
        got.append(server.recv(1, socket.MSG_DONTWAIT))
    except BlockingIOError:
        pass
    except OSError as error:
        refused.append(error.errno)
    begun.set()
    done.wait()

for _ in range(40):
    begun = threading.Event()
    threading.Thread(target=take, args=(begun,)).start()
    begun.wait()
while sum(map(len, got)) < 10:
    got.append(server.recv(100, socket.MSG_DONTWAIT))
done.set()
print(b"".join(got).decode(), len(refused) > 0)
"""


def test_a_thread_that_is_turned_away_takes_nothing(namespace: Namespace) -> None:
    """It could not give back what its buffer has no room for."""
    start_sctpd(namespace, "--connection-limit", "5")
    run = namespace.run(sys.executable, "-c", THREADS_TAKE_PARTS, sctp=True, timeout_s=60)
    assert run.stdout == "0123456789 True\n", run.stdout + run.stderr
