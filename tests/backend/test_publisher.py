"""The times at which answers are published, and the names that are purged for them."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pool_user import LONGEST_REST_S, BeliefChange, Fairness, PoolView
from rspdns.answers import building, publisher, purges
from rspdns.answers.change import Change
from rspdns.answers.pool_state import PoolState, state_of
from rspdns.answers.publisher import Publisher
from rspdns.answers.serial_number import SerialNumbers
from rspdns.answers.snapshot import NXDOMAIN, Found, Snapshot
from rspdns.zones.zone import Pool, Zone

from rserpool import LeastUsed
from tests.backend.making import UDP, ZONE, Believed, member, view, views, zone
from tests.support.waiting import until_async

OWNER = f"_sip._udp.as.{ZONE}"
WHOLE = f"{ZONE}$"


class Scene:
    def __init__(self, folder: Path, *zones: Zone, hot: frozenset[str] = frozenset()) -> None:
        self.told: list[tuple[str, object]] = []
        self.hot = hot
        self.now = 1000.0
        self.free_at_s = 0.0
        self.is_seen_at_once = False
        self.first: tuple[str, ...] = ()
        self.purged_in_order: list[str] = []
        self.build_takes_s = 0.0
        self._spent_s = 0.0
        self._believed = Believed()
        self.publisher = Publisher(
            zones or (zone(),),
            SerialNumbers(folder, 5.0),
            self.swap,
            self,
            max_stale_s=60,
            hot=lambda: self.hot,
            clock=lambda: self.now,
            draw=Random(1),
            fairness=Fairness(clock=lambda: self.now, spent=self.spent),
            is_seen_at_once=lambda: self.is_seen_at_once,
        )

    def start(self, of_pools: Mapping[str, PoolView]) -> None:
        self.publisher.start(self._believed.to(of_pools))

    def publish(self, of_pools: Mapping[str, PoolView]) -> None:
        self.publisher.publish(self._believed.to(of_pools))

    def set_zones(self, zones: Sequence[Zone], of_pools: Mapping[str, PoolView]) -> None:
        self.publisher.set_zones(zones, self._believed.to(of_pools))

    def spent(self) -> float:
        self._spent_s += self.build_takes_s
        return self._spent_s

    def swap(self, change: Change, purge: Callable[[Collection[str]], None]) -> None:
        self.told.append(("swap", change.after))
        purge(self.first)

    def purge(self, names: Collection[str]) -> None:
        self.purged_in_order = list(names)
        self.told.append(("purge", set(names)))

    def rediscover(self) -> None:
        self.told.append(("rediscover", None))

    def take(self) -> list[tuple[str, object]]:
        told = list(self.told)
        self.told.clear()
        return told

    def purged(self) -> set[str]:
        return {
            name
            for kind, names in self.take()
            if kind == "purge" and isinstance(names, set)
            for name in names
        }


async def test_answers_are_swapped_before_their_names_are_purged(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.start(views(view(member(1))))
    scene.take()
    scene.publish(views(view(member(1), member(2))))
    (first, snapshot), (second, names) = scene.take()
    assert (first, second) == ("swap", "purge")
    assert isinstance(snapshot, Snapshot)
    assert isinstance(snapshot.lookup(OWNER, "SRV"), Found)
    assert isinstance(names, set)
    assert {OWNER, f"as.{ZONE}", f"00000002.u.as.{ZONE}"} <= names
    scene.publisher.close()


async def test_at_the_start_powerdns_forgets_what_a_former_life_said(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.start(views(view(member(1))))
    kinds = [kind for kind, _ in scene.told]
    assert kinds == ["rediscover", "swap", "purge"]
    assert scene.purged() == {WHOLE}
    scene.publisher.close()


async def test_powerdns_forgets_a_former_life_only_when_there_is_something_to_say(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.start({})
    assert scene.purged() == set()
    scene.publish(views(view(member(1))))
    assert {WHOLE, OWNER} <= scene.purged()
    scene.publish(views(view(member(2))))
    assert WHOLE not in scene.purged()
    scene.publisher.close()


async def test_names_that_the_swap_gives_are_purged_before_all_others(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.start(views(view(member(1))))
    scene.first = ("zz.example",)
    scene.publish(views(view(member(1), member(2))))
    assert scene.purged_in_order[0] == "zz.example"
    changed = {"zz.example", OWNER, f"as.{ZONE}", f"00000002.u.as.{ZONE}"}
    assert set(scene.purged_in_order) == {*changed, ZONE}


async def test_nothing_is_purged_when_no_answer_changed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.start(views(view(member(1))))
    serial = scene.publisher.snapshot.zones()[0].serial
    scene.take()
    scene.publish(views(view(member(1, policy=LeastUsed(0.01)))))
    assert scene.purged() == set()
    assert scene.publisher.snapshot.zones()[0].serial == serial
    scene.publisher.close()


async def test_where_purges_have_to_wait_builds_do_too_and_take_all_changes_along(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.start(views(view(member(1), member(2), member(3))))
    builds = scene.publisher.builds
    scene.take()
    scene.now += 10
    scene.free_at_s = scene.now + 0.02
    scene.publish(views(view(member(2), member(3))))
    scene.free_at_s += 60  # what goes on meanwhile does not hold it up again
    scene.publish(views(view(member(3))))
    assert scene.take() == []
    scene.now += 0.02
    end_s = time.monotonic() + 10
    while scene.publisher.builds == builds and time.monotonic() < end_s:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.005)
    assert scene.publisher.builds == builds + 1
    assert {f"00000001.u.as.{ZONE}", f"00000002.u.as.{ZONE}", OWNER} <= scene.purged()
    scene.publisher.close()


async def test_a_departure_is_purged_at_once_and_weights_wait(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.start(views(view(member(1), member(2), member(3))))
    scene.now += 1.5
    scene.publish(views(view(member(1, policy=LeastUsed(0.5)), member(2), member(3))))
    scene.take()
    scene.now += 0.1
    scene.publish(views(view(member(1, policy=LeastUsed(0.8)), member(2), member(3))))
    assert scene.purged() == set(), "a weight moves once a second at most"
    scene.publish(views(view(member(1, policy=LeastUsed(0.8)), member(3))))
    assert OWNER in scene.purged()
    scene.publisher.close()


async def test_time_alone_brings_the_next_build(tmp_path: Path) -> None:
    """A newcomer grows in steps of a second: the timer comes by itself, once."""
    scene = Scene(tmp_path)
    scene.start(views(view(member(1, since_s=999.95), member(2))))
    builds = scene.publisher.builds
    scene.take()
    scene.now = 1001.1
    end_s = time.monotonic() + 5
    while scene.publisher.builds == builds:
        assert time.monotonic() < end_s
        await asyncio.sleep(0.01)
    assert OWNER in scene.purged()
    scene.publisher.close()
    builds = scene.publisher.builds
    await asyncio.sleep(0.05)
    assert scene.publisher.builds == builds


async def test_expensive_builds_leave_time_for_answers(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.start(views(view(member(1))))
    builds = scene.publisher.builds
    real_swap = scene.publisher._swap

    def slow_swap(change: Change, purge: Callable[[Collection[str]], None]) -> None:
        scene.now += 0.05
        real_swap(change, purge)

    scene.publisher._swap = slow_swap
    scene.publish(views(view(member(2))))
    scene.publish(views(view(member(3))))
    scene.publish(views(view(member(4))))
    assert scene.publisher.builds == builds + 1
    scene.take()
    scene.now += 0.05
    end_s = time.monotonic() + 5
    while scene.publisher.builds == builds + 1:
        assert time.monotonic() < end_s
        await asyncio.sleep(0.01)
    assert isinstance(scene.publisher.snapshot.lookup(f"00000004.u.as.{ZONE}", "A"), Found)
    assert OWNER in scene.purged()
    scene.publisher.close()


async def test_change_right_after_the_start_or_a_reload_does_not_wait_for_the_rest_of_that_build(
    tmp_path: Path,
) -> None:
    """That one takes long, and comes once: a member that dies in the first second is out at once."""
    scene = Scene(tmp_path)
    plain_swap = scene.swap

    def slow_swap(change: Change, purge: Callable[[Collection[str]], None]) -> None:
        scene.now += 0.2
        plain_swap(change, purge)

    scene.publisher._swap = slow_swap
    both, single = views(view(member(1), member(2))), views(view(member(1)))
    scene.start(both)
    scene.now += 0.01
    scene.take()
    scene.publish(single)
    assert [kind for kind, _ in scene.take()] == ["swap", "purge"]
    scene.set_zones((zone(),), both)
    scene.now += 0.01
    scene.take()
    scene.publish(single)
    assert [kind for kind, _ in scene.take()] == ["swap", "purge"]
    scene.publisher.close()


async def test_timed_builds_come_seldom_and_views_at_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, hot=frozenset({"sip-udp"}))
    many = [member(number) for number in range(1, 20)]
    scene.start(views(view(*many)))
    builds = scene.publisher.builds
    scene.now += 0.999
    scene.publish(views(view(*many[1:])))
    assert scene.publisher.builds == builds + 1, "who leaves is out at once"
    for _ in range(20):
        scene.now += 0.5
        await asyncio.sleep(0.005)
    assert scene.publisher.builds <= builds + 2, "a tenth of a second has not passed"
    scene.publisher.close()


async def test_chance_draws_again_only_for_pools_somebody_asks_for(tmp_path: Path) -> None:
    many = views(view(*(member(number) for number in range(1, 20))))
    for hot, is_due in ((frozenset({"sip-udp"}), True), (frozenset[str](), False)):
        scene = Scene(tmp_path, hot=hot)
        scene.start(many)
        assert (scene.publisher.snapshot.rebuild_at_s <= scene.now + 1) is is_due
        scene.publisher.close()


async def test_new_zones_are_made_known_and_old_ones_forgotten(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.start(views(view(member(1))))
    scene.take()
    other = zone(UDP, name="other.example")
    scene.set_zones([other], views(view(member(1))))
    assert scene.told[0][0] == "rediscover"
    assert {WHOLE, "other.example$", OWNER} <= scene.purged()
    assert [served.name for served in scene.publisher.snapshot.zones()] == ["other.example"]
    scene.publisher.close()


async def test_a_large_pool_that_changes_all_the_time_delays_no_other(tmp_path: Path) -> None:
    quiet = UDP.replace("sip-udp", "quiet").replace('"as"', '"quiet"')
    scene = Scene(tmp_path, zone(UDP + quiet))
    crowd = [member(number, f"10.0.{number // 250}.{number % 250 + 1}") for number in range(1, 501)]
    still = view(member(1), handle="quiet")
    scene.start(views(view(*crowd), still))
    scene.build_takes_s = 0.01
    scene.now += 1
    scene.publish(views(view(*crowd[1:]), still))
    assert f"00000001.u.as.{ZONE}" in scene.purged()
    two = view(member(2), handle="quiet")
    scene.publish(views(view(*crowd[2:]), two))
    purged = scene.purged()
    assert f"00000002.u.quiet.{ZONE}" in purged
    assert f"00000002.u.as.{ZONE}" not in purged, "the crowd was built a moment ago"
    scene.now += 1
    await asyncio.sleep(0.1)
    assert f"00000002.u.as.{ZONE}" in scene.purged()
    scene.publisher.close()


async def test_a_death_in_the_largest_pool_waits_for_a_bounded_time(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.is_seen_at_once = True
    crowd = [member(number, f"10.0.{number // 250}.{number % 250 + 1}") for number in range(1, 4001)]
    scene.start(views(view(*crowd)))
    scene.build_takes_s = 0.01
    scene.now += 1
    scene.publish(views(view(*crowd[1:])))
    scene.now += LONGEST_REST_S
    scene.publish(views(view(*crowd[2:])))
    assert f"00000002.u.as.{ZONE}" in scene.purged()
    scene.publisher.close()


async def test_a_pool_looked_up_first_is_drawn_again_though_nothing_changes(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    scene.start(views(view(*(member(number) for number in range(1, 30)))))
    scene.take()
    scene.now += 5
    scene.hot = frozenset({"sip-udp"})
    scene.publisher.looked_up(["sip-udp"])
    await asyncio.sleep(0.05)
    assert OWNER in scene.purged()
    builds = scene.publisher.builds
    scene.publisher.looked_up(["sip-udp"])
    await asyncio.sleep(0.05)
    assert scene.publisher.builds == builds, "once is enough"
    scene.publisher.close()


async def test_a_target_that_left_is_purged_again_when_its_address_is_answered_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PowerDNS may learn of it meanwhile, and would go on answering for seconds."""
    monkeypatch.setattr(purges, "DEPARTED_KEPT_S", 0.0)
    monkeypatch.setattr(purges, "PURGE_DEPARTED_S", 0.01)
    scene = Scene(tmp_path)
    scene.start(views(view(member(1), member(2))))
    scene.publish(views(view(member(1))))
    scene.told.clear()
    await until_async(lambda: bool(scene.told), 5)
    assert scene.purged() == {f"00000002.u.as.{ZONE}"}
    scene.publisher.close()


