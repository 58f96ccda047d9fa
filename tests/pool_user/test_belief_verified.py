"""The backend's own probe has a say in a pool that is verified, all the time."""

from ipaddress import ip_address, ip_network

from pool_user.belief import PoolRules
from pool_user.belief.reachability import Reachability
from pool_user.views import Member

from rserpool import LeastUsed, Protocol
from tests.pool_user.belief_support import POOL, R1, R2, Play, pe

VERIFIED = {POOL: PoolRules((ip_network("10.0.0.0/8"),), verified=True)}


def play(*identifiers: int) -> Play:
    """A settled registrar that lists these."""
    scene = Play()
    scene.belief.set_pools(VERIFIED, scene.now)
    scene.settle(0)
    scene.answer(0, *(pe(identifier, R1) for identifier in identifiers))
    return scene


def target(of: Play, identifier: int) -> Member:
    return next(member for member in of.probe_targets()[POOL] if member.identifier == identifier)


def test_the_members_are_probed_although_a_registrar_vouches() -> None:
    assert [member.identifier for member in play(1, 2).probe_targets()[POOL]] == [1, 2]


def test_the_unreachable_is_out_with_its_reason_and_returns_as_old_as_it_was() -> None:
    scene = play(1, 2)
    before, member = scene.view().members[0], target(scene, 1)
    scene.belief.probed(POOL, member, False, scene.now)
    assert scene.members() == [2]
    assert scene.out() == {1: "not reached by the probe of this name server, although the registrars list it"}
    assert scene.view().unreachable == (before,)
    scene.wait(30)
    scene.answer(0, pe(1, R1), pe(2, R1))
    assert scene.members() == [2], "what registrars say does not change it"
    assert target(scene, 1) == member
    scene.belief.probed(POOL, member, True, scene.now)
    assert scene.view().members[0] == before, "no slow start: it was not away"
    assert scene.view().unreachable == ()
    assert scene.out() == {}


def test_an_unreachable_member_stays_out_at_the_same_address_and_not_at_another() -> None:
    scene = play(1, 2)
    scene.belief.probed(POOL, target(scene, 1), False, scene.now)
    scene.answer(0, pe(2, R1))
    assert scene.out()[1] == "removed by its home registrar"
    scene.answer(0, pe(1, R1), pe(2, R1))
    assert scene.members() == [2]
    scene.answer(0, pe(1, R1, "10.0.0.77"), pe(2, R1))
    assert scene.members() == [1, 2]


def test_an_unreachable_member_stays_out_when_the_registrars_are_lost_and_found() -> None:
    scene = play(1, 2)
    scene.belief.probed(POOL, target(scene, 1), False, scene.now)
    scene.down(0)
    assert scene.members() == [2]
    assert scene.out()[1].endswith("no registrar can vouch for it")
    scene.settle(1)
    scene.answer(1, pe(1, R2), pe(2, R2))
    assert scene.members() == [2]


def test_with_everyone_unreachable_the_view_still_knows_them() -> None:
    scene = play(1, 2)
    for identifier in (1, 2):
        scene.belief.probed(POOL, target(scene, identifier), False, scene.now)
    assert scene.members() == []
    assert [member.identifier for member in scene.view().unreachable] == [1, 2]
    scene.answer(0, pe(2, R1))
    assert [member.identifier for member in scene.view().unreachable] == [2], (
        "a registrar removes it all the same"
    )


def test_without_verify_any_more_it_does_not_count() -> None:
    scene = play(1, 2)
    scene.belief.probed(POOL, target(scene, 1), False, scene.now)
    scene.belief.set_pools({POOL: PoolRules((ip_network("10.0.0.0/8"),))}, scene.now)
    assert scene.members() == [1, 2]
    assert scene.probe_targets() == {}


def test_a_conclusion_holds_for_one_address_and_is_news_once() -> None:
    here, elsewhere = (
        Member(1, R1, (ip_address("10.0.0.1"),), port, Protocol.UDP, LeastUsed(0.0), 0.0) for port in (1, 2)
    )
    reachability = Reachability()
    assert not reachability.probed(here, True)
    assert [reachability.probed(here, False) for _ in range(2)] == [True, False]
    assert not reachability.probed(elsewhere, True)
    assert list(reachability.unreachable) == [1]
    assert [reachability.probed(here, True) for _ in range(2)] == [True, False]
    assert not reachability.unreachable
