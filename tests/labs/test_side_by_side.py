"""Trials side by side: each in a process of its own, some that fail, all ended with the lab."""

import os
import time
from pathlib import Path

from rspdns_lab.errors import LabError
from rspdns_lab.side_by_side import side_by_side


def trial(number: int) -> tuple[int, int]:
    if number == 2:
        raise LabError("no room")
    if number == 3:
        os._exit(1)
    return number, os.getpid()


def test_each_trial_has_a_process_and_a_failed_one_stops_no_other() -> None:
    outcomes = list(side_by_side(trial, range(6), 3))
    failed = sorted(str(outcome) for outcome in outcomes if isinstance(outcome, LabError))
    assert failed == ["a trial ended without a result", "no room"]
    done = dict(outcome for outcome in outcomes if not isinstance(outcome, LabError))
    assert sorted(done) == [0, 1, 4, 5]
    assert len({*done.values(), os.getpid()}) == 5


def test_not_more_at_a_time_than_jobs(tmp_path: Path) -> None:
    def most(number: int) -> int:
        (tmp_path / str(number)).touch()
        time.sleep(0.05)
        running = len(list(tmp_path.iterdir()))
        (tmp_path / str(number)).unlink()
        return running

    assert max(int(str(found)) for found in side_by_side(most, range(8), 2)) == 2


def test_trials_that_run_clean_up_when_the_lab_ends(tmp_path: Path) -> None:
    def lasting(number: int) -> None:
        try:
            (tmp_path / f"begun-{number}").touch()
            if number:
                time.sleep(60)
            while not (tmp_path / "begun-1").exists():
                time.sleep(0.01)
        finally:
            (tmp_path / f"ended-{number}").touch()

    trials = side_by_side(lasting, range(2), 2)
    assert next(trials) is None
    assert not (tmp_path / "ended-1").exists()
    trials.close()
    assert (tmp_path / "ended-1").exists()
