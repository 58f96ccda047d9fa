"""A member that registrars tell at another address under the same identifier, in a pool without keys."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network

import pytest
from pool_user.belief.rules import MOVED_AFTER_S, MOVED_UNPROBED_S

from rserpool import LeastUsed, PoolElement, Update
from tests.pool_user.belief_support import POOL, R1, R2, R3, RULES, Play, pe, push

OLD, NEW = "10.0.0.1", "10.0.0.66"


def elsewhere(home: int, address: str = NEW, port: int = 5060) -> PoolElement:
    """PE 1 at another address."""
    return pe(1, home, address, port)


@pytest.fixture
def play() -> Play:
    """Two members that are in for long; the third registrar will lie."""
    play = Play()
    play.settle(0, 1, 2)
    for index in range(3):
        play.answer(index, pe(1, R1), pe(2, R2))
    play.follow(0, 1, 2)
    play.wait(20)
    return play


def shown(play: Play) -> list[str]:
    return [str(member.addresses[0]) for member in play.view().members]


def probe(play: Play, answers: bool) -> None:
    """The probe of PE 1, at the place at which it is to be probed, comes to a conclusion."""
    (member,) = [target for target in play.probe_targets()[POOL] if target.identifier == 1]
    play.belief.probed(POOL, member, answers, play.now)


@pytest.mark.parametrize("home", [R1, R3], ids=["its home", "a registrar that lies"])
def test_a_member_whose_old_address_answers_stays_there(play: Play, home: int) -> None:
    index = 0 if home == R1 else 2
    push(play, index, elsewhere(home))
    assert shown(play) == [OLD, "10.0.0.2"]
    assert play.view().moving == (1,)
    probe(play, answers=True)
    for _ in range(50):
        push(play, index, elsewhere(home, port=6666))
        play.wait(1)
        assert shown(play) == [OLD, "10.0.0.2"]
    words = [event.words for event in play.belief.take_events() if event.kind == "refused"]
    assert 1 <= len(words) <= 6
    assert f"{NEW} port 6666 under the identifier of {OLD} port 5060" in words[-1]


@pytest.mark.parametrize(
    ("address", "port"), [("192.0.2.66", 5060), (NEW, 0), (NEW, 7000)], ids=["address", "no port", "port"]
)
@pytest.mark.parametrize("home", [R1, R3], ids=["its home", "a registrar that lies"])
def test_a_member_that_is_told_at_a_refused_place_stays_where_it_answers(
    play: Play, home: int, address: str, port: int
) -> None:
    play.belief.set_pools({POOL: replace(RULES, ports=frozenset({5060}))}, play.now)
    index = 0 if home == R1 else 2
    for turn in range(20):
        push(play, index, elsewhere(home, address, port))
        assert shown(play) == [OLD, "10.0.0.2"]
        if turn == 0:
            probe(play, answers=True)
        play.wait(0.5)
        assert shown(play) == [OLD, "10.0.0.2"]
    assert any(f"{address} port {port}" in event.words for event in play.belief.take_events())
    probe(play, answers=False)
    assert shown(play) == ["10.0.0.2"]
    assert [member.identifier for member in play.view().out] == [1]
    push(play, 2, elsewhere(R3), gone=True)
    push(play, 0, pe(1, R1, policy=LeastUsed(0.5)))
    assert shown(play) == [OLD, "10.0.0.2"]


def test_a_member_whose_place_the_rules_refuse_from_now_on_does_not_stay(play: Play) -> None:
    push(play, 0, elsewhere(R1))
    probe(play, answers=True)
    play.belief.set_pools({POOL: replace(RULES, accept=(ip_network("10.0.0.2/32"),))}, play.now)
    assert shown(play) == ["10.0.0.2"]
    play.belief.set_pools({POOL: replace(RULES, accept=(ip_network(f"{NEW}/32"),))}, play.now)
    assert shown(play) == [NEW]


def test_a_member_whose_old_address_does_not_answer_is_at_the_new_address(play: Play) -> None:
    push(play, 0, elsewhere(R1))
    play.begin_probes()
    play.wait(MOVED_AFTER_S - 0.1)
    assert shown(play) == [OLD, "10.0.0.2"]
    play.wait(0.2)
    assert shown(play) == [NEW, "10.0.0.2"]
    assert play.view().moving == ()


@pytest.mark.parametrize("waits_s", [0.3, 2.6])
def test_a_member_moves_in_time_after_a_probe_that_began_late(play: Play, waits_s: float) -> None:
    """Others are asked before it. A look at each deadline is enough to see it move."""
    push(play, 0, elsewhere(R1))
    probed_s = play.now + waits_s
    while play.now < probed_s + MOVED_AFTER_S:
        assert shown(play) == [OLD, "10.0.0.2"]
        deadline_s = play.belief.next_deadline_s
        assert deadline_s is not None
        if play.now < probed_s <= deadline_s:
            play.now = probed_s
            play.begin_probes()
        play.now = deadline_s
    assert play.now < probed_s + MOVED_AFTER_S + 0.01
    assert shown(play) == [NEW, "10.0.0.2"]


def test_a_member_that_is_never_probed_moves_at_last(play: Play) -> None:
    push(play, 0, elsewhere(R1))
    assert shown(play) == [OLD, "10.0.0.2"]
    play.wait(MOVED_UNPROBED_S)
    assert shown(play) == [NEW, "10.0.0.2"]


def test_a_member_that_stays_goes_to_the_new_address_when_the_old_one_falls(play: Play) -> None:
    push(play, 0, elsewhere(R1))
    probe(play, answers=True)
    play.wait(5)
    assert shown(play) == [OLD, "10.0.0.2"]
    probe(play, answers=False)
    assert shown(play) == [NEW, "10.0.0.2"]


def test_a_member_that_the_probe_had_not_reached_moves_at_once(play: Play) -> None:
    play.down(0)
    play.view()
    play.wait(1)
    play.view()
    probe(play, answers=False)
    assert shown(play) == ["10.0.0.2"]
    push(play, 1, elsewhere(R2))
    assert shown(play) == [NEW, "10.0.0.2"]


def test_a_server_that_took_a_fresh_identifier_ends_the_dispute(play: Play) -> None:
    """A drain of it must not find the old identifier in its place."""
    push(play, 2, elsewhere(R3))
    probe(play, answers=True)
    push(play, 0, pe(7, R1, OLD))
    assert sorted(shown(play)) == [OLD, "10.0.0.2", NEW]
    push(play, 0, pe(7, R1, OLD), gone=True)
    assert OLD not in shown(play)


def test_a_word_that_is_taken_back_leaves_nothing_behind(play: Play) -> None:
    push(play, 2, elsewhere(R3))
    push(play, 0, pe(1, R1))
    assert shown(play) == [OLD, "10.0.0.2"]
    assert play.view().moving == ()
    assert POOL not in play.probe_targets()


def test_lies_and_deletions_in_turn_keep_nobody_out(play: Play) -> None:
    """Ten times a second; the sidecar registers again after half a second."""
    for turn in range(50):
        push(play, 2, elsewhere(R3))
        assert shown(play) == [OLD, "10.0.0.2"]
        if turn == 1:
            probe(play, answers=True)
        play.belief.updated(2, Update(R3, POOL.encode(), elsewhere(R3), True, play.now))
        assert shown(play) == [OLD, "10.0.0.2"]
        if turn % 5 == 4:
            push(play, 0, pe(1, R1))
        play.wait(0.1)
