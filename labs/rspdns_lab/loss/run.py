"""`rspdns-lab loss`: a network that loses packets for a while, and whether any live server is removed."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import NAME_SERVERS, Setting
from rspdns_lab.net.packet_filter import lose_packets, lost_packets
from rspdns_lab.observe.part_logs import entry_time_s, monotonic_offset_s, read_log
from rspdns_lab.observe.verdict import judge

REMOVED: Final = "missing_at_registrar"
"""What an agent logs when a registrar that answers doesn't list its server."""
_LOOK_EVERY_S: Final = 1.0
_KEEP_S: Final = 5.0
_TOLD_EVERY_S: Final = 10.0
_SAID_EVERY_S: Final = 60.0


class Look(NamedTuple):
    """How many answers had been judged after `at_s` seconds of loss, and how many of them were wrong."""

    at_s: float
    answers: int
    wrong: int


@dataclass(frozen=True)
class LossOutcome:
    """What packet loss did to servers that all lived.

    `removed`: how often a registrar did not list one of them; `left_dns`: how often a backend dropped one,
    be it for the few ms in which no answer is made anew; `wrong`: DNS answers that lacked one;
    `lost_packets` as the packet filters counted them; `looks`: how answers added up, about once a second.
    """

    seconds: float
    percent: float
    tuned: bool
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


def read_outcome(fields: Mapping[str, Any]) -> LossOutcome:
    """Return one as `asdict` gave it to JSON. Raises TypeError or LookupError for something else."""
    return LossOutcome(**{**fields, "looks": [Look(*look) for look in fields["looks"]]})


def sum_up(parts: Sequence[LossOutcome]) -> LossOutcome:
    """Return what all parts of a run that was gone on with came to; at least one, all with the same loss."""
    looks = [Look(0.0, 0, 0)]
    for part in parts:
        begun_s, answers, wrong = looks[-1]
        looks += [
            Look(begun_s + one.at_s, answers + one.answers, wrong + one.wrong) for one in part.looks[1:]
        ]
    counts = ("seconds", "removed", "left_dns", "answers", "wrong", "lost_packets")
    sums = {count: round(sum(getattr(part, count) for part in parts), 1) for count in counts}
    return LossOutcome(percent=parts[0].percent, tuned=parts[0].tuned, looks=looks, **sums)


def run_loss(
    seconds: float,
    percent: float,
    *,
    tuned: bool = True,
    say: Callable[[str], object] = print,
    tell: Callable[[LossOutcome], object] = lambda _: None,
) -> LossOutcome:
    """Lose `percent` of all packets between the lab's hosts, each way, for `seconds`. Raises LabError.

    `tell` is told every ten seconds what it came to so far.
    """
    with Lab(Setting(tuned=tuned)) as lab:
        lab.start_registrars()
        lab.start_application_servers()
        lab.start_name_servers()
        lab.wait_until_all_are_answered()
        lab.wait_until_settled()
        return lose_and_watch(lab, seconds, percent, say, tell)


def lose_and_watch(
    lab: Lab,
    seconds: float,
    percent: float,
    say: Callable[[str], object] = print,
    tell: Callable[[LossOutcome], object] = lambda _: None,
) -> LossOutcome:
    """Lose packets in a lab that runs and has settled; they go on being lost afterwards.

    Raises LabError, also when a part of the lab ends.
    """
    for host in lab.network.hosts.values():
        lose_packets(host, percent)
    say(f"losing {percent:g} % of all packets for {seconds:g} s")
    watch = _Watch(lab, percent)
    told_s = said_s = 0.0
    while watch.watched_s < seconds:
        time.sleep(_LOOK_EVERY_S)
        for program in lab.programs():
            program.expect_running()  # what is dead loses nobody
        watch.look()
        if watch.watched_s >= told_s + _TOLD_EVERY_S:
            told_s = watch.watched_s
            tell(watch.outcome())
        if watch.watched_s >= said_s + _SAID_EVERY_S:
            said_s = watch.watched_s
            now = watch.outcome()
            say(f"{said_s:.0f} s: {now.answers} answers, {now.wrong} wrong, removed {now.removed} times")
    return watch.outcome()


class _Watch:
    """Judges the answers as they come, since ten minutes of them are many."""

    def __init__(self, lab: Lab, percent: float) -> None:
        self._lab = lab
        self._percent = percent
        self._begun_s = self._judged_to_s = time.monotonic()
        self._looks = [Look(0.0, 0, 0)]

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
        seen = [one for one in recorder.since(self._judged_to_s) if one.asked_at_s < until_s]
        verdict = judge(seen, self._judged_to_s, self._lab.addresses, (), tuple(range(len(NAME_SERVERS))))
        self._judged_to_s = until_s
        recorder.forget(until_s - _KEEP_S)
        _, answers, wrong = self._looks[-1]
        self._looks.append(Look(self.watched_s, answers + verdict.answers, wrong + verdict.wrong))

    def outcome(self) -> LossOutcome:
        """Return what it came to so far."""
        removed, left = self._counts()
        return LossOutcome(
            seconds=round(self.watched_s, 1),
            percent=self._percent,
            tuned=self._lab.setting.tuned,
            removed=removed,
            left_dns=left,
            answers=self._looks[-1].answers,
            wrong=self._looks[-1].wrong,
            lost_packets=sum(lost_packets(host) for host in self._lab.network.hosts.values()),
            looks=tuple(self._looks),
        )

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
