"""The chain, a host that tells news of its pool, and a host with thousands of clients."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.chain.lab import CONVERGE_TIMEOUT_S, Lab
from rspdns_lab.chain.plan import NAME_SERVERS, REGISTRARS, ZONE
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import call_in
from rspdns_lab.net.preconditions import compile_c
from rspdns_lab.net.processes import Program, processor_s, waited_s
from rspdns_lab.news.crowd import HELD, SOURCE
from rspdns_lab.observe.percentiles import percentile

TRANSPORTS: Final = {
    "light": "news of rspdns (a closed port)",
    "short": "short polling (HTTP)",
    "long": "long polling (HTTP)",
    "events": "server-sent events",
}
NEWS, CROWD = ("news", "10.53.0.80"), ("crowd", "10.53.0.81")
OPEN_PORT: Final = 8056
QUIET_S, POLLING_S, NEWS_EVERY_S, NEWS_COUNT = 180.0, 300.0, 120.0, 5
"""The phases of the published measurement."""
BOUND_MS: Final = 1100.0
"""The bound of the 99th percentile of a client's delay, polling each second."""
_OTHER_FILES: Final = 500
_POOL: Final = f"_sip._udp.as.{ZONE}"
_CHANGED: Final = "as2"
_PATIENCE_S: Final = 300.0
_HEARD_WITHIN_S: Final = 40.0
"""A client of news that failed comes back within 30 s."""
_SAMPLE_S: Final = 0.5


@dataclass(frozen=True)
class Phase:
    """A phase as seen at the server: `cpu` in processors, for which it `waited` besides; its memory, the
    host's sockets and its traffic both ways."""

    seconds: float
    cpu: float
    waited: float
    megabytes: float
    sockets: int
    kilobytes_per_s: float


@dataclass(frozen=True)
class NewsTrial:
    """One transport with this number of clients.

    `delays_ms`: from the change to each client that heard of it, the percentiles 50, 99 and 100.
    `news_p99_ms`: the 99th percentile of the same, less the time by which the lab's own clients may have been
    late. `late_ms`: 99 % of their connections were opened and read by no more than that too late. `lost` and
    `doubled` count clients and changes; `failures` are connections that failed.
    """

    transport: str
    clients: int
    scale: float
    quiet: Phase
    polling: Phase
    telling: Phase
    delays_ms: Sequence[float]
    news_p99_ms: float
    lost: int
    doubled: int
    failures: int
    late_ms: float
    load_average: float


