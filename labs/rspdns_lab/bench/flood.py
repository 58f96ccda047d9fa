"""Floods of names that do not exist: how many are denied a second, and what they do to the answers of others.

Side by side: PowerDNS with a zone file, rspdns, and rspdns without the table of names, so that PowerDNS asks
the backend about every such name; and rspdns with answers from the kernel. One is asked while the others
stand still. Other floods are of names with affinity, and with `near` from the kernel, from prefixes that
nobody asked from before: no cache keeps their answers.
"""

import contextlib
import random
import re
import socket
import string
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import dns.edns
import dns.message

from rspdns_lab.bench import fast_path, zone
from rspdns_lab.bench.part import HOST, Part, Run
from rspdns_lab.bench.programs import DNSPERF, dnsperf_command, start_live, start_pdns
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, LabNetwork, call_in
from rspdns_lab.net.processes import Program, end_programs
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.page import Columns, Rows, Section, table_of
from rspdns_lab.report.plots import Bars, Dots

SERVERS: Final[Mapping[str, str]] = {
    "static": "PowerDNS, zone file (bind backend)",
    "live": "rspdns",
    "asked": "rspdns without the table of names",
    "askers": "rspdns, flooded with affinity names of random prefixes",
    "near": "rspdns by the kernel, flooded with near names of random prefixes",
    "fast": "rspdns, answers from the kernel, no limit",
    "limited": "rspdns, answers from the kernel, deep names limited",
}
FAST: Final = ("near", "fast", "limited")
BY_ASKER: Final = {"askers": zone.AFFINITY, "near": zone.NEAR}
"""Flooded with names that exist: the keys of their pools."""
LIMIT: Final = "[fastpath.limit]\nall_per_s = 1_000_000\ndeep_per_s = 20\nslip = 1\n"
"""Each name above the rate is answered, or dnsperf would wait for answers and ask less."""
LABELS: Final = (1, 20, 100)
"""Above the zone."""
FLOODS_PER_S: Final = (100, 1000)
QUICK_LABELS: Final = (1, 100)
QUICK_FLOODS_PER_S: Final = (100,)
RATIO_AIM: Final = 0.8
"""The aim as a part of the answers a second of `static`."""
BESIDE_AIM_MS: Final = 20
FAST_BESIDE_AIM_MS: Final = 2
"""The aim with answers from the kernel."""
_FIRST_PORT = 5401
_NAMES = 300_000
"""More than are asked in a run: one that is asked again is in the caches."""
_VALID_PER_S = 50
_PATIENCE_S = 2.0
_LETTERS = string.ascii_lowercase + string.digits
_RATE = re.compile(r"Queries per second:\s+([0-9.]+)")
_DENIED = re.compile(r"Response codes:\s+NXDOMAIN [0-9]+ \(100\.00%\)")


@dataclass(frozen=True)
class Denied:
    """How many names of this number of labels a server denied a second, asked as fast as it answers."""

    round: int
    server: str
    labels: int
    per_s: float
    what: str = "denied"


@dataclass(frozen=True)
class Beside:
    """Valid names that are in no cache, beside a flood of `flood_per_s` names of 100 labels a second."""

    round: int
    server: str
    flood_per_s: int
    asked: int
    lost: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    what: str = "beside"


Flood = Denied | Beside


def run_flood(run: Run, found: Sequence[Flood]) -> Iterator[Sequence[Flood]]:
    """Measure each server in each round. Raises LabError."""
    if rounds := run.rounds_left([flood.round for flood in found if isinstance(flood, Beside)]):
        with LabNetwork(run.prefix) as network:
            for flood in _rounds(run, network.add_host(*HOST), rounds):
                yield [flood]


