"""The lab: clients behind a link of 10 Mbit/s, nine servers at its other end, and what the link dropped."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import sub
from pathlib import Path
from typing import Final

from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.chain.lab import LabBase
from rspdns_lab.ending import say
from rspdns_lab.favor.initial_timeout import initial_timeout
from rspdns_lab.favor.workload import PACKET_BYTES, round_trips_ms
from rspdns_lab.link import DirectionCounters, Discipline, Link, LinkSetting, build_link
from rspdns_lab.net.network import Host, call_in, run_ip
from rspdns_lab.net.processes import Program

RATE_BPS: Final = 10e6
WARM_UP_SHARE: Final = 0.2
"""The warm-up as a share of the time that is measured: 100 s of 500 s, as published."""
QUEUE: Final = 120
MIN, MAX = 20, 60
WORDS: Final[Mapping[str, Discipline]] = {
    "CHOKe": Discipline.CHOKE,
    "RED": Discipline.RED,
    "REDFavor": Discipline.RED_FAVOR,
    "drop-tail": Discipline.DROP_TAIL,
}
LINUX_INITIAL_TIMEOUT_S: Final = 1.0
_HEADERS: Final = 52
"""Bytes of IPv4 and TCP with its timestamps."""
_SYSCTLS: Final = {"tcp_congestion_control": "reno", "tcp_sack": "0", "tcp_no_metrics_save": "1"}
SHORT_PACKETS: Final = 12
_START_S: Final = 30.0


@dataclass(frozen=True)
class FavorTrial:
    """The result of one discipline.

    `counters`: of the link towards the clients, while it was measured; `syns_there`: SYNs in the other
    direction, and those dropped. `flows`: packets and completion time (ms; None: failed) of each object that
    began and ended in that time.
    """

    discipline: str
    seconds: float
    counters: DirectionCounters
    syns_there: Sequence[int]
    flows: Sequence[tuple[int, float | None]] = field(repr=False)
    load_average: float = 0.0

    @property
    def syns_dropped(self) -> int:
        """SYNs and SYN-ACKs dropped in both directions."""
        return self.counters.syns_dropped + self.syns_there[1]

    @property
    def short_ms(self) -> list[float]:
        """The completion times of short objects, the shortest first."""
        return sorted(ms for packets, ms in self.flows if ms is not None and packets <= SHORT_PACKETS)

    @property
    def used(self) -> float:
        """The share of the link's rate that packets used."""
        return self.counters.delivered_bytes * 8 / RATE_BPS / self.seconds


class FavorLab(LabBase):
    """The running lab of one discipline; see LabBase. The round trip of each server lies in its own link."""

    def __init__(self, discipline: Discipline, cgroup: Path | None) -> None:
        super().__init__()
        self._discipline, self._cgroup = discipline, cgroup
        self._running: list[Program] = []

    def build(self) -> None:
        """Make hosts and links; thresholds and buffer are ns-2's defaults."""
        program = build_link(self.folder / "link")
        clients = self.network.add_host("clients", "10.53.0.1")
        _set_tcp(clients)
        servers = []
        for number, round_trip_ms in enumerate(round_trips_ms()):
            server = self.network.add_host(f"server{number}", f"10.53.0.{11 + number}")
            _set_tcp(server)
            far = LinkSetting(delay_ms=round_trip_ms / 2)
            self._running.append(Link(self.network, server, self.folder, far, program=program).start())
            servers.append(f"{server.address}={server.path}")
        middle = LinkSetting(
            RATE_BPS, queue=QUEUE, discipline=self._discipline, mean_packet=PACKET_BYTES, min=MIN, max=MAX
        )
        self.link = Link(self.network, clients, self.folder, middle, program=program)
        self._running.append(self.link.start())
        self.flows = self.folder / "flows"
        command = [sys.executable, "-m", "rspdns_lab.favor.traffic", str(self._cgroup or "-")]
        command += [str(self.flows), *servers]
        self.traffic = Program("traffic", clients, command, self.folder / "traffic.log")
        self._running.insert(0, self.traffic)

    def programs(self) -> Iterator[Program]:
        """Yield the traffic, and the links."""
        yield from self._running

    def measure(self, warm_up_s: float, seconds: float) -> tuple[Sequence[DirectionCounters], float, float]:
        """Start the traffic; return the counters' differences in both directions, when it was measured
        (monotonic, s), and how long."""
        self.traffic.start()
        log = self.traffic.log
        wait_until(lambda: "ready" in log.read_text(), "the traffic", _START_S, self.traffic)
        time.sleep(warm_up_s)
        before, began_s = self.link.counters(), time.monotonic()
        time.sleep(seconds)
        after, lasted_s = self.link.counters(), time.monotonic() - began_s
        self.traffic.expect_running()
        differences = [DirectionCounters(*map(sub, new, old)) for new, old in zip(after, before, strict=True)]
        return differences, began_s, lasted_s


def _set_tcp(host: Host) -> None:
    """Have a host speak TCP as simulated: Reno without SACK, packets of 1,000 bytes, two to begin with."""

    def write() -> None:
        for name, value in _SYSCTLS.items():
            Path(f"/proc/sys/net/ipv4/{name}").write_text(value)

    call_in(host.path, write)
    metrics = f"advmss {PACKET_BYTES + _HEADERS - 40} initcwnd 2"
    run_ip(host, f"route change 10.53.0.0/24 dev eth0 src {host.address} {metrics}")


def run_trial(name: str, seconds: float, timeout_s: float) -> FavorTrial:
    """Run the traffic over one discipline, measured for so long after a warm-up. Raises LabError."""
    warm_up_s = seconds * WARM_UP_SHARE
    with contextlib.ExitStack() as stack:
        is_linux = timeout_s == LINUX_INITIAL_TIMEOUT_S
        cgroup = None if is_linux else stack.enter_context(initial_timeout(timeout_s))
        lab = stack.enter_context(FavorLab(WORDS[name], cgroup))
        say(f"{name}: {warm_up_s:g} s to warm up, {seconds:g} s measured")
        (there, back), began_s, lasted_s = lab.measure(warm_up_s, seconds)
        flows = read_flows(lab.flows.read_text(), began_s, began_s + lasted_s)
    syns = there.syns, there.syns_dropped
    return FavorTrial(name, round(lasted_s, 3), back, syns, flows, os.getloadavg()[0])


def read_flows(text: str, from_s: float, to_s: float) -> list[tuple[int, float | None]]:
    """Return the objects that began between the two times; a last line that is cut off is none."""
    lines = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [
        (int(packets), float(took_ms) if float(took_ms) >= 0 else None)
        for began_s, packets, took_ms in lines
        if from_s <= float(began_s) < to_s
    ]
