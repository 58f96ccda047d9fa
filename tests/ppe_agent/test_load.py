"""The load: its sources, smoothing, and how seldom it is reported."""

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest
from ppe_agent.configuration import LoadConfig
from ppe_agent.load import CpuLoad, FileLoad, LoadReporter, LoadUnknown, make_source


def reporter(**settings: float) -> LoadReporter:
    return LoadReporter(LoadConfig.model_validate({"smoothing_ms": 0, **settings}))


def test_the_first_load_is_reported_at_once() -> None:
    load = reporter()
    load.sample(0.3, 100.0)
    assert load.due(100.0) == 0.3


def test_only_changes_that_matter_are_reported() -> None:
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
    load.unknown("the file is gone")
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


def test_cpu_is_a_share() -> None:
    source = CpuLoad()
    assert all(0 <= source.read() <= 1 for _ in range(3))


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "load"
    file.write_text("0.25\n")
    source = make_source(LoadConfig(source="file", path=file))
    assert source is not None
    assert source.read() == 0.25


@pytest.mark.parametrize("text", ["", "high", "-0.1", "1.1", "nan", "inf", "0.5 0.6", "\xff"])
def test_files_without_a_load(tmp_path: Path, text: str) -> None:
    (tmp_path / "load").write_text(text)
    with pytest.raises(LoadUnknown, match="holds no number from 0 to 1"):
        FileLoad(tmp_path / "load", 10_000).read()


def test_files_that_are_missing_old_or_no_files(tmp_path: Path) -> None:
    with pytest.raises(LoadUnknown, match="No such file"):
        FileLoad(tmp_path / "absent", 10_000).read()
    old = tmp_path / "old"
    old.write_text("0.5")
    os.utime(old, (time.time() - 60, time.time() - 60))
    with pytest.raises(LoadUnknown, match="was not written for 60 s"):
        FileLoad(old, 10_000).read()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LoadUnknown, match="no ordinary file"):  # and the agent must not hang on it
        FileLoad(tmp_path / "pipe", 10_000).read()
