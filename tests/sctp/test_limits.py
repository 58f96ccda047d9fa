"""What one user may not do to another through sctpd, and what nobody may do to its memory."""

# ruff: noqa: E501  (programs given as text)

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.sctp.shared_daemon import QUEUE_LIMIT_MB, resident_mb
from tests.sctp.test_daemon import SCTPD, as_nobody, serves, wait_for
from tests.support.namespaces import Namespace

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
PRELUDE = (
    f"import sys; sys.path.insert(0, {str(HERE)!r})\nfrom sctp_api import *\nimport os, threading, time\n"
)
RESIDENT_MB = 150
"""Far above what it takes with the limit, far below what a flood would take without one."""


def start(namespace: Namespace, code: str, expected: str) -> subprocess.Popen[str]:
    """Start a program of root and wait for its first line."""
    process = namespace.start(sys.executable, "-c", PRELUDE + code, sctp=True)
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line == expected + "\n", line + process.stderr.read()
    return process


HOLD_PORT = """
held = one_to_one()
held.setsockopt(132, 36, 1)
held.bind(("127.0.0.1", 5600))
held.listen(5)
print("held", flush=True)
time.sleep(100)
"""
TAKE_PORT = """
import socket
for address in ("127.0.0.1", "0.0.0.0"):
    for style in (1, 5):
        for level, option in ((1, 2), (1, 15), (132, 36)):
            taker = socket.socket(2, style, 132)
            try:
                taker.setsockopt(level, option, 1)
            except OSError:
                pass
            try:
                taker.bind((address, 5600))
                print("bound", address, style, option)
            except OSError as error:
                assert error.errno == 98, error
try:
    socket.socket(2, 1, 132).bind(("127.0.0.1", 99))
    print("bound 99")
except PermissionError:
    print("refused")
"""


def test_nobody_takes_a_port_of_root(shared: Namespace) -> None:
    start(shared, HOLD_PORT, "held")
    run = as_nobody(shared, TAKE_PORT)
    assert run.stdout == "refused\n", run.stdout + run.stderr
    own = shared.run(sys.executable, "-c", PRELUDE + "one_to_one().bind(('127.0.0.1', 99))", sctp=True)
    assert own.returncode == 0, own.stderr


STRANGER = """
import array, os, socket, struct
for operation in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control, socket.socketpair()[0] as other:
        control.connect("\\0sctp-userland")
        for rights in ([], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [other.fileno()]))]):
            control.sendmsg([struct.pack("=HH4i", 1, operation, 1, 1, 1, 1) + bytes(24 + 8)], rights)
            answer = struct.unpack_from("=ii", control.recv(10000))
            assert answer == (-1, 9), (operation, answer)
print("nothing")
"""


def test_who_does_not_hold_a_socket_cannot_use_it(shared: Namespace) -> None:
    """Every call about a socket needs its descriptor; no other one, and no number, takes its place."""
    start(shared, HOLD_PORT.replace("5600", "5601"), "held")
    run = as_nobody(shared, STRANGER)
    assert run.stdout == "nothing\n", run.stdout + run.stderr


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


def test_flood_of_a_program_that_never_reads(shared: Namespace) -> None:
    """100 associations would queue 50 MB and more; the user's limit stops them, and only that user.

    Not another one who has the same port at another address, either.
    """
    before_mb = resident_mb(shared)
    flood = start(shared, FLOOD, "full")
    assert resident_mb(shared) - before_mb < QUEUE_LIMIT_MB * 4
    assert as_nobody(shared, ECHO).stdout == "served\n"
    assert as_nobody(shared, ECHO.replace("('127.0.0.1', 0)", "('127.0.0.2', 5602)")).stdout == "served\n"
    flood.kill()
    flood.wait()
    code = PRELUDE + "with connected() as (client, server):\n client.send(b'x'); print(server.recv(10))"
    run = shared.run(sys.executable, "-c", code, sctp=True)
    assert run.stdout == "b'x'\n", "its memory isn't free again: " + run.stderr


