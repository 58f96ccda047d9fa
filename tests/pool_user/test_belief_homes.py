"""Members that others than their home registrars took out are contested, and stay for a moment."""

import pytest
from pool_user.belief.rules import CONTESTED_S, ESTABLISHED_AFTER_S
from pool_user.views import Member

from rserpool import PoolElement, Update
from tests.pool_user.belief_support import POOL, R1, R2, R3, Play, pe, push

TEN = tuple(range(1, 11))


def lies(followed: bool = True) -> Play:
    """Ten members, at home at the first registrar; the third will lie."""
    play = Play()
    play.settle(0, 1, 2)
    for index in range(3):
        play.answer(index, *at_home())
    if followed:
        play.follow(0, 1, 2)
    play.wait(20)
    assert play.members() == list(TEN)
    return play


def at_home(home: int = R1) -> list[PoolElement]:
    return [pe(number, home) for number in TEN]


def missing(play: Play, seconds: float) -> float:
    """Let time pass; return for how much of it members were missing."""
    missed_s = 0.0
    for _ in range(round(seconds / 0.05)):
        missed_s += 0.05 * (play.members() != list(TEN))
        play.wait(0.05)
    return missed_s


def test_what_a_home_deletes_itself_is_out_at_once() -> None:
    play = lies()
    push(play, 0, pe(1, R1), gone=True)
    assert play.members() == list(TEN[1:])


def test_a_deletion_counts_though_an_answer_comes_before_anybody_looks() -> None:
    """A loop that is behind takes several words of a registrar in before it evaluates."""
    play = lies()
    play.belief.updated(0, Update(R1, POOL.encode(), pe(1, R1), True, play.now))
    play.now += 0.01
    play.answer(0, *at_home()[1:])
    assert play.members() == list(TEN[1:])


def test_a_home_that_answers_without_having_deleted_was_told_to_forget() -> None:
    play = lies()
    play.answer(0, *at_home()[1:])
    assert play.members() == list(TEN)
    assert play.view().suspected == (1,)
    push(play, 0, pe(1, R1))
    play.wait(CONTESTED_S + 0.1)
    assert play.members() == list(TEN), "it has registered again"
    assert play.view().suspected == ()


def test_a_contested_member_leaves_in_the_end_and_before_when_nobody_reaches_it() -> None:
    play = lies()
    play.answer(0, *at_home()[2:])
    assert play.members() == list(TEN)
    targets: tuple[Member, ...] = play.probe_targets()[POOL]
    play.belief.probed(POOL, next(member for member in targets if member.identifier == 1), False, play.now)
    assert play.members() == list(TEN[1:])
    play.wait(CONTESTED_S)
    assert play.members() == list(TEN[2:])


def test_a_registrar_that_is_asked_only_answers_for_its_own() -> None:
    play = lies(followed=False)
    play.answer(0, *at_home()[1:])
    assert play.members() == list(TEN[1:])


def test_a_polled_member_that_was_back_at_once_is_contested_when_it_leaves_again() -> None:
    """Somebody takes it out again and again; its sidecar takes a fresh identifier in the end."""
    play = lies(followed=False)
    play.answer(0, *at_home()[1:])
    assert play.members() == list(TEN[1:])
    play.wait(0.9)
    play.answer(0, *at_home())
    for _ in range(5):
        play.answer(0, *at_home()[1:])
        assert missing(play, 0.9) == 0
        assert play.view().suspected == (1,)
        play.answer(0, *at_home())
    play.answer(0, *at_home()[1:])
    play.wait(1)
    fresh = pe(66, R1, "10.0.0.1")
    play.answer(0, *at_home()[1:], fresh)
    assert play.members() == [*TEN[1:], 66]
    play.answer(0, *at_home()[1:])
    play.wait(1)
    assert 66 in play.members()
    play.wait(CONTESTED_S)
    assert play.members() == list(TEN[1:])


def test_a_polled_member_that_was_back_after_a_while_leaves_at_once() -> None:
    play = lies(followed=False)
    for _ in range(3):
        play.answer(0, *at_home()[1:])
        assert play.members() == list(TEN[1:])
        play.wait(6)
        play.answer(0, *at_home())
        play.wait(20)


@pytest.mark.parametrize("followed", [True, False], ids=["followed", "polled"])
def test_a_takeover_of_all_that_a_living_registrar_owns_removes_nobody(followed: bool) -> None:
    """It moves the sentinels, too, and denies everybody; the sidecars renew every 2 s."""
    play = lies(followed)
    for _ in range(5):
        for index in (0, 1):
            play.sentinel(index, (0x51 + index, R3))
            play.answer(index, *at_home(R3))
        play.answer(2)
        assert play.standings() == ["settled"] * 3
        assert missing(play, 1.4) == 0
        for index in (0, 1):
            play.answer(index, *at_home())
            play.sentinel(index, (0x51 + index, (R1, R2)[index]))
        play.answer(2)
        assert missing(play, 1) == 0


