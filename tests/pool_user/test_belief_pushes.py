"""Pushes of registrars (ENRP): with answers, against answers, and without them."""

from typing import Any

import pytest
from pool_user.belief.decisions import PoolDecisions
from pool_user.belief.rules import MAX_MEMBERS

from rserpool import LeastUsed, PoolElement, Table, Update
from tests.pool_user.belief_support import IDENTIFIERS, POOL, R1, R2, R3, TRIP_S, Play, pe, push, settled


def table(play: Play, index: int, *elements: PoolElement, own: bool = False) -> list[str]:
    """The registrar at `index` gives its handle table, asked for at `now`."""
    asked_s = play.now
    play.wait(TRIP_S)
    made = Table(IDENTIFIERS[index], {POOL.encode(): elements}, own, asked_s, play.now)
    changed = play.belief.table(index, made)
    play.wait(TRIP_S)
    return changed


def test_a_pushed_element_is_in_and_a_pushed_deletion_takes_it_out_without_a_question() -> None:
    play = settled()
    assert push(play, 0, pe(3, R1)), "the others are to be asked too"
    assert play.members() == [1, 2, 3]
    assert push(play, 0, pe(3, R1), gone=True)
    assert play.members() == [1, 2]
    assert play.out() == {3: "removed by its home registrar"}


def test_a_new_load_concerns_nobody_else() -> None:
    play = settled()
    assert not push(play, 0, pe(1, R1, policy=LeastUsed(0.5)))
    assert play.view().members[0].policy == LeastUsed(0.5)


def test_loads_that_move_have_nobody_else_judged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    play = settled()
    push(play, 0, pe(1, R1, policy=LeastUsed(0.5)))
    play.evaluate()
    judged, judge = [], PoolDecisions.judge

    def noted(decisions: PoolDecisions, *words: Any) -> set[int]:
        judged.append(judge(decisions, *words))
        return judged[-1]

    monkeypatch.setattr(PoolDecisions, "judge", noted)
    push(play, 1, pe(2, R2, policy=LeastUsed(0.5)))
    play.evaluate()
    assert judged == [{2}], "the other registrars list the first one with its older load"


def test_a_pushed_renewal_changes_nothing_and_counts_as_seen_then() -> None:
    play = settled()
    views = play.evaluate().views
    asked_s = play.now
    assert not push(play, 0, pe(1, R1))
    assert play.evaluate().views is views, "nothing was thought over"
    play.answer(0, pe(2, R2), asked_s=asked_s)
    assert play.members() == [1, 2], "asked before it was seen"
    assert push(play, 0, pe(1, R1), gone=True)
    assert play.members() == [2]
    assert push(play, 0, pe(1, R1))
    assert play.members() == [1, 2]


def test_a_deletion_by_a_registrar_that_is_not_its_home_is_a_question_to_its_home() -> None:
    play = settled()
    push(play, 2, pe(1, R1), gone=True)
    assert play.members() == [1, 2]
    play.answer(0, pe(1, R1), pe(2, R2))
    assert play.members() == [1, 2]


def test_a_registrar_that_is_not_settled_is_not_believed_about_who_is_gone() -> None:
    play = settled()
    play.silence(0)
    push(play, 0, pe(1, R1), gone=True)
    assert 1 in play.members()
    play.answer(0, pe(1, R1), pe(2, R2))
    play.wait(1.1)
    assert play.standings()[0] == "settled"
    assert 1 in play.members(), "what it told while it woke up does not count later"


def test_an_update_under_another_senders_identifier_does_not_count() -> None:
    play = settled()
    assert not push(play, 0, pe(1, R1), sender=R2, gone=True)
    assert not push(play, 0, pe(9, R1), sender=0xDEAD)
    play.down(0)
    assert not push(play, 0, pe(9, R1))
    assert play.members() == [1, 2]


def test_an_answer_from_before_the_push_does_not_bring_the_dead_back() -> None:
    play = settled()
    asked_s = play.now
    push(play, 0, pe(1, R1), gone=True)
    for index in (0, 1, 2):
        play.answer(index, pe(1, R1), pe(2, R2), asked_s=asked_s)
        assert play.members() == [2]


def test_an_answer_from_before_the_push_does_not_take_the_new_out() -> None:
    play = settled()
    asked_s = play.now
    push(play, 0, pe(3, R1))
    play.answer(0, pe(1, R1), pe(2, R2), asked_s=asked_s)
    assert play.members() == [1, 2, 3]


def test_an_older_answer_of_another_registrar_does_not_bring_a_deleted_element_back() -> None:
    play = settled()
    push(play, 0, pe(3, R1))
    asked_s = play.now
    push(play, 0, pe(3, R1), gone=True)
    play.answer(2, pe(1, R1), pe(2, R2), pe(3, R1), asked_s=asked_s)
    assert play.members() == [1, 2]


