"""The result of one trial of the chaos lab, judged from the client's observations. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rspdns_lab.observe.verdict import Kind, Observation


@dataclass(frozen=True)
class ChaosTrial:
    """The figures of one trial; times in ms.

    `last_wrong_ms`: from the fault to the last wrong answer, 0.0 without any. `longest_missing_ms`: the
    longest time for which one name server left a live server out (or answered with nobody).
    `longest_dead_ms`: the same for naming somebody who is dead. `report_off`: the part by which `rspdns
    report` differs from the time in which answers lacked a server; None where that was not compared.
    `problem`: what kept the lab from going on after it, empty if nothing did.
    """

    last_wrong_ms: float = 0.0
    longest_missing_ms: float = 0.0
    longest_dead_ms: float = 0.0
    empty: int = 0
    servfail: int = 0
    malformed: int = 0
    timeouts: int = 0
    answers: int = 0
    report_off: float | None = None
    problem: str = ""


def judge_trial(
    observations: Iterable[Observation],
    fault_at_s: float,
    live: Collection[str],
    dead: Collection[str],
    servers: Collection[int],
    most_shown: int,
    counted_from_s: float | None = None,
) -> ChaosTrial:
    """Judge the answers of `servers` to questions sent after the fault; count them since `counted_from_s`.

    An answer that should be complete holds every live server, or `most_shown` of them where more live.
    """
    counts = dict.fromkeys(Kind, 0)
    fewest = min(len(live), most_shown)
    live, dead = frozenset(live), frozenset(dead)
    since_s = fault_at_s if counted_from_s is None else min(fault_at_s, counted_from_s)
    last_wrong_s = fault_at_s
    missing, naming = _Spans(), _Spans()
    for observation in observations:
        if observation.server not in servers or observation.asked_at_s < since_s:
            continue
        counts[observation.kind] += 1
        if observation.answered_at_s is None or observation.asked_at_s < fault_at_s:
            continue
        is_missing = len(observation.names & live) < (fewest if observation.complete else 1)
        is_dead = not observation.names.isdisjoint(dead) or not observation.names <= live | dead
        if is_missing or is_dead:
            last_wrong_s = max(last_wrong_s, observation.answered_at_s)
        asked = (observation.server, observation.question)
        missing.take(asked, observation.answered_at_s, is_so=is_missing)
        naming.take(asked, observation.answered_at_s, is_so=is_dead)
    return ChaosTrial(
        last_wrong_ms=_ms(last_wrong_s - fault_at_s),
        longest_missing_ms=_ms(missing.longest_s),
        longest_dead_ms=_ms(naming.longest_s),
        empty=counts[Kind.EMPTY],
        servfail=counts[Kind.SERVFAIL],
        malformed=counts[Kind.MALFORMED],
        timeouts=counts[Kind.TIMEOUT],
        answers=sum(counts.values()) - counts[Kind.TIMEOUT],
    )


def left_out_s(observations: Iterable[Observation], server: int, address: str) -> float:
    """Return how long the answers of a name server left an application server out, in seconds."""
    spans = _Spans()
    for observation in observations:
        if observation.server == server and observation.complete and observation.answered_at_s is not None:
            asked = server, observation.question
            spans.take(asked, observation.answered_at_s, is_so=address not in observation.names)
    return spans.total_s


class _Spans:
    """The time for which something was so in the answers of one server to one question: the longest time,
    and the total of those that are over.

    It ends with the first answer of which it isn't so.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.total_s = 0.0
        self._since_s: dict[tuple[int, int], float] = {}

    def take(self, asked: tuple[int, int], at_s: float, *, is_so: bool) -> None:
        if asked in self._since_s:
            self.longest_s = max(self.longest_s, at_s - self._since_s[asked])
            if not is_so:
                self.total_s += at_s - self._since_s.pop(asked)
        elif is_so:
            self._since_s[asked] = at_s


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
