"""Drained servers: a farewell before a member leaves says that it is not missing, and for how long."""

from dataclasses import replace
from ipaddress import ip_address
from math import inf

import pytest
from pool_user import Code, NamedServers, OverrideAction, PoolOverride
from pool_user.belief.rules import FAREWELL_HEEDED_S
from pool_user.memory import decode, encode
from pool_user.views import Departure, RememberedPool

from rserpool import PoolElement, PoolKey, Protocol, drained_for_s, drained_life_ms, is_drained_life
from tests.pool_user.belief_support import POOL, R1, R2, RULES, Play, pe, push, settled

HOUR_S = 3600.0


def farewell(of: int, home: int, drained_s: float | None = HOUR_S, identifier: int = 0xFA) -> PoolElement:
    """The farewell of the server of PE `of`."""
    place = pe(of, home).user_transport
    element = replace(pe(identifier, home), user_transport=place)
    return replace(element, life_ms=drained_life_ms(drained_s))


def the_departure(play: Play) -> Departure:
    (departure,) = play.view().departures
    return departure


@pytest.mark.parametrize(
    ("drained_s", "told_s"),
    [
        (None, None),
        (1, 60),
        (60, 60),
        (61, 120),
        (HOUR_S, HOUR_S),
        (86_400, 86_400),
        (86_401, 25 * HOUR_S),
        (30 * 86_400, 30 * 86_400),
        (90 * 86_400, 30 * 86_400),
    ],
)
def test_a_life_says_for_how_long_rounded_up(drained_s: float | None, told_s: float | None) -> None:
    life_ms = drained_life_ms(drained_s)
    assert is_drained_life(life_ms)
    assert drained_for_s(life_ms) == told_s
    assert life_ms < 50_000, "a gate may refuse long lives"


@pytest.mark.parametrize("life_ms", [0, 600, 6000, 47_010, 49_172, 1_800_000])
def test_other_lives_say_nothing(life_ms: int) -> None:
    assert not is_drained_life(life_ms)


def test_a_drained_member_leaves_for_a_planned_time() -> None:
    play = settled()
    push(play, 0, farewell(1, R1))
    assert play.members() == [1, 2], "a farewell is no member"
    push(play, 0, pe(1, R1), gone=True)
    assert play.members() == [2]
    departure = the_departure(play)
    assert (departure.cause.code, departure.cause.planned_s) == (Code.DRAINED, HOUR_S)
    assert departure.cause.words == "drained by an operator of its host, for 1 h 0 min"
    assert departure.is_planned(play.now + HOUR_S - 1)
    assert not departure.is_planned(play.now + HOUR_S + 1)
    push(play, 0, farewell(1, R1), gone=True)
    play.wait(100)
    assert the_departure(play).cause.code is Code.DRAINED
    push(play, 0, pe(1, R1))
    assert play.members() == [1, 2]
    assert play.view().departures == ()


def test_polled_registrars_tell_of_it_too() -> None:
    play = settled()
    for index in (0, 1, 2):
        play.answer(index, pe(1, R1), pe(2, R2), farewell(1, R1, None))
    assert play.members() == [1, 2]
    for index in (0, 1, 2):
        play.answer(index, pe(2, R2), farewell(1, R1, None))
    assert the_departure(play).cause.code is Code.DRAINED
    assert the_departure(play).planned_s(play.now) == inf


def test_only_its_own_home_says_that_a_member_is_drained() -> None:
    play = settled()
    push(play, 1, farewell(1, R2))  # another registrar, as the home
    push(play, 1, farewell(1, R1, identifier=0xFB))  # another registrar, for the home
    push(play, 0, pe(1, R1), gone=True)
    assert play.members() == [2]
    assert the_departure(play).cause.code is Code.REMOVED


def test_a_farewell_of_long_ago_says_nothing_about_a_death() -> None:
    play = settled()
    push(play, 0, farewell(1, R1))
    play.wait(FAREWELL_HEEDED_S)
    push(play, 0, pe(1, R1), gone=True)
    assert play.members() == [2]
    assert the_departure(play).cause.code is Code.REMOVED


def test_a_farewell_that_is_renewed_counts_from_its_first_word() -> None:
    play = settled()
    for _ in range(5):
        push(play, 0, farewell(1, R1))
        play.wait(FAREWELL_HEEDED_S / 5)
    push(play, 0, pe(1, R1), gone=True)
    assert play.members() == [2]
    assert the_departure(play).cause.code is Code.REMOVED


def test_a_server_that_came_back_and_dies_is_not_drained() -> None:
    play = settled()
    push(play, 0, farewell(1, R1))
    push(play, 0, pe(1, R1), gone=True)
    assert the_departure(play).cause.code is Code.DRAINED
    push(play, 0, pe(1, R1))
    assert play.members() == [1, 2]
    push(play, 0, farewell(1, R1))  # it is listed for a moment more
    push(play, 0, pe(1, R1), gone=True)
    assert play.members() == [2]
    assert the_departure(play).cause.code is Code.REMOVED
    push(play, 0, pe(1, R1))
    assert play.members() == [1, 2]
    push(play, 0, farewell(1, R1, identifier=0xFC))
    push(play, 0, pe(1, R1), gone=True)
    play.evaluate()
    assert the_departure(play).cause.code is Code.DRAINED, "drained once more"