THREE_POOLS = "".join(UDP.replace('"as"', f'"{name}"').replace("sip-udp", name) for name in ("a", "b", "c"))


async def test_change_waits_for_nothing_that_only_time_calls_for(tmp_path: Path) -> None:
    """It is done when it was planned: changes that never end do not put it off."""
    scene = Scene(tmp_path, zone(THREE_POOLS), hot=frozenset("ab"))
    crowd = [member(number) for number in range(1, 6)]
    seen = views(view(*crowd, handle="a"), view(handle="b"), view(handle="c"))

    def publish(now: float, *changed: PoolView) -> tuple[float, float]:
        """When chance draws again for the first two pools."""
        scene.now = now
        seen.update(views(*changed))
        scene.publish(dict(seen))
        a, b, c = scene.publisher.snapshot.zone_answers[ZONE].sites
        assert len(c.states[0].members) == len(seen["c"].members), "the change itself"
        return a.redraw_at_s, b.redraw_at_s

    first, two = view(member(1), handle="c"), view(member(1), member(2), handle="c")
    scene.start(dict(seen))
    assert publish(1000.05, view(*crowd[:4], handle="b"), first) == pytest.approx((1001, 1001.05))
    assert publish(1001.00, two) == pytest.approx((1002, 1001.05))
    assert publish(1001.07, first) == pytest.approx((1002, 1001.05)), "the second is due, but not planned yet"
    assert publish(1001.09, two) == pytest.approx((1002, 1001.05))
    assert publish(1001.11, first) == pytest.approx((1002, 1002.11))
    scene.publisher.close()


