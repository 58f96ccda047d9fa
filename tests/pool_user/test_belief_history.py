"""Rules 4 and 7: the last good ones, since when a member is in, who left; views that stay the same."""

from dataclasses import replace
from ipaddress import ip_address

import pytest
from daemon_kit.finding import Finding, Life
from pool_user import Member
from pool_user.belief.history import History
from pool_user.belief.rules import LAST_GOOD_REPLACED_AFTER_S, MAX_MEMBERS, MOVED_AFTER_S
from pool_user.departures import MOST_DEPARTURES

from rserpool import LeastUsed, Protocol
from tests.pool_user.belief_support import POOL, R1, R2, Play, pe


def playing(*elements: int) -> Play:
    play = Play()
    play.settle(0)
    play.answer(0, *(pe(number, R1) for number in elements))
    return play


def member(identifier: int) -> Member:
    place = (ip_address("10.0.0.1"),)
    return Member(identifier, R1, place, 5060, Protocol.UDP, LeastUsed(0.0), since_s=0.0)


def recent(play: Play) -> list[int]:
    return [member.identifier for member in play.view().recent]


def test_the_last_good_ones_are_who_was_in_during_the_last_10_s() -> None:
    play = playing(1, 2, 3)
    play.answer(0, pe(2, R1), pe(3, R1))
    play.wait(8)
    play.answer(0, pe(3, R1))
    assert recent(play) == []
    play.wait(3)
    play.answer(0)
    assert play.members() == []
    assert recent(play) == [2, 3]


def test_the_last_good_ones_stay_until_somebody_is_in_again() -> None:
    play = playing(1)
    play.answer(0)
    play.wait(1000)
    play.answer(0)
    assert recent(play) == [1]
    play.answer(0, pe(9, R1))
    assert recent(play) == []
    assert play.members() == [9]


def test_the_last_good_ones_are_of_the_last_time_the_pool_became_empty() -> None:
    play = playing(1)
    play.answer(0)
    play.wait(20)
    play.answer(0, pe(2, R1))
    play.wait(6)
    play.answer(0)
    assert recent(play) == [2]


def test_members_that_no_home_confirmed_leave_the_last_good_members_as_they_are() -> None:
    """A liar that adds and deletes all servers of a pool without a key must not empty its answers."""
    history = History()
    good = replace(member(1), since_s=99.98)
    unconfirmed = replace(good, identifier=2, home_registrar=R2)
    history.note({1: good}, {}, {}, {1}, 100.0)
    history.note({}, {2: unconfirmed}, {}, (), 101.0)
    history.note({2: unconfirmed}, {}, {}, (), 101.1)
    assert [last.identifier for last in history.recent] == [1]


@pytest.mark.parametrize("identifier", [1, 2], ids=["the same identifier", "a fresh identifier"])
def test_members_that_are_back_for_a_moment_without_a_home_are_the_last_good_ones_of_before(
    identifier: int,
) -> None:
    """A liar deletes all servers of a pool, which register anew, and deletes them again before their home
    speaks for them (found by a simulated scenario)."""
    history = History()
    good = replace(member(1), since_s=70.0)
    unconfirmed = replace(good, identifier=identifier, home_registrar=R2)
    for before, after, confirmed, now in (
        ({1: good}, {9: replace(good, identifier=9, port=5061)}, {1}, 100.0),
        ({9: replace(good, identifier=9, port=5061)}, {identifier: unconfirmed}, set[int](), 100.001),
        ({identifier: unconfirmed}, {}, set[int](), 100.003),
    ):
        history.departures.note(before, after, {}, confirmed, now)
        history.note(before, after, {}, confirmed, now)
    assert [last.identifier for last in history.recent] == [1]


def test_member_of_a_moment_does_not_replace_the_last_good_members() -> None:
    play = playing(1, 2)
    play.wait(3600)
    play.answer(0)
    play.wait(1.1)
    play.answer(0)
    play.wait(20)
    play.answer(0, pe(66, R1))
    play.answer(0)
    assert play.members() == []
    assert recent(play) == [1, 2]


