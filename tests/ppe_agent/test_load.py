"""The load: its sources, smoothing, and how seldom it is reported."""

from itertools import pairwise

import pytest
from ppe_agent.load import LoadReporter
from ppe_agent.load_config import LoadConfig


def reporter(**settings: float) -> LoadReporter:
    return LoadReporter(LoadConfig.model_validate({"smoothing_ms": 0, **settings}))


def test_the_first_load_is_reported_at_once() -> None:
    load = reporter()
    load.sample(0.3, 100.0)
    assert load.due(100.0) == 0.3


def test_changes_of_the_load_are_reported_when_large_enough_and_not_too_soon() -> None:
    load = reporter(min_change=0.1, min_update_interval_ms=200)
    load.sample(0.3, 0.0)
    assert load.due(0.0) == 0.3
    load.sample(0.35, 1.0)
    assert load.due(1.0) is None
    load.sample(0.41, 2.0)
    assert load.due(2.0) == 0.41
    load.sample(0.9, 2.1)
    assert load.due(2.1) is None  # too soon
    assert load.due(2.21) == 0.9


def test_the_value_at_which_a_smoothed_load_comes_to_rest_is_reported() -> None:
    load = LoadReporter(LoadConfig(source="file", path="x", smoothing_ms=1000))
    load.sample(0.2, 0.0)
    load.due(0.0)
    for step in range(1, 100):
        load.sample(0.97, step / 4)
        load.due(step / 4)
    assert load.reported == pytest.approx(0.97, abs=0.01)


def test_slow_drift_is_reported_when_it_has_become_a_change() -> None:
    load = reporter(min_change=0.1)
    reported = []
    for step in range(101):
        load.sample(step / 100, float(step))
        due = load.due(float(step))
        if due is not None:
            reported.append(due)
    changes = [after - before for before, after in pairwise(reported)]
    assert len(changes) >= 8
    assert all(0.0999 < change < 0.1101 for change in changes)


def test_smoothing_follows_its_time_constant() -> None:
    load = LoadReporter(LoadConfig(smoothing_ms=1000, min_change=0.001))
    load.sample(0.0, 0.0)
    load.due(0.0)
    load.sample(1.0, 1.0)
    assert load.due(1.0) == pytest.approx(1 - 1 / 2.718281828, abs=1e-6)
    load.sample(1.0, 100.0)
    assert load.due(100.0) == pytest.approx(1.0)


def test_an_unknown_load_counts_as_configured_and_says_why() -> None:
    load = reporter(when_unknown=0.8)
    load.sample(0.1, 0.0)
    assert load.due(0.0) == 0.1
    load.unknown("the file is gone", 1.0)
    assert load.due(1.0) == 0.8
    assert load.problem == "the file is gone"
    load.sample(0.1, 2.0)
    assert load.due(2.0) == 0.1
    assert load.problem is None


def test_a_clock_that_stands_still_does_no_harm() -> None:
    load = LoadReporter(LoadConfig(smoothing_ms=1000))
    load.sample(0.2, 5.0)
    load.sample(0.9, 5.0)
    assert load.due(5.0) == 0.2


def test_a_source_that_is_asked_may_miss_some_answers() -> None:
    load = LoadReporter(
        LoadConfig(source="exec", command=("load",), smoothing_ms=0, max_age_ms=5000, when_unknown=0.8)
    )
    load.sample(0.1, 0.0)
    assert load.due(0.0) == 0.1
    load.unknown("no answer", 4.0)
    assert load.due(4.0) is None
    assert load.problem == "no answer"  # it is told at once
    load.unknown("no answer", 5.0)
    assert load.due(5.0) == 0.8
    assert not load.is_known


def test_a_source_that_fails_never_makes_a_server_look_less_loaded() -> None:
    load = reporter(when_unknown=0.5)
    load.sample(0.97, 0.0)
    load.due(0.0)
    load.unknown("the file is gone", 1.0)
    assert load.due(1.0) is None
    assert load.reported == 0.97


def test_before_the_first_reading_the_load_is_unknown() -> None:
    load = reporter(when_unknown=0.7)
    load.unknown("no answer", 0.0)
    assert load.due(0.0) == 0.7


def test_after_a_reload_the_last_load_counts_until_there_is_a_reading_or_it_is_too_old() -> None:
    before = reporter()
    before.sample(0.3, 0.0)
    before.due(0.0)
    asked = LoadConfig(source="exec", command=("/bin/true",), smoothing_ms=10_000, max_age_ms=5000)
    load, failing = LoadReporter(asked), LoadReporter(asked)
    for each in (load, failing):
        each.go_on_from(before)
        assert each.reported == 0.3
    load.sample(0.7, 1.0)
    assert load.due(1.0) == 0.7  # another source: nothing to smooth
    failing.unknown("no answer", 1.0)
    assert failing.due(1.0) == 0.3
    failing.unknown("no answer", 5.0)
    assert failing.due(5.5) == 0.9
