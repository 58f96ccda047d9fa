"""Rule 1: which registrar is settled, and which identifier is its own."""

from dataclasses import replace
from ipaddress import ip_address

import pytest
from pool_user import Standing

from rserpool import LeastUsed, PoolElement, Protocol, Resolution, Transport
from tests.pool_user.belief_support import POOL, R1, R2, R3, Play, pe, push


def identifiers(play: Play) -> list[int | None]:
    return [state.identifier for state in play.belief.registrar_states(play.now)]


def test_nothing_is_known_at_first() -> None:
    play = Play()
    assert play.standings() == ["down"] * 3
    assert not play.view().known
    assert play.view().stale_since_s is not None


def test_a_registrars_own_sentinel_settles_it_and_names_it() -> None:
    play = Play()
    play.up(0, 1, 2)
    assert play.standings() == ["starting"] * 3
    play.sentinel(0)
    play.sentinel(2)
    play.sentinel(1, (0x52, R2))
    assert play.standings() == ["starting", "settled", "starting"]
    assert identifiers(play) == [None, R2, None]


def test_a_registrar_is_not_settled_by_another_registrars_sentinel() -> None:
    play = Play()
    play.up(0)
    play.answer(0, pe(0x52, R2), handle="rspdns-sentinel-2")
    assert play.standings()[0] == "starting"


def test_a_sentinel_without_a_home_does_not_settle() -> None:
    play = Play()
    play.up(0)
    play.sentinel(0, (0x51, 0))
    assert play.standings()[0] == "starting"


def test_a_registrar_that_stops_listing_its_sentinel_is_starting_again() -> None:
    play = Play()
    play.settle(0)
    play.sentinel(0)
    assert play.standings()[0] == "starting"
    play.sentinel(0, (0x99, R1))
    assert play.standings()[0] == "settled", "its sentinel was restarted"


def test_the_same_sentinel_registered_again_in_the_same_life_counts_at_once() -> None:
    play = Play()
    play.settle(0)
    play.sentinel(0)
    play.sentinel(0, (0x51, R1))
    assert play.standings()[0] == "settled"


def test_a_lost_link_unsettles() -> None:
    play = Play()
    play.settle(0)
    play.down(0)
    assert play.standings()[0] == "down"
    assert identifiers(play)[0] is None


@pytest.mark.parametrize("home", [R1, R2, 0xDEAD], ids=["own of before", "a peer that took over", "unknown"])
def test_the_sentinel_of_a_former_life_counts_only_after_10_s(home: int) -> None:
    play = Play()
    play.settle(0)
    play.down(0)
    play.wait(1)
    play.up(0)
    play.sentinel(0, (0x51, home))
    assert play.standings()[0] == "starting"
    play.wait(9)
    play.sentinel(0, (0x51, home))
    assert play.standings()[0] == "starting"
    play.wait(1.1)
    assert play.standings()[0] == "starting", "time alone proves nothing"
    play.sentinel(0, (0x51, home))
    assert play.standings()[0] == "settled"


def test_after_a_restart_a_fresh_sentinel_counts_at_once_beside_the_old_sentinel() -> None:
    play = Play()
    play.settle(0)
    play.down(0)
    play.up(0)
    play.sentinel(0, (0x51, R1))
    play.sentinel(0, (0x51, R1), (0x77, 0xA2))
    assert play.standings()[0] == "settled"
    assert identifiers(play)[0] == 0xA2
    play.sentinel(0, (0x77, 0xA2))
    assert identifiers(play)[0] == 0xA2


def test_a_sentinel_taken_over_is_not_the_registrars_own_any_more() -> None:
    play = Play()
    play.settle(0, 1)
    play.sentinel(0, (0x51, R2))
    assert play.standings()[:2] == ["starting", "settled"]


def known(*, by_word: bool) -> Play:
    """Three settled registrars that are known: they have spoken, or kept their identifiers for 10 s."""
    play = Play()
    play.settle(0, 1, 2)
    if by_word:
        for index in (0, 1, 2):
            push(play, index, pe(9, R3))
    else:
        play.wait(10)
    return play


