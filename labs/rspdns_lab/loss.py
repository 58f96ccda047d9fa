"""`rspdns-lab loss`: a network that loses packets for a while, and whether any live server is removed."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from rspdns_lab.lab import Lab
from rspdns_lab.packet_filter import lose_packets, lost_packets
from rspdns_lab.plan import NAME_SERVERS, Setting
from rspdns_lab.timeline import read_log
from rspdns_lab.verdict import judge

REMOVED: Final = "missing_at_registrar"
"""What an agent logs when a registrar that answers doesn't list its server."""
_LOOK_EVERY_S: Final = 1.0
_KEEP_S: Final = 5.0


class Look(NamedTuple):
    """How many answers had been judged after `at_s` seconds of loss, and how many of them were wrong."""

    at_s: float
    answers: int
    wrong: int


@dataclass(frozen=True)
class LossOutcome:
    """What packet loss did to servers that all lived.

    `removed`: how often a registrar did not list one of them; `left_dns`: how often a backend dropped one;
    `wrong`: DNS answers that lacked one; `lost_packets` as the packet filters counted them; `looks`: how
    answers added up, about once a second.
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


def run_loss(
    seconds: float, percent: float, *, tuned: bool = True, say: Callable[[str], object] = print
) -> LossOutcome:
    """Lose `percent` of all packets between the lab's hosts, each way, for `seconds`. Raises LabError."""
    with Lab(Setting(tuned=tuned)) as lab:
        lab.start_registrars()
        lab.start_application_servers()
        lab.start_name_servers()
        lab.wait_until_all_are_answered()
        lab.wait_until_settled()
        return lose_and_watch(lab, seconds, percent, say)


def lose_and_watch(
    lab: Lab, seconds: float, percent: float, say: Callable[[str], object] = print
) -> LossOutcome:
    """Lose packets in a lab that runs and has settled; they go on being lost afterwards. Raises LabError."""
    before = _counts(lab)
    for host in lab.network.hosts.values():
        lose_packets(host, percent)
    say(f"losing {percent:g} % of all packets for {seconds:g} s")
    looks = _watch(lab, seconds, say)
    _, answers, wrong = looks[-1]
    lost = sum(lost_packets(host) for host in lab.network.hosts.values())
    removed, left = (now - then for now, then in zip(_counts(lab), before, strict=True))
    return LossOutcome(seconds, percent, lab.setting.tuned, removed, left, answers, wrong, lost, looks)


def _watch(lab: Lab, seconds: float, say: Callable[[str], object]) -> list[Look]:
    """Judge the answers as they come, since ten minutes of them are many. Return how they added up."""
    begun_s = judged_to_s = time.monotonic()
    answers = wrong = 0
    looks = [Look(0.0, 0, 0)]
    next_word_s = begun_s + 60
    while judged_to_s < begun_s + seconds:
        time.sleep(_LOOK_EVERY_S)
        now = time.monotonic()
        until_s = time.monotonic() - _KEEP_S + 1
        seen = [one for one in lab.recorder.since(judged_to_s) if one.asked_at_s < until_s]
        verdict = judge(seen, judged_to_s, lab.addresses, (), tuple(range(len(NAME_SERVERS))))
        answers, wrong = answers + verdict.answers, wrong + verdict.wrong
        judged_to_s = max(judged_to_s, until_s)
        if judged_to_s - begun_s > looks[-1].at_s:
            looks.append(Look(judged_to_s - begun_s, answers, wrong))
        lab.recorder.forget(judged_to_s - _KEEP_S)
        if now > next_word_s:
            next_word_s += 60
            say(f"{now - begun_s:.0f} s: {answers} answers, {wrong} wrong, removed {_counts(lab)[0]} times")
    return looks


def _counts(lab: Lab) -> tuple[int, int]:
    """Return how often agents found their server missing at a registrar, and backends dropped one."""
    removed = left = 0
    for program in lab.programs():
        entries: Iterable[Mapping[str, Any]] = read_log(program.log)
        if program.name == "agent":
            removed += sum(entry.get("event") == REMOVED for entry in entries)
        elif program.name == "backend":
            left += sum(entry.get("event") == "left" for entry in entries)
    return removed, left
