"""Starts what the benchmarks measure, and dnsperf."""

import contextlib
import functools
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import psutil

from rspdns_lab import bench_zone
from rspdns_lab.errors import LabError
from rspdns_lab.hosts import wait_until
from rspdns_lab.network import Host, call_in
from rspdns_lab.processes import Program

_RATE = re.compile(r"Queries per second:\s+([0-9.]+)")
_COMPLETED = re.compile(r"Queries completed:\s+([0-9]+)")
_CODES = re.compile(r"Response codes:\s+NOERROR [0-9]+ \(100\.00%\)")


@dataclass(frozen=True)
class Answered:
    """What dnsperf says."""

    per_s: float
    count: int


def start_live(
    host: Host, folder: Path, port: int, changes_per_s: float, *options: str, cached: bool = True
) -> list[Program]:
    """Start PowerDNS with the backend of the benchmark and wait until it answers. Raises LabError."""
    bench_zone.write_live(folder, host.address, port, cached=cached)
    command = [sys.executable, "-m", "rspdns_lab.bench_backend", str(folder), str(changes_per_s), *options]
    backend = Program("backend", host, command, folder / "backend.log")
    backend.start()
    wait_until((folder / "remote.sock").exists, "the backend of the benchmark", 60, backend)
    return [backend, start_pdns(host, folder, port, backend)]


def start_pdns(host: Host, folder: Path, port: int, *others: Program) -> Program:
    """Start PowerDNS with the configuration in `folder` and wait until it answers. Raises LabError."""
    program = Program("pdns_server", host, ["pdns_server", f"--config-dir={folder}"], folder / "pdns.log")
    program.start()
    wait_until(functools.partial(_answers, host, port), "PowerDNS", 60, program, *others)
    return program


def _answers(host: Host, port: int) -> bool:
    query = dns.message.make_query(bench_zone.owner(0), "SRV")
    try:
        reply = call_in(host.path, lambda: dns.query.udp(query, host.address, timeout=0.5, port=port))
    except (OSError, dns.exception.DNSException):
        return False
    return bool(reply.answer)


def cpu_s(programs: Sequence[Program]) -> float:
    """Processor time that the programs have used so far, with all that they started."""
    spent_s = 0.0
    for program in programs:
        parent = psutil.Process(program.pid)
        for process in (parent, *parent.children(recursive=True)):
            times = process.cpu_times()
            spent_s += times.user + times.system
    return spent_s


def ask(host: Host, folder: Path, port: int, seconds: int) -> Answered:
    """Ask with dnsperf, as fast as answers come. Raises LabError when not every answer is right."""
    command = _command(host, folder, port, seconds)
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    rate, done = _RATE.search(run.stdout), _COMPLETED.search(run.stdout)
    if run.returncode != 0 or rate is None or done is None or done.group(1) == "0":
        raise LabError(f"dnsperf failed: {run.stderr.strip() or run.stdout.strip()[-400:]}")
    if not _CODES.search(run.stdout):
        raise LabError(f"not every answer was NOERROR:\n{run.stdout.strip()[-600:]}")
    return Answered(float(rate.group(1)), int(done.group(1)))


@contextlib.contextmanager
def dnsperf(host: Host, folder: Path, port: int) -> Iterator[None]:
    """Have dnsperf ask all the while."""
    command = _command(host, folder, port, 24 * 3600)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def _command(host: Host, folder: Path, port: int, seconds: int) -> list[str]:
    command = ["nsenter", f"--net={host.path}", "--", "dnsperf", "-s", host.address, "-p", str(port)]
    return [*command, "-d", str(folder / "questions"), "-l", str(seconds), "-c", "8", "-q", "200"]
