"""When which registrar is asked about which pool."""

import math

from pool_user.registrars.polling import (
    MAX_NEW_PER_ROUND,
    MAX_UNANSWERED,
    MOST_IDLE_CHECKS_PER_S,
    REPEAT_AFTER_S,
    SENTINEL_EVERY_S,
    HotPools,
    Intervals,
    Round,
)

SENTINEL = "rspdns-sentinel-1"
INTERVALS = Intervals(hot_s=0.05, hot_for_s=60, idle_s=10)


def test_all_are_hot_at_first_then_those_that_are_looked_up() -> None:
    pools = HotPools(["a", "b"], INTERVALS, 0)
    assert pools.hot(59) == ["a", "b"]
    assert pools.hot(60) == []
    assert pools.note_query("a", 100), "it was not hot: ask at once"
    assert not pools.note_query("a", 101)
    assert pools.hot(160.5) == ["a"]
    assert pools.hot(161) == []
    assert not pools.note_query("stranger", 100)


def test_new_pools_are_hot_and_old_ones_keep_their_time() -> None:
    pools = HotPools(["a", "b"], INTERVALS, 0)
    pools.set_handles(["b", "c"], 30)
    assert pools.hot(59) == ["b", "c"]
    assert pools.hot(61) == ["c"]


def test_hot_pools_and_the_sentinel_are_asked_together_the_sentinel_first() -> None:
    pools, asking = HotPools(["a", "b"], INTERVALS, 0), Round(SENTINEL, INTERVALS)
    assert asking.due(pools, 0.05, False, 0) == [SENTINEL, "a", "b"]


def test_a_question_is_not_repeated_while_it_is_unanswered() -> None:
    pools, asking = HotPools(["a", "b"], INTERVALS, 0), Round(SENTINEL, INTERVALS)
    asking.due(pools, 0.05, False, 0)
    asking.done("b")
    assert asking.due(pools, 0.05, False, 0.05) == ["b"]
    asking.done(SENTINEL)
    asking.done("b")
    assert asking.due(pools, 0.05, False, 0.1) == [SENTINEL, "b"]


def test_idle_pools_take_turns_within_the_idle_interval() -> None:
    handles = [f"pool-{number}" for number in range(40)]
    pools, asking = HotPools(handles, INTERVALS, -100), Round(SENTINEL, INTERVALS)
    asked: dict[str, list[float]] = {handle: [] for handle in handles}
    sentinel = 0
    for step in range(20 * 30):
        now = step * 0.05
        for handle in asking.due(pools, 0.05, False, now):
            asking.done(handle)
            if handle == SENTINEL:
                sentinel += 1
            else:
                asked[handle].append(now)
    for times in asked.values():
        gaps = [after - before for before, after in zip([0.0, *times], times, strict=False)]
        assert max(gaps) <= 10.5
        assert len(times) <= 4
    assert sentinel >= 30 / SENTINEL_EVERY_S * 0.8


def test_of_a_thousand_idle_pools_few_are_checked_at_a_registrar_that_tells_of_changes() -> None:
    handles = [f"pool-{number}" for number in range(1000)]
    pools, asking = HotPools(handles, INTERVALS, -100), Round(SENTINEL, INTERVALS)
    asked: list[str] = []
    for step in range(4 * 60):
        due = asking.due(pools, SENTINEL_EVERY_S, False, step * SENTINEL_EVERY_S, followed=True)
        for handle in due:
            asking.done(handle)
        asked += [handle for handle in due if handle != SENTINEL]
        assert len(asked) <= MOST_IDLE_CHECKS_PER_S * (step + 1) * SENTINEL_EVERY_S
    assert set(asked) == set(handles), "each has its turn within a minute"


def test_a_hot_pool_is_not_asked_in_the_rotation_too() -> None:
    pools, asking = HotPools(["a"], INTERVALS, 0), Round(SENTINEL, INTERVALS)
    assert asking.due(pools, 0.05, False, 0).count("a") == 1


def test_a_silent_registrar_is_asked_about_its_sentinel_only() -> None:
    pools, asking = HotPools(["a", "b"], INTERVALS, 0), Round(SENTINEL, INTERVALS)
    assert asking.due(pools, 0.05, True, 0) == [SENTINEL]
    asking.done(SENTINEL)
    assert asking.due(pools, 0.05, True, 0.05) == []
    assert asking.due(pools, 0.05, True, 0.3) == [SENTINEL]


def test_pools_never_asked_about_come_first_and_hot_ones_before_others() -> None:
    pools, asking = HotPools(["idle", "hot", "new"], INTERVALS, -100), Round(SENTINEL, INTERVALS)
    pools.note_query("hot", 0.0)
    asking.asked("idle", 0.0)
    assert asking.due(pools, 0.05, False, 0.0) == [SENTINEL, "hot", "new"]


def test_questions_under_way_are_bounded_and_all_hot_pools_get_their_turn() -> None:
    handles = [f"pool-{number}" for number in range(1200)]
    pools, asking = HotPools(handles, INTERVALS, 0), Round(SENTINEL, INTERVALS)
    for first_s, rounds, most in ((0.0, 12, MAX_NEW_PER_ROUND), (1.0, 3, MAX_UNANSWERED)):
        asked: set[str] = set()
        for step in range(rounds):
            due = asking.due(pools, 0.05, False, first_s + step * 0.05)
            assert len(due) <= most + 1
            asked |= set(due)
            for handle in due:
                asking.done(handle)
        assert asked == {*handles, SENTINEL}
    assert len(asking.due(pools, 0.05, False, 9)) <= MAX_UNANSWERED + 1
    assert len(asking.due(pools, 0.05, False, 9.05)) <= 1, "nothing more before something is answered"


def test_a_slow_registrar_is_asked_less_often() -> None:
    asking = Round(SENTINEL, INTERVALS)
    assert asking.interval_s(500, None) == 0.05, "nothing was asked yet"
    asking.due(HotPools(["a"], INTERVALS, 0), 0.05, False, 0)
    assert asking.interval_s(3, None) == 0.05
    assert asking.interval_s(3, 0.001) == 0.05
    assert asking.interval_s(3, 0.1) == 0.4
    assert asking.interval_s(3, 5.0) == 1.0
    assert asking.interval_s(500, 0.001) == 0.5


def test_a_question_at_once_waits_for_the_one_under_way_and_is_then_repeated() -> None:
    pools, asking = HotPools(["a"], INTERVALS, 0), Round(SENTINEL, INTERVALS)
    asking.due(pools, 0.05, False, 0)
    assert not asking.may_ask("a", 0.01)
    assert asking.done("a"), "wanted again"
    assert asking.may_ask("a", 0.01)
    asking.asked("a", 0.01)
    assert not asking.done("a")
    assert not asking.may_ask("a", 0.01 + REPEAT_AFTER_S / 2), "not faster than this"
    assert asking.may_ask("a", 0.01 + REPEAT_AFTER_S)


def test_after_a_lost_link_everything_is_due() -> None:
    pools, asking = HotPools(["a"], INTERVALS, -100), Round(SENTINEL, INTERVALS)
    for handle in asking.due(pools, 0.05, False, 0):
        asking.done(handle)
    assert asking.due(pools, 0.05, False, 0.01) == []
    asking.forget()
    assert asking.due(pools, 0.05, False, 0.02) == [SENTINEL, "a"]


def test_pool_stays_hot_for_good_where_that_is_wanted() -> None:
    """A pool that cooled down would be asked about every 10 s."""
    assert list(HotPools(["p"], Intervals(hot_for_s=math.inf), 0.0).hot(86_400.0)) == ["p"]