BY_WORD = pytest.mark.parametrize("by_word", [True, False], ids=["it has spoken", "for 10 s"])


@BY_WORD
def test_takeover_of_the_sentinels_of_living_registrars_unsettles_nobody(by_word: bool) -> None:
    """A registrar that lies takes all over, deletes their sentinels, and forges others at their hosts."""
    play = known(by_word=by_word)
    for turn in range(60):
        for index in (0, 1):
            forged = (0x1000 + turn, R3 if turn % 2 else 0xBAD)
            true = (0x51 + index, R3) if turn % 3 == 0 else None
            play.sentinel(index, *((true, forged) if true else (forged,)))
        assert play.standings() == ["settled"] * 3
        assert identifiers(play) == [R1, R2, R3]
        play.wait(0.25)


@BY_WORD
def test_known_registrar_without_any_sentinel_is_starting_after_10_s(by_word: bool) -> None:
    play = known(by_word=by_word)
    play.sentinel(0, (0x51, R1))
    for _ in range(9):
        play.sentinel(0)
        assert play.standings()[0] == "settled"
        play.wait(1)
    play.wait(1)
    play.sentinel(0)
    assert play.standings()[0] == "starting"


@BY_WORD
def test_known_registrar_that_restarts_is_not_settled_by_its_former_sentinel(by_word: bool) -> None:
    play = known(by_word=by_word)
    play.down(0)
    play.up(0)
    play.sentinel(0, (0x51, R2))
    assert play.standings() == ["starting", "settled", "settled"]


def test_two_registrars_never_have_the_same_identifier() -> None:
    play = Play()
    play.up(0, 1)
    play.sentinel(0, (0x51, R2))
    play.sentinel(1, (0x52, R2))
    assert play.standings()[:2] == ["starting", "starting"]
    play.sentinel(0, (0x60, R1))
    assert play.standings()[:2] == ["settled", "settled"]
    assert identifiers(play)[:2] == [R1, R2]


def test_an_identifier_held_for_a_moment_is_lost_to_nobodys_gain() -> None:
    play = Play()
    play.settle(0, 1)
    play.sentinel(0, (0x60, R2))
    assert play.standings()[:2] == ["starting", "starting"]


def test_a_registrar_has_no_identifier_before_all_have_told_theirs_nor_one_that_two_claim() -> None:
    play = Play()
    play.up(0, 1)
    play.sentinel(0, (0x51, R2))
    assert play.standings()[0] == "starting"
    play.sentinel(1, (0x52, R2))
    assert play.standings()[:2] == ["starting", "starting"]


def test_silent_registrar_does_not_delay_the_identifiers_of_the_others() -> None:
    play = Play()
    play.up(0, 1)
    asked_s = play.now
    play.wait(0.6)
    play.sentinel(0, (0x51, R1))
    assert play.standings()[:2] == ["starting", "starting"]
    play.belief.unanswered(1, asked_s, play.now)
    assert play.standings()[:2] == ["settled", "silent"]


def test_a_registrar_that_returns_unsettles_nobody() -> None:
    play = Play()
    play.settle(0)
    play.up(1)
    assert play.standings()[:2] == ["settled", "starting"]


def test_an_identifier_held_for_10_s_is_not_lost_to_a_newcomer() -> None:
    play = Play()
    play.settle(1)
    play.wait(11)
    play.up(0)
    play.sentinel(0, (0x51, R2))
    assert play.standings()[:2] == ["starting", "settled"]


def test_two_sentinels_with_different_homes_are_no_answer_unless_one_is_known() -> None:
    play = Play()
    play.up(0)
    play.sentinel(0, (0x51, R1), (0x61, R3))
    assert play.standings()[0] == "starting"
    play.sentinel(0, (0x51, R1))
    play.sentinel(0, (0x51, R1), (0x61, R3))
    assert identifiers(play)[0] == R1


