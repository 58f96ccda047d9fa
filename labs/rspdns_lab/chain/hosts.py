"""The hosts of a lab and the programs on them: registrars, name servers, application servers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from daemon_kit.control import ControlError, request
from daemon_kit.files import replace_file

from rserpool import RegistrarAddress
from rspdns_lab.chain import fast_path, texts
from rspdns_lab.chain.asking import answers_options
from rspdns_lab.chain.plan import REREGISTRATION_MS, LabSetting
from rspdns_lab.chain.texts import write_name_server_files
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host
from rspdns_lab.net.preconditions import SctpRunner
from rspdns_lab.net.processes import Program, children_of
from rspdns_lab.net.service_manager import Service
from rspdns_lab.net.wall_clock import WallClock

START_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.02
_LONGEST_PAUSE_S = 0.5


def wait_until(condition: Callable[[], object], what: str, timeout_s: float, *programs: Program) -> None:
    """Wait for `condition`. Raises LabError when it takes too long, or when one of `programs` ends.

    A condition that takes long to check is checked less often, lest the checks slow down the awaited change.
    """
    end_s = time.monotonic() + timeout_s
    while True:
        looked_s = time.monotonic()
        if condition():
            return
        took_s = time.monotonic() - looked_s
        for program in programs:
            program.expect_running()
        if time.monotonic() > end_s:
            logs = "".join(f"\n{program.name}:\n{program.log_end()}" for program in programs)
            raise LabError(f"{what}: not within {timeout_s:g} s{logs}")
        time.sleep(min(max(_LOOK_EVERY_S, 4 * took_s), _LONGEST_PAUSE_S))


class RegistrarHost:
    """A host with a supervised rspregistrar and its sentinel."""

    def __init__(
        self,
        host: Host,
        number: int,
        peers: Sequence[str],
        folder: Path,
        sctp: SctpRunner,
        clock: Path | None = None,
        slow: float = 1.0,
    ) -> None:
        self.host = host
        self.clock = WallClock(clock, folder / "clock") if clock else None
        command = [sys.executable, "-m", "registrar_config", "run", "--log-json", "--set-kernel-timers"]
        command += [f"--number={number}", f"--address={host.address}"]
        command += [f"--agent-reregistration-ms={REREGISTRATION_MS}"]
        command += [f"--peer={peer}" for peer in peers]
        command += [f"--patience={slow:g}"] if slow > 1 else []
        environment = {**sctp.environment, **(self.clock.environment if self.clock else {})}
        self.program = Program(
            "registrar", host, sctp.command(command), folder / "registrar.log", environment
        )

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs that run here."""
        return (self.program,)

    def start(self) -> None:
        """Start it."""
        self.program.start()

    def wait(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until rspregistrar runs."""
        wait_until(self.registrar_pids, f"rspregistrar on {self.host.name}", timeout_s, self.program)

    def registrar_pids(self) -> list[int]:
        """Return rspregistrar's process identifier, or nothing while there is none."""
        return children_of(self.program.pid, "rspregistrar")

    def kill_registrar(self) -> float:
        """Kill rspregistrar, not its supervisor; return the monotonic time just before it."""
        return self._signal(signal.SIGKILL)

    def freeze_registrar(self) -> float:
        """Stop rspregistrar (SIGSTOP); return the monotonic time just before it."""
        return self._signal(signal.SIGSTOP)

    def thaw_registrar(self) -> None:
        """Let it go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> float:
        pids = self.registrar_pids()
        if not pids:
            raise LabError(f"no rspregistrar runs on {self.host.name}")
        now = time.monotonic()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return now


class NameServerHost:
    """A host with PowerDNS and the rspdns backend beside it."""

    def __init__(
        self,
        host: Host,
        registrars: Sequence[str],
        name_servers: Sequence[str],
        folder: Path,
        sctp: SctpRunner,
        setting: LabSetting,
    ) -> None:
        self.host = host
        self.folder = folder
        write_name_server_files(host.address, registrars, name_servers, folder, setting)
        backend = [
            sys.executable,
            "-m",
            "rspdns.cli",
            "serve",
            "-c",
            str(folder / "rspdns.toml"),
            "--log-json",
        ]
        self.backend = Service(
            "backend",
            host,
            lambda kept: sctp.command([*kept, *backend]),
            folder / "backend.log",
            folder / "remote.sock",
            sctp.environment,
        )
        """As its unit runs it: systemd holds its socket, and keeps PowerDNS's connections."""
        self.pdns = Program("pdns", host, ["pdns_server", f"--config-dir={folder}"], folder / "pdns.log")
        self.has_fastpath = setting.fastpath
        self.fastpath = fast_path.daemon(host, folder, 53, "eth0")
        """Runs where `has_fastpath`."""

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs that run here."""
        return (self.pdns, self.backend, *([self.fastpath] if self.has_fastpath else []))

    def start(self) -> None:
        """Start the backend; PowerDNS would give up without it and follows in `wait()`."""
        if self.has_fastpath:
            self.start_fastpath()
        self.backend.start()

    def start_fastpath(self) -> None:
        """Start rspdns-fastpath."""
        self.fastpath.start()

    def is_answered_by_kernel(self) -> bool:
        """Whether the kernel answers, where it should."""
        return not self.has_fastpath or fast_path.answers(self.folder)

    def wait(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait for the backend, then start PowerDNS."""
        wait_until(lambda: self.backend.is_ready, f"the backend on {self.host.name}", timeout_s, self.backend)
        self.pdns.start()

    def kill(self) -> float:
        """Kill PowerDNS and its backend; return the monotonic time just before it."""
        now = self.pdns.kill()
        self.backend.kill()
        return now

    def start_backend(self) -> float:
        """Start a killed backend again; return the monotonic time when it can be asked."""
        self.backend.start()
        what = f"the backend on {self.host.name}"
        wait_until(self.registrar_standings, what, START_TIMEOUT_S, self.backend)
        return time.monotonic()

    def questions(self) -> int:
        """Return how many questions came to PowerDNS by UDP. Raises LabError."""
        command = ["pdns_control", f"--socket-dir={self.folder}", "show", "udp-queries"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.stdout.strip().isdigit():
            raise LabError(f"PowerDNS of {self.host.name} does not say what it was asked: {done.stderr}")
        return int(done.stdout)

    def members(self) -> frozenset[str]:
        """Return the addresses of all whom the backend takes for members; empty when it doesn't answer."""
        try:
            pools = request(self.folder / "admin.sock", "status")["zones"][0]["pools"]
            return frozenset(member["addresses"][0] for member in pools[0]["members"])
        except (ControlError, LookupError):
            return frozenset()

    def reported_down_s(self, address: str) -> float:
        """Return how long an application server was down by `rspdns report`, in seconds. Raises LabError."""
        words = ["report", "--json", "--server", address, "-c", str(self.folder / "rspdns.toml")]
        command = [sys.executable, "-m", "rspdns.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise LabError(f"rspdns report: {done.stderr.strip()}")
        return sum(float(server["down_s"]) for server in json.loads(done.stdout)["servers"])

    def registrar_standings(self) -> list[str]:
        """Return what the backend thinks of each registrar; empty when it doesn't answer."""
        try:
            registrars = request(self.folder / "admin.sock", "status")["registrars"]
        except (ControlError, LookupError):
            return []
        return [str(registrar.get("standing")) for registrar in registrars]


class ApplicationServerHost:
    """A host with a SIP server and its sidecar."""

    def __init__(
        self,
        host: Host,
        registrars: Sequence[str],
        load: float,
        folder: Path,
        sctp: SctpRunner,
        slow: float = 1.0,
        key: Path | None = None,
    ) -> None:
        self.host = host
        self._control = folder / "agent.sock"
        self._load = folder / "load"
        self._identifier: str | None = None
        self.set_load(load)
        (folder / "agent.toml").write_text(
            texts.agent_toml(host.name, host.address, registrars, folder, slow, key=key)
        )
        (folder / "kamailio.cfg").write_text(texts.kamailio_cfg(host.address, host.name))
        (folder / "state").mkdir()
        sip = ["kamailio", "-f", str(folder / "kamailio.cfg"), "-DD", "-E", "-m", "16", "-M", "4"]
        self.sip = Program(
            "kamailio", host, [*sip, "-w", str(folder), "-Y", str(folder)], folder / "kamailio.log"
        )
        agent = [sys.executable, "-m", "ppe_agent.cli", "run", "-c", str(folder / "agent.toml"), "--log-json"]
        self.agent = Program("agent", host, sctp.command(agent), folder / "agent.log", sctp.environment)

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs that run here."""
        return (self.agent, self.sip)

    def start(self) -> None:
        """Start both."""
        self.sip.start()
        self.agent.start()

    def start_sip(self, timeout_s: float = START_TIMEOUT_S) -> float:
        """Start the SIP server again; return the monotonic time when it answers."""
        self.sip.start()
        return self.wait_for_sip(timeout_s)

    def wait_for_sip(self, timeout_s: float = START_TIMEOUT_S) -> float:
        """Wait until the SIP server answers; return the monotonic time."""
        wait_until(
            lambda: answers_options(self.host),
            f"the SIP server on {self.host.name}",
            timeout_s,
            self.sip,
        )
        return time.monotonic()

    def registrar_address(self) -> str:
        """Return the address of the registrar its agent is registered at; empty while there is none."""
        registrar = self._status().get("registrar")
        return RegistrarAddress.parse(registrar).host if registrar else ""

    @property
    def identifier(self) -> str:
        """Its PE identifier, as the parts log it: 8 hex digits, or a word while the agent is silent."""
        if self._identifier is None:
            self._identifier = self._status().get("identifier")
        return self._identifier or f"pool element of {self.host.name}"

    def _status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = request(self._control, "status")["as"][0]
        except (ControlError, LookupError):
            return {}
        return found

    def set_load(self, load: float) -> None:
        """Have its agent report this load."""
        replace_file(self._load, f"{load}\n".encode())

    def drain(self) -> float:
        """Take it out of the pool in order; return the monotonic time just before it."""
        return self._command("drain")

    def undrain(self) -> float:
        """Let it in again; return the monotonic time just before it."""
        return self._command("undrain")

    def _command(self, command: str) -> float:
        now = time.monotonic()
        try:
            request(self._control, command)
        except ControlError as error:
            raise LabError(f"the agent on {self.host.name} did not {command}: {error}") from None
        return now
