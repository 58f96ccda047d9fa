"""Which member is probed when, and what the results mean."""

import random
from collections import Counter
from dataclasses import replace
from ipaddress import ip_address

from daemon_kit.finding import Life
from pool_user.probe.probing import (
    JITTER,
    MAX_PROBES_PER_S,
    MAX_UNDER_WAY,
    REMEMBERED_S,
    ProbeBook,
    ProbePlan,
    ProbeTarget,
)
from pool_user.views import Member

from rserpool import Protocol, RoundRobin

ALIVE, FAILED, UNKNOWN = Life.ALIVE, Life.SILENT, Life.UNKNOWN
TRIP_S = 0.001
VERIFIED = ProbePlan("tcp", 0.1, 0.3, fall=1, rise=2, verified=True)
STALE = ProbePlan("connect")


def target(
    number: int, port: int = 5060, plan: ProbePlan = STALE, handle: str = "pool", group: str = ""
) -> ProbeTarget:
    addresses = (ip_address(0x0A000000 + number),)
    return ProbeTarget(
        handle, Member(number, 1, addresses, port, Protocol.TCP, RoundRobin(), 0.0), plan, group
    )


class World:
    """Targets that answer or not, probed as the book says; time passes in steps of 10 ms."""

    def __init__(self, *targets: ProbeTarget) -> None:
        self.book = ProbeBook(draw=random.Random(5))
        self.targets = list(targets)
        self.dead: set[int] = set()
        self.unknown: set[int] = set()
        self.now = 100.0
        self.out: set[int] = set()
        self.probes: Counter[int] = Counter()
        self.fell_s: dict[int, float] = {}
        self._under_way: list[tuple[float, ProbeTarget, Life]] = []
        self.set(*targets)

    def set(self, *targets: ProbeTarget) -> None:
        self._take(self.book.set_targets(targets, self.now))

    def run(self, seconds: float) -> None:
        end_s = self.now + seconds
        while self.now < end_s:
            for due in self.book.due(self.now):
                number = due.member.identifier
                self.probes[number] += 1
                result = FAILED if number in self.dead else UNKNOWN if number in self.unknown else ALIVE
                done_s = self.now + (due.plan.timeout_s if result is FAILED else TRIP_S)
                self._under_way.append((done_s, due, result))
            self.now += 0.01
            for item in sorted(self._under_way, key=lambda item: item[0]):
                if item[0] <= self.now:
                    self._under_way.remove(item)
                    self._take(self.book.result(item[1], item[2], item[0]))

    def _take(self, findings: list) -> None:  # type: ignore[type-arg]
        for finding in findings:
            number = finding.target.member.identifier
            (self.out.discard if finding.reachable else self.out.add)(number)
            self.fell_s[number] = self.now


def play(results: list[Life], plan: ProbePlan) -> list[bool | None]:
    """The book's verdicts after each result of one target, beside another that always answers."""
    book, failing, other = ProbeBook(), target(1, plan=plan), target(2, plan=plan)
    book.set_targets([failing, other], 0.0)
    said, now = [], 0.0
    for result in results:
        due: list[ProbeTarget] = []
        while failing not in due:
            now += 0.05
            due = book.due(now)
            if other in due:
                assert book.result(other, ALIVE, now) == []
        now += plan.timeout_s / 2
        if other in (more := book.due(now)):
            book.result(other, ALIVE, now)
        assert failing not in more, "never twice at once"
        now += plan.timeout_s / 2
        findings = book.result(failing, result, now)
        assert all(finding.target == failing for finding in findings)
        said.append(findings[0].reachable if findings else None)
    return said


def test_failures_in_a_row_are_a_fall_and_successes_a_rise() -> None:
    plan = ProbePlan(interval_s=0.1, timeout_s=0.3, fall=2, rise=2)
    results = [ALIVE, FAILED, ALIVE, FAILED, FAILED, FAILED, ALIVE, FAILED, ALIVE, ALIVE, ALIVE]
    assert play(results, plan) == [None, None, None, None, False, None, None, None, None, True, None]
    once = replace(plan, fall=1, rise=3)
    assert play([FAILED, ALIVE, ALIVE, ALIVE, FAILED], once) == [False, None, None, True, False]


def test_unknown_says_nothing_and_breaks_a_streak() -> None:
    plan = ProbePlan(interval_s=0.1, timeout_s=0.3, fall=2)
    assert play([FAILED, UNKNOWN, FAILED, UNKNOWN, UNKNOWN], plan) == [None] * 5


