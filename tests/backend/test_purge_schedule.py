"""Which names are purged when."""

from hypothesis import given
from hypothesis import strategies as st
from rspdns.pdns.purge import BURST, EARLY_S, GAPS_S, MAX_NAMES, RETRY_S, SPACING_S, PurgeSchedule


def run(
    schedule: PurgeSchedule, until_s: float, took_s: float = 0.0, start_s: float = 0.0
) -> list[tuple[float, set[str]]]:
    """Play a PowerDNS that needs `took_s` for a command; returns when it was told to purge what."""
    told = []
    now = start_s
    while (due_s := schedule.next_due_s) is not None and max(now, due_s) <= until_s:
        now = max(now, due_s)
        command = schedule.take(now)
        assert command is not None
        told.append((round(now, 6), set(command.names)))
        now += took_s
        schedule.done(command, now)
    return told


def test_a_change_is_purged_at_once_and_twice_again() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a", "b"}, 5.0)
    assert run(schedule, 99.0) == [(5.0, {"a", "b"}), (5.01, {"a", "b"}), (5.05, {"a", "b"})]
    assert len(schedule) == 0
    assert schedule.next_due_s is None


def test_the_gaps_begin_at_the_end_of_a_slow_command() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a"}, 0.0)
    assert [when for when, _ in run(schedule, 99.0, took_s=1.0)] == [0.0, 1.01, 2.05]


def test_a_name_that_changes_again_begins_anew() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a", "b"}, 0.0)
    assert run(schedule, 0.0) == [(0.0, {"a", "b"})]
    schedule.add({"a"}, 0.005)
    assert run(schedule, 99.0) == [
        (0.005, {"a"}),
        (0.01, {"b"}),
        (0.015, {"a"}),
        (0.05, {"b"}),
        (0.055, {"a"}),
    ]


def test_a_change_during_a_command_is_not_lost() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a"}, 0.0)
    command = schedule.take(0.0)
    assert command is not None
    schedule.add({"a"}, 0.001)
    schedule.done(command, 0.002)
    assert [when for when, _ in run(schedule, 99.0, start_s=0.002)] == [0.002, 0.012, 0.052]


def test_changes_that_wait_go_together() -> None:
    schedule = PurgeSchedule()
    for number in range(100):
        schedule.add({f"{number}", "same"}, number / 1000)
    first = schedule.take(0.1)
    assert first is not None
    assert len(first.names) == 101
    assert schedule.take(0.1) is None


def test_repeats_that_are_due_soon_go_with_a_new_change() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a"}, 0.0)
    assert run(schedule, 0.0) == [(0.0, {"a"})]
    schedule.add({"b"}, 0.008)
    assert run(schedule, 99.0) == [(0.008, {"a", "b"}), (0.018, {"b"}), (0.048, {"a"}), (0.058, {"b"})]


def test_a_storm_is_cut_into_commands_of_bounded_size() -> None:
    schedule = PurgeSchedule()
    names = {str(number) for number in range(2 * MAX_NAMES + 1)}
    schedule.add(names, 0.0)
    told = run(schedule, 0.0)
    assert [len(some) for _, some in told] == [MAX_NAMES, MAX_NAMES, 1]
    assert set().union(*(some for _, some in told)) == names


def test_what_did_not_get_through_is_tried_again_from_the_beginning() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a"}, 0.0)
    command = schedule.take(0.0)
    assert command is not None
    schedule.failed(command, 1.0)
    start_s = 1.0 + RETRY_S
    assert [when for when, _ in run(schedule, 99.0, start_s=1.0)] == [start_s, start_s + 0.01, start_s + 0.05]


def test_nothing_waits_after_clear() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a"}, 0.0)
    schedule.clear()
    assert schedule.next_due_s is None
    assert schedule.take(1.0) is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 0.02), st.booleans()), max_size=40))
def test_each_name_is_purged_again_late_enough(
    events: list[tuple[str, float, bool]],
) -> None:
    schedule = PurgeSchedule()
    now = 0.0
    purges: dict[str, list[float]] = {}
    for name, pause_s, works in events:
        schedule.add({name}, now)
        purges[name] = []
        now += pause_s
        command = schedule.take(now)
        if command is not None and works:
            for one in command.names:
                purges[one].append(now)
            schedule.done(command, now)
        elif command is not None:
            for one in command.names:
                purges[one] = []
            schedule.failed(command, now)
    for when, some in run(schedule, float("1e9"), start_s=now):
        for name in some:
            purges[name].append(when)
    assert all(len(times) >= 2 for times in purges.values())
    for times in purges.values():
        assert times[-1] - times[-2] >= GAPS_S[-1] - EARLY_S - 1e-5


def test_where_changes_never_end_commands_are_spaced_and_no_change_waits_long() -> None:
    schedule = PurgeSchedule()
    changed_s = {f"{number}": number / 200 for number in range(400)}
    told: list[tuple[float, set[str]]] = []
    for name, now in changed_s.items():
        schedule.add({name}, now)
        told += run(schedule, now + 1 / 200 - 1e-9, start_s=now)
    told += run(schedule, 99.0, start_s=2.0)
    assert len(told) <= BURST + 2.1 / SPACING_S
    for name, at_s in changed_s.items():
        purged_s = [when for when, names in told if name in names]
        assert purged_s[0] - at_s <= SPACING_S + 1e-5
        assert len(purged_s) in (2, 3)
        assert purged_s[-1] - purged_s[0] >= GAPS_S[-1] - EARLY_S - 1e-5


def test_where_changes_never_end_repeats_go_along_with_them() -> None:
    schedule = PurgeSchedule()
    told: list[tuple[float, set[str]]] = []
    for tick in range(100):
        schedule.add({f"{tick}"}, tick * SPACING_S)
        told += run(schedule, (tick + 1) * SPACING_S - 1e-9, start_s=tick * SPACING_S)
    lasting = [names for when, names in told if when > 1]
    assert all(
        any(name == f"{tick}" for name in names) for tick, names in enumerate(lasting, 100 - len(lasting))
    )
    assert len(lasting) <= 51


def test_after_a_storm_changes_are_purged_at_once_and_three_times_again() -> None:
    schedule = PurgeSchedule()
    for number in range(50):
        schedule.add({f"{number}"}, 0.0)
        run(schedule, 0.0)
    run(schedule, 10.0)
    schedule.add({"a"}, 10.0)
    assert [when for when, _ in run(schedule, 99.0, start_s=10.0)] == [10.0, 10.01, 10.05]
