"""`rspdns-lab loss`: a network that loses packets for a while, and whether any live server is removed."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
_PART_S: Final = 10.0
_SAID_EVERY_S: Final = 60.0


class Look(NamedTuple):
    """How many answers had been judged after `at_s` seconds of loss, and how many of them were wrong."""

    at_s: float
    answers: int
    wrong: int


@dataclass(frozen=True)
class LossPart:
    """What packet loss did to servers that all lived, in a part of a run or in all of it.

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


def read_part(fields: Mapping[str, Any]) -> LossPart:
    """Return one as `asdict` gave it to JSON. Raises TypeError or LookupError for something else."""
    return LossPart(**{**fields, "looks": [Look(*look) for look in fields["looks"]]})


def sum_up(parts: Sequence[LossPart]) -> LossPart:
    """Return what all parts of a run that was gone on with came to; at least one, all with the same loss."""
    looks = [Look(0.0, 0, 0)]
    for part in parts:
        begun_s, answers, wrong = looks[-1]
        looks += [
            Look(begun_s + one.at_s, answers + one.answers, wrong + one.wrong) for one in part.looks[1:]
        ]
    counts = ("seconds", "removed", "left_dns", "answers", "wrong", "lost_packets")
    sums = {count: round(sum(getattr(part, count) for part in parts), 1) for count in counts}
    return LossPart(percent=parts[0].percent, tuned=parts[0].tuned, looks=looks, **sums)


def run_loss(
    seconds: float, percent: float, *, tuned: bool = True, say: Callable[[str], object] = print
) -> Iterator[LossPart]:
    """Lose `percent` of all packets between the lab's hosts, each way, for `seconds`. Raises LabError.

    Yields what happened every ten seconds.
    """
    with Lab(Setting(tuned=tuned)) as lab:
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
        seen = [one for one in recorder.since(self._judged_to_s) if one.asked_at_s < until_s]
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
            tuned=self._lab.setting.tuned,
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
