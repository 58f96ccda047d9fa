"""`rspdns-lab bench`: what liveness costs in queries per second, against the same names served statically.

The variants are asked in turn, round after round in one run, since only their ratios mean something on a
machine whose cores dnsperf shares. Steadier still is the processor time that the name server and its backend
spend on one answered question, whoever else uses the machine.
"""

import os
import shutil
import signal
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from rspdns_lab import bench_convergence, bench_scale, bench_zone
from rspdns_lab.bench_convergence import run_convergence
from rspdns_lab.bench_programs import ask, cpu_s, start_live, start_pdns
from rspdns_lab.bench_scale import run_scale
from rspdns_lab.errors import LabError
from rspdns_lab.network import Host, Network
from rspdns_lab.processes import Program

SCALE_LOOK_S = 15
Programs = dict[str, list[Program]]


@dataclass(frozen=True)
class Rate:
    """One measurement: questions answered a second, and processor time for each of them, in microseconds."""

    per_s: float
    cpu_us: float


@dataclass(frozen=True)
class Variant:
    """One name server to ask: rspdns with so many membership changes a second, or a static zone (None)."""

    key: str
    title: str
    changes_per_s: float | None
    cached: bool = True


VARIANTS = (
    Variant("static_qps", "PowerDNS, bind backend, the same names", None),
    Variant("live_qps", "rspdns, no change", 0),
    Variant("live_qps_100_changes", "rspdns, 100 membership changes a second over 100 pools", 100),
    Variant("uncached_qps", "rspdns, every PowerDNS cache off", 0, cached=False),
)
RATIOS = MappingProxyType({"live_qps": 0.9, "live_qps_100_changes": 0.9})
"""What is aimed at, against `static_qps`."""


OTHERS = (
    ("uncached_qps", "queries/s, every PowerDNS cache off", "at least 3,000"),
    *(
        (f"last_wrong_p95_ms_{kind}", f"change to last wrong answer, {kind}, p95, ms", f"{bound:g}")
        for kind, bound in bench_convergence.BOUNDS_MS.items()
    ),
    ("stale_after_purges_idle", "wrong after the last purge, idle", "0"),
    ("stale_after_purges_loaded", "wrong after the last purge, loaded", "0"),
    *(
        (key, f"{bench_scale.POOLS} pools of {bench_scale.MEMBERS}: {key}", f"below {bound:g}")
        for key, bound in bench_scale.BOUNDS.items()
    ),
)


def run_bench(
    folder: Path, prefix: str, rounds: int, seconds: int, trials: int, say: Callable[[str], None]
) -> dict[str, float]:
    """Return every figure by its key. Raises LabError.

    `folder` takes the files of the run; `seconds` is how long each variant is asked in each round, `trials`
    how many changes are watched, idle and loaded (0: none).
    """
    for program, package in (("dnsperf", "dnsperf"), ("pdns_server", "pdns-server pdns-backend-bind")):
        if shutil.which(program) is None:
            raise LabError(f"{program} is missing; install it: apt-get install {package}")
    (folder / "questions").write_text(bench_zone.questions())
    rates: dict[str, list[Rate]] = {variant.key: [] for variant in VARIANTS}
    figures: dict[str, float] = {}
    with Network(prefix) as network:
        host = network.add_host("bench", "10.77.0.254")
        if trials:
            figures |= run_convergence(host, folder, _port(len(VARIANTS)), trials, say)
        programs = _start(host, folder)
        try:
            for turn in range(rounds):
                for place, variant in enumerate(VARIANTS):
                    _let_run(programs, variant)
                    ask(host, folder, _port(place), 1)  # fills the caches
                    before_s = cpu_s(programs[variant.key])
                    answered = ask(host, folder, _port(place), seconds)
                    spent_s = cpu_s(programs[variant.key]) - before_s
                    rate = Rate(answered.per_s, 1e6 * spent_s / answered.count)
                    rates[variant.key].append(rate)
                    told = f"{rate.per_s:,.0f} queries/s, {rate.cpu_us:.1f} us of processor time each"
                    say(f"round {turn + 1} of {rounds}: {variant.title}: {told}")
        finally:
            for variant in VARIANTS:
                _let_run(programs, variant)
            for started in [program for of_one in programs.values() for program in of_one]:
                started.stop()
        figures |= run_scale(host, folder / "scale", SCALE_LOOK_S, say)
    return figures_of(rates) | figures


def figures_of(rates: Mapping[str, Sequence[Rate]]) -> dict[str, float]:
    """The medians over the rounds; ratios are those of each round, since rounds differ more than variants."""
    figures = {key: statistics.median(rate.per_s for rate in of_one) for key, of_one in rates.items()}
    for key, of_one in rates.items():
        figures[f"{key.replace('_qps', '', 1)}_cpu_us"] = statistics.median(rate.cpu_us for rate in of_one)
    for key in RATIOS:
        pairs = list(zip(rates[key], rates["static_qps"], strict=True))
        figures[f"{key}_ratio"] = statistics.median(one.per_s / static.per_s for one, static in pairs)
    return figures


def as_markdown(figures: dict[str, float]) -> str:
    """Return the table of the report."""
    lines = ["| served by | queries/s (median) | against static | CPU each, us |", "|---|---|---|---|"]
    for variant in VARIANTS:
        ratio = figures.get(f"{variant.key}_ratio", figures[variant.key] / figures["static_qps"])
        cpu_us = figures[f"{variant.key.replace('_qps', '', 1)}_cpu_us"]
        lines.append(f"| {variant.title} | {figures[variant.key]:,.0f} | {ratio:.2f} | {cpu_us:.1f} |")
    lines += ["", "| what | measured | aimed at |", "|---|---|---|"]
    lines += [f"| {title} | {figures[key]:,.1f} | {aim} |" for key, title, aim in OTHERS if key in figures]
    return "\n".join(lines)


def _port(place: int) -> int:
    return 5301 + place


def _let_run(programs: Programs, variant: Variant) -> None:
    """Stop the programs of every other variant, which would take its processor time."""
    for key, of_one in programs.items():
        for program in of_one:
            if program.is_running:
                os.killpg(program.pid, signal.SIGCONT if key == variant.key else signal.SIGSTOP)


def _start(host: Host, folder: Path) -> Programs:
    programs: Programs = {}
    for place, variant in enumerate(VARIANTS):
        own, port = folder / variant.key, _port(place)
        if variant.changes_per_s is None:
            bench_zone.write_static(own, host.address, port)
            programs[variant.key] = [start_pdns(host, own, port)]
        else:
            programs[variant.key] = start_live(host, own, port, variant.changes_per_s, cached=variant.cached)
    return programs
