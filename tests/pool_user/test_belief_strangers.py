"""A stranger that registers thousands of elements costs in proportion to each, and fills nothing."""

from collections.abc import Collection
from functools import partial

import pytest
from pool_user import Code
from pool_user.belief import PoolRules, decisions
from pool_user.belief.admission import MAX_FOREIGN, PoolAdmission
from pool_user.belief.decisions import judge

from rserpool import PoolElement, Update
from tests.pool_user.belief_support import POOL, R1, R2, RULES, Play, pe


def played(max_members: int = 1000) -> Play:
    play = Play()
    play.belief.set_pools({POOL: PoolRules(RULES.accept, max_members=max_members)}, play.now)
    play.settle(0, 1, 2)
    for index in (0, 1, 2):
        play.answer(index, pe(1, R1), pe(2, R2))
    return play


def push(play: Play, element: PoolElement, *, gone: bool = False) -> None:
    play.belief.updated(0, Update(R1, POOL.encode(), element, gone, play.now))
    play.wait(0.001)


def foreign(identifier: int) -> PoolElement:
    return pe(identifier, R1, address="192.0.2.7", port=1024 + identifier % 60_000)


def test_a_change_in_a_large_pool_judges_few_elements_and_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    play = played()
    for number in range(900):
        push(play, pe(1000 + number, R1))
    assert len(play.members()) == 902
    judged: list[object] = []

    def counted(*arguments: object) -> object:
        judged.append(arguments)
        return judge(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(decisions, "judge", counted)
    push(play, pe(1000, R1), gone=True)
    push(play, pe(2000, R1))
    assert len(play.members()) == 902
    assert len(judged) <= 6


def test_a_pool_takes_no_more_than_max_members_and_keeps_those_it_has() -> None:
    play = played(max_members=10)
    for number in range(500):
        push(play, pe(1000 + number, R1))
    assert play.members() == [1, 2, *range(1000, 1008)]
    assert play.belief.refused(POOL)[Code.TOO_MANY] == 492
    push(play, pe(1003, R1), gone=True)
    assert 1003 not in play.members()
    push(play, pe(3000, R1))
    assert play.members() == [1, 2, 1000, 1001, 1002, 1004, 1005, 1006, 1007, 3000]


def test_refusal_in_a_full_pool_costs_the_same_whatever_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    play = played(max_members=10)
    for number in range(20):
        push(play, pe(1000 + number, R1))
    assert len(play.members()) == 10
    searches: list[object] = []

    def counted(admission: PoolAdmission, needed: Collection[int]) -> list[int]:
        searches.append(admission)
        return PoolAdmission.others(admission, needed)

    monkeypatch.setattr(
        play.belief._pools[POOL].reports.admission,
        "others",
        partial(counted, play.belief._pools[POOL].reports.admission),
    )
    for number in range(500):
        push(play, pe(2000 + number, R1))
    assert len(searches) <= 1, "all members are compared once, and not for each stranger"
    assert len(play.members()) == 10


def test_claims_made_in_vain_keep_nobody_out() -> None:
    """The third registrar says of others that they have their home at the first, which knows none of them."""
    play = played(max_members=10)
    for number in range(100):
        play.belief.updated(2, Update(0xC3, POOL.encode(), pe(1000 + number, R1), False, play.now))
        play.wait(0.001)
    play.answer(0, pe(1, R1), pe(2, R2))
    assert play.members() == [1, 2]
    for number in range(8):
        push(play, pe(2000 + number, R1))
    assert play.members() == [1, 2, *range(2000, 2008)]


def test_a_member_refused_at_one_registrar_is_denied_by_none() -> None:
    """With more elements than fit, no registrar's answer may take out whom another one told of first."""
    play = played(max_members=10)
    everybody = [pe(1000 + number, R1) for number in range(20)]
    for index, order in ((0, everybody), (1, everybody[::-1]), (2, everybody)):
        play.answer(index, pe(1, R1), pe(2, R2), *order)
    members = play.members()
    assert len(members) == 10
    for _ in range(3):
        play.wait(1.1)
        for index, order in ((1, everybody), (0, everybody[::-1]), (2, everybody)):
            play.answer(index, *order, pe(2, R2), pe(1, R1))
        assert play.members() == members


def test_a_flood_from_outside_the_networks_is_refused_at_the_door() -> None:
    play = played()
    view = play.view()
    for number in range(4000):
        push(play, foreign(1000 + number))
    assert play.members() == [1, 2]
    assert len(play.view().out) == MAX_FOREIGN
    assert play.belief.refused(POOL)[Code.FOREIGN] == 4000 - MAX_FOREIGN
    before = play.view()
    assert before is not view
    push(play, foreign(9999))
    assert play.view() is before, "a refusal changes nothing"
    push(play, pe(3, R1))
    assert play.members() == [1, 2, 3]


def test_refusals_are_told_of_now_and_then_with_their_number() -> None:
    play = played()
    for number in range(MAX_FOREIGN):
        push(play, foreign(1000 + number))
    play.view()
    play.belief.take_events()
    for number in range(3000):
        push(play, foreign(5000 + number))
        play.wait(0.009)
    told = [event for event in play.belief.take_events() if event.kind == "refused"]
    assert 2 <= len(told) <= 4
    assert "3000" not in told[0].words
    assert "64 such PEs are known;" in told[-1].words


def test_foreign_elements_that_are_gone_make_room_for_others() -> None:
    play = played()
    for turn in range(50):
        for number in range(MAX_FOREIGN):
            push(play, foreign(1000 * turn + number + 5000))
        for number in range(MAX_FOREIGN):
            push(play, foreign(1000 * turn + number + 5000), gone=True)
        play.view()
    assert play.belief.refused(POOL)[Code.FOREIGN] == 0
    push(play, foreign(77))
    assert 77 in play.out()