def test_all_together_are_limited(namespace: Namespace) -> None:
    """Who holds more than his part of it is refused; another user, who holds little, is served."""
    limits = ("--queue-limit", "1000", "--client-queue-limit", "1000", "--memory-limit", "24")
    namespace.start(str(SCTPD), "--everyone", *limits)
    assert wait_for(lambda: serves(namespace))
    start(namespace, FLOOD, "full")
    assert resident_mb(namespace) < RESIDENT_MB
    run = as_nobody(namespace, ECHO)
    assert run.stdout == "served\n", run.stderr


BEGIN_WIDE = """
import errno, socket, struct, time
def wide(style):
    made = socket.socket(2, style, 132)
    made.setsockopt(132, 2, struct.pack("HHHH", 65535, 65535, 0, 0))
    made.setblocking(False)
    return made
def begin(made, port):
    if style == 1:
        return made.connect_ex(("10.7.0.2", port))
    try:
        made.sendto(b"x", ("10.7.0.2", port))
    except OSError as error:
        return error.errno
    return errno.EINPROGRESS
for style in (1, 5):
    held = [wide(style)]
    errors = set()
    for number in range(60):
        errors.add(begin(held[-1], 6000 + number))
        if style == 1:
            held.append(wide(style))
    print(errors == {errno.EINPROGRESS, errno.ENOBUFS} or errors, flush=True)
    for one in held:
        one.close()
    time.sleep(1)
"""


def test_associations_with_many_streams_are_limited(shared: Namespace) -> None:
    """Nobody answers them; each takes 4 MB and more of sctpd, connected or begun by sending. Those that end are given back."""
    shared.ip("link", "add", "nowhere", "type", "veth", "peer", "name", "void")  # where nobody answers
    shared.ip("addr", "add", "10.7.0.1/24", "dev", "nowhere")
    shared.ip("link", "set", "nowhere", "up")
    before_mb = resident_mb(shared)
    run = as_nobody(shared, BEGIN_WIDE)
    assert run.stdout == "True\nTrue\n", run.stdout + run.stderr
    assert resident_mb(shared) - before_mb < QUEUE_LIMIT_MB * 4


CLOSES_UNSENT = """
import errno, os, socket, struct, time
def leave_behind():
    # With data for a peer that never answers: the association goes on without its socket, and the program's end.
    left = socket.socket(2, 5, 132)
    left.setsockopt(132, 2, struct.pack("HHHH", 65535, 65535, 0, 0))
    try:
        left.sendto(b"x", ("10.7.0.2", 6000))
    except OSError as error:
        return error.errno
    finally:
        left.close()
    return 0
answers = [leave_behind() for _ in range(40)]
print(set(answers) == {0, errno.ENOBUFS} and answers[0] == 0 or answers, flush=True)
"""
HOLDS_SOME = """
with listener() as waiting, one_to_one() as client:
    client.connect(waiting.getsockname())
    server = waiting.accept()[0]
    client.setblocking(False)
    held = 0
    try:
        while True:
            held += client.send(bytes(20000))
    except BlockingIOError:
        pass
    assert held > 200000
    with connected() as (other, far):
        other.send(b"served")
        print(far.recv(100))
"""


def test_associations_of_closed_sockets_count(namespace: Namespace) -> None:
    """Who closes sockets whose data nobody takes is charged with them until they end, and he alone."""
    soon = ("--init-retransmissions", "2", "--rto-initial", "300", "--rto-min", "300", "--rto-max", "500")
    namespace.start(str(SCTPD), "--everyone", "--queue-limit", "20", *soon)
    assert wait_for(lambda: serves(namespace))
    namespace.ip("link", "add", "nowhere", "type", "veth", "peer", "name", "void")
    namespace.ip("addr", "add", "10.7.0.1/24", "dev", "nowhere")
    namespace.ip("link", "set", "nowhere", "up")
    before_mb = resident_mb(namespace)
    run = as_nobody(namespace, CLOSES_UNSENT)
    assert run.stdout == "True\n", run.stdout + run.stderr
    assert resident_mb(namespace) - before_mb < 60  # 40 of them take 270 MB
    run = namespace.run(sys.executable, "-c", PRELUDE + HOLDS_SOME, sctp=True)
    assert run.stdout == "b'served'\n", run.stderr
    again = CLOSES_UNSENT.replace("range(40)", "range(1)").replace("{0, errno.ENOBUFS}", "{0}")
    assert wait_for(lambda: as_nobody(namespace, again).stdout == "True\n", 60), "they aren't given back"


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


