"""sctpd and sctp-run themselves: starting, ending, privilege."""

import os
import shutil
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path

import pytest
from daemon import (
    CONNECT,
    EXIT_RUNNING,
    FORKS,
    HERE,
    PRELUDE,
    SCTPD,
    as_nobody,
    daemons,
    library_for_all,
    python,
    serves,
    start_sctpd,
)

from tests.support.live_systemd import OWN_MOUNTS
from tests.support.namespaces import SCTP_RUN, Namespace
from tests.support.waiting import until

# ruff: noqa: E501  (programs given as text)

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("without_kernel_sctp")]

EXIT_NO_PRIVILEGE = 77
CAP_NET_RAW = 13
SERVICE_USER = 998


def test_many_starts_give_one_daemon_and_it_goes(namespace: Namespace) -> None:
    code = "import socket, time; s = socket.socket(2, 1, 132); time.sleep(1)"
    runs = [namespace.start(sys.executable, "-c", code, sctp=True) for _ in range(8)]
    assert [run.wait(60) for run in runs] == [0] * 8
    assert len(daemons(namespace)) == 1
    until(lambda: not daemons(namespace), told="an idle daemon stays behind")


def test_daemon_stays_while_a_client_is_silent(namespace: Namespace) -> None:
    code = "import time; time.sleep(3); import socket; socket.socket(2, 1, 132); print('made')"
    assert python(namespace, code).stdout == "made\n"


def test_exit_status_and_process_are_the_commands_own(namespace: Namespace) -> None:
    run = namespace.run("sh", "-c", "exit 7", sctp=True)
    assert run.returncode == 7


def test_killed_daemon_resets_its_clients_and_the_next_serves(namespace: Namespace) -> None:
    code = """
import os, signal, socket, sys
a = socket.socket(2, 1, 132); a.bind(('127.0.0.1', 0)); a.listen(1)
b = socket.socket(2, 1, 132); b.connect(a.getsockname())
c, _ = a.accept()
print('connected', flush=True)
try:
    print('got', c.recv(10))
except OSError as error:
    print(error.errno)
try:
    b.send(b'x', socket.MSG_NOSIGNAL)
except OSError as error:
    print(error.errno)
"""
    client = namespace.start(sys.executable, "-c", code, sctp=True)
    assert client.stdout is not None
    assert client.stdout.readline() == "connected\n"
    os.kill(daemons(namespace)[0], signal.SIGKILL)
    assert client.wait(60) == 0
    assert set(client.stdout.read().split()) <= {"104", "32"}, "ECONNRESET or EPIPE"
    assert python(namespace, "import socket; socket.socket(2, 1, 132); print('made')").stdout == "made\n"