def test_a_silent_member_falls_within_04_s_and_returns_after_its_rise() -> None:
    world = World(*(target(number, plan=VERIFIED) for number in (1, 2, 3)))
    world.run(2)
    assert world.out == set()
    for trial in range(20):
        world.run(trial / 37)
        died_s = world.now
        world.dead = {2}
        world.run(0.46)
        assert world.out == {2}
        assert world.fell_s[2] - died_s < 0.45
        world.dead = set()
        world.run(0.6)
        assert world.out == set()


def test_when_nobody_answers_nobody_falls_however_long_it_lasts() -> None:
    for plan in (VERIFIED, STALE):
        world = World(*(target(number, plan=plan) for number in range(1, 6)))
        for trial in range(10):
            world.run(3 + trial / 37)
            world.dead = {1, 2, 3, 4, 5}
            world.run(20)
            assert len(world.out) <= 1, "at most who was asked just before the way broke"
            assert world.book.blind(world.now) == ["pool"]
            world.dead = set()
            world.run(3)
            assert world.out == set()
            assert world.book.blind(world.now) == []


def test_a_pool_of_one_has_no_witness_and_other_pools_are_none() -> None:
    world = World(target(1, plan=VERIFIED), target(2, plan=VERIFIED, handle="other"))
    world.run(1)
    world.dead = {1}
    world.run(10)
    assert world.out == set()
    assert world.book.blind(world.now) == ["pool"]


def test_shards_of_a_pool_witness_for_each_other() -> None:
    world = World(
        target(1, plan=VERIFIED, handle="a", group="a"), target(2, plan=VERIFIED, handle="b", group="a")
    )
    world.run(1)
    world.dead = {1}
    world.run(1)
    assert world.out == {1}


def test_a_member_that_cannot_be_probed_is_no_witness() -> None:
    world = World(target(1), target(2))
    world.unknown = {2}
    world.run(3)
    world.dead = {1}
    world.run(10)
    assert world.out == set()


def test_a_fall_stays_when_the_others_fail_later() -> None:
    world = World(*(target(number, plan=VERIFIED) for number in (1, 2, 3)))
    world.run(1)
    world.dead = {1}
    world.run(1)
    world.dead = {1, 2, 3}
    world.run(10)
    assert world.out == {1} or world.out < {1, 2, 3}
    world.dead = {1}
    world.run(1)
    assert world.out == {1}


def test_a_crowd_takes_longer_but_falls() -> None:
    world = World(*(target(number, plan=VERIFIED) for number in range(1, 11)))
    world.run(1)
    world.dead = set(range(1, 8))
    world.run(0.5)
    assert 1 <= len(world.out) <= 5, "half of the pool at once, no more"
    world.run(1.5)
    assert world.out == world.dead


def test_a_member_is_probed_once_an_interval_with_jitter() -> None:
    world = World(target(1, plan=VERIFIED))
    world.run(60)
    assert 60 / 0.1 / (1 + JITTER) * 0.85 <= world.probes[1] <= 60 / 0.1 / (1 - JITTER)


def test_first_probes_are_spread() -> None:
    book = ProbeBook(draw=random.Random(3))
    book.set_targets([target(number, plan=ProbePlan(interval_s=1.0)) for number in range(40)], 0.0)
    counts = [len(book.due(step / 10)) for step in range(11)]
    assert sum(counts) == 40
    assert max(counts) <= 12


def test_vanished_member_is_told_to_be_silent_though_it_never_answered() -> None:
    """It may be held in by an answer of before (found by a simulated scenario: it was named for 30 s)."""
    silent, living = (replace(target(number), is_suspected=True, is_vanished=True) for number in (1, 2))
    world = World()
    world.dead = {1}
    world.set(silent, living)
    world.run(1.0)
    assert world.out == {1}
    assert set(world.fell_s) == {1, 2}
    world.dead = set()
    world.run(1.5)
    assert world.out == set()


def test_thousand_members_that_vanish_at_once_are_all_probed_within_1_3_s() -> None:
    world = World(
        *(replace(target(number), is_suspected=True, is_vanished=True) for number in range(1, 1001))
    )
    world.run(1.3)
    assert len(world.probes) == 1000


