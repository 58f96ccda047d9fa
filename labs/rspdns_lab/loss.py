"""`rspdns-lab loss`: loses packets on every cable, and sees whether a live server is removed. The measuring,
its page with a plot, its command."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import click
from daemon_kit.commands import example

from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import NAME_SERVERS
from rspdns_lab.ending import say
from rspdns_lab.net.network import lose_packets, lost_packets
from rspdns_lab.observe.part_logs import entry_time_s, monotonic_offset_s, read_log
from rspdns_lab.observe.verdict import judge
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page, Rows, Section
from rspdns_lab.report.plots import GREEN, RED, Curve, Curves
from rspdns_lab.report.trials import LabReport, run_lab

REMOVED: Final = "missing_at_registrar"
"""The event that an agent logs when a registrar that answers doesn't list its server."""
_LOOK_EVERY_S: Final = 1.0
_KEEP_S: Final = 5.0
_PART_S: Final = 10.0
_SAID_EVERY_S: Final = 60.0
_INTRO: Final = (
    "Every cable of the lab loses packets, both ways, while a client asks both name servers every "
    "millisecond. All servers live: one that a registrar removes, or that an answer lacks, is one too many."
)
_CAPTION: Final = "Answers a second, and those that lacked a live server: no red is how it should be."
_LEAST_S = 1.0
"""So little is not worth a lab."""
_QUICK_S = 10.0


class Look(NamedTuple):
    """How many answers had been judged after `at_s` seconds of loss, and how many of them were wrong."""

    at_s: float
    answers: int
    wrong: int


@dataclass(frozen=True)
class LossPart:
    """The effect of packet loss on servers that all lived, in a part of a run or in all of it.

    `removed`: how often a registrar did not list one of them; `left_dns`: how often a backend dropped one,
    be it for the few ms in which no answer is made anew; `wrong`: DNS answers that lacked one;
    `lost_packets` as the packet filters counted them; `looks`: how answers added up, about once a second.
    """

    seconds: float
    percent: float
    removed: int
    left_dns: int
    answers: int
    wrong: int
    lost_packets: int
    looks: Sequence[Look] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """Whether packets were lost, DNS was asked, and no live server was lost."""
        seen = self.lost_packets > 0 and self.answers > 0
        return seen and not (self.removed or self.left_dns or self.wrong)

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        fields = asdict(self)
        del fields["looks"]
        return {"ok": self.ok, **fields}


def read_part(fields: Mapping[str, Any]) -> LossPart:
    """Return one as `asdict` gave it to JSON. Raises TypeError or LookupError for something else."""
    return LossPart(**{**fields, "looks": [Look(*look) for look in fields["looks"]]})


def sum_up(parts: Sequence[LossPart]) -> LossPart:
    """Return what all parts of a run that was gone on with came to; at least one, all with the same loss."""
    looks = [Look(0.0, 0, 0)]
    for part in parts:
        begun_s, answers, wrong = looks[-1]
        looks += [
            Look(begun_s + look.at_s, answers + look.answers, wrong + look.wrong) for look in part.looks[1:]
        ]
    counts = ("seconds", "removed", "left_dns", "answers", "wrong", "lost_packets")
    sums = {count: round(sum(getattr(part, count) for part in parts), 1) for count in counts}
    return LossPart(percent=parts[0].percent, looks=looks, **sums)


def run_loss(seconds: float, percent: float, say: Callable[[str], object] = print) -> Iterator[LossPart]:
    """Lose `percent` of all packets between the lab's hosts, each way, for `seconds`. Raises LabError.

    Yields what happened every ten seconds.
    """
    with Lab() as lab:
        lab.start_registrars()
        lab.start_application_servers()
        lab.start_name_servers()
        lab.wait_until_all_are_answered()
        lab.wait_until_settled()
        yield from lose_and_watch(lab, seconds, percent, say)


def lose_and_watch(
    lab: Lab, seconds: float, percent: float, say: Callable[[str], object] = print
) -> Iterator[LossPart]:
    """Lose packets in a lab that runs and has settled; they go on being lost afterwards.

    Yields part after part. Raises LabError, also when a program of the lab ends.
    """
    for host in lab.network.hosts.values():
        lose_packets(host, percent)
    say(f"losing {percent:g} % of all packets for {seconds:g} s")
    parts: list[LossPart] = []
    watch = _Watch(lab, percent, time.monotonic())
    watched_s = said_s = 0.0
    while watched_s < seconds:
        time.sleep(_LOOK_EVERY_S)
        for program in lab.programs():
            program.expect_running()  # what is dead loses nobody
        watch.look()
        if watch.watched_s >= min(_PART_S, seconds - watched_s):
            watched_s += watch.watched_s
            parts.append(watch.part())
            watch = watch.next(parts[-1])
            yield parts[-1]
        if watched_s >= said_s + _SAID_EVERY_S:
            said_s, now = watched_s, sum_up(parts)
            say(f"{said_s:.0f} s: {now.answers} answers, {now.wrong} wrong, removed {now.removed} times")