def test_program_in_another_pid_namespace_sees_the_states_of_the_next_daemon(
    namespace: Namespace, tmp_path: Path
) -> None:
    """The process of an sctpd says nothing there: states of the one before stayed, by which a socket of the next one listened."""
    code = """
import errno, os, socket, sys, threading, time
def made():
    while True:
        try:
            return socket.socket(2, 1, 132)
        except ConnectionResetError:
            pass
listens = made()
listens.bind(("127.0.0.1", 0)); listens.listen(1)
try:
    listens.recv(10)
except OSError as error:
    assert error.errno == errno.ENOTCONN
print("listened", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
client, server = made(), made()
server.bind(("127.0.0.1", 0)); server.listen(1)
client.connect(server.getsockname())
accepted, _ = server.accept()
threading.Timer(0.5, accepted.send, [b"late"]).start()
print(client.recv(10))
"""
    is_next = tmp_path / "next"
    apart = ("unshare", "--pid", "--fork", "--kill-child")
    program = namespace.start(*apart, sys.executable, "-c", code, str(is_next), sctp=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "listened\n"
    (first,) = daemons(namespace)
    os.kill(first, signal.SIGKILL)
    until(lambda: not daemons(namespace))
    start_sctpd(namespace)
    is_next.touch()
    told, problem = program.communicate(timeout=60)
    assert told == "b'late'\n", problem


def test_service_takes_the_place_of_an_sctpd_that_sctp_run_left_behind(namespace: Namespace) -> None:
    """As the unit starts it, as another user whom that one does not serve; a user who only asks does not wait."""
    service = ("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups")
    rights = ("--inh-caps", "-all,+net_raw", "--ambient-caps", "-all,+net_raw")
    assert namespace.run("true", sctp=True).returncode == 0
    (left,) = daemons(namespace)
    assert namespace.run(str(SCTPD)).returncode == EXIT_RUNNING
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        program = shutil.copy(SCTPD, folder)
        follower = namespace.start(*service, *rights, program, "--wait", "10", "--everyone")
        until(lambda: left not in daemons(namespace), told="the one that was left behind stays")
        until(lambda: namespace.run(*service, program, "--status").returncode == 0)
        assert follower.poll() is None
        assert daemons(namespace) == [follower.pid]


def test_waiting_for_another_sctpd_ends(namespace: Namespace) -> None:
    """A daemon that stays is waited for as long as asked, unless a signal comes first."""
    start_sctpd(namespace)
    began_s = time.monotonic()
    assert namespace.run(str(SCTPD), "--wait", "1").returncode == EXIT_RUNNING
    assert time.monotonic() - began_s >= 1
    waiting = namespace.start(str(SCTPD), "--wait", "60")
    assert waiting.stderr is not None
    assert "waiting for its end" in waiting.stderr.readline()
    waiting.terminate()
    assert waiting.wait(20) == -signal.SIGTERM


def test_started_with_no_descriptor_at_all(namespace: Namespace) -> None:
    """The first descriptor that it opens takes the place of none of the three; closing them would close
    it."""
    namespace.start("/bin/sh", "-c", f"exec {SCTPD} <&- >&- 2>&-")
    until(lambda: serves(namespace))
    (process,) = daemons(namespace)
    assert {os.readlink(f"/proc/{process}/fd/{number}") for number in range(3)} == {"/dev/null"}


def test_without_the_capability(namespace: Namespace) -> None:
    run = namespace.run(
        "setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw", str(SCTP_RUN), "true"
    )
    assert run.returncode == EXIT_NO_PRIVILEGE
    assert "CAP_NET_RAW" in run.stderr


def test_another_user_is_refused(namespace: Namespace) -> None:
    start_sctpd(namespace)
    code = "import socket\ntry:\n    socket.socket(2, 1, 132)\nexcept OSError as error:\n    print(error.strerror)"
    run = as_nobody(namespace, code)
    assert run.stdout == "Permission denied\n", run.stderr
    status = namespace.run("setpriv", "--reuid", "12345", "--clear-groups", str(SCTPD), "--status")
    assert "not this user" in status.stderr


def test_clients_need_no_privilege(namespace: Namespace) -> None:
    daemon = start_sctpd(namespace, "--everyone")
    run = as_nobody(namespace, CONNECT)
    assert run.stdout == "connected\n", run.stderr
    assert daemon.poll() is None


def test_a_forked_child_holds_no_connections_of_other_threads(namespace: Namespace) -> None:
    """It has that of the thread that forked until it takes its own; the parent's stay whole."""
    run = python(namespace, FORKS)
    assert run.stdout == "6 1 1 1\n", run.stdout + run.stderr


IS_SERVICE = (
    *(sys.executable, "-c", OWN_MOUNTS, "sh", "-ec"),
    'mount -t tmpfs none /run; mkdir -m 755 /run/sctp-userland; chown "$0" /run/sctp-userland; exec "$@"',
    str(SERVICE_USER),
)
"""Runs a command where root has made the service's folder, as systemd does."""


def test_serves_with_the_capability_alone(namespace: Namespace) -> None:
    """As the unit runs it: another user, CAP_NET_RAW, nothing else. It is believed for the folder it has."""
    only = "-all,+net_raw"
    rights = ("--inh-caps", only, "--ambient-caps", only, "--bounding-set", only)
    user = ("--reuid", str(SERVICE_USER), "--regid", str(SERVICE_USER), "--clear-groups")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        program = shutil.copy(SCTPD, folder)
        namespace.start("setpriv", *user, *rights, program, "--everyone")
        until(lambda: namespace.run(*IS_SERVICE, str(SCTPD), "--status").returncode == 0)
        status = Path(f"/proc/{daemons(namespace)[0]}/status").read_text()
        assert f"CapPrm:\t{1 << CAP_NET_RAW:016x}\n" in status
        run = as_nobody(namespace, CONNECT, *IS_SERVICE)
        assert run.stdout == "connected\n", run.stderr
        assert f"user {SERVICE_USER} has its name" in namespace.run(str(SCTPD), "--status").stderr
        assert "Protocol not supported" in as_nobody(namespace, CONNECT).stderr


def test_capability_of_its_file_serves_an_ordinary_user(namespace: Namespace) -> None:
    """As in a container: the file has it as permitted, so that sctpd starts, too, where it is not to be had."""
    with tempfile.TemporaryDirectory() as folder, library_for_all() as library:
        Path(folder).chmod(0o755)
        program = shutil.copy(SCTPD, folder)
        revision_2, nothing = 0x02000000, (0, 0, 0)
        right = struct.pack("<5I", revision_2, 1 << CAP_NET_RAW, *nothing)
        os.setxattr(program, "security.capability", right)
        user = ("setpriv", "--reuid", str(SERVICE_USER), "--regid", str(SERVICE_USER), "--clear-groups")
        refused = namespace.run(*user, "--bounding-set", "-net_raw", program)
        assert refused.returncode == EXIT_NO_PRIVILEGE, refused.stderr
        namespace.start(*user, program, "--everyone")
        until(lambda: namespace.run(*user, program, "--status").returncode == 0)
        run = namespace.run(*user, "env", f"LD_PRELOAD={library}", "/usr/bin/python3", "-c", CONNECT)
        assert run.stdout == "connected\n", run.stderr


def test_ending_all_associations_in_one_send_keeps_no_port(namespace: Namespace) -> None:
    """SCTP_SENDALL with SCTP_ABORT is refused: usrsctp would keep endpoint, memory and port for ever."""
    code = """
SENDALL = 0x40
with one_to_many(socket.AF_INET6, events=False) as sock:
    sock.bind(('::', 0))
    name = sock.getsockname()
    send(sock, b'to itself', to=('::1', name[1]))
    expect(errno.EINVAL, lambda: send(sock, b'reason', to=('::1', 5013), flags=SENDALL | ABORT))
    expect(errno.EINVAL, lambda: send(sock, b'', to=('::1', 5013), flags=SENDALL | EOF))
with one_to_many(socket.AF_INET6, events=False) as again:
    again.bind(name)
print('free')
"""
    run = python(namespace, PRELUDE + code)
    assert run.stdout == "free\n", run.stderr


TOO_MANY = """
import errno, socket
kept = []
try:
    while True:
        kept.append(socket.socket(2, 1, 132))
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_a_daemon_started_by_sctp_run_has_a_log(namespace: Namespace, tmp_path: Path) -> None:
    """In a file of its user's; another's file or link in its place is left alone."""
    log = tmp_path / f"sctpd-{os.getuid()}.log"
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "SCTPD_OPTIONS": "--socket-limit 3"}
    run = namespace.start(sys.executable, "-c", TOO_MANY, sctp=True, environment=environment)
    assert run.wait(60) == 0
    assert run.stdout is not None
    assert run.stdout.read() == "EMFILE\n"
    until(lambda: "--socket-limit" in log.read_text())
    assert log.stat().st_mode & 0o777 == 0o600
    until(lambda: not daemons(namespace))
    written = log.read_text()
    log.rename(tmp_path / "elsewhere")
    log.symlink_to("elsewhere")
    run = namespace.start(sys.executable, "-c", TOO_MANY, sctp=True, environment=environment)
    assert run.wait(60) == 0
    assert log.read_text() == written


def test_a_log_that_is_too_long_begins_anew(namespace: Namespace, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 300_000 + "\n")
    environment = {"SCTPD_OPTIONS": f"--socket-limit 3 --log {log}"}
    assert namespace.start(sys.executable, "-c", TOO_MANY, sctp=True, environment=environment).wait(60) == 0
    until(lambda: "--socket-limit" in log.read_text())
    assert log.stat().st_size < 1000


def test_strangers_do_not_fill_the_log(namespace: Namespace, tmp_path: Path) -> None:
    log = tmp_path / "log"
    daemon = namespace.start(str(SCTPD), log=log)
    until(lambda: serves(namespace))
    code = """
import os, socket
for user in range(20000, 20200):
    if (pid := os.fork()) == 0:
        os.setuid(user)
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.connect(b"\\0sctp-userland")
        client.recv(100)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""
    assert namespace.run(sys.executable, "-c", code).returncode == 0
    assert daemon.poll() is None
    assert 1 <= log.read_text().count("is refused") <= 60


CLOSES_BEFORE_SCTPD_LOOKS = """
import os, signal, socket, struct
from played_peer import ABORT, COOKIE_ECHO, DATA, OURS, PLAYED, PORT, SHUTDOWN, played
from sctp_api import writable
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control.connect(b"\\0sctp-userland")
credentials = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
sctpd = struct.unpack("3i", credentials)[0]
with played() as peer:
    client = socket.socket(2, 1, 132)
    client.bind((OURS, 0))
    port = client.getsockname()[1]
    client.setblocking(False)
    client.connect_ex((PLAYED, PORT))
    peer.play(lambda: peer.of(port, COOKIE_ECHO) and writable(client))
    client.send(b"last words")
    peer.play(lambda: peer.of(port, DATA))
    os.kill(sctpd, signal.SIGSTOP)
    peer.send_message(port, b"comes while it closes")
    client.close()
    os.kill(sctpd, signal.SIGCONT)
    peer.play(lambda: peer.of(port, SHUTDOWN) or peer.of(port, ABORT))
    print(len(peer.of(port, SHUTDOWN)) > 0, len(peer.of(port, ABORT)))
"""


def test_data_that_comes_before_sctpd_hears_of_close_aborts_nothing(namespace: Namespace) -> None:
    """Nothing of it had reached the program."""
    run = namespace.start(
        "env", f"PYTHONPATH={HERE}", sys.executable, "-c", CLOSES_BEFORE_SCTPD_LOOKS, sctp=True
    )
    assert run.wait(60) == 0
    assert run.stdout is not None
    assert run.stdout.read() == "True 0\n"


SENDS_WHILE_SCTPD_STANDS_STILL = """
import os, signal, socket, struct, sys, threading, time
from pathlib import Path
from sctp_api import associated, connected, receive_data, send
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control.connect(b"\\0sctp-userland")
sctpd = struct.unpack("3i", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
def state():
    return Path(f"/proc/{sctpd}/stat").read_text().rsplit(")", 1)[1].split()[0]
with associated() as (client, to_server, server, _), connected() as (one, other):
    address = server.getsockname()
    def send_all():
        send(client, b"by identifier", association=to_server)
        client.sendto(b"by address", address)
        one.send(b"one-to-one")
    send_all()
    os.kill(sctpd, signal.SIGSTOP)
    while state() != "T":
        time.sleep(0.001)
    goes_on = threading.Timer(20, os.kill, (sctpd, signal.SIGCONT))
    goes_on.start()
    send_all()
    print(state())
    goes_on.cancel()
    os.kill(sctpd, signal.SIGCONT)
    print([receive_data(server).data for _ in range(4)] == [b"by identifier", b"by address"] * 2)
    print([other.recv(100) for _ in range(2)] == [b"one-to-one"] * 2)
"""


def test_messages_to_associations_that_are_up_wait_for_no_answer(namespace: Namespace) -> None:
    """They go one way, on one-to-many sockets, too: sctpd takes them when it goes on."""
    run = namespace.start(
        "env", f"PYTHONPATH={HERE}", sys.executable, "-c", SENDS_WHILE_SCTPD_STANDS_STILL, sctp=True
    )
    assert run.wait(60) == 0
    assert run.stdout is not None
    assert run.stdout.read() == "T\nTrue\nTrue\n"


WRITES_PAST_THE_LIBRARY = """
import ctypes, errno
from sctp_api import connected, libc, wait_for_error
with connected() as (client, server):
    client.send(b"first")
    assert server.recv(100) == b"first"
    libc.fdopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fdopen(client.fileno(), b"w"))
    libc.fputs(b"by stdio", stream)
    libc.fflush(stream)
    print(wait_for_error(client) == errno.EOPNOTSUPP)
    client.send(b"still connected")
    print(server.recv(100))
"""


def test_what_is_written_past_the_library_is_told(namespace: Namespace) -> None:
    """The C library's stdio writes to the descriptor itself: the program learns that it was not sent."""
    run = namespace.start(
        "env", f"PYTHONPATH={HERE}", sys.executable, "-c", WRITES_PAST_THE_LIBRARY, sctp=True
    )
    assert run.wait(60) == 0
    assert run.stdout is not None
    assert run.stdout.read() == "True\nb'still connected'\n"


SENDS_TO_MANY_WHILE_SCTPD_STANDS_STILL = """
import os, signal, socket, struct, threading, time
from pathlib import Path
from sctp_api import loopback, one_to_many, one_to_one, receive_data, send
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control.connect(b"\\0sctp-userland")
sctpd = struct.unpack("3i", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
def state():
    return Path(f"/proc/{sctpd}/stat").read_text().rsplit(")", 1)[1].split()[0]
server = one_to_many()
server.bind((loopback(socket.AF_INET), 0))
server.listen(5)
peers, names = [one_to_one() for _ in range(300)], []
for peer in peers:
    peer.connect(server.getsockname())
    peer.send(b"open")
    names.append((receive_data(server).association, peer.getsockname()))
def send_to(count):
    for identifier, address in names[:count]:
        send(server, b"by identifier", association=identifier)
        server.sendto(b"by address", address)
def all_came(count):
    return all([peer.recv(100) for _ in range(2)] == [b"by identifier", b"by address"] for peer in peers[:count])
send_to(300)
print(all_came(300))
os.kill(sctpd, signal.SIGSTOP)
while state() != "T":
    time.sleep(0.001)
goes_on = threading.Timer(20, os.kill, (sctpd, signal.SIGCONT))
goes_on.start()
send_to(2)
print(state())
goes_on.cancel()
os.kill(sctpd, signal.SIGCONT)
print(all_came(2))
"""


def test_a_socket_with_hundreds_of_associations_sends_to_each_without_waiting(namespace: Namespace) -> None:
    """A registrar has thousands on one socket: the way to the first is still known after a message to each of the others."""
    run = namespace.start(
        "env",
        f"PYTHONPATH={HERE}",
        sys.executable,
        "-c",
        SENDS_TO_MANY_WHILE_SCTPD_STANDS_STILL,
        sctp=True,
    )
    assert run.wait(60) == 0
    assert run.stdout is not None
    assert run.stdout.read() == "True\nT\nTrue\n"