def test_ten_thousand_make_no_storm_all_get_their_turn_and_the_failing_go_first() -> None:
    pools = [
        [target(10 * pool + index + 1, plan=VERIFIED, handle=f"pool-{pool}") for index in range(10)]
        for pool in range(1000)
    ]
    world = World(*(target for pool in pools for target in pool))
    before = 0
    for _ in range(30):
        world.run(1)
        assert sum(world.probes.values()) - before <= MAX_PROBES_PER_S * 1.01 + MAX_PROBES_PER_S * 0.1
        before = sum(world.probes.values())
    assert len(world.probes) == 10_000
    assert max(world.probes.values()) - min(world.probes.values()) <= 1
    world.dead = {55, 4242}
    world.run(25)
    assert world.out == world.dead, "one turn of all and a few probes more"


def test_many_dead_do_not_hold_up_the_living() -> None:
    world = World(*(target(n, plan=VERIFIED, handle=f"pool-{n % 100}") for n in range(1, 2001)))
    world.run(6)
    world.dead = {n for n in range(1, 2001) if n % 2}
    before = world.probes.copy()
    world.run(60)
    assert all(world.probes[n] - before[n] >= 3 for n in range(2, 2001, 2))


def test_unanswered_probes_are_bounded() -> None:
    book = ProbeBook()
    book.set_targets([target(number) for number in range(500)], 0.0)
    under_way = sum(len(book.due(step / 20)) for step in range(400))
    assert under_way == book.under_way == MAX_UNDER_WAY
    assert book.next_due_s == float("inf")


def test_a_member_that_is_no_target_any_more_is_forgotten_with_its_probe_under_way() -> None:
    book, single = ProbeBook(), target(1)
    book.set_targets([single], 0.0)
    assert book.due(2.0) == [single]
    assert book.set_targets([], 2.1) == []
    assert book.under_way == 0
    assert book.result(single, FAILED, 2.2) == []


def test_an_unreachable_verified_member_that_comes_back_is_still_unreachable_for_a_while() -> None:
    failing, other = target(1, plan=VERIFIED), target(2, plan=VERIFIED)
    world = World(failing, other)
    world.run(1)
    world.dead = {1}
    world.run(1)
    assert world.out == {1}
    world.set(other)
    world.run(1)
    world.set(failing, other)
    world.run(1)
    assert world.out == {1}, "the registrar listing it anew is no news of its reachability"
    world.dead = set()
    world.run(1)
    assert world.out == set()
    world.dead = {1}
    world.run(1)
    world.set(other)
    world.run(REMEMBERED_S + 1)
    world.set(other)
    assert world.out == set(), "forgotten, and said so"


def test_a_stale_member_that_goes_is_forgotten_at_once() -> None:
    world = World(target(1), target(2))
    world.run(3)
    world.dead = {1}
    world.run(5)
    assert world.out == {1}
    world.set(target(2))
    assert world.out == set()


def test_with_another_port_it_is_another_target_with_another_load_it_is_not() -> None:
    book = ProbeBook()
    book.set_targets([target(1)], 0.0)
    assert book.due(1.2)
    book.set_targets([target(1, port=5061)], 1.3)
    assert book.due(2.5)
    same = replace(target(1, port=5061), member=replace(target(1, port=5061).member, since_s=7.0))
    book.set_targets([same], 2.6)
    assert book.due(4.0) == []


def test_a_suspect_is_probed_at_once_and_soon_again_beside_a_witness() -> None:
    suspect, other = target(1), target(2)
    world = World(suspect, other)
    world.run(3)
    world.dead = {1}
    before = world.probes[1]
    world.set(replace(suspect, is_suspected=True), other)
    world.run(0.02)
    assert world.probes[1] == before + 1, "at once"
    world.run(0.8)
    assert world.out == {1}
    world.set(other)
    assert world.out == set(), "it is no target any more"


def test_while_registrars_are_lost_whoever_failed_once_is_asked_again_at_once() -> None:
    for number in range(1, 9):
        world = World(*(target(number) for number in range(1, 9)))
        world.run(3 + number / 8)
        world.dead = {number}
        world.run(STALE.interval_s * (1 + JITTER) + 2 * STALE.timeout_s + 0.1)
        assert world.out == {number}


def test_where_nobody_answers_nobody_is_asked_that_often() -> None:
    world = World(target(1), target(2))
    world.dead = {1, 2}
    world.run(60)
    assert max(world.probes.values()) < 60 / (STALE.interval_s / 2)