def test_group_admits(namespace: Namespace) -> None:
    """Who is in the group is served, be it by the process's own groups (systemd's SupplementaryGroups=) alone."""
    daemon = namespace.start(str(SCTPD), "--group", "nogroup")
    assert wait_for(lambda: serves(namespace))
    code = "import socket\ntry:\n    socket.socket(2, 1, 132); print('made')\nexcept OSError:\n    print('refused')"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        library = Path(folder) / "library.so"
        library.write_bytes((SCTPD.parent / "libsctp-userland.so").read_bytes())
        library.chmod(0o755)
        cases = (
            (("nogroup", "--clear-groups"), "made\n"),
            (("12345", "--groups=54321,nogroup"), "made\n"),
            (("12345", "--clear-groups"), "refused\n"),
            (("12345", "--groups=54321"), "refused\n"),
        )
        for groups, expected in cases:
            options = ("--reuid", "12345", "--regid", *groups, "--bounding-set", "-all")
            program = ("env", f"LD_PRELOAD={library}", "/usr/bin/python3", "-c", code)
            run = namespace.run("setpriv", *options, *program)
            assert run.stdout == expected, run.stderr
    assert daemon.poll() is None


SENDS_TO_ALL = """
sender = one_to_many()
sender.setblocking(False)
for number in range(100):
    sender.sendto(b"?", (f"10.9.9.{number + 2}", 5610))  # nobody answers
calls = 0
try:
    while calls < 600:
        send(sender, bytes(1400), flags=0x40)  # SCTP_SENDALL
        calls += 1
except OSError as error:
    assert error.errno in (11, 105), error
print(0 < calls < 150 or calls)
"""


def test_a_message_to_all_counts_for_each(namespace: Namespace) -> None:
    """With a hundred associations each call queues 140 KB, of the 8 MB that may be."""
    namespace.run("ip", "link", "add", "silent", "type", "dummy")
    namespace.run("ip", "address", "add", "10.9.9.1/24", "dev", "silent")
    namespace.run("ip", "link", "set", "silent", "up")
    namespace.start(str(SCTPD), "--everyone", "--queue-limit", "8")
    assert wait_for(lambda: serves(namespace))
    run = namespace.run(sys.executable, "-c", PRELUDE + SENDS_TO_ALL, sctp=True)
    assert run.stdout == "True\n", run.stdout + run.stderr


BINDS_MANY = """
import socket, time
held = []
try:
    for number in range(1100):
        held.append(socket.socket(2, 1, 132))
        held[-1].bind((f"127.1.{number >> 8}.{number & 255}", 0))
except OSError as error:
    print(len(held) > 100, error.errno, flush=True)
time.sleep(100)
"""


def test_addresses_on_no_interface_are_left_for_others(namespace: Namespace) -> None:
    """Who binds all he can of 127/8 leaves some for others, and gives his back."""
    namespace.start(str(SCTPD), "--everyone")
    assert wait_for(lambda: serves(namespace))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        library = Path(folder) / "library.so"
        library.write_bytes((SCTPD.parent / "libsctp-userland.so").read_bytes())
        library.chmod(0o755)
        user = ("setpriv", "--reuid", "12345", "--clear-groups", "--bounding-set", "-all")
        taker = namespace.start(*user, "env", f"LD_PRELOAD={library}", "/usr/bin/python3", "-c", BINDS_MANY)
        assert taker.stdout is not None
        assert taker.stdout.readline() == "True 99\n"
        binds = PRELUDE + "one_to_one().bind(('127.0.0.2', 0)); print('bound')"
        run = namespace.run(sys.executable, "-c", binds, sctp=True)
        assert run.stdout == "bound\n", run.stderr
        taker.kill()
        taker.wait(10)
    again = BINDS_MANY.replace("1100", "400").replace("time.sleep(100)", "print(len(held))")
    assert wait_for(lambda: as_nobody(namespace, again).stdout == "400\n"), "they aren't given back"
