"""The lab: a client and a server with two cables each; the first one may be an emulated link, or be cut."""

import functools
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyroute2 import IPRoute, NetNS

from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.chain.lab import LabBase
from rspdns_lab.errors import LabError
from rspdns_lab.link import Link, LinkSetting
from rspdns_lab.net.network import Host, call_in, run_ip
from rspdns_lab.net.preconditions import find_sctp
from rspdns_lab.net.processes import Program
from rspdns_lab.shim import transfer

_CONGESTION: Final = {
    "TCP CUBIC": "cubic",
    "TCP Reno": "reno",
    "TCP BBR": "bbr",
    "MPTCP": "mptcp",
    "shim": transfer.SCTP,
}
WAYS: Final = tuple(_CONGESTION)
RATE_BPS: Final = 1.5e6
ROUND_TRIP_MS: Final = 35.0
QUEUE: Final = 50
_RTO_MIN_MS: Final = 200
"""Linux TCP's, for both."""
FAST_RTO_MIN_MS: Final = 50
_STREAM_S: Final = 10.0
_CUT_AFTER_S: Final = 3.0
_SEEN_AFTER_S: Final = 2.5
_MESSAGES_S: Final = 1.0
_SET_UPS: Final = 200
_START_S: Final = 120.0
_AT_ONCE: Final = ("chrt", "--rr", "1")
_AS_OTHERS: Final = ("chrt", "--other", "0")
"""The kernel's TCP works in interrupts, before all processes. So does sctpd here: beside many links the time
that it waits for a processor would count as a longer way. The programs themselves are ordinary ones."""
_AVAILABLE: Final = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


@dataclass(frozen=True)
class ShimTrial:
    """A figure. `measure`: `transfer` or `alone` (s; None: it failed), `cut` (longest pause, ms; None: no
    byte came any more), `set-up` (us), `messages` (a second). `size` and `loss` are a transfer's, and `late`:
    the share of its packets that the link delivered more than 1 ms too late."""

    measure: str
    way: str
    size: int
    loss: float
    trial: int
    value: float | None
    load_average: float
    late: float = 0.0

    @property
    def name(self) -> str:
        """The measurement that trials repeat."""
        return name_of(self.measure, self.way, self.size, self.loss)


def name_of(measure: str, way: str, size: int = 0, loss: float = 0.0) -> str:
    """Return the name of a measurement."""
    return f"{measure} {way} {size} {loss:g}"


class ShimLab(LabBase):
    """The running lab for one way; see LabBase. `loss`: the first cable is the emulated link."""

    def __init__(self, way: str, loss: float | None, rto_min_ms: int, seed: int, program: Path) -> None:
        super().__init__()
        self._way, self._loss, self._rto_min_ms = way, loss, rto_min_ms
        self._seed, self._link_program = seed, program
        self._link: Link | None = None
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
            self._link = Link(
                self.network, client, self.folder, setting, seed=self._seed, program=self._link_program
            ).__enter__()
            for host, other in ((client, server), (server, client)):  # a lost ARP would cost a second
                known = f"neigh replace {other.address} lladdr {_hardware_address(other)}"
                run_ip(host, f"{known} dev eth0 nud permanent")
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
        shimmed = [*wrapper, "--shim", str(self.folder / "shim.toml")]
        return [*_AT_ONCE, *shimmed, *_AS_OTHERS, *program] if may_be_real_time() else [*shimmed, *program]

    def _run(self, host: Host, *command: str, cuts: bool = False) -> str:
        """Return the output. `cuts`: the server's cable, a while after the first line."""
        program = Program("client", host, command, self.folder / "client.log")
        program.start(subprocess.PIPE)
        first = program.stdout.readline()
        if cuts and first:
            time.sleep(_CUT_AFTER_S)
            self.network.cut(self._hosts[1])
            time.sleep(_SEEN_AFTER_S)
            if not program.is_running:
                raise LabError("the cable was cut too late: this machine is too busy")
        told = first + program.stdout.read()
        wait_until(lambda: not program.is_running, "the client's end", _START_S)
        program.stop()
        if program.exit_status:
            raise LabError(f"{shlex.join(command)}: {program.log_end()}")
        return told.decode()

    def programs(self) -> Iterator[Program]:
        """Yield the server."""
        if self.server is not None:
            yield self.server

    def close(self) -> None:
        """End the server and the link, then the rest."""
        for program in self.programs():
            program.stop()
        if self._link is not None:
            self._link.close()
        super().close()

    @property
    def late(self) -> float:
        """The share of packets that the link delivered too late."""
        if self._link is None:
            return 0.0
        counters = self._link.counters()
        delivered = sum(direction.delivered for direction in counters)
        return sum(direction.late for direction in counters) / max(1, delivered)

    def figure(self, measure: str, size: int) -> float | None:
        """Measure once."""
        client, server = self._hosts
        if measure in {"transfer", "alone"}:
            words = ("fetch", server.address, str(size))
        elif measure == "cut":
            words = ("pause", server.address, str(_STREAM_S))
        else:
            words = (measure, server.address, str(_SET_UPS if measure == "set-up" else _MESSAGES_S))
        told = self._run(client, *self._command(*words), cuts=measure == "cut")
        value = float(told.splitlines()[-1].split()[0])
        return value if value >= 0 else None


def _hardware_address(host: Host) -> str:
    def look() -> str:
        with IPRoute() as inside:
            [link] = inside.get_links(ifname="eth0")
            return str(link.get_attr("IFLA_ADDRESS"))

    return str(call_in(host.path, look))


@dataclass(frozen=True)
class ShimTask:
    """A trial to be run; see ShimTrial. `program`: the emulated link's."""

    measure: str
    way: str
    size: int
    loss: float
    number: int
    program: Path


def run_trial(trial: ShimTask) -> ShimTrial:
    """Measure once in a lab of its own. Raises LabError."""
    is_transfer = trial.measure in {"transfer", "alone"}
    rto_min_ms = _RTO_MIN_MS if is_transfer else FAST_RTO_MIN_MS
    loss = trial.loss if is_transfer else None
    with ShimLab(trial.way, loss, rto_min_ms, 2 * trial.number, trial.program) as lab:  # 2: one each way
        value, late = lab.figure(trial.measure, trial.size), lab.late
    load = os.getloadavg()[0]
    return ShimTrial(trial.measure, trial.way, trial.size, trial.loss, trial.number, value, load, late)


@functools.cache
def may_be_real_time() -> bool:
    """Whether processes may have real-time priority here, as the emulated links do."""
    return subprocess.run([*_AT_ONCE, "true"], capture_output=True, check=False).returncode == 0


def is_there(way: str) -> bool:
    """Whether this kernel has Multipath TCP, or this congestion control."""
    if way == "MPTCP":
        return Path("/proc/sys/net/mptcp/enabled").exists()
    return way == "shim" or _CONGESTION[way] in _AVAILABLE.read_text().split()
