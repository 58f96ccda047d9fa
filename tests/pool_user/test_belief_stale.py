"""Rule 5: losing the registrars is not losing the pools."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from pool_user.belief import PoolRules
from pool_user.views import Member

from tests.pool_user.belief_support import POOL, R1, R2, Play, pe


def remembered(play: Play, *members: Member, age_s: float = 60.0, recent: tuple[Member, ...] = ()) -> None:
    play.remember(members, recent, play.now - age_s)


def member(identifier: int, home: int = R1, address: str | None = None) -> Member:
    play = Play()
    play.settle(0)
    play.answer(0, pe(identifier, home))
    found = play.view().members[0]
    return replace(found, addresses=(ip_address(address),)) if address else found


def test_the_last_view_goes_on_and_says_since_when_it_is_stale() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(0, pe(1, R1))
    play.down(0)
    assert play.view().stale_since_s is None
    play.down(1)
    lost_s = play.now
    play.wait(500)
    assert play.members() == [1]
    assert play.view().stale_since_s == pytest.approx(lost_s, abs=0.01)
    assert play.view().members[0].stale


def test_silent_registrars_are_as_good_as_lost() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(1, R1))
    play.silence(0)
    assert play.view().stale_since_s is not None
    assert play.members() == [1]


def test_nothing_is_lost_when_they_return() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(1, R1), pe(2, R1))
    play.down(0)
    play.wait(30)
    play.up(0)
    play.answer(0)
    assert play.members() == [1, 2]
    play.sentinel(0, (0x77, 0xA9))
    play.answer(0, pe(1, 0xA9))
    assert play.view().stale_since_s is None
    assert play.members() == [1]


def test_while_starting_registrars_vouch_it_does_not_grow_old() -> None:
    play = Play()
    play.up(0)
    play.answer(0, pe(1, R1))
    for _ in range(100):
        play.wait(45)
        play.answer(0, pe(1, R1))
        stale_since_s = play.view().stale_since_s
        assert stale_since_s is not None
        assert play.now - stale_since_s < 121
    play.down(0)
    play.wait(3000)
    assert play.now - (play.view().stale_since_s or 0) > 2900


def test_the_file_of_before_the_restart_is_a_stale_view() -> None:
    play = Play()
    remembered(play, member(1), age_s=60)
    assert play.members() == [1]
    assert play.view().known
    assert play.view().stale_since_s == pytest.approx(play.now - 60)
    assert play.view().members[0].stale


def test_accept_is_applied_again_on_loading() -> None:
    play = Play()
    remembered(play, member(1), member(2, address="192.0.2.1"))
    assert play.members() == [1]


def test_recent_ones_of_the_file_count_while_nobody_is_in() -> None:
    play = Play()
    remembered(play, recent=(member(1), member(2, address="192.0.2.1")))
    assert [member.identifier for member in play.view().recent] == [1]
    play.belief.set_pools({POOL: PoolRules((ip_network("192.0.2.0/24"),))}, play.now)
    assert [member.identifier for member in play.view().recent] == [2]


def test_a_starting_registrar_removes_nobody_of_the_file() -> None:
    play = Play()
    remembered(play, member(1))
    play.up(0)
    play.answer(0)
    assert play.members() == [1]


def test_the_home_of_the_file_removes_its_own() -> None:
    play = Play()
    remembered(play, member(1), member(2, home=R2))
    play.settle(0)
    play.up(1)
    assert play.members() == [1, 2]
    assert play.asked() == {(0, POOL)}
    play.settle(1)
    assert play.asked() == {(0, POOL), (1, POOL)}
    play.answer(0)
    assert play.members() == [2]
    play.answer(1, pe(2, R2))
    assert play.members() == [2]
    assert play.view().stale_since_s is None
    assert not play.view().members[0].stale


def test_since_outlives_the_restart() -> None:
    play = Play()
    old = replace(member(1), since_s=-4000.0)
    remembered(play, old)
    play.settle(0)
    play.answer(0, pe(1, R1))
    assert play.view().members[0].since_s == -4000.0


def test_an_unknown_pool_of_the_file_is_ignored() -> None:
    play = Play()
    play.remember([member(1)], handle="gone")
    assert list(play.evaluate().views) == [POOL]


def test_members_are_to_be_probed_once_no_registrar_can_vouch_for_them() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(1, R1))
    assert play.probe_targets() == {}
    play.down(0)
    assert [member.identifier for member in play.probe_targets()[POOL]] == [1]


def test_while_stale_the_unreachable_are_dropped_and_return() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(1, R1), pe(2, R1))
    play.down(0)
    probed(play, 1, False)
    assert play.members() == [2]
    assert "not reached by the probe" in play.out()[1]
    assert [member.identifier for member in play.probe_targets()[POOL]] == [1, 2]
    probed(play, 1, True)
    assert play.members() == [1, 2]
    assert play.out() == {}


def test_all_unreachable_at_once_are_still_known() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(1, R1), pe(2, R1))
    play.down(0)
    probed(play, 1, False)
    probed(play, 2, False)
    assert play.members() == []
    assert [member.identifier for member in play.view().unreachable] == [1, 2]


def test_a_probe_counts_only_while_stale() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(1, R1))
    probed(play, 1, False)
    assert play.members() == [1]
    play.down(0)
    assert play.members() == [1], "what was found before does not count later"
    probed(play, 1, False)
    assert play.members() == []
    play.up(0)
    play.sentinel(0, (0x77, 0xA9))
    play.answer(0, pe(1, 0xA9))
    play.wait(1.1)
    assert play.members() == [1], "a settled registrar vouches again"
    probed(play, 1, False)
    assert play.members() == [1]


def probed(play: Play, identifier: int, reachable: bool) -> None:
    target = next(
        member
        for member in play.probe_targets().get(POOL, ()) or play.view().members
        if member.identifier == identifier
    )
    play.belief.probed(POOL, target, reachable, play.now)
