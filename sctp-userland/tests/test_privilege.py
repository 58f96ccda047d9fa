"""The users whom sctpd serves, and the things that stay another's whatever they do."""

# ruff: noqa: E501  (programs given as text)
import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import PRELUDE, SCTP_USERLAND, as_nobody, daemons, library_for_all, start, start_sctpd

from tests.support.namespaces import Namespace

pytestmark = pytest.mark.integration

HOLD_PORT = """
held = one_to_one()
held.bind(("127.0.0.1", 5600))
held.listen(5)
print("held", flush=True)
time.sleep(100)
"""
TAKE_PORT = """
import socket
for address in ("127.0.0.1", "0.0.0.0"):
    for style in (1, 5):
        for level, option in ((1, 2), (1, 15)):
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


def test_unprivileged_user_takes_no_port_of_root(shared: Namespace) -> None:
    start(shared, HOLD_PORT, "held")
    run = as_nobody(shared, TAKE_PORT)
    assert run.stdout == "refused\n", run.stdout + run.stderr
    own = shared.run(sys.executable, "-c", PRELUDE + "one_to_one().bind(('127.0.0.1', 99))", sctp=True)
    assert own.returncode == 0, own.stderr


VICTIM = """
waiting = one_to_one()
waiting.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
waiting.bind(("127.0.0.1", 5610))
waiting.listen(1)
peer = one_to_one()
peer.bind(("127.0.0.1", 5611))
peer.connect(("127.0.0.1", 5610))
victim, _ = waiting.accept()
waiting.close()
victim.settimeout(20)
peer.settimeout(20)
print("connected", flush=True)
sys.stdin.readline()
victim.send(b"to the peer")
assert peer.recv(100) == b"to the peer"
peer.send(b"to the victim")
print(victim.recv(100).decode(), flush=True)
"""
TAKE_ASSOCIATION = """
import errno, socket
taker = socket.socket(2, 1, 132)
taker.settimeout(10)
taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
taker.bind(("127.0.0.1", 5610))
for attempt in range(3):
    try:
        taker.connect(("127.0.0.1", 5611))
        print("taken over")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


def test_another_user_takes_over_no_association(shared: Namespace) -> None:
    """Both have SO_REUSEADDR: the other user gets the port, but not the association that begins there."""
    victim = subprocess.Popen(
        shared.command(sys.executable, "-c", PRELUDE + VICTIM, sctp=True),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "connected\n"
        run = as_nobody(shared, TAKE_ASSOCIATION)
        assert run.stdout == "EADDRNOTAVAIL\n" * 3, run.stdout + run.stderr
        told, _ = victim.communicate("go on\n", timeout=60)
        assert told == "to the victim\n"
    finally:
        victim.kill()
        victim.wait()


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


def test_process_that_does_not_hold_a_socket_cannot_use_it(shared: Namespace) -> None:
    """Every call about a socket needs its descriptor; no other one, and no number, takes its place."""
    start(shared, HOLD_PORT.replace("5600", "5601"), "held")
    run = as_nobody(shared, STRANGER)
    assert run.stdout == "nothing\n", run.stdout + run.stderr


SHOWS_NAMES = """
import socket
held = [socket.socket(2, 1, 132) for _ in range(8)]
with open("/proc/net/unix") as file:
    numbers = sorted(int(line.split("@sctp-userland/")[1].split("/")[1], 16) for line in file if "@sctp-userland/" in line)
print(len(numbers) >= 8, min(b - a for a, b in zip(numbers, numbers[1:])) > 1 << 20)
"""


def test_names_of_sockets_cannot_be_taken_before(shared: Namespace) -> None:
    """Any program may take abstract names: it can't tell which."""
    run = as_nobody(shared, SHOWS_NAMES)
    assert run.stdout == "True True\n", run.stdout + run.stderr


def test_group_admits(namespace: Namespace) -> None:
    """A member of the group is served, be it by the process's own groups (systemd's SupplementaryGroups=)
    alone."""
    daemon = start_sctpd(namespace, "--group", "nogroup")
    code = "import socket\ntry:\n    socket.socket(2, 1, 132); print('made')\nexcept OSError:\n    print('refused')"
    with library_for_all() as library:
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


def test_sctpd_gives_up_what_it_does_not_need(namespace: Namespace) -> None:
    """Started as root: packets and buffers are all it keeps, no file can be written, no program started."""
    daemon = start_sctpd(namespace)
    (process,) = daemons(namespace)
    status = dict(line.split(":\t") for line in Path(f"/proc/{process}/status").read_text().splitlines())
    net_admin_and_net_raw = 1 << 12 | 1 << 13
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) & ~net_admin_and_net_raw == 0, name
    assert int(status["CapEff"], 16) & 1 << 13
    assert "0" not in status["Uid"].split()
    assert "0" not in status["Gid"].split()
    assert not status["Groups"].split()
    code = "import socket; socket.socket(2, 1, 132)"
    with library_for_all() as library:
        program = ("env", f"LD_PRELOAD={library}", "/usr/bin/python3", "-c", code)
        run = namespace.run("setpriv", "--reuid", status["Uid"].split()[0], "--clear-groups", *program)
    assert "PermissionError" in run.stderr  # programs of the user that it has become are others' all the same
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert daemon.poll() is None


