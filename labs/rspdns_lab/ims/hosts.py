"""The SIP hosts of the IMS lab: application servers (SIPp, sidecar), S-CSCFs (Kamailio), callers (SIPp)."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from daemon_kit.control import ControlError, request
from registrar_config.kernel_timers import SCTPD_OPTIONS

from rspdns_lab import texts as demo_texts
from rspdns_lab.errors import LabError
from rspdns_lab.ims import texts
from rspdns_lab.network import Host
from rspdns_lab.plan import LOADS, NAME, SIP_PORT
from rspdns_lab.preconditions import SctpRunner
from rspdns_lab.processes import Program

_HERE: Final = Path(__file__).parent
_MOST_CALLS: Final = 10_000


class ApplicationServer:
    """A SIPp that takes calls over UDP, one that shows by TCP that it lives, and the sidecar beside them."""

    def __init__(self, host: Host, registrars: Sequence[str], folder: Path, sctp: SctpRunner) -> None:
        self.host = host
        self._folder = folder
        self._control = folder / "agent.sock"
        self.set_load(LOADS[host.name])
        (folder / "agent.toml").write_text(demo_texts.agent_toml(host.name, host.address, registrars, folder))
        (folder / "state").mkdir()
        command = ["sipp", "-sf", str(_HERE / "uas.xml"), "-i", host.address, "-p", str(SIP_PORT)]
        command += ["-s", host.name, "-nostdin"]
        self._sip = [
            Program(f"sipp-{transport}", host, [*command, "-t", transport], folder / f"sipp-{transport}.log")
            for transport in ("u1", "t1")
        ]
        agent = [sys.executable, "-m", "ppe_agent.cli", "run", "-c", str(folder / "agent.toml"), "--log-json"]
        environment = {"SCTPD_OPTIONS": SCTPD_OPTIONS}
        self._agent = Program("agent", host, sctp.command(agent), folder / "agent.log", environment)

    @property
    def programs(self) -> Sequence[Program]:
        """What runs here."""
        return (self._agent, *self._sip)

    def start(self) -> None:
        """Start everything."""
        self.start_sip()
        self._agent.start()

    def start_sip(self) -> None:
        """Start the SIP servers, again after a kill."""
        for program in self._sip:
            program.start()

    def kill(self) -> None:
        """Kill the SIP servers, not the agent."""
        for program in self._sip:
            program.kill()

    def hang(self) -> None:
        """Stop the SIP servers where they are: sockets stay open, nothing answers."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let hung SIP servers go on."""
        self._signal(signal.SIGCONT)

    def set_load(self, load: float) -> None:
        """Have it report this load, 0 to 1."""
        (self._folder / "load").write_text(f"{load}\n")

    def drain(self, *, drained: bool) -> None:
        """Withdraw it while it goes on serving, or register it again. Raises LabError."""
        try:
            request(self._control, "drain" if drained else "undrain")
        except ControlError as error:
            raise LabError(f"the agent on {self.host.name}: {error}") from None

    def _signal(self, number: int) -> None:
        for program in self._sip:
            os.killpg(program.pid, number)


def make_cscf(host: Host, name_server: str, folder: Path) -> Program:
    """Return an S-CSCF stand-in whose resolver asks `name_server` and nobody else."""
    (folder / "kamailio.cfg").write_text(texts.cscf_cfg(host.address))
    (folder / "resolv.conf").write_text(f"nameserver {name_server}\noptions timeout:1 attempts:2\n")
    bind = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", bind, str(folder / "resolv.conf")]
    command += ["kamailio", "-f", str(folder / "kamailio.cfg"), "-DD", "-E", "-m", "32", "-M", "4"]
    return Program("cscf", host, [*command, "-w", str(folder)], folder / "cscf.log")


class Caller:
    """Places calls at a set rate through one S-CSCF."""

    def __init__(self, host: Host, cscf: str, port: int, folder: Path) -> None:
        self.host = host
        self.calls = folder / "calls.log"
        self._command = ["sipp", "-sf", str(_HERE / "uac.xml"), f"{cscf}:{SIP_PORT}", "-s", NAME]
        self._command += ["-i", host.address, "-p", str(port), "-nostdin", "-l", str(_MOST_CALLS)]
        self._command += ["-trace_logs", "-log_file", str(self.calls)]
        self._folder = folder
        self._program: Program | None = None

    @property
    def programs(self) -> Sequence[Program]:
        """What runs here."""
        return () if self._program is None else (self._program,)

    def start(self, rate_per_s: int, calls: int) -> None:
        """Begin to place so many calls; the log of earlier ones goes."""
        self.calls.unlink(missing_ok=True)
        command = [*self._command, "-r", str(rate_per_s), "-m", str(calls)]
        self._program = Program("caller", self.host, command, self._folder / "caller.log")
        self._program.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until every call has ended; after `timeout_s` the rest are cut off and count as failed."""
        end_s = time.monotonic() + timeout_s
        while self._program is not None and self._program.is_running and time.monotonic() < end_s:
            time.sleep(0.1)
        if self._program is not None:
            self._program.stop()

    def lines(self) -> list[str]:
        """Return the log."""
        return self.calls.read_text(errors="replace").splitlines() if self.calls.exists() else []