@pytest.mark.parametrize("is_listed_once", [False, True])
def test_members_that_a_polled_home_goes_on_listing_stay_through_a_takeover(is_listed_once: bool) -> None:
    """The polls miss each renewal. A member that the true home finds dead is out at once."""
    play = lies(followed=False)
    if is_listed_once:
        play.answer(2, *at_home(R3))
    for index in (0, 1):
        play.answer(index, *at_home(R3))
    play.answer(2)
    assert missing(play, 3 * CONTESTED_S) == 0
    play.answer(0, *at_home(R3)[1:])
    assert play.members() == list(TEN[1:])


def test_polled_home_does_not_keep_for_good_what_moved() -> None:
    """It was told of the move, but not of the end."""
    play = lies(followed=False)
    play.answer(2, *at_home(R3))
    play.answer(0, *at_home(R3))
    play.answer(1, *at_home(R3))
    play.answer(2, *at_home(R3)[1:])
    assert missing(play, 2 * CONTESTED_S) == 0
    play.wait(ESTABLISHED_AFTER_S)
    assert play.members() == list(TEN[1:])


def test_elements_added_and_deleted_in_turn_stay() -> None:
    """Ten times a second, by a registrar that is not their home; the sidecars register again after 0.5 s."""
    play = lies()
    for turn in range(50):
        for number in TEN:
            push(play, 2, pe(number, R3))
            push(play, 2, pe(number, R3), gone=True)
        play.answer(0)
        play.answer(1)
        if turn % 5 == 4:
            for number in TEN:
                push(play, 0, pe(number, R1))
        assert missing(play, 0.1) == 0


def test_who_moved_and_was_listed_for_long_leaves_by_the_new_homes_word() -> None:
    play = lies()
    push(play, 2, pe(1, R3))
    play.answer(0, pe(1, R3), *at_home()[1:])
    play.wait(11)
    push(play, 2, pe(1, R3), gone=True)
    assert play.members() == list(TEN[1:])


def test_a_member_whose_home_is_lost_is_not_contested() -> None:
    play = lies()
    push(play, 2, pe(1, R3))
    play.down(0)
    push(play, 2, pe(1, R3), gone=True)
    play.answer(1, *at_home()[1:])
    assert 1 not in play.members()


def test_crowd_asks_who_was_settled_a_moment_ago() -> None:
    """The only settled registrar of now confirms its own lie within 4 ms."""
    play = Play()
    play.settle(0, 1, 2)
    for index in range(3):
        play.answer(index, *at_home(R3))
    play.sentinel(0)
    play.sentinel(1)
    assert play.standings() == ["starting", "starting", "settled"]
    play.answer(2)
    play.answer(2)
    assert play.members() == list(TEN)
    play.wait(1.1)
    assert play.members() == []


@pytest.mark.parametrize("count", [1, 10])
def test_takeovers_of_a_partition_that_end_after_it_take_nobody_out(count: int) -> None:
    """Each registrar alone takes all over after 12 s. When they meet again, the third deletes what it took,
    and the true home obeys. The sidecar registers again half a second later."""
    play = lies()
    taken = TEN[:count]
    play.wait(12.7)
    for number in TEN:
        push(play, 2, pe(number, R3))
        push(play, 0, pe(number, R1))
    play.answer(2, *at_home(R3))
    play.wait(2.3)
    for number in taken:
        push(play, 2, pe(number, R3), gone=True)
    play.answer(0, *at_home()[count:])
    play.answer(1, *at_home()[count:])
    play.answer(2, *at_home()[count:])
    assert missing(play, 0.5) == 0
    for number in taken:
        push(play, 0, pe(number, R1))
    assert missing(play, 3) == 0


def test_contested_member_that_an_unsettled_registrar_lists_is_not_looked_at_without_a_pause() -> None:
    play = lies()
    rest = at_home()[1:]
    play.answer(0, *rest)
    play.wait(0.5)
    play.view()
    for index in range(3):
        play.answer(index, pe(1, 0xDEAD), *rest)
    play.wait(CONTESTED_S)
    assert play.members() == list(TEN)
    deadline_s = play.belief.next_deadline_s
    assert deadline_s is None or deadline_s > play.now
    assert play.belief.due(play.now) == []
