"""A member that keeps falling must stay well for longer before it is let in again."""

from daemon_kit.finding import Finding, Life
from ppe_agent.checks.base import CheckState, Timing
from ppe_agent.health import Damping, Health

ONCE = Timing(interval_ms=250, timeout_ms=250, fall=1, rise=1)


def flapping(damping: Damping, *falls_at_s: float) -> Health:
    """Return a health that was well, and fell at these times for a second each."""
    health = Health([("tcp", "port 1", ONCE)], damping)
    health.report(0, Finding(Life.ALIVE, "up"), 0.0)
    for at_s in falls_at_s:
        health.report(0, Finding(Life.REFUSED, "nothing listens"), at_s)
        health.report(0, Finding(Life.ALIVE, "up"), at_s + 1)
    return health


def test_two_falls_in_a_minute_are_forgiven() -> None:
    health = flapping(Damping(falls=3, window_s=60, well_for_s=10), 10, 20)
    assert health.is_up(21)
    assert health.reason(21) == "all checks pass"


def test_after_the_third_it_must_stay_well_first_and_says_so() -> None:
    health = flapping(Damping(falls=3, window_s=60, well_for_s=10), 10, 20, 30)
    assert health.is_well
    assert not health.is_up(31)
    assert health.held_for_s(31) == 10
    assert health.reason(34) == "fell 3 times within 60 s: must stay well for 10 s, 7 s to go"
    assert not health.is_up(40.9)
    assert health.is_up(41)
    assert health.reason(41) == "all checks pass"


def test_falls_longer_ago_do_not_count() -> None:
    assert flapping(Damping(falls=3, window_s=60, well_for_s=10), 10, 40, 80).is_up(81)


def test_each_further_fall_doubles_the_time_three_times_at_most() -> None:
    damping = Damping(falls=2, window_s=600, well_for_s=10)
    held = [flapping(damping, *range(10, 10 * count, 10)) for count in range(2, 10)]
    now = [10 * (count - 1) + 1 for count in range(2, 10)]
    times = [health.held_for_s(at_s) for health, at_s in zip(held, now, strict=True)]
    assert times == [0, 10, 20, 40, 80, 80, 80, 80]


def test_a_fall_while_it_is_held_starts_the_time_anew() -> None:
    health = flapping(Damping(falls=3, window_s=60, well_for_s=10), 10, 20, 30)
    health.report(0, Finding(Life.REFUSED, "nothing listens"), 35)
    assert health.held_for_s(36) == 0
    assert health.reason(36) == "tcp: nothing listens"
    health.report(0, Finding(Life.ALIVE, "up"), 37)
    assert health.held_for_s(37) == 20
    assert health.fall_count == 4


def test_damping_can_be_turned_off() -> None:
    assert flapping(Damping(falls=0), *range(10, 60, 2)).is_up(60)


def test_all_checks_together_fall_once() -> None:
    health = Health([("tcp", "port 1", ONCE), ("tcp", "port 2", ONCE)], Damping(2, 60, 10))
    for position in (0, 1):
        health.report(position, Finding(Life.ALIVE, "up"), 0.0)
    for position in (0, 1):
        health.report(position, Finding(Life.REFUSED, "nothing listens"), 1.0)
    for position in (0, 1):
        health.report(position, Finding(Life.ALIVE, "up"), 2.0)
    assert health.fall_count == 1
    assert health.is_up(2.0)


def reloaded(before: Health, damping: Damping, now: float) -> Health:
    """Return the health of the checks that a reload began at `now`, as the agent does."""
    state = CheckState.UP if before.is_well else CheckState.UNKNOWN
    health = Health([("tcp", "port 2", ONCE)], damping, state=state)
    health.go_on_from(before, now)
    return health


def test_a_reload_does_not_let_a_held_server_in() -> None:
    damping = Damping(falls=3, window_s=60, well_for_s=10)
    health = reloaded(flapping(damping, 10, 20, 30), damping, 33)
    assert (health.held_for_s(33), health.fall_count) == (8, 3)
    assert health.reason(34) == "fell 3 times within 60 s: must stay well for 10 s, 7 s to go"
    assert health.is_up(41)


def test_a_reload_while_it_is_down_forgets_no_fall() -> None:
    damping = Damping(falls=3, window_s=60, well_for_s=10)
    before = flapping(damping, 10, 20)
    before.report(0, Finding(Life.REFUSED, "nothing listens"), 30)
    health = reloaded(before, damping, 31)
    health.report(0, Finding(Life.ALIVE, "up"), 32)
    assert health.held_for_s(32) == 10


def test_a_reload_that_changes_damping_changes_the_hold_from_its_beginning() -> None:
    before = flapping(Damping(falls=3, window_s=60, well_for_s=10), 10, 20, 30)
    assert reloaded(before, Damping(falls=3, window_s=60, well_for_s=30), 33).held_for_s(33) == 28
    assert reloaded(before, Damping(falls=4, window_s=60, well_for_s=10), 33).is_up(33)
    assert reloaded(before, Damping(falls=0), 33).is_up(33)


def test_a_reload_does_not_take_out_a_server_that_was_let_in() -> None:
    before = flapping(Damping(falls=3, window_s=60, well_for_s=10), 10, 20, 30)
    assert reloaded(before, Damping(falls=1, window_s=60, well_for_s=600), 42).is_up(42)