def test_drained_members_are_not_among_the_last_good() -> None:
    play = settled()
    play.wait(20)
    for who, home, index in ((1, R1, 0), (2, R2, 1)):
        push(play, index, farewell(who, home))
        push(play, index, pe(who, home), gone=True)
        play.evaluate()
        play.wait(1)
    assert play.members() == []
    assert play.view().recent == ()


def test_a_pool_that_crashes_after_a_drain_answers_with_those_that_crashed() -> None:
    play = settled()
    play.wait(20)
    push(play, 0, farewell(1, R1))
    push(play, 0, pe(1, R1), gone=True)
    play.evaluate()
    play.wait(1)
    push(play, 1, pe(2, R2), gone=True)
    assert play.members() == []
    assert [member.identifier for member in play.view().recent] == [2]


def test_a_drain_outlasts_a_restart() -> None:
    play = settled()
    push(play, 0, farewell(1, R1))
    push(play, 0, pe(1, R1), gone=True)
    departure = the_departure(play)
    kept = encode({POOL: play.view()}, play.now, 1e9)
    (pool,) = decode(kept, play.now + 10, 1e9 + 10, 3600.0)
    assert isinstance(pool, RememberedPool)
    (again,) = pool.departures
    assert again.cause == departure.cause
    assert again.planned_s(play.now + 10) == pytest.approx(HOUR_S - 10, abs=1)


def test_in_a_keyed_pool_the_leaving_identifier_says_it() -> None:
    key = PoolKey(bytes(32))
    server = key.server_key(Protocol.UDP, pe(1, R1).user_transport.addresses[0], 5060)
    handle = POOL.encode()
    mine, leaving = server.identifier(handle, 1), server.identifier(handle, 1, is_leaving=True)
    play = Play()
    play.belief.set_pools({POOL: replace(RULES, keys=(key,))}, play.now)
    play.settle(0, 1, 2)
    element = replace(pe(1, R1), identifier=mine)
    for index in (0, 1, 2):
        play.answer(index, element)
    assert play.members() == [mine]
    push(play, 0, replace(element, identifier=leaving, life_ms=drained_life_ms(None)))
    assert play.members() == []
    assert the_departure(play).cause.code is Code.DRAINED


def test_a_reader_without_keys_takes_no_farewell_for_a_server_of_a_host_that_stands_in() -> None:
    play = Play()
    agents = frozenset(pe(9, R1).user_transport.addresses)
    play.belief.set_pools({POOL: replace(RULES, remote_agents=agents)}, play.now)
    play.settle(0, 1, 2)
    for index in (0, 1, 2):
        play.answer(index, pe(1, R1), pe(2, R2))
    push(play, 0, farewell(1, R1))
    assert play.members() == [1, 2]
    push(play, 0, pe(1, R1), gone=True)
    assert the_departure(play).cause.code is Code.DRAINED


S2 = NamedServers(places=frozenset({(ip_address("10.0.0.2"), 5060)}))


def overridden(play: Play, *actions: OverrideAction) -> None:
    play.belief.set_overrides({POOL: [PoolOverride(7, action, S2, "by alice: kernel") for action in actions]})


def drained_for_an_hour(play: Play) -> None:
    push(play, 1, farewell(2, R2))
    leaves(play)


def leaves(play: Play) -> None:
    push(play, 1, pe(2, R2), gone=True)
    for index in range(3):
        play.answer(index, pe(1, R1))


def comes(play: Play) -> None:
    for index in range(3):
        play.answer(index, pe(1, R1), pe(2, R2))


def causes(play: Play) -> list[tuple[Code, bool]]:
    """Return the cause of each departure, and whether it is planned now."""
    return [(each.cause.code, each.is_planned(play.now)) for each in play.view().departures]


def test_server_that_is_drained_while_an_override_holds_it_out_is_drained_after_it() -> None:
    play = settled()
    overridden(play, OverrideAction.DOWN)
    drained_for_an_hour(play)
    play.wait(30)
    assert causes(play) == [(Code.OVERRIDDEN, True)]
    overridden(play)
    assert causes(play) == [(Code.DRAINED, True)]
    play.wait(HOUR_S)
    assert causes(play) == [(Code.DRAINED, False)]


def test_override_holds_a_drained_server_out_when_its_drain_is_over() -> None:
    play = settled()
    drained_for_an_hour(play)
    overridden(play, OverrideAction.DOWN)
    play.wait(60)
    comes(play)
    play.wait(HOUR_S)
    comes(play)
    assert causes(play) == [(Code.OVERRIDDEN, True)]
    leaves(play)
    overridden(play)
    assert causes(play) == [(Code.GONE, False)], "it was undrained, and died since"


def test_override_of_a_dead_server_makes_it_planned_and_its_end_missing() -> None:
    play = settled()
    leaves(play)
    assert causes(play) == [(Code.REMOVED, False)]
    overridden(play, OverrideAction.DOWN)
    assert causes(play) == [(Code.OVERRIDDEN, True)]
    overridden(play)
    assert causes(play) == [(Code.REMOVED, False)]


def test_drained_server_that_an_override_held_in_is_drained_after_it() -> None:
    play = settled()
    drained_for_an_hour(play)
    overridden(play, OverrideAction.UP)
    assert play.members() == [1, 2]
    overridden(play)
    assert causes(play) == [(Code.DRAINED, True)]