TRIES_CALLS = r"""
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "privilege.h"
void log_line(const char *format, ...);
void log_line(const char *format, ...) { puts(format); }
static void refused(const char *name, long result)
{
	if (result != -1 || errno != EPERM)
		printf("%s is let through\n", name);
	errno = 0;
}
int main(int count, char **arguments)
{
	struct open_how how = { .flags = O_WRONLY | O_CREAT, .mode = 0600 };
	char *none[] = { NULL };
	int fd = open("/dev/null", O_RDONLY), i;

	if (count != 2 || privilege_drop() != 0 || privilege_refuse_calls() != 0)
		return 1;
	refused("openat", syscall(SYS_openat, AT_FDCWD, arguments[1], O_WRONLY | O_CREAT, 0600));
	refused("openat2", syscall(SYS_openat2, AT_FDCWD, arguments[1], &how, sizeof(how)));
	refused("fchmod", syscall(SYS_fchmod, fd, 04755));
	refused("execve", syscall(SYS_execve, "/bin/true", none, none));
	refused("unshare", syscall(SYS_unshare, 0));
	refused("pidfd_getfd", syscall(438, fd, 0, 0));
	for (i = 424; i < 600; i++) /* what kernels since 5.1 brought: io_uring_setup() is 425, fchmodat2() 452 */
		refused("a newer call", syscall(i, -1, -1, -1, -1, -1, -1));
#ifdef __x86_64__
	refused("execve of x32", syscall(0x40000000 + 520, "/bin/true", none, none));
#endif
	if (open("/dev/null", O_RDONLY) < 0)
		puts("files can't be read");
	puts("done");
	return 0;
}
"""


def test_sctpd_can_call_nothing_of_the_kernel_that_it_does_not_need(tmp_path: Path) -> None:
    """With its own privilege_drop(): calls that are on no list are refused, whatever kernels bring."""
    program = tmp_path / "program"
    folder = SCTP_USERLAND / "sctpd"
    command = [
        "gcc",
        "-std=gnu2x",
        "-D_GNU_SOURCE",
        f"-I{folder}",
        "-x",
        "c",
        "-",
        str(folder / "privilege.c"),
    ]
    subprocess.run([*command, "-o", str(program)], input=TRIES_CALLS, text=True, check=True)
    run = subprocess.run([str(program), str(tmp_path / "file")], capture_output=True, text=True, check=False)
    assert run.stdout == "done\n"
    assert not (tmp_path / "file").exists()


PRINTS_PROTOCOL = """
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
int main(void)
{
	int protocol = 0;
	socklen_t length = sizeof(protocol);
	getsockopt(socket(AF_INET, SOCK_STREAM, 0), SOL_SOCKET, SO_PROTOCOL, &protocol, &length);
	printf("%d\\n", protocol);
	return 0;
}
"""


def test_withsctp_in_either_order(namespace: Namespace, tmp_path: Path) -> None:
    """lksctp-tools' withsctp makes SCTP of a program's TCP, be it started by sctp-run or the other way round."""
    program = tmp_path / "program"
    preloaded = next(Path("/usr/lib").glob("*/lksctp-tools/libwithsctp.so.1"))  # as that command does it
    compiler = ["gcc", "-x", "c", "-", "-o", str(program)]
    subprocess.run(compiler, input=PRINTS_PROTOCOL, text=True, check=True)
    sctp_run = str(SCTP_USERLAND / "sctp-run")
    withsctp = tmp_path / "withsctp"
    withsctp.symlink_to(sctp_run)  # as `make install` does it
    first = f"PATH={tmp_path}:{os.environ['PATH']}"
    for command in (
        ("env", first, "withsctp", str(program)),
        ("env", first, "withsctp", sctp_run, str(program)),
        ("env", first, sctp_run, "withsctp", str(program)),
        (sctp_run, "sh", "-c", f'{first} withsctp "$0"', str(program)),
        (sctp_run, "withsctp", str(program)),
        (sctp_run, "withsctp", sctp_run, str(program)),
        (sctp_run, "env", f"LD_PRELOAD={preloaded}", sctp_run, str(program)),
    ):
        run = namespace.run(*command)
        assert run.stdout == "132\n", (command, run.stderr)


AS_OVER_TCP = """
import os, socket, tempfile
whole = bytes(range(256)) * 400
with socket.socket() as waiting, socket.socket() as client, tempfile.TemporaryFile() as file:
    assert waiting.getsockopt(socket.SOL_SOCKET, 38) == 132  # SO_PROTOCOL; Python's sockets are SOCK_CLOEXEC
    waiting.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    assert waiting.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) == 1
    waiting.bind(("127.0.0.1", 0))
    waiting.listen(1)
    client.connect(waiting.getsockname())
    server = waiting.accept()[0]
    file.write(whole)
    file.flush()
    sent, got = 0, b""
    while sent < len(whole):
        sent += os.sendfile(client.fileno(), file.fileno(), sent, len(whole) - sent)
    while len(got) < len(whole):
        got += server.recv(70000)
    print(got == whole)
"""


def test_programs_for_tcp_reuse_ports_and_send_files(namespace: Namespace) -> None:
    """`nc -l` wants SO_REUSEPORT, nginx sendfile(), and both, as Python does, SOCK_CLOEXEC."""
    sctp_run = str(SCTP_USERLAND / "sctp-run")
    run = namespace.run(sctp_run, "withsctp", sys.executable, "-c", AS_OVER_TCP)
    assert run.stdout == "True\n", run.stderr
