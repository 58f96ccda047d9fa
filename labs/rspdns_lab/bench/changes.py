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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import dns.message
import dns.rdatatype

from rspdns_lab.bench import fast_path, zone
from rspdns_lab.bench.part import HOST, Part, Run
from rspdns_lab.bench.programs import DNSPERF, dnsperf, start_live
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, LabNetwork
from rspdns_lab.net.processes import Program, end_programs
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.page import Columns, Section, table_of
from rspdns_lab.report.plots import BLUE, GREEN, RED, Curve, Curves, share_below

CHANGES_PER_S = 8.0
PORTS = {"idle": 5401, "loaded": 5402, "fastpath": 5403}
BOUNDS_MS = {"idle": 10.0, "loaded": 60.0, "fastpath": 0.5}
"""The aims for the 95th percentile."""


@dataclass(frozen=True)
class PoolSizeChange:
    """The pool has this number of members since `at_s`; `purged_s` is when its last purge was through."""

    at_s: float
    members: int
    purged_s: float = math.inf


@dataclass(frozen=True)
class CountedReply:
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


def run_changes(run: Run, found: Sequence[Followed]) -> Iterator[Sequence[Followed]]:
    """Measure each kind of changes. Raises LabError."""
    done = {followed.kind for followed in found}
    for kind in PORTS if run.trials else ():
        if kind not in done and not (kind == "fastpath" and fast_path.why_not()):
            with LabNetwork(run.prefix) as network:
                yield [run_kind(network.add_host(*HOST), run, kind)]


def run_kind(host: Host, run: Run, kind: str) -> Followed:
    """Measure changes without ("idle") or with load ("loaded"), or with answers from the kernel and
    without load ("fastpath"). Raises LabError."""
    folder, trials, say = run.folder, run.trials, run.say
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


def followed(kind: str, changes: Sequence[PoolSizeChange], replies: Sequence[CountedReply]) -> Followed:
    """Sum up. Raises LabError when no question was answered between changes.

    An answer counts for a change if it came before the next one. Changes without any answer are left out.
    """
    times = [change.at_s for change in changes]
    asked: list[list[CountedReply]] = [[] for _ in changes]
    for reply in replies:
        index = bisect_right(times, reply.asked_s) - 1
        if index >= 0 and (index + 1 < len(times) and reply.answered_s < times[index + 1]):
            asked[index].append(reply)
    last_wrong_ms, stale = [], 0
    for change, own in zip(changes, asked, strict=True):
        if own:
            wrong = [reply for reply in own if reply.members != change.members]
            last_wrong_ms.append(1000 * max((reply.asked_s - change.at_s for reply in wrong), default=0.0))
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


def read_changes(lines: Sequence[str]) -> list[PoolSizeChange]:
    """Read what `bench_backend --log` wrote: "C <time> <members>" and "P <time>"."""
    changes: list[PoolSizeChange] = []
    for line in lines:
        kind, at_s, *more = line.split()
        if kind == "C":
            changes.append(PoolSizeChange(float(at_s), int(more[0])))
        elif changes:
            changes[-1] = PoolSizeChange(changes[-1].at_s, changes[-1].members, float(at_s))
    return changes


def read_replies(lines: Sequence[str]) -> list[CountedReply]:
    """Read what the prober wrote."""
    counts: list[int] = []
    replies = []
    for line in lines:
        kind, *words = line.split()
        if kind == "B":
            message = dns.message.from_wire(b"\0\0" + bytes.fromhex(words[1]))
            counts.append(sum(len(rrset) for rrset in message.answer if rrset.rdtype == dns.rdatatype.SRV))
        elif kind == "R":
            replies.append(CountedReply(float(words[2]), float(words[3]), counts[int(words[4])]))
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


_SHORTEST_MS: Final = 0.1
"""Shorter times are plotted as this: the client asks every millisecond."""
_CAPTION: Final = (
    "How many of the changes were over after this time. Dots: median, 95th percentile, the longest of all. "
    "Dashed: what is aimed at for the 95th percentile. "
    f"{_SHORTEST_MS:g} ms stands for less, and for no wrong answer."
)
_COLUMNS: Final[Columns[Followed]] = (
    *(("machine", "{kind}"), ("changes", "{changes}")),
    *(("p50 ms", "{last_wrong_p50_ms:.1f}"), ("p95 ms", "{last_wrong_p95_ms:.1f}")),
    *(("max ms", "{last_wrong_max_ms:.1f}"), ("wrong after the last purge", "{stale_after_purges}")),
    ("aimed at, p95", lambda row: f"{BOUNDS_MS[row.kind]:g} ms"),
)


def _figures(found: Sequence[Followed]) -> dict[str, float]:
    keys = ("changes", "last_wrong_p50_ms", "last_wrong_p95_ms", "last_wrong_max_ms", "stale_after_purges")
    return {f"{key}_{followed.kind}": getattr(followed, key) for followed in found for key in keys}


def _sections(found: Sequence[Followed]) -> list[Section]:
    text = "From a change in the backend to the last answer without it, asked every millisecond."
    return [Section("Changes", text, table_of(_COLUMNS, found), [_plot(found)])]


def _plot(found: Sequence[Followed]) -> Curves:
    colours = {"idle": GREEN, "loaded": BLUE, "fastpath": RED}
    curves = []
    for followed in found:
        times_ms = [max(time_ms, _SHORTEST_MS) for time_ms in followed.times_ms]
        label, colour = f"{followed.kind}: {followed.changes} changes", colours[followed.kind]
        curves += [share_below(label, times_ms, colour)] if times_ms else []
        known = (followed.last_wrong_p50_ms, followed.last_wrong_p95_ms, followed.last_wrong_max_ms)
        curves.append(
            Curve("", [max(time_ms, _SHORTEST_MS) for time_ms in known], (50, 95, 100), colour, "o")
        )
    aims = [(BOUNDS_MS[followed.kind], colours[followed.kind]) for followed in found]
    labels = ("from the change to the last wrong answer, ms", "% of the changes")
    return Curves(_CAPTION, *labels, curves, log="x", at_x=aims)


def _read(fields: Mapping[str, Any]) -> Followed:
    if fields["kind"] not in PORTS:
        raise LookupError(fields["kind"])
    return Followed(**{**fields, "times_ms": tuple(fields.get("times_ms", ()))})


PART: Final = Part(
    "changes",
    "How soon a change is answered",
    (Followed,),
    run_changes,
    _sections,
    _figures,
    _read,
    lambda _: DNSPERF,
)