class NewsLab(Lab):
    """The chain; a host that tells the news of its first name server; a host with the clients."""

    def __init__(self) -> None:
        super().__init__()
        self._server: Program | None = None
        self._crowd: list[Program] = []

    def build(self) -> None:
        """Make all hosts with their files."""
        super().build()
        for name, address in (NEWS, CROWD):
            self.network.add_host(name, address)
            (self.folder / name).mkdir()
        call_in(self.network.hosts[CROWD[0]].path, _more_ports)
        self._program = compile_c(SOURCE, self.folder / CROWD[0] / "connections")
        first = self.name_servers[next(iter(NAME_SERVERS))]
        self._control = str(first.folder / "admin.sock")
        folder = self.folder / NEWS[0]
        self._key, self._config = folder / "key", folder / "rspdns.toml"
        self._key.write_text(f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}\n")
        self._key.chmod(0o600)
        (folder / "state").mkdir()
        self._config.write_text(
            f"registrars = {json.dumps(list(REGISTRARS.values()))}\n"
            f'zones_dir = "{first.folder}/zones.d"\n[admin]\nlisten = "off"\nsocket = "{self._control}"\n'
            f'[state]\npath = "{folder}/state"\n[news]\nlisten = "{NEWS[1]}:{OPEN_PORT}"\n'
            f'[news.keys]\n"{ZONE}" = "{self._key}"\n'
        )

    def start(self) -> None:
        """Start the chain, without a client of DNS: this machine's processors belong to the news."""
        self.start_registrars()
        self.start_application_servers()
        for server in self.name_servers.values():
            server.start()
        for server in self.name_servers.values():
            server.wait(self.start_timeout_s)
        self.wait_until_all_are_members()

    def wait_until_all_are_members(self) -> None:
        """Wait until the backends have all application servers. Raises LabError."""

        def whole() -> bool:
            return all(server.members() == self.addresses for server in self.name_servers.values())

        wait_until(whole, "backends with all application servers", CONVERGE_TIMEOUT_S)

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        yield from self._crowd
        if self._server is not None:
            yield self._server
        yield from super().programs()

    def serve(self, transport: str, clients: int) -> Program:
        """Start the server of a transport, and wait until it is ready.

        A process has at most as many connections as files: for more there are copies of it.
        """
        host, log = self.network.hosts[NEWS[0]], self.folder / NEWS[0] / f"{transport}.log"
        log.write_text("")
        copies = _processes(clients) if transport in HELD else 1
        if transport == "light":
            command, mark = ["rspdns.cli", "news", "--log-json", "-c", str(self._config)], '"news_ready"'
        else:
            module = "rspdns_lab.news.transports"
            command, mark = [module, self._control, _POOL, NEWS[1], str(OPEN_PORT), str(copies)], "ready"
        self._server = Program("news", host, [sys.executable, "-m", *command], log)
        self._server.start()

        def is_ready() -> bool:
            return log.read_text().count(mark) == copies

        wait_until(is_ready, f"the server of {transport}", _PATIENCE_S, self._server)
        return self._server

    def gather(self, server: Program, transport: str, clients: int) -> None:
        """Start the clients; wait until all have subscribed, and a server of connections has taken all."""
        host, folder = self.network.hosts[CROWD[0]], self.folder / CROWD[0]
        words = [str(self._program), transport, NEWS[1], str(OPEN_PORT), _POOL, str(self._key)]
        crowds = _processes(clients)
        for number in range(crowds):
            count = clients // crowds + (number < clients % crowds)
            command = [sys.executable, "-m", "rspdns_lab.news.crowd", *words, str(count)]
            log = folder / f"{number}.log"
            log.write_text("")
            self._crowd.append(Program(f"crowd-{number}", host, command, log))
            self._crowd[-1].start()
        for crowd in self._crowd:
            wait_until(partial(_says_ready, crowd), "clients", _PATIENCE_S, crowd)
            if transport in HELD:
                wait_until(lambda: _taken(server) >= clients, "connections to be taken", _PATIENCE_S, crowd)

    def wait_until_all_heard(self, changes: int) -> None:
        """Wait until every client has heard of so many changes, or would have by now."""
        logs = [crowd.log for crowd in self._crowd]
        with contextlib.suppress(LabError):
            wait_until(
                lambda: all(log.read_text().count("all heard") >= changes for log in logs),
                "clients that have heard of every change",
                _HEARD_WITHIN_S,
            )

    def disperse(self) -> tuple[dict[int, list[tuple[float, float]]], int, float]:
        """End clients and server; return when they heard of each change, their failures, and how late their
        connections were."""
        for crowd in self._crowd:
            crowd.terminate()
        at_s: dict[int, list[tuple[float, float]]] = {}
        failures, late_ms = 0, 0.0
        for crowd in self._crowd:
            wait_until(partial(_has_ended, crowd), "the clients' account", _PATIENCE_S)
            if crowd.exit_status:
                raise LabError(f"the clients ended:\n{crowd.log_end()}")
            account = json.loads(crowd.log.read_text().splitlines()[-1])
            failures += account["failures"]
            late_ms = max(late_ms, account["late_ms"])
            for number, times in account["at_s"].items():
                at_s.setdefault(int(number), []).extend(times)
        self._crowd.clear()
        if self._server is not None:
            self._server.stop()
            self._server = None
        return at_s, failures, late_ms

    def phase(self, server: Program, seconds: float) -> Phase:
        """Watch the server for a time."""
        host = self.network.hosts[NEWS[0]]
        processes = _processes_of(server)
        began_s, sent = time.monotonic(), call_in(host.path, _traffic)
        used_s, kept_s = _sum_of(processes, processor_s), _sum_of(processes, waited_s)
        megabytes, sockets = 0.0, 0
        while (left_s := began_s + seconds - time.monotonic()) > 0:
            time.sleep(min(left_s, _SAMPLE_S))
            server.expect_running()
            megabytes = max(megabytes, sum(process.memory_info().rss for process in processes) / 1e6)
            sockets = max(sockets, call_in(host.path, _sockets))
        lasted_s = time.monotonic() - began_s
        return Phase(
            round(lasted_s, 1),
            round((_sum_of(processes, processor_s) - used_s) / lasted_s, 4),
            round((_sum_of(processes, waited_s) - kept_s) / lasted_s, 4),
            round(megabytes, 1),
            sockets,
            round((call_in(host.path, _traffic) - sent) / 1000 / lasted_s, 1),
        )


def _processes_of(server: Program) -> list[psutil.Process]:
    first = psutil.Process(server.pid)
    return [first, *first.children()]


