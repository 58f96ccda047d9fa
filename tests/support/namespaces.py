"""Network namespaces for tests, and the programs in them."""

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SCTP_RUN = REPOSITORY / "sctp-userland" / "sctp-run"


def _for_sctpd() -> Mapping[str, str]:
    # Here: it takes long, and most programs of tests/support import this module for a name or two.
    from registrar_config import SCTPD_OPTIONS

    return {"SCTPD_OPTIONS": SCTPD_OPTIONS}


class Namespace:
    """A network namespace with loopback up; programs started in it are killed when the test ends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._processes: list[subprocess.Popen[str]] = []
        subprocess.run(["ip", "netns", "add", name], check=True)
        try:
            self.ip("link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    def ip(self, *arguments: str) -> None:
        """Run the command `ip` in here."""
        subprocess.run(self.command("ip", *arguments), check=True)

    def give_address(self, address: str) -> None:
        """Give it `address`, as a host in a network has it: at eth0, whose other end is eth0-peer."""
        self.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0-peer")
        for device in ("eth0-peer", "eth0"):
            self.ip("link", "set", device, "up")
        prefix = [f"{address}/64", "nodad"] if ":" in address else [f"{address}/24"]
        self.ip("address", "add", *prefix, "dev", "eth0")

    def route_clients(self) -> None:
        """Have servers in here answer the clients of ppu-agents: `[relay] clients` of a sidecar."""
        self.ip("route", "add", "local", "198.18.0.0/15", "dev", "lo")

    def pids(self) -> list[int]:
        """Return every process in here."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False
        )
        return [int(pid) for pid in listed.stdout.split()]

    def command(self, *arguments: str, sctp: bool = False) -> list[str]:
        """Return the command line that runs `arguments` in here; with `sctp`, where SCTP works."""
        wrapper = [str(SCTP_RUN)] if sctp else []
        # Not `ip netns exec`: it wants to remount /sys, which a chroot may not allow.
        return ["nsenter", f"--net=/run/netns/{self.name}", "--", *wrapper, *arguments]

    def start(
        self,
        *arguments: str,
        sctp: bool = False,
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
    ) -> subprocess.Popen[str]:
        """Start a program in a session of its own; output goes to `log`, or to pipes without one.

        It inherits `descriptors`.
        """
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(log.open("a")) if log else subprocess.PIPE
            process = subprocess.Popen(
                self.command(*arguments, sctp=sctp),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if log else subprocess.PIPE,
                text=True,
                start_new_session=True,
                env={**os.environ, **_for_sctpd(), **(environment or {})},
                pass_fds=descriptors,
            )
        self._processes.append(process)
        return process

    def run(
        self, *arguments: str, sctp: bool = False, timeout_s: float = 90
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end and return its output."""
        return subprocess.run(
            self.command(*arguments, sctp=sctp),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, **_for_sctpd()},
            check=False,
        )

    def close(self) -> None:
        """End every program of this namespace and remove it."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", self.name], check=False)


@contextlib.contextmanager
def own_namespace() -> Iterator[Namespace]:
    """Make a namespace for all tests of a module; it is removed at the end, with all that runs in it."""
    namespace = Namespace(f"rspdns-test-{os.getpid()}-{uuid.uuid4().hex[:6]}")
    try:
        yield namespace
    finally:
        namespace.close()


def end(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> int:
    """Signal the whole session of what was started in a namespace; return its exit status."""
    os.killpg(process.pid, number)
    return process.wait(60)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the whole session of what was started in a namespace, at once."""
    end(process, signal.SIGKILL)


def program_of(started: subprocess.Popen[str], command: str) -> int:
    """The process id of a program below the wrappers it was started with; `command` is a part of its line."""
    listed = subprocess.run(
        ["pgrep", "-s", str(started.pid), "-f", command], capture_output=True, text=True, check=True
    ).stdout.split()
    return int(listed[-1])