def test_member_of_some_seconds_is_added_to_the_last_good_ones_of_an_hour() -> None:
    play = playing(1, 2)
    play.wait(3600)
    play.answer(0)
    play.wait(1.1)
    play.answer(0)
    for number in range(66, 76):
        play.wait(20)
        play.answer(0, pe(number, R1))
        play.wait(5.1)
        play.answer(0)
    assert play.members() == []
    assert recent(play)[:2] == [1, 2]
    play.answer(0, pe(9, R1))
    play.wait(LAST_GOOD_REPLACED_AFTER_S)
    play.answer(0)
    assert recent(play) == [9]


def test_last_good_ones_of_days_ago_do_not_come_back() -> None:
    """Somebody was in for long since, and left more than 10 s before the pool became empty."""
    play = playing(1)
    play.answer(0)
    assert recent(play) == [1]
    play.wait(1)
    play.answer(0, pe(2, R1))
    play.wait(3 * 86400)
    for number in range(3, 6):
        play.answer(0, pe(number, R1))
        play.wait(4)
    play.answer(0)
    assert play.members() == []
    assert recent(play) == [3, 4, 5]


def test_member_that_no_home_confirmed_is_no_last_good_member() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(1, R1), pe(66, 0xDEAD))
    assert play.members() == [1, 66]
    play.wait(6)
    play.answer(0)
    play.wait(0.1)
    play.answer(0)
    assert play.members() == []
    assert recent(play) == [1]


def test_members_that_come_and_go_do_not_evict_those_that_were_in_for_long() -> None:
    play = playing(1)
    play.wait(3600)
    play.answer(0)
    for number in range(300):
        play.answer(0, pe(1000 + number, R1))
        play.answer(0)
    play.wait(1.1)
    assert play.members() == []
    assert recent(play) == [1]


def test_refused_ones_are_not_among_them() -> None:
    play = playing(1)
    play.answer(0, pe(1, R1, address="192.0.2.1"))
    play.begin_probes()
    play.wait(MOVED_AFTER_S)
    assert play.members() == []
    play.answer(0)
    assert [str(address) for member in play.view().recent for address in member.addresses] == ["10.0.0.1"]


def test_since_is_when_it_came_in() -> None:
    play = playing(1)
    play.wait(5)
    came_s = play.now
    play.answer(0, pe(1, R1), pe(2, R1))
    assert play.view().members[1].since_s == pytest.approx(came_s, abs=0.01)
    assert play.view().members[0].since_s == pytest.approx(came_s - 5, abs=0.01)


def test_a_moment_out_of_sight_does_not_count() -> None:
    play = playing(1)
    since_s = play.view().members[0].since_s
    play.answer(0)
    play.wait(0.5)
    play.answer(0, pe(1, R1))
    assert play.view().members[0].since_s == since_s


def test_longer_or_another_address_does() -> None:
    play = playing(1, 2)
    play.answer(0, pe(2, R1, address="10.0.0.77"))
    play.begin_probes()
    play.wait(2)
    play.answer(0, pe(1, R1), pe(2, R1, address="10.0.0.77"))
    assert [member.since_s > 100.005 for member in play.view().members] == [True, True]


def test_departure_stays_until_the_server_is_in_again() -> None:
    play = playing(1, 2)
    play.answer(0, pe(2, R1))
    (departure,) = play.view().departures
    assert (departure.member.identifier, departure.cause.words) == (1, "removed by its home registrar")
    assert departure.left_s == pytest.approx(play.now, abs=0.01)
    play.wait(86_400)
    play.answer(0, pe(2, R1))
    assert play.view().departures == (departure,)
    play.answer(0, pe(2, R1), pe(7, R1, address="10.0.0.1"))
    assert play.view().departures == (), "the same server under another identifier"


def test_examined_departure_keeps_the_finding() -> None:
    play = playing(1, 2)
    play.answer(0, pe(2, R1))
    member = play.view().departures[0].member
    assert play.belief.examined(POOL, member, Finding(Life.REFUSED, "connection refused"))
    assert "nothing listens at its port any more" in play.out()[1]
    play.answer(0, pe(1, R1), pe(2, R1))
    assert not play.belief.examined(POOL, member, Finding(Life.REFUSED)), "it is in again"


def test_forgotten_departure_is_not_told_any_more() -> None:
    play = playing(1, 2, 3)
    for staying in ((2, 3), (3,)):
        play.answer(0, *(pe(number, R1) for number in staying))
        play.wait(1)
    forgotten = play.belief.forget(POOL, lambda departure: departure.member.identifier == 1)
    assert [departure.member.identifier for departure in forgotten] == [1]
    assert list(play.out()) == [2]
    assert play.belief.forget("unknown", lambda departure: True) == []


