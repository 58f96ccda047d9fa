"""Clients that pass descriptors which take long to close, or for ever: whom that holds up.

With the sctpd that has sanitizers.
"""

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.sctp.sanitized_daemon import sanitized_daemon  # noqa: F401  (a fixture)
from tests.sctp.test_daemon import as_nobody, daemons, sctpd, serves, wait_for
from tests.sctp.test_raw_clients import RAW
from tests.support.exact import BrokenError
from tests.support.namespaces import Namespace

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("sanitized_daemon"), pytest.mark.timeout(100)]

STUCK_FILE = Path(__file__).with_name("stuck_file.py")


@pytest.fixture(scope="module")
def open_to_all(sanitized_daemon: Path) -> Iterator[Namespace]:  # noqa: F811
    """Return a namespace with an sctpd for everyone."""
    namespace = Namespace(f"rspdns-passed-{os.getpid()}")
    try:
        namespace.start(str(sanitized_daemon), "--everyone")
        assert wait_for(lambda: serves(namespace), 30)
        yield namespace
    finally:
        namespace.close()


def main_process(namespace: Namespace) -> int:
    """Return the process that serves: those that wait for something passed are its children."""
    found = daemons(namespace)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(process).ppid() not in found:
                return process
    raise BrokenError("no sctpd serves any more")


def passer(namespace: Namespace, code: str) -> tuple[str, ...]:
    """Return the command that runs this, knowing which process serves."""
    return (sys.executable, "-c", RAW + WAS_DROPPED + LINGER + code, str(main_process(namespace)))


def descriptors(namespace: Namespace) -> int:
    return len(os.listdir(f"/proc/{main_process(namespace)}/fd"))


WAS_DROPPED = """
REPLY = 16  # bytes of one that only says why
def was_dropped(control):
    try:
        return len(control.recv(100)) in (0, REPLY)
    except ConnectionResetError:  # with something unread
        return True
"""
PASSES_WITHOUT_A_WORD = """
held = [socket.socketpair()[0] for _ in range(4)]
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [one.fileno() for one in held]))]
for _ in range(100):
    with connected() as control:
        control.sendmsg([b""], rights)
        assert was_dropped(control)
print("done")
"""


def test_descriptors_that_an_empty_message_brings_are_closed(open_to_all: Namespace) -> None:
    before = descriptors(open_to_all)
    run = as_nobody(open_to_all, RAW + WAS_DROPPED + PASSES_WITHOUT_A_WORD)
    assert run.stdout == "done\n", run.stdout + run.stderr
    assert wait_for(lambda: descriptors(open_to_all) < before + 50)


LINGER = """
DAEMON = int(sys.argv[1])
server = socket.create_server(("127.0.0.1", 0))
def clients(count):
    made = []
    for _ in range(count):
        client = socket.create_connection(server.getsockname())
        client.setblocking(False)
        try:
            while True:
                client.send(bytes(65536))  # nobody reads: closing would wait
        except BlockingIOError:
            pass
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
        made.append(client)
    return made
def pass_on(to, data, passed):
    numbers = array.array("i", [client.fileno() for client in passed])
    os.kill(DAEMON, signal.SIGSTOP)  # its copies are the last ones
    try:
        to.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
    except BrokenPipeError:  # dropped already
        for client in passed:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    finally:
        for client in passed:
            client.setblocking(True)
            socket.close(client.detach())
        os.kill(DAEMON, signal.SIGCONT)
"""
LINGERS = """
for count in (1, 6):  # the first may be of use, the others never are
    with connected() as control:
        pass_on(control, b"?", clients(count))
        assert was_dropped(control)
with connected() as control:  # left in the queue of a connection that is dropped
    passed = clients(1)
    control.send(b"?")
    pass_on(control, b"?", passed)
with connected() as control, new_socket(control) as sctp:
    pass_on(sctp, b"a plug", clients(1))
    new_socket(control).close()
with connected() as control:
    sctp = new_socket(control)
    pass_on(sctp, b"", clients(1))  # and the end comes after it
    sctp.close()
    new_socket(control).close()
print("done")
"""


def test_a_socket_that_lingers_holds_nobody_up(open_to_all: Namespace) -> None:
    run = open_to_all.run(*passer(open_to_all, LINGERS))
    assert run.stdout == "done\n", run.stdout + run.stderr
    assert serves(open_to_all)


LINGERS_WITHIN = """
for _ in range(2):
    first, inner = socket.socketpair()
    pass_on(inner, b"x", clients(1))
    inner.close()
    with connected() as control:
        pass_on(control, b"?", [first] + [socket.socketpair()[0] for _ in range(100)])
        assert was_dropped(control)
with connected() as control:
    new_socket(control).close()
print("made")
"""


def test_what_lingers_in_the_queue_of_a_passed_socket_holds_nobody_up(open_to_all: Namespace) -> None:
    """Not even who passed it. Many descriptors that came with it don't stay open."""
    before = descriptors(open_to_all)
    run = open_to_all.run(*passer(open_to_all, LINGERS_WITHIN))
    assert run.stdout == "made\n", run.stdout + run.stderr
    assert wait_for(lambda: descriptors(open_to_all) < before + 20)


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


def take_all_descriptors(process: int) -> None:
    """Let it open no further one."""
    used = {int(name) for name in os.listdir(f"/proc/{process}/fd")}
    lowest_free = next(number for number in range(1000) if number not in used)
    hard = resource.prlimit(process, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(process, resource.RLIMIT_NOFILE, (lowest_free, hard))


WITHOUT_ROOM = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
hostile, other = connected(), connected()
held = new_socket(other)
passed = clients(2)
print("brought", flush=True)
signal.sigwait([signal.SIGUSR1])
pass_on(hostile, b"?", passed)
assert was_dropped(hostile)
address = struct.pack("=HH4s8x", 2, 0, bytes([127, 0, 0, 1]))
bound = call(other, BIND, address=address, fd=held.fileno())
print(bound[0], call(other, SOCKET, socket.AF_INET, socket.SOCK_STREAM)[0], flush=True)
time.sleep(100)
"""


def test_what_lingers_holds_nobody_up_when_no_descriptor_is_left(namespace: Namespace) -> None:
    """Without room for what comes along the kernel closes it where it is read. Who is there is served on."""
    namespace.start(sctpd())
    assert wait_for(lambda: serves(namespace), 30)
    client = namespace.start(*passer(namespace, WITHOUT_ROOM))
    assert client.stdout is not None
    assert client.stderr is not None
    assert client.stdout.readline() == "brought\n"
    take_all_descriptors(main_process(namespace))
    client.send_signal(signal.SIGUSR1)
    line = client.stdout.readline()
    assert line == "0 24\n", line + client.stderr.read()