def _taken(server: Program) -> int:
    """The connections that the server has accepted, and its few other files."""
    return sum(process.num_fds() for process in _processes_of(server))


def _says_ready(crowd: Program) -> bool:
    return "ready" in crowd.log.read_text()


def _has_ended(crowd: Program) -> bool:
    return not crowd.is_running


def _sum_of(processes: Sequence[psutil.Process], measure: Callable[[int], float]) -> float:
    return sum(measure(process.pid) for process in processes)


def _more_ports() -> None:
    """A host's ports are not enough for 30,000 connections to one port."""
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("1024 65535")


def _processes(connections: int) -> int:
    """How many processes may have so many connections."""
    return -(-connections // (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - _OTHER_FILES))


def _sockets() -> int:
    """The TCP sockets of this host that are open or being closed."""
    lines = Path("/proc/thread-self/net/sockstat").read_text().splitlines()
    words = next(line for line in lines if line.startswith("TCP:")).split()
    return int(words[words.index("inuse") + 1]) + int(words[words.index("tw") + 1])


def _traffic() -> int:
    """The bytes that went through this host's eth0, both ways."""
    line = next(
        line for line in Path("/proc/thread-self/net/dev").read_text().splitlines() if "eth0:" in line
    )
    words = line.partition(":")[2].split()
    return int(words[0]) + int(words[8])


def run_news(
    plan: Sequence[tuple[str, int]], scale: float, say: Callable[[str], object]
) -> Iterator[Sequence[NewsTrial]]:
    """Measure each transport with each number of clients; phases as published times `scale`.

    Raises LabError.
    """
    say("starting the lab")
    with NewsLab() as lab:
        lab.start()
        for transport, clients in plan:
            trial = _trial(lab, transport, clients, scale)
            p50, p99, longest = trial.delays_ms
            say(
                f"{transport}, {clients:,} clients: processor {trial.polling.cpu:.0%}, "
                f"{trial.polling.kilobytes_per_s:,.0f} kB/s, delay {p50:.0f}/{p99:.0f}/{longest:.0f} ms, "
                f"{trial.lost} lost"
            )
            yield [trial]


def _trial(lab: NewsLab, transport: str, clients: int, scale: float) -> NewsTrial:
    server = lab.serve(transport, clients)
    quiet = lab.phase(server, QUIET_S * scale)
    lab.gather(server, transport, clients)
    polling = lab.phase(server, POLLING_S * scale)
    changed_s: list[float] = []
    changed = lab.application_servers[_CHANGED]
    phases = []
    for number in range(NEWS_COUNT):
        changed_s.append(changed.undrain() if number % 2 else changed.drain())
        phases.append(lab.phase(server, NEWS_EVERY_S * scale))
    lab.wait_until_all_heard(NEWS_COUNT)
    at_s, failures, late_ms = lab.disperse()
    if NEWS_COUNT % 2:
        changed.undrain()
        lab.wait_until_all_are_members()
    heard = [at_s[number] for number in sorted(at_s)]
    if len(heard) > len(changed_s):
        raise LabError(f"{len(heard)} changes were heard of, and {len(changed_s)} made")
    delays, of_news = [], []
    for times, began_s in zip(heard, changed_s, strict=False):
        delays += [1000 * (each_s - began_s) for each_s, _ in times]
        of_news += [1000 * (each_s - late_s - began_s) for each_s, late_s in times]
    told = Counter(len(times) for times in heard)
    lost = sum(max(0, clients - count) * changes for count, changes in told.items())
    return NewsTrial(
        transport,
        clients,
        scale,
        quiet,
        polling,
        _together(phases),
        [round(percentile(delays, share), 1) if delays else -1.0 for share in (50, 99, 100)],
        round(percentile(of_news, 99), 1) if of_news else -1.0,
        lost + clients * (len(changed_s) - len(heard)),
        sum(max(0, count - clients) * changes for count, changes in told.items()),
        failures,
        late_ms,
        round(os.getloadavg()[0], 1),
    )


def _together(phases: Sequence[Phase]) -> Phase:
    """The phases as a single one."""
    seconds = sum(phase.seconds for phase in phases)
    return Phase(
        round(seconds, 1),
        round(sum(phase.cpu * phase.seconds for phase in phases) / seconds, 4),
        round(sum(phase.waited * phase.seconds for phase in phases) / seconds, 4),
        max(phase.megabytes for phase in phases),
        max(phase.sockets for phase in phases),
        round(sum(phase.kilobytes_per_s * phase.seconds for phase in phases) / seconds, 1),
    )