def test_nothing_new_leaves_the_very_same_view() -> None:
    play = playing(1, 2)
    view = play.view()
    for _ in range(5):
        play.wait(0.05)
        play.answer(0, pe(1, R1), pe(2, R1))
        assert play.view() is view


def test_an_unchanged_pool_keeps_its_view_while_another_changes() -> None:
    play = Play(pools=(POOL, "other"))
    play.settle(0)
    play.answer(0, pe(1, R1))
    view = play.view()
    play.answer(0, pe(5, R1), handle="other")
    assert play.view() is view
    assert play.members("other") == [5]


def test_a_load_is_news_of_a_member_but_not_of_the_membership() -> None:
    play = playing(1)
    view = play.view()
    assert not play.answer(0, pe(1, R1, policy=LeastUsed(0.5)))
    assert play.view() is not view
    assert play.view().members[0].policy == LeastUsed(0.5)


def test_members_are_sorted_and_an_identifier_occurs_once() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(9, R1), pe(3, R1), pe(9, R1, address="10.0.0.99"), pe(1, R1))
    assert play.members() == [1, 3, 9]


def test_events_tell_what_happened() -> None:
    play = playing(1)
    play.answer(0)
    kinds = [event.kind for event in play.belief.take_events()]
    assert kinds == ["registrar", "registrar", "joined", "left"]
    assert play.belief.take_events() == []


def test_a_registrar_that_names_others_each_time_does_not_fill_memory() -> None:
    play = Play()
    play.up(0)
    for turn in range(40):
        play.answer(0, *(pe(turn * 128 + number, R1) for number in range(128)))
    play.wait(1.1)
    assert len(play.members()) <= MAX_MEMBERS, "those forgotten were questioned as a crowd for a second"
    play.sentinel(0, (0x51, R1))
    play.answer(0, pe(1, R1))
    play.wait(1.1)
    play.answer(0, pe(1, R1))
    assert play.members() == [1]
    assert len(play.view().departures) <= MOST_DEPARTURES


FIRST = [pe(identifier, R1) for identifier in range(1, 129)]


def test_a_full_answer_of_its_home_denies_nobody() -> None:
    play = Play(1)
    play.settle(0)
    play.answer(0, *FIRST)
    play.answer(0, *FIRST[1:], pe(129, R1))
    play.wait(2)
    play.answer(0, *FIRST[1:], pe(129, R1))
    assert play.members() == list(range(1, 130))
    assert play.asked() == set(), "asking again at once would not help"


def test_a_full_answer_does_not_speak_for_a_silent_home() -> None:
    play = Play(2)
    play.settle(0, 1)
    play.answer(0, *FIRST)
    play.answer(1, pe(200, R2))
    play.down(1)
    play.wait(2)
    play.answer(0, *FIRST)
    assert 200 in play.members()


def test_a_shorter_answer_denies_again() -> None:
    play = Play(1)
    play.settle(0)
    play.answer(0, *FIRST)
    play.answer(0, *FIRST[1:], pe(129, R1))
    play.answer(0, *FIRST[2:])
    play.wait(2)
    play.answer(0, *FIRST[2:])
    assert play.members() == list(range(3, 129))


def test_a_home_whose_answers_are_full_admits_its_own_only_and_is_not_asked_again_and_again() -> None:
    """Its answers are cut off, so another registrar could invent members of it."""
    play = Play(2)
    play.settle(0, 1)
    play.answer(0, *FIRST)
    play.answer(1, pe(200, R1))
    play.answer(0, *FIRST)
    assert 200 not in play.members()
    assert play.asked() == set()
    play.answer(0, *FIRST[1:], pe(200, R1))
    play.answer(0, *FIRST)
    assert 200 in play.members(), "its home has listed it"


def test_an_element_that_is_out_is_so_since_it_was_first_seen() -> None:
    play = playing(1)
    play.answer(0, pe(1, R1), pe(2, R1, "192.0.2.9"))
    (out,) = play.view().out
    for _ in range(3):
        play.wait(5)
        play.answer(0, pe(1, R1), pe(2, R1, "192.0.2.9"), pe(3, R1))
        play.answer(0, pe(1, R1), pe(2, R1, "192.0.2.9"))
        assert next(member for member in play.view().out if member.identifier == 2).since_s == out.since_s