class _Watch:
    """Judges the answers as they come, since ten minutes of them are many."""

    def __init__(self, lab: Lab, percent: float, begun_s: float, lost_before: int = 0) -> None:
        self._lab = lab
        self._percent = percent
        self._begun_s = self._judged_to_s = begun_s
        self._lost_before = lost_before
        self._looks = [Look(0.0, 0, 0)]

    def next(self, part: LossPart) -> "_Watch":
        """Return the watch that goes on where this one, which came to `part`, ends."""
        return _Watch(self._lab, self._percent, self._judged_to_s, self._lost_before + part.lost_packets)

    @property
    def watched_s(self) -> float:
        """For how long answers were judged."""
        return self._judged_to_s - self._begun_s

    def look(self) -> None:
        """Judge what came since the last time, but for what may still be on its way."""
        until_s = time.monotonic() - _KEEP_S + 1
        if until_s <= self._judged_to_s:
            return
        recorder = self._lab.recorder
        seen = [
            observation
            for observation in recorder.since(self._judged_to_s)
            if observation.asked_at_s < until_s
        ]
        verdict = judge(seen, self._judged_to_s, self._lab.addresses, (), tuple(range(len(NAME_SERVERS))))
        self._judged_to_s = until_s
        recorder.forget(until_s - _KEEP_S)
        _, answers, wrong = self._looks[-1]
        self._looks.append(Look(self.watched_s, answers + verdict.answers, wrong + verdict.wrong))

    def part(self) -> LossPart:
        """Return what it came to so far."""
        removed, left = self._counts()
        return LossPart(
            seconds=round(self.watched_s, 1),
            percent=self._percent,
            removed=removed,
            left_dns=left,
            answers=self._looks[-1].answers,
            wrong=self._looks[-1].wrong,
            lost_packets=self._lost() - self._lost_before,
            looks=tuple(self._looks),
        )

    def _lost(self) -> int:
        return sum(lost_packets(host) for host in self._lab.network.hosts.values())

    def _counts(self) -> tuple[int, int]:
        """Return how often agents found their server missing at a registrar, and backends dropped one."""
        removed = left = 0
        for program in self._lab.programs():
            if program.name == "agent":
                removed += self._count(read_log(program.log), REMOVED)
            elif program.name == "backend":
                left += self._count(read_log(program.log), "left")
        return removed, left

    def _count(self, entries: Iterable[Mapping[str, Any]], event: str) -> int:
        """Count what happened while answers were judged: before, packets were not lost."""
        offset_s = monotonic_offset_s()
        times = (entry_time_s(entry, offset_s) for entry in entries if entry.get("event") == event)
        return sum(at_s is not None and self._begun_s <= at_s < self._judged_to_s for at_s in times)


def page_of(parts: Sequence[LossPart]) -> Page:
    """Return the page of a run of at least one part."""
    outcome = sum_up(parts)
    text = f"{outcome.percent:g} % lost for {outcome.seconds:g} s; SCTP's timers are tuned, as shipped."
    plots = [_plot(outcome.looks)] if len(outcome.looks) > 1 else []
    section = Section("No live server was lost" if outcome.ok else "It failed", text, table(outcome), plots)
    return Page("What lost packets do to live servers", _INTRO, [section])


def table(outcome: LossPart) -> Rows:
    """Return the table of a report."""
    rows = (
        ("packets lost", outcome.lost_packets, "more than 0"),
        ("answers", outcome.answers, "more than 0"),
        ("answers that lacked a live server", outcome.wrong, "0"),
        ("a registrar did not list a live server", outcome.removed, "0"),
        ("a backend dropped a live server, for some ms at least", outcome.left_dns, "0"),
    )
    return [("what", "how often", "must be"), *((what, f"{count:,}", must) for what, count, must in rows)]


def _plot(looks: Sequence[Look]) -> Curves:
    """Return answers a second between two looks."""

    def rates(which: str) -> Sequence[float]:
        return [
            (getattr(after, which) - getattr(before, which)) / (after.at_s - before.at_s)
            for before, after in pairwise(looks)
        ]

    times_s = [look.at_s for look in looks[1:]]
    curves = [
        Curve("answers", times_s, rates("answers"), GREEN, "step"),
        Curve("lacked a live server", times_s, rates("wrong"), RED, "step"),
    ]
    return Curves(_CAPTION, "s after packets began to be lost", "answers a second", curves)


@click.command(epilog=example("rspdns-lab loss --percent 2 --quick"))
@click.option("--seconds", type=click.FloatRange(1, 86_400), default=600, show_default=True)
@click.option("--quick", is_flag=True, help=f"{_QUICK_S:g} s only.")
@click.option("--percent", type=click.FloatRange(0.01, 50), default=1.0, show_default=True)
@report_options
def loss(seconds: float, quick: bool, percent: float, report: ReportFiles) -> None:
    """Lose packets on every cable, and see whether a live server is removed.

    Exit status: 0 none was removed, 1 one was, 2 the lab can't run here.
    """
    seconds = _QUICK_S if quick else seconds
    options = {"percent": percent}

    def measure(earlier: Sequence[LossPart]) -> Iterable[Sequence[LossPart]]:
        left_s = seconds - sum(part.seconds for part in earlier)
        if earlier and left_s < _LEAST_S:
            return ()
        return ([part] for part in run_loss(left_s, percent, say))

    run_lab(report, REPORT, options, measure)


def _figures(found: Sequence[LossPart]) -> dict[str, Any]:
    return sum_up(found).as_json() if found else {}


def _problems(found: Sequence[LossPart]) -> list[str]:
    return [] if found and sum_up(found).ok else ["a live server was lost, or nothing was measured"]


REPORT: Final = LabReport(read_part, _figures, page_of, _problems)
