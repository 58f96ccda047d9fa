"""The share of the event loop that the work on one pool may take."""

import pytest
from pool_user.fairness import FREE_S, LONGEST_REST_S, RESTS, Fairness


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.spent_s = 0.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


def work(fairness: Fairness, clock: Clock, seconds: float, *sized: tuple[str, int]) -> None:
    with fairness.work(sized):
        clock.now += seconds
        clock.spent_s += seconds


def fair(clock: Clock, **options: float) -> Fairness:
    return Fairness(clock=lambda: clock.now, spent=lambda: clock.spent_s, **options)


def test_a_pool_rests_in_proportion_to_the_work_on_it(clock: Clock) -> None:
    fairness, pool = fair(clock), ("large", 1000)
    work(fairness, clock, 0.004, pool)
    chosen, back_s = fairness.choose([pool, ("other", 3)])
    assert chosen == [("other", 3)]
    assert back_s == pytest.approx(clock.now + RESTS * 0.004)
    clock.now += RESTS * 0.004 + 0.0001
    assert fairness.choose([pool]) == ([pool], None)


def test_the_small_pool_beside_a_large_one_does_not_rest(clock: Clock) -> None:
    fairness, pools = fair(clock), [("large", 1000), ("small", 3)]
    work(fairness, clock, 0.01, *pools)
    assert fairness.choose(pools)[0] == [("small", 3)]


def test_short_work_is_free_and_no_rest_is_longer_than_the_bound(clock: Clock) -> None:
    fairness = fair(clock)
    work(fairness, clock, FREE_S / 2, ("short", 10))
    work(fairness, clock, 1.0, ("long", 10))
    chosen, back_s = fairness.choose([("short", 10), ("long", 10)])
    assert chosen == [("short", 10)]
    assert back_s == pytest.approx(clock.now + LONGEST_REST_S)
    fairness.forget()
    assert fairness.choose([("long", 10)]) == ([("long", 10)], None)


def test_a_pause_of_the_machine_is_no_work(clock: Clock) -> None:
    fairness = fair(clock)
    with fairness.work([("pool", 10)]):
        clock.now += 5.0
    assert fairness.choose([("pool", 10)]) == ([("pool", 10)], None)


def test_large_pool_has_its_turn_beside_small_ones_that_change_all_the_time(clock: Clock) -> None:
    fairness = fair(clock, at_once=500)
    due = [*((f"small-{number}", 1) for number in range(300)), ("large-1", 400), ("large-2", 401)]
    looks: list[list[str]] = []
    for _ in range(20):
        chosen, _ = fairness.choose(iter(due))
        work(fairness, clock, 0.02, *chosen)
        looks.append([handle for handle, _ in chosen])
    for large in ("large-1", "large-2"):
        assert any(large in handles for handles in looks[:8])
        assert any(large in handles for handles in looks[8:])
    assert sum(len(handles) >= 240 for handles in looks) >= 8, "the small ones go on"


def test_change_of_a_small_pool_does_not_wait_for_all_that_are_late(clock: Clock) -> None:
    fairness = fair(clock, at_once=500)
    crowd = [(f"pool-{number}", 99) for number in range(100)]
    fairness.choose(crowd)
    clock.now += 1
    chosen, _ = fairness.choose([("changed", 3), *crowd])
    assert ("changed", 3) in chosen


def test_large_pool_that_is_late_leaves_half_to_the_others(clock: Clock) -> None:
    fairness = fair(clock, at_once=500)
    large = [(f"large-{number}", 1000) for number in range(3)]
    fairness.choose(large)
    clock.now += 1
    assert fairness.choose([("changed", 3), *large])[0][:2] == [("large-1", 1000), ("changed", 3)]


def test_pool_put_aside_is_chosen_when_its_time_has_come(clock: Clock) -> None:
    fairness = fair(clock)
    fairness.put_aside("failed", clock.now + 0.1)
    assert fairness.choose([("failed", 1), ("other", 1)]) == ([("other", 1)], clock.now + 0.1)
    clock.now += 0.1
    assert fairness.choose([("failed", 1)]) == ([("failed", 1)], None)


def test_thousands_of_pools_are_worked_on_in_steps(clock: Clock) -> None:
    fairness = fair(clock, at_once=100)
    left = [(f"pool-{number}", 9) for number in range(100)]
    steps = 0
    while left:
        chosen, back_s = fairness.choose(left)
        assert back_s == (None if len(chosen) == len(left) else clock.now)
        left = [sized for sized in left if sized not in chosen]
        steps += 1
    assert steps == 10


def test_a_pool_larger_than_a_step_has_one_of_its_own(clock: Clock) -> None:
    assert fair(clock, at_once=100).choose([("large", 5000), ("other", 1)]) == ([("large", 5000)], clock.now)