def _rounds(run: Run, host: Host, rounds: Sequence[int]) -> Iterator[Flood]:
    folder, seconds, say = run.folder, run.seconds, run.say
    labels, floods_per_s = (QUICK_LABELS, QUICK_FLOODS_PER_S) if run.quick else (LABELS, FLOODS_PER_S)
    chance = random.Random(1)  # noqa: S311 - names that nobody has
    programs: dict[str, tuple[int, Sequence[Program]]] = {}
    try:
        for port, server in enumerate(servers(), _FIRST_PORT):
            programs[server] = port, _start(host, _folder(folder, server), port, server)
        for number in rounds:
            for deep in labels:
                asking = folder / f"flood-{deep}"
                _write_names(asking, deep, _NAMES // min(deep, 4), chance)
                for server, (port, _) in programs.items():
                    if server == "limited" or server in BY_ASKER:
                        continue  # not every name is denied, or these are none that do not exist
                    _let_run_alone(programs, server, folder)
                    denied = Denied(number, server, deep, _denied_per_s(host, asking, port, seconds))
                    say(
                        f"round {number}: {SERVERS[server]}: {denied.per_s:,.0f} names of {deep} labels "
                        "denied a second"
                    )
                    yield denied
            for per_s in floods_per_s:
                asking = folder / f"flood-beside-{per_s}"
                _write_names(asking, max(labels), per_s * (seconds + 2), chance)
                for server, (port, _) in programs.items():
                    _let_run_alone(programs, server, folder)
                    beside = _beside(host, asking, number, server, port, per_s, seconds)
                    say(
                        f"round {number}: {SERVERS[server]}, beside a flood of {per_s}/s: "
                        f"p50 {beside.p50_ms:.1f} ms, p99 {beside.p99_ms:.1f} ms, {beside.lost} lost"
                    )
                    yield beside
    finally:
        end_programs([program for _, own in programs.values() for program in own])


def servers() -> list[str]:
    """Those of SERVERS that can be started here."""
    return [server for server in SERVERS if server not in FAST or not fast_path.why_not()]


def flood_figures(found: Sequence[object]) -> dict[str, float]:
    """The medians over the rounds; ratios are those of each round."""
    figures: dict[str, float] = {}
    denied = [flood for flood in found if isinstance(flood, Denied)]
    for server in SERVERS:
        for labels in sorted({flood.labels for flood in denied}):
            own = {
                flood.round: flood.per_s
                for flood in denied
                if (flood.server, flood.labels) == (server, labels)
            }
            of_static = {
                flood.round: flood.per_s
                for flood in denied
                if (flood.server, flood.labels) == ("static", labels)
            }
            if own:
                figures[f"flood_{server}_qps_{labels}_labels"] = percentile(sorted(own.values()), 50)
            ratios = sorted(own[number] / of_static[number] for number in own if number in of_static)
            if ratios:
                figures[f"flood_{server}_ratio_{labels}_labels"] = round(percentile(ratios, 50), 3)
        for per_s in FLOODS_PER_S:
            beside = [
                flood
                for flood in found
                if isinstance(flood, Beside) and (flood.server, flood.flood_per_s) == (server, per_s)
            ]
            for part in ("p50_ms", "p99_ms", "max_ms") if beside else ():
                values = sorted(getattr(flood, part) for flood in beside)
                figures[f"flood_{server}_beside_{per_s}_{part}"] = percentile(values, 50)
            if beside:
                figures[f"flood_{server}_beside_{per_s}_lost"] = sum(flood.lost for flood in beside)
    return figures


def _start(host: Host, folder: Path, port: int, server: str) -> Sequence[Program]:
    if server != "static":
        limit = LIMIT if server == "limited" else zone.UNREACHED_LIMIT
        return start_live(
            *(host, folder, port, 0),
            denials=server != "asked",
            fast=server in FAST,
            limit=limit,
            by_asker=BY_ASKER.get(server, ""),
        )
    folder.mkdir()
    zone.write_pdns(folder, host.address, port, zone.write_bind(folder, zone.static_zone()))
    return [start_pdns(host, folder, port)]


def _folder(folder: Path, server: str) -> Path:
    return folder / f"flood-{server}"


def _let_run_alone(programs: Mapping[str, tuple[int, Sequence[Program]]], chosen: str, folder: Path) -> None:
    for server, (_, own) in programs.items():
        for program in own:
            if server == chosen:
                program.thaw()
            else:
                program.freeze()
    if chosen in FAST:  # its lease ended while it stood still
        fast_path.wait_until_it_answers(_folder(folder, chosen), programs[chosen][1])


def _write_names(folder: Path, labels: int, number: int, chance: random.Random) -> None:
    """Write questions about this number of names that do not exist, for dnsperf."""
    folder.mkdir(exist_ok=True)
    with (folder / "questions").open("w") as file:
        for _ in range(max(number, 1000)):
            first = "".join(chance.choices(_LETTERS, k=8))
            file.write(".".join((first, *chance.choices(_LETTERS, k=labels - 1), zone.ZONE)) + " A\n")


def _denied_per_s(host: Host, folder: Path, port: int, seconds: int) -> float:
    command = dnsperf_command(host, folder, port, "-l", str(seconds), "-n", "1", "-t", "2")
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    rate = _RATE.search(run.stdout)
    if run.returncode != 0 or rate is None or not _DENIED.search(run.stdout):
        raise LabError(f"not every name was denied:\n{(run.stderr or run.stdout).strip()[-600:]}")
    return float(rate.group(1))


def _beside(
    host: Host, folder: Path, number: int, server: str, port: int, per_s: int, seconds: int
) -> Beside:
    with (
        _askers(host, port, per_s, seconds)
        if server in BY_ASKER
        else _names(host, folder, port, per_s, seconds),
        call_in(host.path, lambda: socket.socket(type=socket.SOCK_DGRAM)) as client,
    ):
        time.sleep(1.0)  # the flood is there
        client.connect((host.address, port))
        times_ms, lost = _ask(client, seconds)
    times_ms.sort()
    p50_ms, p99_ms = (round(percentile(times_ms, part), 3) for part in (50, 99))
    return Beside(number, server, per_s, len(times_ms) + lost, lost, p50_ms, p99_ms, round(times_ms[-1], 3))


@contextlib.contextmanager
def _names(host: Host, folder: Path, port: int, per_s: int, seconds: int) -> Iterator[None]:
    """Have dnsperf ask for the names in `folder`."""
    command = dnsperf_command(host, folder, port, "-Q", str(per_s), "-l", str(seconds + 2), "-t", "2")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as flood:
        try:
            yield
        finally:
            flood.kill()


@contextlib.contextmanager
def _askers(host: Host, port: int, per_s: int, seconds: int) -> Iterator[None]:
    """Ask for names with `near` or affinity, each time from another prefix; nobody reads the answers."""
    chance = random.Random(1)  # noqa: S311 - prefixes that nobody has
    queries = []
    for number in range(per_s * (seconds + 3)):
        prefix = dns.edns.ECSOption(f"192.{chance.randrange(256)}.{chance.randrange(256)}.0", 24)
        query = dns.message.make_query(zone.owner(number % zone.POOLS), "SRV", use_edns=0, options=[prefix])
        queries.append(query.to_wire())
    ended = threading.Event()

    def flood() -> None:
        begin_s = time.monotonic()
        with call_in(host.path, lambda: socket.socket(type=socket.SOCK_DGRAM)) as client:
            client.connect((host.address, port))
            for turn in count():
                client.send(queries[turn % len(queries)])
                if ended.wait(max(0.0, begin_s + turn / per_s - time.monotonic())):
                    return

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _ask(client: socket.socket, seconds: int) -> tuple[list[float], int]:
    """Ask about targets, each so seldom that no cache has it; return the times of the answers, and how many
    did not come."""
    names = [
        f"{zone.member_identifier(pool, index):08x}.u.as{pool}.{zone.ZONE}"
        for index in range(zone.MEMBERS)
        for pool in range(zone.POOLS)
    ]
    asked: dict[int, float] = {}
    times_ms: list[float] = []
    begin_s = time.monotonic()
    for turn in count():
        due_s = begin_s + turn / _VALID_PER_S
        is_last = turn == seconds * _VALID_PER_S
        until_s = due_s + _PATIENCE_S if is_last else due_s
        while (left_s := until_s - time.monotonic()) > 0 and (asked or not is_last):
            client.settimeout(left_s)
            try:
                reply = client.recv(4096)
            except TimeoutError:
                break
            sent_s = asked.pop(int.from_bytes(reply[:2]), None)
            if sent_s is not None:
                times_ms.append(1000 * (time.monotonic() - sent_s))
        if is_last:
            return times_ms or [1000 * _PATIENCE_S], len(asked)
        query = dns.message.make_query(names[turn % len(names)], "A", id=turn % 2**16)
        asked[query.id] = time.monotonic()
        client.send(query.to_wire())
    raise AssertionError


_TEXT: Final = "Random names that do not exist, asked as fast as they are denied; ratios to the zone file."
_TEXT_BESIDE: Final = (
    "Names of pool elements that are in no cache, 50 a second, beside a flood of names of 100 labels, or of "
    "names with affinity or near."
)
_AIMS: Final = {
    "live": f"p99 {BESIDE_AIM_MS} ms, none lost",
    "askers": f"p99 {BESIDE_AIM_MS} ms, none lost",
    "near": f"p99 {BESIDE_AIM_MS} ms, none lost",
    "limited": f"p99 {FAST_BESIDE_AIM_MS} ms",
}


def _sections(found: Sequence[Flood]) -> list[Section]:
    known = flood_figures(found)
    labels = sorted({flood.labels for flood in found if isinstance(flood, Denied)})
    denied = _denied(known, labels)
    if len(denied) == 1:
        return []
    deepest = labels[-1] if labels else 0
    beside = [
        (server, per_s, f"flood_{server}_beside_{per_s}")
        for server in SERVERS
        for per_s in FLOODS_PER_S
        if f"flood_{server}_beside_{per_s}_lost" in known
    ]
    columns: Columns[tuple[str, int, str]] = (
        ("valid names beside a flood", lambda row: SERVERS[row[0]]),
        ("flood/s", lambda row: f"{row[1]:,}"),
        ("p50 ms", lambda row: f"{known[f'{row[2]}_p50_ms']:.1f}"),
        ("p99 ms", lambda row: f"{known[f'{row[2]}_p99_ms']:.1f}"),
        ("max ms", lambda row: f"{known[f'{row[2]}_max_ms']:.1f}"),
        ("lost", lambda row: f"{known[f'{row[2]}_lost']:.0f}"),
        ("aimed at", lambda row: _AIMS.get(row[0], "")),
    )
    return [
        Section("Floods of names that do not exist", _TEXT, denied, [_plot_denied(known, deepest)]),
        Section("Valid names beside a flood", _TEXT_BESIDE, table_of(columns, beside), [_plot_beside(found)]),
    ]


def _plot_denied(known: Mapping[str, float], labels: int) -> Bars:
    rates = {server: known.get(f"flood_{server}_qps_{labels}_labels") for server in SERVERS}
    values = {SERVERS[server]: rate for server, rate in rates.items() if rate}
    green = [SERVERS[server] for server in ("live", "fast")]
    return Bars(
        f"Names of {labels} labels. Green is rspdns as it is shipped.",
        "names denied a second",
        values,
        green,
        log=True,
    )


def _plot_beside(found: Sequence[Flood]) -> Dots:
    beside = [flood for flood in found if isinstance(flood, Beside)]
    return Dots.of(
        "The time that 99 % of the valid names do not exceed beside a flood, a dot for each round.",
        "ms",
        sorted(beside, key=lambda flood: list(SERVERS).index(flood.server)),
        lambda flood: SERVERS[flood.server],
        {f"{per_s:,} a second": partial(_p99_ms, per_s) for per_s in FLOODS_PER_S},
    )


def _p99_ms(per_s: int, flood: Beside) -> Sequence[float]:
    return [flood.p99_ms] if flood.flood_per_s == per_s else []


def _denied(known: Mapping[str, float], labels: Sequence[int]) -> Rows:
    rows: list[Sequence[str]] = []
    for server, title in SERVERS.items():
        qps = [known.get(f"flood_{server}_qps_{number}_labels") for number in labels]
        ratios = [known.get(f"flood_{server}_ratio_{number}_labels") for number in labels]
        if any(qps):
            cells = ["-" if value is None else f"{value:,.0f}" for value in qps]
            rows.append([title, *cells, *("-" if value is None else f"{value:.2f}" for value in ratios)])
    if labels:
        rows.append(["aimed at, rspdns", *("" for _ in labels), *(f"{RATIO_AIM:g}" for _ in labels)])
    head = ("names denied a second", *(f"{number} labels" for number in labels))
    return [[*head, *(f"ratio, {number}" for number in labels)], *rows]


def _read(fields: Mapping[str, Any]) -> Flood:
    kinds: dict[str, type[Denied | Beside]] = {"denied": Denied, "beside": Beside}
    return kinds[fields["what"]](**fields)


PART: Final = Part[Flood](
    "flood",
    "Floods and strangers",
    (Denied, Beside),
    run_flood,
    _sections,
    flood_figures,
    _read,
    lambda _: DNSPERF | {"pdns_server": "pdns-backend-bind"},
)
