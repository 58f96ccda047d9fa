"""`rspdns-lab bench`: what liveness costs in queries per second, against the same names served statically.

The variants are asked in turn, round after round in one run, since only their ratios mean something on a
machine whose cores dnsperf shares. Steadier still is the processor time that the name server and its backend
spend on one answered question, whoever else uses the machine.
"""

import functools
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import dns.exception
import dns.message
import dns.query
import psutil

from rspdns_lab import bench_zone
from rspdns_lab.errors import LabError
from rspdns_lab.hosts import wait_until
from rspdns_lab.network import Host, Network, call_in
from rspdns_lab.processes import Program

_RATE = re.compile(r"Queries per second:\s+([0-9.]+)")
_COMPLETED = re.compile(r"Queries completed:\s+([0-9]+)")
_CODES = re.compile(r"Response codes:\s+NOERROR [0-9]+ \(100\.00%\)")


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


def run_bench(
    folder: Path, prefix: str, rounds: int, seconds: int, say: Callable[[str], None]
) -> dict[str, float]:
    """Return the median rate of each variant by its key, and the ratios. Raises LabError.

    `folder` takes the files of the run; `seconds` is how long each variant is asked in each round.
    """
    for program, package in (("dnsperf", "dnsperf"), ("pdns_server", "pdns-server pdns-backend-bind")):
        if shutil.which(program) is None:
            raise LabError(f"{program} is missing; install it: apt-get install {package}")
    (folder / "questions").write_text(bench_zone.questions())
    rates: dict[str, list[Rate]] = {variant.key: [] for variant in VARIANTS}
    with Network(prefix) as network:
        host = network.add_host("bench", "10.77.0.254")
        programs = _start(host, folder)
        try:
            for turn in range(rounds):
                for place, variant in enumerate(VARIANTS):
                    _let_run(programs, variant)
                    _ask(host, folder, _port(place), 1)  # fills the caches
                    before_s = _cpu_s(programs[variant.key])
                    answered = _ask(host, folder, _port(place), seconds)
                    spent_s = _cpu_s(programs[variant.key]) - before_s
                    rate = Rate(answered.per_s, 1e6 * spent_s / answered.count)
                    rates[variant.key].append(rate)
                    told = f"{rate.per_s:,.0f} queries/s, {rate.cpu_us:.1f} us of processor time each"
                    say(f"round {turn + 1} of {rounds}: {variant.title}: {told}")
        finally:
            for variant in VARIANTS:
                _let_run(programs, variant)
            for started in [program for of_one in programs.values() for program in of_one]:
                started.stop()
    return figures_of(rates)


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
    programs: Programs = {variant.key: [] for variant in VARIANTS}
    for place, variant in enumerate(VARIANTS):
        place_folder = folder / variant.key
        if variant.changes_per_s is None:
            bench_zone.write_static(place_folder, host.address, _port(place))
        else:
            bench_zone.write_live(place_folder, host.address, _port(place), cached=variant.cached)
            arguments = [str(place_folder), str(variant.changes_per_s)]
            backend = [sys.executable, "-m", "rspdns_lab.bench_backend", *arguments]
            program = Program("backend", host, backend, place_folder / "backend.log")
            programs[variant.key].append(program)
            program.start()
            wait_until((place_folder / "remote.sock").exists, f"the backend of {variant.key}", 20, program)
        command = ["pdns_server", f"--config-dir={place_folder}"]
        program = Program("pdns_server", host, command, place_folder / "pdns.log")
        programs[variant.key].append(program)
        program.start()
    for place, variant in enumerate(VARIANTS):
        answers = functools.partial(_answers, host, _port(place))
        wait_until(answers, f"PowerDNS of {variant.key}", 20, *programs[variant.key])
    return programs


def _answers(host: Host, port: int) -> bool:
    query = dns.message.make_query(bench_zone.owner(0), "SRV")
    try:
        reply = call_in(host.path, lambda: dns.query.udp(query, host.address, timeout=0.5, port=port))
    except (OSError, dns.exception.DNSException):
        return False
    return bool(reply.answer)


@dataclass(frozen=True)
class _Answered:
    per_s: float
    count: int


def _cpu_s(programs: Sequence[Program]) -> float:
    """Processor time that the programs have used so far, with all that they started."""
    spent_s = 0.0
    for program in programs:
        parent = psutil.Process(program.pid)
        for process in (parent, *parent.children(recursive=True)):
            times = process.cpu_times()
            spent_s += times.user + times.system
    return spent_s


def _ask(host: Host, folder: Path, port: int, seconds: int) -> _Answered:
    command = ["nsenter", f"--net={host.path}", "--", "dnsperf", "-s", host.address, "-p", str(port)]
    command += ["-d", str(folder / "questions"), "-l", str(seconds), "-c", "8", "-q", "200"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 30)
    rate, done = _RATE.search(run.stdout), _COMPLETED.search(run.stdout)
    if run.returncode != 0 or rate is None or done is None or done.group(1) == "0":
        raise LabError(f"dnsperf failed: {run.stderr.strip() or run.stdout.strip()[-400:]}")
    if not _CODES.search(run.stdout):
        raise LabError(f"not every answer was NOERROR:\n{run.stdout.strip()[-600:]}")
    return _Answered(float(rate.group(1)), int(done.group(1)))
