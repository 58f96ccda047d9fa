"""Members whose home registrar is lost: probed, and out when nobody is there."""

from dataclasses import replace
from ipaddress import ip_address

import pytest
from pool_user import Code
from pool_user.views import Member

from rserpool import PoolElement
from tests.pool_user.belief_support import POOL, R1, R2, Play, pe, push, settled


def orphaned(wait_s: float = 0.3) -> Play:
    """PE 1 is at home at a registrar that was lost `wait_s` ago; the others go on listing it."""
    play = settled()
    play.down(0)
    listed(play)
    play.wait(wait_s)
    return play


def listed(play: Play, home: int = R1) -> None:
    for index in (1, 2):
        play.answer(index, pe(1, home), pe(2, R2))


def probed(play: Play, identifier: int, reachable: bool) -> None:
    members = play.probe_targets()[POOL]
    play.belief.probed(
        POOL, next(member for member in members if member.identifier == identifier), reachable, play.now
    )


def test_an_orphan_that_registers_nowhere_else_is_probed_with_the_others_as_witnesses() -> None:
    play = orphaned(0.1)
    assert play.probe_targets() == {}, "it may be on its way to another registrar"
    deadline_s = play.belief.next_deadline_s
    assert deadline_s is not None
    play.wait(deadline_s - play.now)
    assert play.view().suspected == (1,)
    targets: tuple[Member, ...] = play.probe_targets()[POOL]
    assert [member.identifier for member in targets] == [1, 2]
    assert play.members() == [1, 2], "suspected is not yet out"


def test_an_orphan_that_registers_elsewhere_in_time_is_not_probed() -> None:
    play = orphaned(0.1)
    listed(play, R2)
    for _ in range(20):
        assert play.probe_targets() == {}, "it may be one that no probe reaches"
        play.wait(0.25)
    assert play.members() == [1, 2]


def test_an_element_that_came_back_under_a_home_lost_before_is_probed() -> None:
    play = settled()
    for index in (0, 1, 2):
        play.answer(index, pe(2, R2))
    play.down(0)
    listed(play)
    play.wait(1)
    assert play.members() == [1, 2]
    assert play.view().suspected == (1,), "nobody else looks whether it lives"


def test_no_member_is_probed_where_all_have_settled_homes() -> None:
    play = settled()
    play.wait(5)
    assert play.members() == [1, 2]
    assert play.probe_targets() == {}


def homeless(life_ms: int = 6000) -> Play:
    """PE 3 names a home that was never a settled registrar."""
    play = Play()
    play.settle(0, 1)
    for index in (0, 1):
        play.answer(index, pe(1, R1), replace(pe(3, 0xDEAD), life_ms=life_ms))
    assert play.members() == [1, 3]
    return play


def test_an_element_whose_home_never_was_a_settled_registrar_is_probed_for_as_long() -> None:
    play = homeless()
    play.wait(0.3)
    assert play.view().suspected == (3,)
    probed(play, 3, False)
    assert play.members() == [1]
    for _ in range(5):
        play.wait(3600)
        assert play.members() == [1], "a ghost stays out for days"
    probed(play, 3, True)
    assert play.members() == [1, 3]
    play.answer(1, pe(1, R1), pe(3, R2))
    play.wait(1.1)
    assert play.view().suspected == ()


def test_a_long_registration_life_counts_for_10_minutes_without_a_home() -> None:
    play = homeless(life_ms=2**31)
    for _ in range(59):
        play.wait(10)
        assert play.members() == [1, 3]
    play.wait(11)
    assert play.members() == [1]
    assert "its home registrar is unknown" in play.out()[3]
    play.answer(1, pe(1, R1), replace(pe(3, R2), life_ms=2**31))
    assert play.members() == [1, 3]


@pytest.mark.parametrize("is_member_of_before", [False, True])
def test_long_registration_life_without_a_home_counts_from_the_last_answer(is_member_of_before: bool) -> None:
    play = moved_to_unknown_home() if is_member_of_before else homeless(life_ms=2**31)
    who = 1 if is_member_of_before else 3
    before = play.members()
    for _ in range(30):
        play.wait(30)
        assert play.members() == before
        (member,) = [member for member in play.probe_targets()[POOL] if member.identifier == who]
        play.belief.probe_answered(POOL, member, play.now)
    elsewhere = replace(member, addresses=(ip_address("10.0.0.66"),))
    play.wait(595)
    assert play.members() == before
    play.belief.probe_answered(POOL, elsewhere, play.now)
    play.wait(10)
    assert who not in play.members()


