"""How long after a change in the backend DNS still gives the answer of before.

The backend of the benchmark takes a member out of one pool and back in, again and again, and writes down when
it swapped each answer in and when the last of its purges was through. A client asks for that pool every
millisecond. Without other questions, and while dnsperf asks as much as the machine can answer.
"""

import contextlib
import functools
import math
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import dns.message
import dns.rdatatype

from rspdns_lab.bench import zone
from rspdns_lab.bench.programs import dnsperf, start_live
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program, end_programs
from rspdns_lab.observe.percentiles import percentile

CHANGES_PER_S = 8.0
PORTS = {"idle": 5401, "loaded": 5402, "fastpath": 5403}
BOUNDS_MS = {"idle": 10.0, "loaded": 60.0, "fastpath": 0.5}
"""The aims for the 95th percentile."""


@dataclass(frozen=True)
class Change:
    """The pool has this number of members since `at_s`; `purged_s` is when its last purge was through."""

    at_s: float
    members: int
    purged_s: float = math.inf


@dataclass(frozen=True)
class Reply:
    """The number of SRV records in a reply, with the times of question and answer."""

    asked_s: float
    answered_s: float
    members: int


@dataclass(frozen=True)
class Followed:
    """How DNS followed the changes; times in ms, from the change to the last wrong answer after it."""

    kind: str
    changes: int
    last_wrong_p50_ms: float
    last_wrong_p95_ms: float
    last_wrong_max_ms: float
    stale_after_purges: int
    """How many changes had a wrong answer after the last purge."""
    times_ms: Sequence[float] = field(default=(), repr=False)
    """The time of each change, the shortest first; none in older reports, which did not keep them."""

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        return {"part": "changes", **asdict(self)}


def run_convergence(host: Host, folder: Path, kind: str, trials: int, say: Callable[[str], None]) -> Followed:
    """Measure `trials` changes, without ("idle") or with load ("loaded"), or with answers from the kernel and
    without load ("fastpath"). Raises LabError."""
    own = folder / f"convergence-{kind}"
    log = own / "changes"
    (folder / "questions").write_text(zone.questions())
    programs = start_live(host, own, PORTS[kind], CHANGES_PER_S, "--log", str(log), fast=kind == "fastpath")
    asker = Program("prober", host, _prober(host, PORTS[kind]), own / "replies")
    try:
        asker.start()
        wait_until(functools.partial(_has_answers, own / "replies"), "the first answer", 60, asker)
        with dnsperf(host, folder, PORTS[kind]) if kind == "loaded" else contextlib.nullcontext():
            say(f"change to last wrong answer, {kind}: {trials} changes, {trials / CHANGES_PER_S:.0f} s")
            _wait(log, trials, programs)
        asker.stop()
    finally:
        end_programs([asker, *programs])
    changes = read_changes(log.read_text().splitlines())
    replies = read_replies((own / "replies").read_text().split("\n")[:-1])
    found = followed(kind, changes, replies)
    say(
        f"change to last wrong answer, {kind}: p50 {found.last_wrong_p50_ms:.1f} ms, "
        f"p95 {found.last_wrong_p95_ms:.1f} ms, max {found.last_wrong_max_ms:.1f} ms in "
        f"{found.changes} changes; wrong after the last purge: {found.stale_after_purges}"
    )
    return found


def followed(kind: str, changes: Sequence[Change], replies: Sequence[Reply]) -> Followed:
    """Sum up. Raises LabError when no question was answered between changes.

    An answer counts for a change if it came before the next one. Changes without any answer are left out.
    """
    times = [change.at_s for change in changes]
    asked: list[list[Reply]] = [[] for _ in changes]
    for reply in replies:
        index = bisect_right(times, reply.asked_s) - 1
        if index >= 0 and (index + 1 < len(times) and reply.answered_s < times[index + 1]):
            asked[index].append(reply)
    last_wrong_ms, stale = [], 0
    for change, own in zip(changes, asked, strict=True):
        if own:
            wrong = [reply for reply in own if reply.members != change.members]
            last_wrong_ms.append(1000 * max((one.asked_s - change.at_s for one in wrong), default=0.0))
            stale += any(reply.asked_s > change.purged_s for reply in wrong)
    if not last_wrong_ms:
        raise LabError("no question was answered between the changes")
    last_wrong_ms.sort()
    return Followed(
        kind=kind,
        changes=len(last_wrong_ms),
        last_wrong_p50_ms=percentile(last_wrong_ms, 50),
        last_wrong_p95_ms=percentile(last_wrong_ms, 95),
        last_wrong_max_ms=last_wrong_ms[-1],
        stale_after_purges=stale,
        times_ms=tuple(round(time_ms, 3) for time_ms in last_wrong_ms),
    )


def read_changes(lines: Sequence[str]) -> list[Change]:
    """Read what `bench_backend --log` wrote: "C <time> <members>" and "P <time>"."""
    changes: list[Change] = []
    for line in lines:
        kind, at_s, *more = line.split()
        if kind == "C":
            changes.append(Change(float(at_s), int(more[0])))
        elif changes:
            changes[-1] = Change(changes[-1].at_s, changes[-1].members, float(at_s))
    return changes


def read_replies(lines: Sequence[str]) -> list[Reply]:
    """Read what the prober wrote."""
    counts: list[int] = []
    replies = []
    for line in lines:
        kind, *words = line.split()
        if kind == "B":
            message = dns.message.from_wire(b"\0\0" + bytes.fromhex(words[1]))
            counts.append(sum(len(rrset) for rrset in message.answer if rrset.rdtype == dns.rdatatype.SRV))
        elif kind == "R":
            replies.append(Reply(float(words[2]), float(words[3]), counts[int(words[4])]))
    return replies


def _prober(host: Host, port: int) -> list[str]:
    question = f"SRV:{zone.owner(0)}"
    command = [sys.executable, "-m", "rspdns_lab.observe.prober", "--interval-ms=1"]
    return [*command, f"--server={host.address}:{port}", f"--question={question}"]


def _has_answers(replies: Path) -> bool:
    return "\nR " in replies.read_text()


def _wait(log: Path, trials: int, programs: Sequence[Program]) -> None:
    end_s = time.monotonic() + 60 + 4 * trials / CHANGES_PER_S
    before = log.read_text().count("C ") if log.exists() else 0
    while not log.exists() or log.read_text().count("C ") <= before + trials:
        if time.monotonic() > end_s or not all(program.is_running for program in programs):
            raise LabError("the backend of the benchmark stopped changing its pool")
        time.sleep(0.5)
