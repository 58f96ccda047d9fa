"""A member that keeps falling must stay well for longer before it is let in again."""

from ppe_agent.checks.base import Timing, alive, dead
from ppe_agent.health import Damping, Health

ONCE = Timing(interval_ms=250, timeout_ms=250, fall=1, rise=1)


def flapping(damping: Damping, *falls_at_s: float) -> Health:
    """Return a health that was well, and fell at these times for a second each."""
    health = Health([("tcp", "port 1", ONCE)], damping)
    health.report(0, alive("up"), 0.0)
    for at_s in falls_at_s:
        health.report(0, dead("nothing listens"), at_s)
        health.report(0, alive("up"), at_s + 1)
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
    health.report(0, dead("nothing listens"), 35)
    assert health.held_for_s(36) == 0
    assert health.reason(36) == "tcp: nothing listens"
    health.report(0, alive("up"), 37)
    assert health.held_for_s(37) == 20
    assert health.fall_count == 4


def test_it_can_be_turned_off() -> None:
    assert flapping(Damping(falls=0), *range(10, 60, 2)).is_up(60)


def test_all_checks_together_fall_once() -> None:
    health = Health([("tcp", "port 1", ONCE), ("tcp", "port 2", ONCE)], Damping(2, 60, 10))
    for position in (0, 1):
        health.report(position, alive("up"), 0.0)
    for position in (0, 1):
        health.report(position, dead("nothing listens"), 1.0)
    for position in (0, 1):
        health.report(position, alive("up"), 2.0)
    assert health.fall_count == 1
    assert health.is_up(2.0)
