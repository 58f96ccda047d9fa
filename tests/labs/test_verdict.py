"""Which answers are wrong, and until when."""

import pytest
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.observe.verdict import Kind, Observation, is_wrong, judge

A, B, C = "10.53.0.31", "10.53.0.32", "10.53.0.33"


def answer(
    asked_at_s: float,
    *names: str,
    kind: Kind = Kind.ANSWER,
    server: int = 0,
    complete: bool = True,
    took_s: float = 0.001,
) -> Observation:
    answered = None if kind is Kind.TIMEOUT else asked_at_s + took_s
    return Observation(server, 0, complete, asked_at_s, answered, kind, frozenset(names))


@pytest.mark.parametrize(
    ("observation", "wrong"),
    [
        (answer(1, A, B), False),
        (answer(1, A, B, C), True),  # names the dead
        (answer(1, A), True),  # lacks a live one
        (answer(1, A, complete=False), False),  # an A answer need not hold all
        (answer(1, C, complete=False), True),
        (answer(1, A, B, "10.9.9.9"), True),  # names somebody who never was there
        (answer(1, kind=Kind.EMPTY), True),
        (answer(1, kind=Kind.SERVFAIL), True),
        (answer(1, kind=Kind.MALFORMED), True),
        (answer(1, kind=Kind.TIMEOUT), False),
    ],
)
def test_which_answers_are_wrong(observation: Observation, wrong: bool) -> None:
    assert is_wrong(observation, live={A, B}, dead={C}) is wrong


def test_the_last_wrong_answer_counts_from_the_fault_to_when_it_was_given() -> None:
    observations = [
        answer(9.0, A, B, C),  # asked before the fault: no matter when it is answered
        answer(10.000, A, B, C),
        answer(10.030, A, B, C, took_s=0.0079),
        answer(10.040, A, B),
    ]
    verdict = judge(observations, 10.0, live={A, B}, dead={C}, servers={0})
    assert (verdict.last_wrong_ms, verdict.wrong, verdict.answers) == (37.9, 2, 3)


def test_a_late_slip_is_not_hidden_by_right_answers_before_it() -> None:
    observations = [answer(10.0, A, B, C), answer(10.5, A, B), answer(11.0, A, B, C), answer(11.5, A, B)]
    assert judge(observations, 10.0, {A, B}, {C}, {0}).last_wrong_ms == pytest.approx(1001.0)


def test_nothing_wrong_is_zero() -> None:
    verdict = judge([answer(10.1, A, B)], 10.0, {A, B}, {C}, {0})
    assert (verdict.last_wrong_ms, verdict.wrong) == (0.0, 0)


def test_empty_servfail_and_silence_are_counted_apart() -> None:
    kinds = [Kind.EMPTY, Kind.EMPTY, Kind.SERVFAIL, Kind.TIMEOUT, Kind.MALFORMED]
    verdict = judge([answer(10.1, kind=kind) for kind in kinds], 10.0, {A}, set(), {0})
    counts = (
        verdict.empty,
        verdict.servfail,
        verdict.timeouts,
        verdict.malformed,
        verdict.wrong,
        verdict.answers,
    )
    assert counts == (2, 1, 1, 1, 4, 4)


def test_only_the_servers_asked_about_count() -> None:
    observations = [answer(10.1, A, server=0), answer(10.1, kind=Kind.TIMEOUT, server=1)]
    assert judge(observations, 10.0, {A}, set(), {0}).timeouts == 0


@pytest.mark.parametrize(
    ("values", "percent", "value"),
    [
        ([], 50, 0),
        ([7.0], 99, 7),
        ([1.0, 9.0], 50, 1),
        ([4.0, 3.0, 2.0, 1.0], 0, 1),
        ([4.0, 3.0, 2.0, 1.0], 50, 2),
        ([4.0, 3.0, 2.0, 1.0], 51, 3),
        (range(100, 0, -1), 7, 7),
        (range(100, 0, -1), 99, 99),
        (range(100, 0, -1), 100, 100),
    ],
)
def test_a_percentile_is_one_of_the_values(values: list[float], percent: int, value: float) -> None:
    assert percentile(values, percent) == value