def moved_to_unknown_home() -> Play:
    """A registrar that lies told PE 1 at a home that was never settled; then the true home deleted PE 1."""
    play = settled()
    play.follow(0, 1, 2)
    play.wait(30)
    lie = replace(pe(1, 0xDEAD), life_ms=2**31)
    push(play, 2, lie)
    push(play, 0, pe(1, R1), gone=True)
    still_told(play, lie)
    assert play.members() == [1, 2]
    return play


def still_told(play: Play, lie: PoolElement) -> None:
    play.answer(0, pe(2, R2))
    play.answer(1, pe(2, R2))
    play.answer(2, lie, pe(2, R2))


def test_dead_member_told_at_unknown_home_is_out_when_the_probe_does_not_reach_it() -> None:
    play = moved_to_unknown_home()
    play.wait(0.3)
    assert play.view().suspected == (1,)
    probed(play, 1, False)
    assert play.members() == [2]
    for _ in range(40):
        play.wait(30)
        still_told(play, replace(pe(1, 0xDEAD), life_ms=2**31))
        assert play.members() == [2]


def test_dead_member_told_at_unknown_home_counts_for_10_minutes_where_no_probe_can_tell() -> None:
    play = moved_to_unknown_home()
    play.wait(595)
    assert play.members() == [1, 2]
    play.wait(10)
    assert play.members() == [2]


def test_orphan_told_at_unknown_home_stays_out_for_as_long_as_nothing_answers() -> None:
    play = orphaned()
    probed(play, 1, False)
    listed(play, 0xDEAD)
    for _ in range(4):
        play.wait(30)
        listed(play, 0xDEAD)
        assert play.members() == [2]


def test_member_that_was_never_settled_stays_out_when_a_restart_began_without_registrars() -> None:
    play = Play()
    play.up(0, 1)
    for index in (0, 1):
        play.answer(index, pe(1, 0xDEAD), pe(2, R2))
    probed(play, 1, False)
    play.settle(0, 1)
    for _ in range(4):
        for index in (0, 1):
            play.answer(index, pe(1, 0xDEAD), pe(2, R2))
        assert play.members() == [2]
        play.wait(30)


def test_the_unreachable_is_out_although_registrars_list_it_and_back_when_it_answers() -> None:
    play = orphaned()
    probed(play, 1, False)
    assert play.members() == [2]
    assert play.causes() == {1: Code.UNREACHED_ORPHAN}
    play.wait(25)
    listed(play)
    assert play.members() == [2], "its takeover is held up"
    probed(play, 1, True)
    assert play.members() == [1, 2]


def test_a_live_one_that_is_out_of_reach_from_here_is_not_kept_out_for_good() -> None:
    """Its home is out of reach from here too, but not from the other registrars, which go on listing it."""
    play = orphaned()
    probed(play, 1, False)
    assert play.members() == [2]
    back_s = until_in(play, 1)
    assert 20 < back_s < 40
    assert play.probe_targets() == {}
    listed(play)
    play.wait(100)
    assert play.members() == [1, 2], "and that does not begin anew"


def until_in(play: Play, identifier: int) -> float:
    """Let time pass, from deadline to deadline, until the member is in; return how long that took."""
    began_s = play.now
    while identifier not in play.members():
        deadline_s = play.belief.next_deadline_s
        assert deadline_s is not None, "it would stay out for ever"
        play.wait(deadline_s - play.now)
    return play.now - began_s


def test_a_witness_that_no_probe_reaches_does_not_leave() -> None:
    play = orphaned()
    probed(play, 2, False)
    assert play.members() == [1, 2], "its home lists it"


def test_a_takeover_counts_once_it_answered_the_new_homes_keep_alive() -> None:
    play = orphaned()
    probed(play, 1, False)
    listed(play, R2)
    play.wait(0.9)
    assert play.members() == [2]
    deadline_s = play.belief.next_deadline_s
    assert deadline_s is not None
    play.wait(deadline_s - play.now)
    assert play.members() == [1, 2], "only the way from here to there is broken"
    assert play.probe_targets() == {}


