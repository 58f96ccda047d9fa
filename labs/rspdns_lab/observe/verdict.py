"""The answers to a client after a fault: how long they were wrong, and how. Pure."""

import enum
from collections.abc import Collection, Iterable
from dataclasses import dataclass


class Kind(enum.Enum):
    """The kind of reply to one question."""

    ANSWER = "answer"
    EMPTY = "empty"
    SERVFAIL = "servfail"
    MALFORMED = "malformed"
    TIMEOUT = "timeout"


@dataclass(frozen=True)
class Observation:
    """One question and what came back.

    `names`: addresses of the application servers in the answer. `complete`: an answer to such a question
    should hold every live one (an A answer holds only some). Times are monotonic, in seconds.
    """

    server: int
    question: int
    complete: bool
    asked_at_s: float
    answered_at_s: float | None
    kind: Kind
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Verdict:
    """The sum of what was observed after a fault.

    `last_wrong_ms`: from the fault to the last wrong answer, 0.0 when there was none. `wrong`: answers that
    named a dead server or lacked a live one (empty ones and SERVFAIL among them); `timeouts` are no answers.
    """

    last_wrong_ms: float
    wrong: int
    empty: int
    servfail: int
    malformed: int
    timeouts: int
    answers: int


def is_wrong(observation: Observation, live: Collection[str], dead: Collection[str]) -> bool:
    """Tell whether an answer names a dead server, or lacks a live one."""
    if observation.kind is Kind.TIMEOUT:
        return False
    if observation.kind is not Kind.ANSWER or not observation.names:
        return True
    if not observation.names.isdisjoint(dead):
        return True
    if not observation.names.issubset(live):
        return True  # names somebody who was never there
    return observation.complete and not observation.names.issuperset(live)


def judge(
    observations: Iterable[Observation],
    fault_at_s: float,
    live: Collection[str],
    dead: Collection[str],
    servers: Collection[int],
) -> Verdict:
    """Judge the answers of `servers` to questions sent after the fault: who is `live`, who is `dead`."""
    last_wrong_ms = 0.0
    wrong = answers = 0
    counts = dict.fromkeys(Kind, 0)
    for observation in observations:
        if observation.server not in servers or observation.asked_at_s < fault_at_s:
            continue
        counts[observation.kind] += 1
        answers += observation.answered_at_s is not None
        if observation.answered_at_s is not None and is_wrong(observation, live, dead):
            wrong += 1
            last_wrong_ms = max(last_wrong_ms, (observation.answered_at_s - fault_at_s) * 1000)
    return Verdict(
        last_wrong_ms=round(last_wrong_ms, 1),
        wrong=wrong,
        empty=counts[Kind.EMPTY],
        servfail=counts[Kind.SERVFAIL],
        malformed=counts[Kind.MALFORMED],
        timeouts=counts[Kind.TIMEOUT],
        answers=answers,
    )
