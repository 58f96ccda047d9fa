"""An application server of the labs that compare: SIPp, and the sidecar beside it."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from daemon_kit.control import ControlError, request
from registrar_config import SCTPD_OPTIONS

from rspdns_lab.chain import texts
from rspdns_lab.chain.plan import LOADS, SIP_PORT
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, route_clients
from rspdns_lab.net.preconditions import SctpRunner
from rspdns_lab.net.processes import Program

_WOKEN_S: Final = 1.0
UAS_SCENARIO: Final = Path(__file__).with_name("uas.xml")


class ApplicationServer:
    """A SIPp that takes calls over UDP, one that shows by TCP that it lives, and the sidecar beside them."""

    def __init__(
        self, host: Host, registrars: Sequence[str], folder: Path, sctp: SctpRunner, *, tcp: bool = False
    ) -> None:
        self.host = host
        self._folder = folder
        self._control = folder / "agent.sock"
        self.set_load(LOADS[host.name])
        (folder / "agent.toml").write_text(
            texts.agent_toml(host.name, host.address, registrars, folder, tcp=tcp)
        )
        if tcp:
            route_clients(host)
        (folder / "state").mkdir()
        command = ["sipp", "-sf", str(UAS_SCENARIO), "-i", host.address, "-p", str(SIP_PORT)]
        command += ["-s", host.name, "-nostdin"]
        self._sip = [
            Program(f"sipp-{transport}", host, [*command, "-t", transport], folder / f"sipp-{transport}.log")
            for transport in ("u1", "t1")
        ]
        agent = [sys.executable, "-m", "ppe_agent.cli", "run", "-c", str(folder / "agent.toml"), "--log-json"]
        environment = {"SCTPD_OPTIONS": SCTPD_OPTIONS}
        self._agent = Program("agent", host, sctp.command(agent), folder / "agent.log", environment)

    def serve_tcp_by(self, command: Sequence[str]) -> None:
        """Have another program than SIPp take what comes by TCP; before the start."""
        self._sip[1] = Program("sip-tcp", self.host, command, self._folder / "sip-tcp.log")

    @property
    def programs(self) -> Sequence[Program]:
        """The programs that run here."""
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
        """Let hung SIP servers go on. A SIPp whose TCP connections were closed ends, and starts anew."""
        self._signal(signal.SIGCONT)
        time.sleep(_WOKEN_S)
        self.start_ended()

    def start_ended(self) -> None:
        """Start the SIP servers again that have ended."""
        for program in self._sip:
            if not program.is_running:
                program.start()

    def set_load(self, load: float) -> None:
        """Have it report this load, 0 to 1."""
        (self._folder / "load").write_text(f"{load}\n")

    def registrar(self) -> str:
        """Return the address of the registrar that it is registered with; "" for none. Raises LabError."""
        servers = self._ask("status")["as"]
        return str(servers[0]["registrar"] or "").partition(":")[0] if servers else ""

    def drain(self, *, drained: bool) -> None:
        """Withdraw it while it goes on serving, or register it again. Raises LabError."""
        self._ask("drain" if drained else "undrain")

    def _ask(self, command: str) -> dict[str, Any]:
        try:
            return request(self._control, command)
        except ControlError as error:
            raise LabError(f"the agent on {self.host.name}: {error}") from None

    def _signal(self, number: int) -> None:
        for program in self._sip:
            os.killpg(program.pid, number)