@pytest.mark.parametrize("lost", ["deletion", "registration"])
def test_a_lost_push_is_mended_by_the_next_answer(lost: str) -> None:
    play = settled()
    if lost == "deletion":
        push(play, 0, pe(3, R1))
        listed = [pe(1, R1), pe(2, R2)]
    else:
        push(play, 0, pe(1, R1), gone=True)
        listed = [pe(1, R1), pe(2, R2)]
    for index in (0, 1, 2):
        play.answer(index, *listed)
    assert play.members() == [1, 2]


def test_an_element_that_moves_to_another_registrar_never_blinks() -> None:
    play = settled()
    push(play, 1, pe(1, R2))
    assert play.members() == [1, 2]
    push(play, 0, pe(1, R1), gone=True)
    assert play.members() == [1, 2]
    play.answer(0, pe(2, R2))
    play.answer(2, pe(1, R2), pe(2, R2))
    push(play, 1, pe(1, R2), gone=True)
    assert play.members() == [2], "its new home has the say"


def test_with_its_home_dead_a_member_is_out_when_who_took_it_over_says_so() -> None:
    play = settled()
    play.down(0)
    assert play.members() == [1, 2]
    push(play, 2, pe(1, R3), gone=True)
    play.answer(1, pe(2, R2))
    assert play.members() == [2]


def test_more_than_128_members_come_and_go_though_answers_are_cut_off() -> None:
    play = Play(1)
    play.settle(0)
    everybody = [pe(number, R1) for number in range(1, 201)]
    table(play, 0, *everybody)
    play.answer(0, *everybody[:128])
    assert play.members() == list(range(1, 201))
    push(play, 0, pe(200, R1), gone=True)
    push(play, 0, pe(1, R1), gone=True)
    push(play, 0, pe(201, R1))
    play.answer(0, *everybody[1:129])
    assert play.members() == [*range(2, 200), 201]
    table(play, 0, *everybody[:150])
    play.wait(1.1)
    assert play.members() == list(range(1, 151)), "a table is whole: who is not in it is out"


def test_a_table_of_own_children_says_nothing_about_those_of_others() -> None:
    play = settled()
    assert table(play, 0, pe(3, R1), own=True) == [POOL]
    assert play.members() == [1, 2, 3]
    assert (0, POOL) in play.asked(), "is who is no child of it any more dead, or has it moved?"
    play.answer(0, pe(2, R2), pe(3, R1))
    assert play.members() == [2, 3]
    assert table(play, 0, pe(3, R1), own=True) == []


def test_an_element_missing_in_its_old_homes_table_because_it_moved_never_blinks() -> None:
    play = settled()
    table(play, 0, own=True)
    assert play.members() == [1, 2]
    play.answer(0, pe(1, R3), pe(2, R2))
    assert play.members() == [1, 2]
    play.answer(2, pe(1, R3), pe(2, R2))
    play.answer(1, pe(1, R3), pe(2, R2))
    assert play.members() == [1, 2]
    assert play.asked() == set()


def test_a_table_from_before_a_push_is_not_news() -> None:
    play = settled()
    asked_s = play.now
    push(play, 0, pe(3, R1))
    play.belief.table(0, Table(R1, {POOL.encode(): (pe(1, R1), pe(2, R2))}, False, asked_s, play.now))
    assert play.members() == [1, 2, 3]


def test_a_starting_registrars_empty_table_takes_nobody_out() -> None:
    play = settled()
    play.down(0)
    play.up(0)
    assert table(play, 0) == []
    assert play.members() == [1, 2]


def test_a_crowd_that_is_pushed_out_is_questioned() -> None:
    play = Play()
    play.settle(0, 1, 2)
    members = [pe(number, R1) for number in range(1, 5)]
    for index in (0, 1, 2):
        play.answer(index, *members)
    for member in members:
        push(play, 0, member, gone=True)
        play.view()
    assert play.members() == [3, 4], "two of four leave at once, a third would be more than half"
    assert {handle for _, handle in play.asked()} == {POOL}
    play.wait(TRIP_S)
    for index in (0, 1, 2):
        play.answer(index)
    assert play.members() == []


def test_a_registrar_that_pushes_others_each_time_does_not_fill_memory() -> None:
    play = Play(1)
    play.settle(0)
    for number in range(1, 6000):
        play.belief.updated(0, Update(R1, POOL.encode(), pe(number, R1), False, play.now))
        play.belief.updated(0, Update(R1, POOL.encode(), pe(100_000 + number, R1), True, play.now))
    play.wait(1.1)
    assert len(play.members()) <= MAX_MEMBERS
