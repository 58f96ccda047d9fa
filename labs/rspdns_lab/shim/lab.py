"""The lab: a client and a server with two cables each; the first one may be an emulated link, or be cut."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyroute2 import NetNS

from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.chain.lab import LabBase
from rspdns_lab.errors import LabError
from rspdns_lab.link import Link, LinkSetting
from rspdns_lab.net.network import Host
from rspdns_lab.net.preconditions import find_sctp
from rspdns_lab.net.processes import Program

WAYS: Final = ("TCP CUBIC", "TCP Reno", "MPTCP", "shim")
_CONGESTION: Final = {"TCP CUBIC": "cubic", "TCP Reno": "reno", "MPTCP": "mptcp", "shim": "-"}
RATE_BPS: Final = 1.5e6
ROUND_TRIP_MS: Final = 35.0
QUEUE: Final = 50
_RTO_MIN_MS: Final = 200
"""Linux TCP's, for both."""
FAST_RTO_MIN_MS: Final = 50
_STREAM_S: Final = 8.0
_CUT_AFTER_S: Final = 3.0
_MESSAGES_S: Final = 2.0
_SET_UPS: Final = 200
_START_S: Final = 20.0
_PATIENCE_S: Final = 700.0


@dataclass(frozen=True)
class ShimTrial:
    """A figure. `measure`: `transfer` (s), `cut` (longest pause, ms; None: no byte came any more),
    `set-up` (us), `messages` (a second). `size` and `loss` are a transfer's."""

    measure: str
    way: str
    size: int
    loss: float
    trial: int
    value: float | None
    load_average: float

    @property
    def name(self) -> str:
        """The measurement that trials repeat."""
        return name_of(self.measure, self.way, self.size, self.loss)


def name_of(measure: str, way: str, size: int = 0, loss: float = 0.0) -> str:
    """Return the name of a measurement."""
    return f"{measure} {way} {size} {loss:g}"


class ShimLab(LabBase):
    """The running lab for one way; see LabBase. `loss`: the first cable is the emulated link."""

    def __init__(self, way: str, loss: float | None, rto_min_ms: int, seed: int) -> None:
        super().__init__()
        self._way, self._loss, self._rto_min_ms, self._seed = way, loss, rto_min_ms, seed
        self._links = contextlib.ExitStack()
        self.server: Program | None = None

    def build(self) -> None:
        """Make the hosts and cables, and start the server."""
        client = self.network.add_host("client", "10.53.0.1")
        server = self.network.add_host("server", "10.53.0.2")
        self._hosts = client, server
        if self._loss is None:
            self._second_cable(client, server)
        else:
            setting = LinkSetting(RATE_BPS, ROUND_TRIP_MS / 2, self._loss, QUEUE)
            self._links.enter_context(Link(self.network, client, self.folder, setting, seed=self._seed))
        default = '[default]\nlocal = "sctp"\nremote = "sctp"\n'
        (self.folder / "shim.toml").write_text(f"rto_min_ms = {self._rto_min_ms}\n{default}")
        self.server = Program("server", server, self._command("serve"), self.folder / "server.log")
        self.server.start()
        log = self.server.log
        wait_until(lambda: "ready" in log.read_text(), "the server", _START_S, self.server)

    def _second_cable(self, client: Host, server: Host) -> None:
        with NetNS(client.namespace) as near, NetNS(server.namespace) as far:
            peer = {"ifname": "eth1", "net_ns_fd": server.namespace}
            near.link("add", ifname="eth1", kind="veth", peer=peer)
            for inside, number in ((near, 1), (far, 2)):
                (index,) = inside.link_lookup(ifname="eth1")
                inside.addr("add", index=index, address=f"10.54.0.{number}", prefixlen=24)
                inside.link("set", index=index, state="up")
        if self._way == "MPTCP":
            for host, role in ((client, "subflow"), (server, "signal")):
                second = host.address.replace("10.53", "10.54")
                self._run(host, "ip", "mptcp", "limits", "set", "subflow", "4", "add_addr_accepted", "4")
                self._run(host, "ip", "mptcp", "endpoint", "add", second, "dev", "eth1", role)

    def _command(self, *words: str) -> list[str]:
        kind, *rest = words
        program = [sys.executable, "-m", "rspdns_lab.shim.transfer", kind, _CONGESTION[self._way], *rest]
        if self._way != "shim":
            return program
        wrapper = find_sctp().wrapper
        if not wrapper:
            raise LabError("this kernel has SCTP of its own: sctp-run --shim does not work beside it")
        return [*wrapper, "--shim", str(self.folder / "shim.toml"), *program]

    def _run(self, host: Host, *command: str) -> str:
        try:
            done = subprocess.run(
                ["nsenter", f"--net={host.path}", "--", *command],
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            raise LabError(f"{command[-1]}: {error.stderr.strip()}") from None
        except subprocess.TimeoutExpired as error:
            raise LabError(str(error)) from None
        return done.stdout

    def programs(self) -> Iterator[Program]:
        """Yield the server."""
        if self.server is not None:
            yield self.server

    def close(self) -> None:
        """End the server and the link, then the rest."""
        for program in self.programs():
            program.stop()
        self._links.close()
        super().close()

    def figure(self, measure: str, size: int) -> float | None:
        """Measure once."""
        client, server = self._hosts
        if measure == "transfer":
            words = ("fetch", server.address, str(size))
        elif measure == "cut":
            words = ("pause", server.address, str(_STREAM_S))
            cut = threading.Timer(_CUT_AFTER_S, lambda: self.network.cut(server))
            cut.start()
        else:
            words = (measure, server.address, str(_SET_UPS if measure == "set-up" else _MESSAGES_S))
        value = float(self._run(client, *self._command(*words)))
        return value if value >= 0 else None


def run_trial(measure: str, way: str, size: int, loss: float, trial: int) -> ShimTrial:
    """Measure once in a lab of its own. Raises LabError."""
    is_transfer = measure == "transfer"
    rto_min_ms = _RTO_MIN_MS if is_transfer else FAST_RTO_MIN_MS
    with ShimLab(way, loss if is_transfer else None, rto_min_ms, trial) as lab:
        value = lab.figure(measure, size)
    return ShimTrial(measure, way, size, loss, trial, value, os.getloadavg()[0])


def mptcp_is_there() -> bool:
    """Whether this kernel has Multipath TCP."""
    return Path("/proc/sys/net/mptcp/enabled").exists()