def test_taken_over_and_found_dead_it_is_gone_for_good() -> None:
    play = orphaned()
    probed(play, 1, False)
    listed(play, R2)
    for index in (1, 2):
        play.answer(index, pe(2, R2))
    assert play.members() == [2]
    play.wait(60)
    assert play.probe_targets() == {}
    listed(play, R2)
    assert play.members() == [1, 2], "it came back"


def test_a_registrar_that_is_out_of_reach_for_long_has_nobody_probed_for_long() -> None:
    play = orphaned()
    assert play.view().suspected == (1,)
    play.wait(10)
    assert play.view().suspected == ()
    assert play.members() == [1, 2]


def test_an_unreachable_member_stays_out_when_the_last_registrar_is_lost_too() -> None:
    play = orphaned()
    probed(play, 1, False)
    play.down(1, 2)
    assert play.members() == [2]
    play.settle(1)
    play.answer(1, pe(1, R1), pe(2, R2))
    assert play.members() == [2]


def revived(home: int, *settles: int) -> Play:
    """All registrars were lost and came back; PE 1, at `home` by now, died meanwhile; then these settle."""
    play = settled()
    play.down(0, 1, 2)
    play.up(0, 1, 2)
    for index in (0, 1, 2):
        play.sentinel(index)
        play.answer(index, pe(1, home), pe(2, home))
    probed(play, 1, False)
    assert play.members() == [2]
    assert play.causes() == {1: Code.UNREACHED_STALE}
    for index in settles:
        play.sentinel(index, (0x71 + index, (0xA9, 0xB9, 0xC9)[index]))
        play.answer(index, pe(1, home), pe(2, home))
    return play


def test_the_unreachable_stay_out_when_registrars_are_back_that_can_not_vouch_for_them() -> None:
    play = revived(0xC9, 0, 1)
    assert play.view().stale_since_s is None
    assert play.members() == [2]
    play.wait(25)
    assert play.members() == [2]
    probed(play, 1, True)
    assert play.members() == [1, 2]


def test_a_home_that_never_settles_keeps_nobody_out_for_good() -> None:
    """It has no sentinel, or is out of reach from here; how long all registrars were lost does not count."""
    play = revived(0xC9)
    play.wait(300)
    assert play.members() == [2]
    for index in (0, 1):
        play.sentinel(index, (0x71 + index, (0xA9, 0xB9)[index]))
        play.answer(index, pe(1, 0xC9), pe(2, 0xC9))
    assert play.members() == [2]
    assert 20 < until_in(play, 1) < 40
    assert play.view().suspected == (2,), "it answered meanwhile, and moved to a home that was never settled"


def test_a_suspect_that_left_has_its_pool_probed_no_more() -> None:
    """At home at a registrar that never was settled."""
    play = Play()
    play.settle(0, 1)
    play.up(2)
    play.sentinel(2)
    for index in (0, 1, 2):
        play.answer(index, pe(1, 0xC9), pe(2, R2))
    play.down(0, 1)
    probed(play, 1, False)
    assert play.causes() == {1: Code.UNREACHED_STALE}
    play.up(1)
    play.sentinel(1)
    play.sentinel(1, (0x72, 0xB9))
    for index in (1, 2):
        play.answer(index, pe(1, 0xC9), pe(2, 0xB9))
    assert play.view().suspected == (1,)
    for index in (1, 2):
        play.answer(index, pe(2, 0xB9))
    assert play.members() == [2]
    assert play.view().suspected == ()
    assert play.probe_targets() == {}


def test_orphans_come_back_once_they_answered_their_homes_keep_alive() -> None:
    play = revived(0xA9, 0, 1)
    play.wait(0.9)
    assert play.members() == [2]
    assert play.probe_targets() != {}
    deadline_s = play.belief.next_deadline_s
    assert deadline_s is not None
    play.wait(deadline_s - play.now)
    assert play.members() == [1, 2]
    assert play.probe_targets() == {}


def test_orphans_leave_when_their_home_has_found_them_dead() -> None:
    play = revived(0xA9, 1)
    play.sentinel(0, (0x71, 0xA9))
    play.answer(0, pe(2, 0xA9))
    play.wait(60)
    assert play.members() == [2]
    assert play.probe_targets() == {}