def test_silent_after_half_a_second_without_any_answer() -> None:
    play = Play()
    play.settle(0)
    asked_s = play.now
    play.wait(0.3)
    play.belief.unanswered(0, asked_s, play.now)
    assert play.standings()[0] == "settled"
    assert play.belief.next_deadline_s == pytest.approx(asked_s + 0.5)
    play.wait(0.21)
    assert play.standings()[0] == "silent"


def test_a_question_lost_among_answered_ones_is_no_silence() -> None:
    play = Play()
    play.settle(0)
    asked_s = play.now
    play.wait(0.2)
    play.answer(0)
    play.wait(0.5)
    play.belief.unanswered(0, asked_s, play.now)
    assert play.standings()[0] == "settled"


def test_after_a_silence_a_registrar_is_waking_for_a_second() -> None:
    play = Play()
    play.settle(0)
    play.silence(0)
    assert play.standings()[0] == "silent"
    play.sentinel(0, (0x51, R1))
    assert play.standings()[0] == "waking"
    play.wait(1.01)
    assert play.standings()[0] == "settled"


def test_many_sentinel_identifiers_do_not_fill_memory() -> None:
    play = Play()
    play.up(0)
    for number in range(2000):
        play.sentinel(0, (number, R1))
    assert play.standings()[0] == "settled"
    assert len(play.belief.sessions[0].life._seen) <= 256


def test_answers_to_questions_of_before_the_link_are_ignored() -> None:
    play = Play()
    play.settle(0)
    asked_s = play.now
    play.wait(0.1)
    play.down(0)
    assert not play.answer(0, pe(1, R1), asked_s=asked_s)
    play.up(0)
    assert not play.answer(0, pe(1, R1), asked_s=asked_s)
    assert play.members() == []


def test_an_unknown_pool_is_ignored() -> None:
    play = Play()
    play.settle(0)
    assert not play.answer(0, pe(1, R1), handle="stranger")
    assert list(play.evaluate().views) == [POOL]


def test_every_standing_is_explained() -> None:
    assert all(standing.explanation for standing in Standing)


def sentinel_at(address: str, identifier: int = 0x66, home: int = R2) -> PoolElement:
    return pe(identifier, home, address, protocol=Protocol.SCTP)


def test_a_sentinel_elsewhere_is_a_mistake_that_is_told_once() -> None:
    play = Play()
    play.up(0)
    for last in (2, 3, 2):
        play.answer(0, sentinel_at(f"10.9.0.{last}"), handle="rspdns-sentinel-1")
    assert play.standings()[0] == "starting"
    (told,) = [event for event in play.belief.take_events() if event.kind == "misplaced"]
    assert told.words == (
        "registrar 1 (10.9.0.1): Its sentinel's pool, rspdns-sentinel-1, lists 10.9.0.2, which is not its "
        "own host, 10.9.0.1: either the order of `registrars` is not that of the numbers given to "
        "rspdns-registrar, or somebody forges sentinels, and its own does not run"
    )
    why = play.belief.registrar_states(play.now)[0].why
    assert why.startswith("it does not list its own sentinel; it is heard about members that are in")
    assert why.endswith("and its own does not run")
    play.sentinel(0, (0x51, R1))
    assert play.belief.registrar_states(play.now)[0].problem == ""


@pytest.mark.parametrize("where", ["10.6.6.6", "10.9.0.2"], ids=["a stranger's host", "another registrar's"])
def test_forged_sentinels_neither_settle_a_registrar_nor_keep_it_from_it(where: str) -> None:
    """They are there with the answer after a restart, before the true one and beside it."""
    play = Play()
    play.settle(0, 1)
    play.down(0)
    play.up(0)
    play.answer(0, sentinel_at(where, home=0xA9), handle="rspdns-sentinel-1")
    assert play.standings()[0] == "starting"
    true = sentinel_at("10.9.0.1", 0x77, 0xA9)
    for forged_home in (0xA9, R2, 0xDEAD):
        forged = sentinel_at(where, home=forged_home)
        play.answer(0, forged, true, handle="rspdns-sentinel-1")
        assert play.standings()[:2] == ["settled", "settled"]
        assert identifiers(play)[:2] == [0xA9, R2]
    assert play.belief.registrar_states(play.now)[0].why == (
        "it answers and lists its own sentinel: what it says counts. "
        f"Something at {where} registers in its sentinel's pool, rspdns-sentinel-1, too: "
        "that does not count"
    )


