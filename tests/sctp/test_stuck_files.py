"""Clients that pass files which are never closed, as their file system doesn't answer: whom that holds up.

With the sctpd that has sanitizers.
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sctp.passing import WAS_DROPPED, daemon_open_to_all, descriptors, passer  # noqa: F401  (a fixture)
from tests.sctp.sanitized_daemon import sanitized_daemon  # noqa: F401  (a fixture)
from tests.sctp.test_daemon import as_nobody, sctpd, serves, wait_for
from tests.sctp.test_raw_clients import RAW
from tests.support.namespaces import Namespace

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("sanitized_daemon")]

STUCK_FILE = Path(__file__).with_name("stuck_file.py")


@contextmanager
def with_stuck_file(namespace: Namespace, kind: str, code: str) -> Iterator[subprocess.Popen[str]]:
    """Run this program, its argument such a file, up to its first line, and go on when it has ended."""
    with tempfile.NamedTemporaryFile() as file:
        program = (*passer(namespace, code), file.name)
        client = namespace.start(sys.executable, str(STUCK_FILE), kind, file.name, *program)
        assert client.stdout is not None
        try:
            line = client.stdout.readline()
            assert line == "brought\n", line
            yield client
        finally:
            client.kill()
            client.wait(10)


OPENS = """
def fails(_, error, trace):  # the end itself waits for that file
    print(repr(error), trace.tb_lineno, flush=True)
sys.excepthook = fails
FILE = sys.argv[2]
def bring(fds):
    with connected() as control:
        try:
            control.sendmsg([b"?"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            assert was_dropped(control)
        except ConnectionError:  # dropped already
            pass
"""
IS_THERE_WHEN_IT_ENDS = """
stuck = os.open(FILE, os.O_RDONLY)
control = connected()
sctp = new_socket(control)
for _ in range(3):
    bring([stuck])
print("brought", flush=True)
sctp.settimeout(20)
control.settimeout(20)
for one in (sctp, control):
    try:
        assert one.recv(100) == b""
    except ConnectionResetError:
        pass
print("told", flush=True)
time.sleep(100)
"""


def test_the_end_of_a_killed_daemon_waits_for_no_file(namespace: Namespace) -> None:
    """Its clients are told at once, whoever waits for it is too, and its name is free."""
    daemon = namespace.start(sctpd())
    assert wait_for(lambda: serves(namespace), 30)
    with with_stuck_file(namespace, "flush", OPENS + IS_THERE_WHEN_IT_ENDS) as client:
        assert client.stdout is not None
        daemon.kill()
        assert daemon.wait(10) == -signal.SIGKILL
        line = client.stdout.readline()
        assert line == "told\n", line
        again = namespace.start(sctpd())
        assert wait_for(lambda: serves(namespace), 30)
        assert again.poll() is None


BRINGS_MANY = """
stuck = os.open(FILE, os.O_RDONLY)
bring(100 * [stuck])
for _ in range(30):
    bring([stuck])
first, inner = socket.socketpair()
pass_on(inner, b"x", clients(1))
for _ in range(200):
    bring([first.fileno(), stuck])
print("brought", flush=True)
time.sleep(100)
"""
MAKES_ONE = """
with connected() as control:
    new_socket(control).close()
print("made")
"""
ASKS = """
import errno, socket
try:
    socket.socket(2, 1, 132)
    print("made")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_who_brings_what_never_closes_is_refused_alone(open_to_all: Namespace) -> None:
    """Copies of a file whose file system doesn't answer, alone or with others, by many connections.

    They cost few descriptors. Others are served, their user not until it is gone.
    """
    before = descriptors(open_to_all)
    with with_stuck_file(open_to_all, "flush", OPENS + BRINGS_MANY):
        for _ in range(2):
            assert open_to_all.run(sys.executable, "-c", ASKS, sctp=True).stdout == "ETOOMANYREFS\n"
            assert as_nobody(open_to_all, RAW + MAKES_ONE).stdout == "made\n"
        assert descriptors(open_to_all) < before + 300
    assert wait_for(lambda: serves(open_to_all), 30)


FILLS = """
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
held = []
for _ in range(600):
    ours, into = socket.socketpair()
    passed = os.open(FILE, os.O_RDWR)
    into.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [passed]))])
    os.close(passed)
    into.close()
    held.append(ours)
os.write(os.open(FILE, os.O_RDWR), bytes(4096))  # from now on the last to close one of those before waits
while held:
    with connected() as control:
        pass_on(control, b"?", [held.pop()])
        assert was_dropped(control)
    if len(held) > 520:
        time.sleep(0.025)
print("brought", flush=True)
time.sleep(100)
"""
GIVES_AWAY = """
with connected() as control:
    given, kept = socket.socketpair()
    control.sendmsg([b"?"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [given.fileno()]))])
    given.close()
    kept.settimeout(20)
    assert kept.recv(1) == b""
"""


def test_sockets_with_such_files_in_their_queues_hold_up_nobody_else(open_to_all: Namespace) -> None:
    """Neither others' newcomers nor what others have passed. What waits takes few descriptors."""
    before = descriptors(open_to_all)
    with with_stuck_file(open_to_all, "write", OPENS + FILLS):
        run = as_nobody(open_to_all, RAW + WAS_DROPPED + GIVES_AWAY + MAKES_ONE)
        assert run.stdout == "made\n", run.stdout + run.stderr
        assert descriptors(open_to_all) < before + 300
    assert wait_for(lambda: descriptors(open_to_all) < before + 20, 30)
