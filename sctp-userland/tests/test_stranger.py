"""A stranger who has sctpd's abstract name keeps no program from SCTP where root starts sctpd."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from daemon import CONNECT, EXIT_RUNNING, FORKS, SCTPD, STRANGER, daemons, serves

from tests.support.live_systemd import OWN_MOUNTS
from tests.support.namespaces import SCTP_RUN, Namespace, end
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("without_kernel_sctp")]

MAKES_SOCKET = """
import socket
try:
    socket.socket(2, 1, 132)
except OSError as error:
    print(error.strerror)
"""
FORKS_BESIDE_STRANGER = FORKS.replace('b"\\0sctp-userland"', "name").replace(
    "def connections",
    "name = f\"/run/sctp-userland/net-{os.stat('/proc/self/ns/net').st_ino}\"\ndef connections",
)
LIBRARY = f"LD_PRELOAD={SCTPD.parent / 'libsctp-userland.so'}"


class Host:
    """A network namespace where a stranger has the name, with a /run of its own."""

    def __init__(self, namespace: Namespace, way: str, run_options: str) -> None:
        self.namespace = namespace
        self.stranger = self._started("-c", STRANGER, way)
        mounts = f"mount -t tmpfs -o {run_options} none /run; echo mounted; exec sleep 1000"
        self._mounts = self._started("-c", OWN_MOUNTS, "sh", "-ec", mounts)

    def _started(self, *arguments: str) -> subprocess.Popen[str]:
        process = self.namespace.start(sys.executable, *arguments)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    def command(self, *arguments: str) -> tuple[str, ...]:
        return ("nsenter", f"--mount=/proc/{self._mounts.pid}/ns/mnt", "--", *arguments)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.namespace.run(*self.command(*arguments), timeout_s=30)


@pytest.fixture
def host_with(namespace: Namespace) -> Callable[..., Host]:
    def make(way: str, run_options: str = "mode=755") -> Host:
        return Host(namespace, way, run_options)

    return make


@pytest.mark.parametrize("way", ["accepts", "full", "bound"])
def test_stranger_keeps_no_program_of_root_from_sctp(host_with: Callable[..., Host], way: str) -> None:
    """sctpd of root serves in a folder where no stranger can take a name, and tells who has the other one."""
    host = host_with(way)
    run = host.run(str(SCTP_RUN), sys.executable, "-c", CONNECT)
    assert run.stdout == "connected\n", run.stderr
    assert "user 12345 has its name" in run.stderr
    assert (f"process {host.stranger.pid} " in run.stderr) == (way == "accepts")
    assert "ss -xap src @sctp-userland" in run.stderr
    shown = host.namespace.run("ss", "-xap", "src", "@sctp-userland").stdout
    assert f"pid={host.stranger.pid}," in shown


def test_one_sctpd_serves_beside_a_stranger(host_with: Callable[..., Host]) -> None:
    """Others find it, also when the stranger has gone, and wait for its end; a killed one is no hindrance.

    The last has the abstract name: programs with another /run find it.
    """
    host = host_with("full")
    first = host.namespace.start(*host.command(str(SCTPD)))
    until(lambda: host.run(str(SCTPD), "--status").returncode == 0)
    assert host.run(str(SCTPD)).returncode == EXIT_RUNNING
    forks = host.run("env", LIBRARY, sys.executable, "-c", FORKS_BESIDE_STRANGER)
    assert forks.stdout == "6 1 1 1\n", forks.stderr
    end(first, signal.SIGKILL)
    assert host.run(str(SCTPD), "--status").returncode == 1
    assert host.run(str(SCTP_RUN), "true").returncode == 0
    (left,) = daemons(host.namespace)
    end(host.stranger, signal.SIGKILL)
    assert host.run(str(SCTPD)).returncode == EXIT_RUNNING
    follower = host.namespace.start(*host.command(str(SCTPD), "--wait", "20"))
    until(lambda: daemons(host.namespace) == [follower.pid], told="the one that was left behind stays")
    assert left != follower.pid
    until(lambda: serves(host.namespace), told="the follower serves")


def test_where_no_folder_can_be_made_the_stranger_is_told(host_with: Callable[..., Host]) -> None:
    """sctpd doesn't start, and says how to get rid of him; a program that asks him doesn't wait for ever."""
    host = host_with("full", "ro")
    asking = host.namespace.start(*host.command("env", LIBRARY, sys.executable, "-c", MAKES_SOCKET))
    for command in ((str(SCTP_RUN), "true"), (str(SCTPD), "--status")):
        run = host.run(*command)
        assert run.returncode == 1
        assert "user 12345 has its name (@sctp-userland)" in run.stderr
        assert "end that program" in run.stderr
        assert "ss -xap src @sctp-userland" in run.stderr
    assert asking.communicate(timeout=60)[0] == "Protocol not supported\n"
    assert not daemons(host.namespace)
    assert not os.path.exists("/run/sctp-userland/lock")
