"""The lab: clients behind a link of 10 Mbit/s, nine servers at its other end, and what the link dropped."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.chain.lab import LabBase
from rspdns_lab.ending import say
from rspdns_lab.favor.initial_timeout import initial_timeout
from rspdns_lab.favor.workload import PACKET_BYTES, round_trips_ms
from rspdns_lab.link import DirectionCounters, Discipline, Link, LinkSetting, build_link
from rspdns_lab.net.network import Host, call_in
from rspdns_lab.net.processes import Program

RATE_BPS: Final = 10e6
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
_INITIAL_WINDOW: Final = 2
_SYSCTLS: Final = {"tcp_congestion_control": "reno", "tcp_sack": "0", "tcp_no_metrics_save": "1"}
_CLIENTS: Final = "10.53.0.1"
_SAMPLE_S: Final = 0.1
_START_S: Final = 30.0


@dataclass(frozen=True)
class FavorTrial:
    """The result of one discipline.

    `counters`: of the link towards the clients, while it was measured; `syns_there`: SYNs in the other
    direction, and those dropped. `flows`: packets and completion time (ms; None: failed) of each object that
    began and ended in that time. `queue`: time, packets, average.
    """

    discipline: str
    trial: int
    seconds: float
    counters: Mapping[str, int]
    syns_there: Sequence[int]
    flows: Sequence[tuple[int, float | None]] = field(repr=False)
    queue: Sequence[tuple[float, int, float]] = field(repr=False)
    load_average: float = 0.0

    @property
    def syns_dropped(self) -> int:
        """SYNs and SYN-ACKs dropped in both directions."""
        return self.counters["syns_dropped"] + self.syns_there[1]

    @property
    def drop_rate(self) -> float:
        """The share of the packets towards the clients that the link dropped."""
        return dropped(self.counters) / max(1, self.counters["arrived"])

    @property
    def used(self) -> float:
        """The share of the link's rate that packets used."""
        return self.counters["delivered_bytes"] * 8 / RATE_BPS / self.seconds


def dropped(counters: Mapping[str, int]) -> int:
    """Return how many packets the queue dropped."""
    return sum(counters[reason] for reason in ("full", "early", "matched", "displaced"))


def bottleneck(discipline: Discipline) -> LinkSetting:
    """Return the link's setting in each direction; thresholds and buffer are ns-2's defaults."""
    return LinkSetting(
        RATE_BPS, queue=QUEUE, discipline=discipline, mean_packet=PACKET_BYTES, min=MIN, max=MAX
    )


class FavorLab(LabBase):
    """The running lab for one trial; see LabBase. The round trip of each server lies in its own link."""

    def __init__(self, discipline: Discipline, seed: int, cgroup: Path | None) -> None:
        super().__init__()
        self._discipline, self._seed, self._cgroup = discipline, seed, cgroup
        self._links = contextlib.ExitStack()
        self.flows = Path()
        self.traffic: Program | None = None

    def build(self) -> None:
        """Make hosts and links."""
        program = build_link(self.folder / "link")
        clients = self.network.add_host("clients", _CLIENTS)
        _set_tcp(clients)
        servers = []
        for number, round_trip_ms in enumerate(round_trips_ms()):
            server = self.network.add_host(f"server{number}", f"10.53.0.{11 + number}")
            _set_tcp(server)
            far = LinkSetting(delay_ms=round_trip_ms / 2)
            self._enter(Link(self.network, server, self.folder, far, program=program))
            servers.append(f"{server.address}={server.path}")
        middle = bottleneck(self._discipline)
        link = Link(self.network, clients, self.folder, middle, seed=self._seed, program=program)
        self.link: Link = self._enter(link)
        self.flows = self.folder / "flows"
        command = [sys.executable, "-m", "rspdns_lab.favor.traffic", str(self._cgroup or "-")]
        command += [str(self._seed), str(self.flows), *servers]
        self.traffic = Program("traffic", clients, command, self.folder / "traffic.log")

    def _enter(self, link: Link) -> Link:
        return self._links.enter_context(link)

    def programs(self) -> Iterator[Program]:
        """Yield the traffic; links end with the network."""
        if self.traffic is not None:
            yield self.traffic

    def close(self) -> None:
        """End traffic and links, then the rest."""
        for program in self.programs():
            program.stop()
        self._links.close()
        super().close()

    def measure(self, warm_up_s: float, seconds: float) -> tuple[Sequence[DirectionCounters], Any]:
        """Start the traffic; return the counters' differences in both directions, and samples of the queue.

        The last ones are given with the time when they begin (monotonic, s) and how long they go on.
        """
        traffic = self.traffic
        assert traffic is not None  # noqa: S101 - built before
        traffic.start()
        wait_until(lambda: "ready" in traffic.log.read_text(), "the traffic", _START_S, traffic)
        time.sleep(warm_up_s)
        before, began_s = self.link.counters(), time.monotonic()
        samples = []
        while (at_s := time.monotonic() - began_s) < seconds:
            now = self.link.counters().to_host
            samples.append((round(at_s, 3), now.length, now.average_x1000 / 1000))
            time.sleep(_SAMPLE_S)
        after = self.link.counters()
        traffic.expect_running()
        differences = [
            DirectionCounters(*(new - old for new, old in zip(*both, strict=True)))
            for both in zip(after, before, strict=True)
        ]
        return differences, (began_s, at_s, samples)


def _set_tcp(host: Host) -> None:
    """Have a host speak TCP as simulated: Reno without SACK, packets of 1,000 bytes, two to begin with."""

    def write() -> None:
        for name, value in _SYSCTLS.items():
            Path(f"/proc/sys/net/ipv4/{name}").write_text(value)

    call_in(host.path, write)
    metrics = ["advmss", str(PACKET_BYTES + _HEADERS - 40), "initcwnd", str(_INITIAL_WINDOW)]
    route = ["ip", "route", "change", "10.53.0.0/24", "dev", "eth0", "src", host.address, *metrics]
    subprocess.run(["nsenter", f"--net={host.path}", "--", *route], check=True)


def run_trial(name: str, trial: int, warm_up_s: float, seconds: float, timeout_s: float) -> FavorTrial:
    """Run the traffic over one discipline. Raises LabError."""
    with contextlib.ExitStack() as stack:
        cgroup = (
            stack.enter_context(initial_timeout(timeout_s)) if timeout_s != LINUX_INITIAL_TIMEOUT_S else None
        )
        lab = stack.enter_context(FavorLab(WORDS[name], trial, cgroup))
        say(f"{name}, trial {trial}: {warm_up_s:g} s to warm up, {seconds:g} s measured")
        (there, back), (began_s, lasted_s, samples) = lab.measure(warm_up_s, seconds)
        flows = read_flows(lab.flows.read_text(), began_s, began_s + lasted_s)
    return FavorTrial(
        name,
        trial,
        round(lasted_s, 3),
        back._asdict(),
        (there.syns, there.syns_dropped),
        flows,
        samples,
        os.getloadavg()[0],
    )


def read_flows(text: str, from_s: float, to_s: float) -> list[tuple[int, float | None]]:
    """Return the objects that began between the two times; a last line that is cut off is none."""
    found: list[tuple[int, float | None]] = []
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            began_s, packets, took_ms = line.split()
            if from_s <= float(began_s) < to_s:
                found.append((int(packets), float(took_ms) if float(took_ms) >= 0 else None))
    return found