def test_a_member_with_more_addresses_than_the_registrars_is_no_sentinel() -> None:
    play = Play()
    play.up(0)
    both = Transport(Protocol.SCTP, 5060, (ip_address("10.9.0.1"), ip_address("10.6.6.6")))
    forged = replace(sentinel_at("10.9.0.1", home=R1), user_transport=both)
    play.answer(0, forged, handle="rspdns-sentinel-1")
    assert play.standings()[0] == "starting"


def why(play: Play) -> str:
    words = play.belief.registrar_states(play.now)[0].why
    known, end, _ = words.rpartition(
        "; it is heard about members that are in, not about members that are gone"
    )
    assert end
    return known


def test_a_registrar_that_is_not_settled_says_why() -> None:
    play = Play()
    play.up(0)
    assert why(play) == "it has not told yet which sentinels it lists"
    play.sentinel(0)
    assert why(play) == "it does not list its own sentinel: just started, or no sentinel runs beside it"
    play.up(1)
    play.sentinel(0, (0x51, R1))
    assert why(play) == "registrar 2 has not told yet which sentinels it lists"
    play.sentinel(1, (0x52, R1))
    assert why(play) == f"its sentinel names {R1:08x}, as that of registrar 2 does"
    play.sentinel(1, (0x52, R2))
    play.sentinel(0)
    play.sentinel(0, (0x53, R3), (0x54, R1))
    assert why(play) == (
        f"sentinels at its host name different registrars, {R1:08x} and {R3:08x}: two run there, or one is "
        "forged"
    )
    play.down(0)
    play.up(0)
    play.sentinel(0, (0x51, R1))
    assert why(play) == (
        "the sentinel that it lists is of a former life or was taken over; it counts after 10 s on the list"
    )


def test_pools_of_which_something_was_said_are_due_before_those_that_a_standing_concerns() -> None:
    pools = tuple(f"pool-{number}" for number in range(50))
    play = Play(pools=pools)
    play.settle(0, 1, 2)
    for handle in pools:
        play.answer(0, pe(1, R1), handle=handle)
    play.down(1)  # concerns them all
    listed = (pe(1, R1), pe(2, R1))
    play.belief.answered(0, Resolution(b"pool-30", True, LeastUsed(0.0), listed, play.now, play.now))
    due = [handle for handle, _ in play.belief.due(play.now)]
    assert due[0] == "pool-30"
    assert sorted(due) == sorted(pools)
    change = play.belief.evaluate(play.now, due[:1])
    assert [member.identifier for member in change.views["pool-30"].members] == [1, 2]
    assert [member.identifier for member in change.pools["pool-30"].joined] == [2]
    assert "pool-30" not in dict(play.belief.due(play.now))
    assert len(play.belief.due(play.now)) == len(pools) - 1


def test_an_element_denied_by_its_home_is_not_brought_back_by_a_registrar_that_settles_later() -> None:
    play = Play()
    play.settle(0, 1)
    play.up(2)
    for index in (0, 1, 2):
        play.answer(index, pe(1, R1))
    assert play.members() == [1]
    for index in (0, 1):
        play.answer(index)
    assert play.members() == []
    play.down(0)
    play.sentinel(2, (0x53, R3))
    play.answer(2, pe(1, R1))
    assert play.standings() == ["down", "settled", "settled"]
    assert play.members() == [], "it has not heard of the death"