async def test_the_apex_is_purged_last_and_ten_times_a_second_at_most(tmp_path: Path) -> None:
    """A secondary looks at the SOA there: with the new serial, all else must be new, too."""
    scene = Scene(tmp_path)
    scene.start(views(view(member(1))))
    scene.take()
    scene.publish(views(view(member(1), member(2))))
    assert scene.purged_in_order[-1] == ZONE
    scene.take()
    for number in (3, 4, 5):
        scene.now += 0.02
        scene.publish(views(view(member(1), member(number))))
        assert ZONE not in scene.purged_in_order
    await until_async(lambda: scene.purged_in_order == [ZONE])
    assert sum(names == {ZONE} for kind, names in scene.take() if kind == "purge") == 1
    scene.now += 1.0
    scene.publish(views(view(member(1), member(2))))
    assert scene.purged_in_order[-1] == ZONE
    scene.publisher.close()


@pytest.mark.parametrize("failing", ["build", "_swap"])
async def test_change_whose_build_fails_is_built_again(
    tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    scene.start(views(view(member(1), member(2))))
    scene.take()

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        owner = publisher if failing == "build" else scene.publisher
        patch.setattr(owner, failing, fail)
        with pytest.raises(MemoryError):
            scene.publish(views(view(member(1))))
    assert scene.take() == []
    scene.now += 1
    await until_async(lambda: bool(scene.told), 5)
    assert {OWNER, f"00000002.u.as.{ZONE}"} <= scene.purged()
    assert scene.publisher.snapshot.lookup(f"00000002.u.as.{ZONE}", "A") == NXDOMAIN
    scene.publisher.close()


async def test_pool_whose_build_always_fails_keeps_no_other_pools_changes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, zone(THREE_POOLS))
    seen = views(*(view(member(1), member(2), handle=handle) for handle in "abc"))
    scene.start(dict(seen))
    real, has_failed = state_of, list[float]()

    def fail(pool: Pool, believed: BeliefChange, *rest: Any) -> PoolState:
        if pool.config.handle == "b" and len(believed.views["b"].members) == 3:
            has_failed.append(scene.now)
            raise ValueError(pool.config.handle)
        return real(pool, believed, *rest)

    monkeypatch.setattr(building, "state_of", fail)
    seen.update(views(*(view(member(1), handle=handle) for handle in "ac")))
    seen.update(views(view(member(1), member(2), member(3), handle="b")))
    scene.now += 1
    with pytest.raises(ValueError, match="b") as failure:
        scene.publish(dict(seen))
    assert failure.value.__notes__ == ["pools put aside: 1 b"]
    for name in "ac":
        assert scene.publisher.snapshot.lookup(f"00000002.u.{name}.{ZONE}", "A") == NXDOMAIN
    failures = len(has_failed)
    seen.update(views(view(member(2), handle="c")))
    scene.now += 0.1
    scene.publish(dict(seen))
    assert scene.publisher.snapshot.lookup(f"00000001.u.c.{ZONE}", "A") == NXDOMAIN
    assert len(has_failed) == failures, "the failing pool is put aside"
    monkeypatch.setattr(building, "state_of", real)
    scene.now += 1
    await until_async(
        lambda: isinstance(scene.publisher.snapshot.lookup(f"00000003.u.b.{ZONE}", "A"), Found), 5
    )
    scene.publisher.close()
