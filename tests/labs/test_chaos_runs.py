"""Which trials a run of the chaos lab does, in which labs, and how it ends; without a lab."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner
from rspdns_lab.chain.plan import FOLLOWS, Setting
from rspdns_lab.chaos import run as chaos
from rspdns_lab.chaos.run import ALL_FAULTS, Order, run_chaos
from rspdns_lab.chaos.summary import Case, CaseTrial
from rspdns_lab.chaos.verdict import Trial
from rspdns_lab.cli import main
from rspdns_lab.errors import LabError
from rspdns_lab.report import trials


def test_a_pool_of_twelve_is_not_judged_by_who_came_back() -> None:
    cases = {(case.fault, case.members) for case, _ in Order().cases()}
    assert ("as-back", 3) in cases
    assert ("as-back", 12) not in cases


def test_only_what_the_backends_probe_for_runs_in_a_lab_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes by the backends would help against other faults too, which are judged without."""
    labs = []

    @contextlib.contextmanager
    def lab(setting: Setting) -> Iterator[MagicMock]:
        labs.append(setting.verified)
        yield MagicMock()

    monkeypatch.setattr(chaos, "Lab", lab)
    monkeypatch.setattr(chaos, "_run_trial", lambda *_: Trial(answers=1))
    order = Order(sizes=(3,), follows=("enrp",), trials=2)
    found = Counter(one.case.fault for several in run_chaos(order, [], lambda _: None) for one in several)
    assert labs == [False, True]
    assert found == {fault.name: 2 for fault in ALL_FAULTS}


def test_registrars_are_followed_and_polled_in_one_run_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    labs: list[tuple[int, str]] = []

    @contextlib.contextmanager
    def lab(setting: Setting) -> Iterator[MagicMock]:
        labs.append((setting.members, setting.follow))
        yield MagicMock()

    monkeypatch.setattr(chaos, "Lab", lab)
    monkeypatch.setattr(chaos, "_run_trial", lambda *_: Trial(answers=1))
    monkeypatch.setattr(trials, "become_root", lambda _: None)

    def run(*arguments: str) -> list[tuple[int, str, int]]:
        labs.clear()
        file = tmp_path / "chaos.json"
        done = CliRunner().invoke(main, ["chaos", "--fault=as-killed", f"--json={file}", *arguments])
        assert done.exit_code == 0, done.output
        rows = [
            (row["members"], row["follow"], row["trials"]) for row in json.loads(file.read_text())["faults"]
        ]
        assert [row[:2] for row in rows] == labs
        assert done.stdout.count("| followed by ENRP | ") == sum(follow == "enrp" for _, follow in labs)
        assert done.stdout.count("| polled only | ") == sum(follow == "poll" for _, follow in labs)
        return rows

    every = [(size, follow, 2) for size in (2, 3, 12) for follow in ("enrp", "poll")]
    assert run("--trials=2") == every
    assert run("--trials=2", "--follow=enrp", "--follow=poll", "--follow=enrp") == every
    assert run("--trials=2", "--follow=poll", "--members=3") == [(3, "poll", 2)]
    assert run("--quick") == [(3, "enrp", 1)]
    assert run("--quick", "--follow=poll") == [(3, "poll", 1)]


def test_a_fault_that_no_chosen_pool_has_is_no_broken_bound() -> None:
    done = CliRunner().invoke(main, ["chaos", "--fault=as-back", "--members=12"])
    assert done.exit_code == 2, done.output
    assert "as-back: not in pools of 12" in done.output


def test_a_client_that_asks_no_more_was_told_nothing_right(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = LabError("prober on client ended unexpectedly")
    lab = MagicMock(expect_asked=MagicMock(side_effect=ended))
    monkeypatch.setattr(chaos, "Lab", MagicMock(return_value=MagicMock(__enter__=lambda _: lab)))
    monkeypatch.setattr(chaos, "PHASE_S", 0.0)
    monkeypatch.setattr(chaos, "_watch", lambda *_: None)
    monkeypatch.setattr(chaos, "_judge", lambda *_: Trial(answers=1))
    fault = next(one for one in ALL_FAULTS if one.name == "pdns-killed")
    order = Order((replace(fault, strike=MagicMock()),), (3,), ("enrp",), trials=1)
    found = [one for several in run_chaos(order, [], lambda _: None) for one in several]
    (row,) = order.rows(found)
    assert "the lab did not recover: prober on client ended unexpectedly" in row.problems


def test_each_way_to_follow_is_held_to_its_own_bounds() -> None:
    trial = Trial(last_wrong_ms=30, answers=10)
    found = [CaseTrial(Case("as-killed", 3, follow), trial) for follow in FOLLOWS]
    problems = {row.case.follow: row.problems for row in Order().rows(found)}
    assert problems == {"enrp": ("p50 30 ms, allowed are 15 ms",), "poll": ()}


def test_a_run_that_is_interrupted_shows_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([Trial(last_wrong_ms=12, answers=10)])

    def run_trial(*_: object) -> Trial:
        try:
            return next(left)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(chaos, "Lab", MagicMock())
    monkeypatch.setattr(chaos, "_run_trial", run_trial)
    monkeypatch.setattr(trials, "become_root", lambda _: None)
    done = CliRunner().invoke(main, ["chaos", "--quick"])
    assert done.exit_code == 130, done.output
    assert "| as-killed | 3 | followed by ENRP | 1 | 12 ms |" in done.stdout
    assert done.stderr.endswith("interrupted; everything is cleaned up\n")
