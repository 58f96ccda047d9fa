"""Starts what the benchmarks measure, and dnsperf."""

import contextlib
import functools
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import dns.rdatatype
import dns.rrset
import psutil

from rspdns_lab.bench import fast_path, zone
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, call_in
from rspdns_lab.net.processes import Program, end_programs

_RATE = re.compile(r"Queries per second:\s+([0-9.]+)")
_COMPLETED = re.compile(r"Queries completed:\s+([0-9]+)")
_LATENCY = re.compile(r"^> NOERROR .* ([0-9.]+)$", re.MULTILINE)
_CODES = re.compile(r"Response codes:\s+NOERROR [0-9]+ \(100\.00%\)")

_COMPILING_S = 120.0
DNSPERF = {"dnsperf": "dnsperf"}
"""The program that asks, and its Debian package."""


@dataclass(frozen=True)
class Answered:
    """The result of dnsperf."""

    per_s: float
    count: int
    latencies_us: tuple[float, ...] = ()
    """The latency of each answer, in order, if dnsperf ran with -v."""


def start_live(
    host: Host,
    folder: Path,
    port: int,
    changes_per_s: float,
    *options: str,
    cached: bool = True,
    signed: bool = False,
    denials: bool = True,
    fast: bool = False,
    limit: str = zone.UNREACHED_LIMIT,
    by_asker: str = "",
) -> list[Program]:
    """Start PowerDNS with the backend of the benchmark and wait until it answers. Raises LabError."""
    zone.write_live(
        *(folder, host.address, port),
        cached=cached,
        signed=signed,
        denials=denials,
        fast=fast,
        limit=limit,
        by_asker=by_asker,
    )
    daemons = [fast_path.start_daemon(host, folder, port)] if fast else []
    command = [sys.executable, "-m", "rspdns_lab.bench.backend", str(folder), str(changes_per_s), *options]
    backend = Program("backend", host, command, folder / "backend.log")
    backend.start()
    wait_until((folder / "remote.sock").exists, "the backend of the benchmark", 60, backend)
    programs = [backend, start_pdns(host, folder, port, backend), *daemons]
    if fast:
        fast_path.wait_until_it_answers(folder, programs)
    return programs


def start_pdns(host: Host, folder: Path, port: int, *others: Program) -> Program:
    """Start PowerDNS with the configuration in `folder` and wait until it answers. Raises LabError."""
    return start_name_server(host, folder, port, ["pdns_server", f"--config-dir={folder}"], *others)


def start_name_server(
    host: Host, folder: Path, port: int, command: Sequence[str], *others: Program
) -> Program:
    """Start a name server and wait until it answers. Raises LabError."""
    program = Program(command[0], host, command, folder / "name-server.log")
    program.start()
    wait_until(functools.partial(_answers, host, port), command[0], 60, program, *others)
    return program


def is_signed(host: Host, port: int) -> bool:
    """Tell whether answers have signatures."""
    return any(rrset.rdtype == dns.rdatatype.RRSIG for rrset in _answer(host, port))


def _answers(host: Host, port: int) -> bool:
    return bool(_answer(host, port))


def _answer(host: Host, port: int) -> Sequence[dns.rrset.RRset]:
    query = dns.message.make_query(zone.owner(0), "SRV", want_dnssec=True)
    try:
        reply = call_in(host.path, lambda: dns.query.udp(query, host.address, timeout=0.5, port=port))
    except (OSError, dns.exception.DNSException):
        return ()
    return list(reply.answer)


def compiled(host: Host, module: str, cache: Path) -> Mapping[str, str]:
    """Have a module and all it imports compiled, as installed programs are; return the environment to use
    that in. `cache` takes it where Python is told to write none beside the sources.

    On a host of the lab, so that an interruption ends it before the lab's files are removed: it would make
    them anew. Raises LabError when it takes too long.
    """
    environment = {}
    if sys.dont_write_bytecode:
        environment = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(cache)}
    command = [sys.executable, "-c", f"import {module}"]
    compiling = Program("compiling", host, command, cache.with_suffix(".log"), environment)
    try:
        compiling.start()
        wait_until(lambda: not compiling.is_running, f"{module}, compiled", _COMPILING_S)
    finally:
        end_programs([compiling])
    return environment


def cpu_s(programs: Sequence[Program]) -> float:
    """Processor time that the programs have used so far, with all that they started."""
    spent_s = 0.0
    for program in programs:
        parent = psutil.Process(program.pid)
        for process in (parent, *parent.children(recursive=True)):
            times = process.cpu_times()
            spent_s += times.user + times.system
    return spent_s


def ask(host: Host, folder: Path, port: int, *limits: str) -> Answered:
    """Ask with dnsperf, as fast as answers come unless `limits` (options of dnsperf) say otherwise.

    Raises LabError when not every answer is right.
    """
    run = subprocess.run(
        dnsperf_command(host, folder, port, *limits), capture_output=True, text=True, check=False, timeout=660
    )
    rate, done = _RATE.search(run.stdout), _COMPLETED.search(run.stdout)
    if run.returncode != 0 or rate is None or done is None or done.group(1) == "0":
        raise LabError(f"dnsperf failed: {run.stderr.strip() or run.stdout.strip()[-400:]}")
    if not _CODES.search(run.stdout):
        raise LabError(f"not every answer was NOERROR:\n{run.stdout.strip()[-600:]}")
    latencies_us = sorted(1e6 * float(taken) for taken in _LATENCY.findall(run.stdout))
    return Answered(float(rate.group(1)), int(done.group(1)), tuple(latencies_us))


@contextlib.contextmanager
def dnsperf(host: Host, folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Have dnsperf ask all the while. Raises LabError when it ended by itself: that is no load."""
    command = dnsperf_command(host, folder, port, "-l", str(24 * 3600))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
            if process.poll() is not None:
                raise LabError(f"dnsperf ended with status {process.returncode}, and asked no more")
        finally:
            process.kill()


def dnsperf_command(host: Host, folder: Path, port: int, *limits: str) -> list[str]:
    """Return what asks the questions in `folder`, on `host`."""
    command = ["nsenter", f"--net={host.path}", "--", "dnsperf", "-s", host.address, "-p", str(port)]
    return [*command, "-d", str(folder / "questions"), "-c", "8", "-q", "200", *limits]
