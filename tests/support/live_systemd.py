"""A systemd that runs as process 1 of namespaces of its own, and the project's units in it.

`AGENT`, `BACKEND` and the others are the files of a site on this one machine: three registrars, a name server
and an application server.
"""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from daemon_kit.control import ControlError, request

from tests.support.namespaces import REPOSITORY
from tests.support.waiting import until

PATIENCE_S = 60.0
OWN_MOUNTS = """
import os, sys
from rspdns_lab.net.private_file import unshare_mounts
unshare_mounts()
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Before a program: `unshare --mount` fails in a chroot whose root directory is no mount point."""
NETWORK = """
ip link set lo up
ip link add eth0 type veth peer name eth0-peer
ip link set eth0-peer up
ip link set eth0 up
ip address add 10.99.0.1/24 dev eth0
"""
PREPARE = f"""
systemd-sysusers
systemd-tmpfiles --create /usr/local/lib/tmpfiles.d/rspdns.conf
{NETWORK}"""
"""The last steps of `make install` without DESTDIR, and a network."""
INSTALL_S = 900.0
_NUMBERS = itertools.count(1)

NAME = "_http._tcp.web.example.net"
AGENT = """\
registrars = ["10.99.0.1", "10.99.0.1:3864", "10.99.0.1:3865"]
[[as]]
name = "one"
handle = "web-tcp"
transport = "tcp"
port = 8080
[[as.check]]
type = "tcp-hold"
"""
_ENRP = 'registrars = ["10.99.0.1:3863/9901", "10.99.0.1:3864/9902", "10.99.0.1:3865/9903"]\n'
BACKEND = f"""\
{_ENRP}[pdns]
connector = "unix:/run/rspdns/remote.sock"
control = ["/run/pdns/pdns.controlsocket"]
"""
CLIENT_AGENT = f"""\
{_ENRP}[[pool]]
handle = "web-tcp"
accept = ["10.99.0.0/24"]
"""
POOL = """\
[[pool]]
handle = "web-tcp"
label = "w"
service = "_http._tcp"
name = "web"
accept = ["10.99.0.0/24"]
"""
SERVER = "[Service]\nExecStart=/usr/bin/python3 /opt/server.py 8080 -1 10.99.0.1\n"
REGISTRAR_UNITS = ["rspdns-registrar@r1", "rspdns-registrar@r2", "rspdns-registrar@r3"]


def inventory(network: str) -> str:
    """The inventory of the site; agents and backends have addresses in `network`."""
    registrars = "".join(f'[[registrar]]\nname = "r{n}"\naddress = "10.99.0.1"\n' for n in (1, 2, 3))
    others = (("agent", "agents"), ("backend", "backends"))
    return registrars + "".join(
        f'[[{kind}]]\nname = "{name}"\naddresses = ["{network}"]\n' for kind, name in others
    )


def make_install(folder: Path, *variables: str, target: str = "install") -> subprocess.CompletedProcess[str]:
    """Run `make install` (or another target) for a root directory; the environment's pip settings apply."""
    command = ["make", "-s", "-C", str(REPOSITORY), target, f"DESTDIR={folder}", *variables]
    return subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)


class LiveSystemd:
    """systemd, started; `root` is its root directory, as seen from outside."""

    def __init__(
        self, folder: Path, installed: Path, prepare: str = PREPARE, lower: Path = Path("/")
    ) -> None:
        """`installed`: files to put in; `prepare`: what runs inside first; `lower`: the root file system."""
        self._cgroups = folder / "cgroups"  # it may be mounted nowhere else in a chroot
        self._cgroups.mkdir()
        subprocess.run(["mount", "-t", "cgroup2", "cgroup2", str(self._cgroups)], check=True)
        self._cgroup = self._cgroups / f"rspdns-test-{os.getpid()}-{next(_NUMBERS)}"
        self._cgroup.mkdir()
        self.log = folder / "systemd.log"
        layers = folder / "systemd"
        layers.mkdir()
        boot = str(REPOSITORY / "tests/support/live_systemd.sh")
        unshare = [
            *(sys.executable, "-c", OWN_MOUNTS),
            "unshare",
            "--pid",
            "--fork",
            "--uts",
            "--ipc",
            "--net",
            "--cgroup",
            "--kill-child",
        ]
        arguments = [*unshare, "sh", boot, str(layers), str(installed), prepare, str(lower)]
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", f'echo $$ >{self._cgroup}/cgroup.procs; exec "$@"', "sh", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self.pid = self._until_booted()
        except BaseException:
            self.close()
            raise
        self.root = Path(f"/proc/{self.pid}/root")

    def _until_booted(self) -> int:
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            assert self._process.poll() is None, self.log.read_text()
            for pid in _children(self._process.pid):
                if self._inside(pid, "systemctl", "is-active", "lab.target").stdout.strip() == "active":
                    return pid
            time.sleep(0.1)
        raise AssertionError(f"systemd did not start: {self.log.read_text()}")

    def _inside(self, pid: int, *command: str) -> subprocess.CompletedProcess[str]:
        where = ["nsenter", f"--target={pid}", "--all", "--root", "--wd", "--", "env", "-i"]
        path = "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return subprocess.run(
            [*where, path, "COLUMNS=200", *command], capture_output=True, text=True, timeout=150, check=False
        )

    def try_run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root."""
        return self._inside(self.pid, *command)

    def run(self, *command: str) -> str:
        """Run a command inside that must succeed; return what it prints."""
        done = self.try_run(*command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{self.journal()}"
        return done.stdout

    def ask(self, path: str, command: str) -> dict[str, Any] | None:
        """Return what a service inside answers at its control socket; None while it does not."""
        try:
            return request(self.root / path.lstrip("/"), command, timeout_s=10)
        except ControlError:
            return None

    def write(self, path: str, text: str) -> None:
        """Write a file inside."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def install(self, source: str, path: str) -> None:
        """Copy a file of the repository to a path inside."""
        self.write(path, (REPOSITORY / source).read_text())

    def show(self, unit: str, *properties: str) -> Sequence[str]:
        """Return properties of a unit, in this order."""
        said = self.run("systemctl", "show", unit, *(f"--property={name}" for name in properties))
        found = dict(line.split("=", 1) for line in said.splitlines())
        return [found[name] for name in properties]

    def main_pid(self, unit: str) -> int:
        """Return the main process of a unit, as it is numbered inside."""
        return int(self.show(unit, "MainPID")[0])

    def journal(self) -> str:
        """Return what all units logged."""
        return self.try_run("journalctl", "--no-pager", "-o", "short-monotonic").stdout[-20_000:]

    def until(self, condition: Callable[[], object]) -> None:
        """Return when `condition` holds; fail with the journal when it does not."""
        until(condition, told=self.journal, every_s=0.1)

    def close(self) -> None:
        """End everything inside."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # unshare takes process 1, and so all, with it
        self._process.wait()
        end_s = time.monotonic() + PATIENCE_S
        while self._cgroup.exists() and time.monotonic() < end_s:
            for folder, _, _ in os.walk(self._cgroup, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            time.sleep(0.05)
        subprocess.run(["umount", "--lazy", str(self._cgroups)], check=True)
        shutil.rmtree(self.log.parent / "systemd", ignore_errors=True)


@contextlib.contextmanager
def live_systemd(
    folder: Path, installed: Path, prepare: str = PREPARE, lower: Path = Path("/")
) -> Iterator[LiveSystemd]:
    """A running systemd in whose root the files of `make install` are; ended afterwards."""
    running = LiveSystemd(folder, installed, prepare, lower)
    try:
        yield running
    finally:
        running.close()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
