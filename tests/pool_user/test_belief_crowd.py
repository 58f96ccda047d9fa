"""Rule 3: a member leaves at once; a crowd is questioned."""

import pytest

from tests.pool_user.belief_support import POOL, R1, R2, Play, pe


def pool_of(count: int, registrars: int = 3) -> Play:
    """Members 1..count, all at home at the first registrar, listed by all."""
    play = Play(registrars)
    indexes = range(registrars)
    play.settle(*indexes)
    for index in indexes:
        play.answer(index, *(pe(number, R1) for number in range(1, count + 1)))
    assert len(play.members()) == count
    return play


def test_a_member_of_a_pool_of_two_leaves_at_once() -> None:
    play = pool_of(2)
    play.answer(0, pe(2, R1))
    assert play.members() == [2]


def test_the_only_member_leaves_at_once() -> None:
    play = pool_of(1)
    play.answer(0)
    assert play.members() == []


def test_five_of_ten_leave_at_once() -> None:
    play = pool_of(10)
    play.answer(0, *(pe(number, R1) for number in range(6, 11)))
    assert play.members() == [6, 7, 8, 9, 10]


def test_four_of_six_are_questioned() -> None:
    play = pool_of(6)
    play.answer(0, pe(5, R1), pe(6, R1))
    assert play.members() == [1, 2, 3, 4, 5, 6]


def test_two_of_three_are_questioned_and_leave_as_soon_as_the_others_confirm() -> None:
    play = pool_of(3)
    play.answer(0, pe(3, R1))
    assert play.members() == [1, 2, 3]
    assert play.asked() == {(0, POOL), (1, POOL), (2, POOL)}
    play.answer(1, pe(3, R1))
    play.answer(2, pe(3, R1))
    assert play.members() == [1, 2, 3]
    play.answer(0, pe(3, R1))
    assert play.members() == [3]
    assert play.asked() == set()


def test_the_truth_is_served_after_a_second_whatever_the_others_say() -> None:
    play = pool_of(3)
    play.answer(0)
    play.answer(1, *(pe(number, R1) for number in (1, 2, 3)))
    play.answer(2, *(pe(number, R1) for number in (1, 2, 3)))
    play.answer(0)
    assert play.members() == [1, 2, 3]
    play.wait(0.9)
    assert play.members() == [1, 2, 3]
    assert play.belief.next_deadline_s == pytest.approx(play.now, abs=0.15)
    play.wait(0.15)
    assert play.members() == []


def test_a_member_that_comes_back_while_a_crowd_is_questioned_never_left() -> None:
    play = pool_of(3)
    since_s = play.view().members[0].since_s
    play.answer(0)
    play.answer(0, pe(1, R1), pe(2, R1))
    assert play.members() == [1, 2, 3]
    play.answer(1, pe(1, R1), pe(2, R1))
    play.answer(2, pe(1, R1), pe(2, R1))
    play.wait(1.1)
    assert play.members() == [1, 2]
    assert play.view().members[0].since_s == since_s


def test_departures_add_up_within_half_a_second() -> None:
    play = pool_of(4)
    play.answer(0, *(pe(number, R1) for number in (2, 3, 4)))
    play.wait(0.2)
    play.answer(0, *(pe(number, R1) for number in (3, 4)))
    assert play.members() == [3, 4]
    play.wait(0.2)
    play.answer(0, pe(4, R1))
    assert play.members() == [3, 4], "the third of four within 500 ms"


def test_departures_further_apart_do_not() -> None:
    play = pool_of(4)
    for left in (3, 2, 1, 0):
        play.answer(0, *(pe(number, R1) for number in range(1, left + 1)))
        assert len(play.members()) == left
        play.wait(0.6)


def test_a_single_registrar_is_asked_again_itself() -> None:
    play = pool_of(3, registrars=1)
    play.answer(0)
    assert play.members() == [1, 2, 3]
    assert play.asked() == {(0, POOL)}
    play.answer(0)
    assert play.members() == []


def test_the_registrars_that_are_silent_are_not_waited_for() -> None:
    play = pool_of(3)
    play.silence(2)
    play.answer(0)
    play.answer(1)
    play.answer(0)
    assert play.members() == []


def test_a_crowd_that_moves_is_no_crowd_that_leaves() -> None:
    play = pool_of(3)
    play.answer(1, *(pe(number, R2) for number in (1, 2, 3)))
    assert play.members() == [1, 2, 3]
    play.answer(0, *(pe(number, R2) for number in (1, 2, 3)))
    assert play.members() == [1, 2, 3]


def test_a_crowd_that_leaves_is_told() -> None:
    play = pool_of(3)
    play.belief.take_events()
    play.answer(0)
    (event,) = play.belief.take_events()
    assert event.kind == "questioned"
    assert event.words == "3 of 3 would be gone within 500 ms: all registrars are asked"
    for index in (1, 2, 0):
        play.answer(index)
    assert {event.words for event in play.belief.take_events()} == {"removed by its home registrar"}
    assert set(play.out().values()) == {"removed by its home registrar"}
