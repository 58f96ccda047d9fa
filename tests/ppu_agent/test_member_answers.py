"""Which members are asked when, and for how long their answers count."""

import itertools
import random

from pool_user import PoolView, ProbePlan
from ppu_agent.member_answers import (
    ASK_EVERY_S,
    BURST_S,
    HOLDS_S,
    JITTER,
    MOST_ASKED_PER_S,
    MOST_KEPT,
    AskedQuestion,
    MemberAnswers,
)

from tests.ppu_agent.making import POOL, destination, member, view

QUESTION = ProbePlan("auto")
QUESTIONS = {POOL: QUESTION}


def following(*numbers: int) -> MemberAnswers:
    answers = MemberAnswers(random.Random(1))
    answers.follow({POOL: view(*numbers)}, QUESTIONS, 0.0)
    return answers


def asked(number: int, question: ProbePlan = QUESTION) -> AskedQuestion:
    return destination(number), question


def ask_due(answers: MemberAnswers, now: float, *, is_answer: bool = True) -> int:
    """All that are due are asked; return how many."""
    due = answers.due(now, 1000)
    for _, _, question in due:
        answers.note(question, now, is_answer=is_answer)
    return len(due)


def test_member_is_asked_when_it_joins_and_once_a_minute() -> None:
    answers = following(1)
    times = [second / 10 for second in range(6000) if ask_due(answers, second / 10)]
    assert times[0] == 0.0
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(ASK_EVERY_S * (1 - JITTER) <= gap <= ASK_EVERY_S * (1 + JITTER) + 0.1 for gap in gaps)


def test_member_that_does_not_answer_is_asked_again_soon_and_then_ever_less_often() -> None:
    answers = following(1)
    times = [second / 10 for second in range(6000) if ask_due(answers, second / 10, is_answer=False)]
    assert 3 <= len([time for time in times if time <= 10]) <= 6
    assert len(times) < 20


def test_thousands_of_members_are_asked_below_a_rate() -> None:
    answers = following(*range(1, 3001))
    found = sum(ask_due(answers, tenth / 10) for tenth in range(100))
    assert 0.9 * 10 * MOST_ASKED_PER_S <= found <= (10 + BURST_S) * MOST_ASKED_PER_S + 1


def test_answer_counts_for_a_member_that_left_within_minutes_and_for_the_same_question() -> None:
    answers = following(1, 2)
    answers.note(answers.due(10.0, 1)[0][2], 10.0, is_answer=True)
    answers.follow({POOL: view()}, QUESTIONS, 20.0)
    assert answers.was_heard(asked(1), 10.0 + HOLDS_S)
    assert not answers.was_heard(asked(1), 10.1 + HOLDS_S)
    assert not answers.was_heard(asked(1, ProbePlan("tcp")), 20.0)
    assert not answers.was_heard(asked(2), 20.0)
    answers.follow({POOL: view(1)}, QUESTIONS, 30.0)
    assert answers.was_heard(asked(1), 30.0), "it is back, and was not asked again yet"


def test_members_that_left_take_no_more_than_bounded_memory() -> None:
    answers = MemberAnswers(random.Random(1))
    for turn in range(30):
        members = tuple(member(1, port=1000 + 100 * turn + number) for number in range(100))
        answers.follow({POOL: PoolView(POOL, members, known=True)}, QUESTIONS, float(turn))
        for tenth in range(20):
            ask_due(answers, turn + tenth / 20)
    answers.follow({POOL: view()}, QUESTIONS, 31.0)
    assert len(answers) == MOST_KEPT
    silent = following(1)
    ask_due(silent, 0.0, is_answer=False)
    silent.follow({POOL: view()}, QUESTIONS, 1.0)
    assert len(silent) == 0
