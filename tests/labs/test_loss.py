"""Lost packets: what was seen in the parts of a run, their sum, and how such a run is gone on with."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner
from rspdns_lab import loss
from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import LabSetting
from rspdns_lab.cli import main
from rspdns_lab.errors import LabError
from rspdns_lab.loss import Look, LossPart, lose_and_watch, sum_up
from rspdns_lab.observe.observations import Recorder
from rspdns_lab.report import trials

SEEN = LossPart(10, 1, removed=0, left_dns=0, answers=100, wrong=0, lost_packets=5)
LOOKS = (Look(0, 0, 0), Look(1, 1000, 7), Look(2, 3000, 7))
LOST = LossPart(2, 1, 0, 0, 3000, 7, 5, LOOKS)


def test_loss_that_nobody_asked_about_proves_nothing() -> None:
    assert SEEN.ok
    for other in ("answers", "lost_packets"):
        assert not replace(SEEN, **cast(Any, {other: 0})).ok
    for other in ("wrong", "removed", "left_dns"):
        assert not replace(SEEN, **cast(Any, {other: 1})).ok


def test_the_parts_of_a_run_add_up() -> None:
    both = sum_up([LOST, replace(LOST, seconds=3, removed=1, looks=(Look(0, 0, 0), Look(3, 500, 1)))])
    assert (both.seconds, both.answers, both.wrong, both.removed, both.lost_packets) == (5, 6000, 14, 1, 10)
    assert both.looks[-2:] == [Look(2, 3000, 7), Look(5, 3500, 8)]
    assert sum_up([LOST]).as_json() == LOST.as_json()


def test_departures_are_counted_only_while_answers_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last answers are waited for; who is dropped in that time can't be in an answer that is judged."""
    log = tmp_path / "backend.log"
    monkeypatch.setattr(loss, "_KEEP_S", 1.0)
    monkeypatch.setattr(loss, "_LOOK_EVERY_S", 0.05)
    made: Any = SimpleNamespace(
        addresses=frozenset(),
        network=SimpleNamespace(hosts={}),
        programs=lambda: [SimpleNamespace(name="backend", log=log, expect_running=lambda: None)],
        recorder=Recorder(complete=[True]),
        setting=LabSetting(),
    )

    def log_three(_: str) -> None:
        for after_s in (-3600, 0.2, 3600):
            at = datetime.now(UTC) + timedelta(seconds=after_s)
            with log.open("a") as opened:
                opened.write(json.dumps({"timestamp": at.isoformat(), "event": "left"}) + "\n")

    assert sum_up(list(lose_and_watch(cast(Lab, made), 0.5, 1.0, log_three))).left_dns == 1


def test_a_run_comes_in_parts_of_which_none_counts_what_another_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = iter(range(0, 10_000, 5))
    monkeypatch.setattr(loss, "_KEEP_S", 1.0)
    monkeypatch.setattr(loss, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(loss, "_PART_S", 0.1)
    monkeypatch.setattr(loss, "lose_packets", lambda *_: None)
    monkeypatch.setattr(loss, "lost_packets", lambda _: next(counted))
    log = tmp_path / "backend.log"
    entry = {"timestamp": (datetime.now(UTC) + timedelta(seconds=0.05)).isoformat(), "event": "left"}
    log.write_text(json.dumps(entry) + "\n")
    made: Any = SimpleNamespace(
        addresses=frozenset(),
        network=SimpleNamespace(hosts={"one": None}),
        programs=lambda: [SimpleNamespace(name="backend", log=log, expect_running=lambda: None)],
        recorder=Recorder(complete=[True]),
        setting=LabSetting(),
    )
    parts = list(lose_and_watch(cast(Lab, made), 0.3, 1.0, lambda _: None))
    assert len(parts) > 1
    whole = sum_up(parts)
    assert (whole.left_dns, whole.lost_packets) == (1, 5 * (len(parts) - 1))
    assert whole.seconds >= 0.3


def test_a_lab_of_which_a_part_ended_did_not_keep_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks no more, or a name server that answers no more, is told nothing wrong."""
    ended = LabError("prober on client ended unexpectedly")
    monkeypatch.setattr(loss, "_LOOK_EVERY_S", 0.05)
    made: Any = SimpleNamespace(
        addresses=frozenset(),
        network=SimpleNamespace(hosts={}),
        programs=lambda: [SimpleNamespace(name="prober", expect_running=MagicMock(side_effect=ended))],
        recorder=Recorder(complete=[True]),
        setting=LabSetting(),
    )
    with pytest.raises(LabError, match="prober on client"):
        list(lose_and_watch(cast(Lab, made), 0.5, 1.0, lambda _: None))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return for how many seconds each lab was to lose packets: none is started."""
    asked: list[float] = []

    def run_loss(seconds: float, percent: float, _: object) -> Iterator[LossPart]:
        asked.append(seconds)
        if len(asked) == 1:
            yield replace(LOST, wrong=0)
            raise KeyboardInterrupt
        yield replace(LOST, seconds=seconds, percent=percent, wrong=0, looks=())

    monkeypatch.setattr(trials, "become_root", lambda: None)
    monkeypatch.setattr(loss, "run_loss", run_loss)
    return asked


def test_a_run_that_was_interrupted_is_gone_on_with_for_the_rest(tmp_path: Path, runs: list[float]) -> None:
    file, page = tmp_path / "loss.json", tmp_path / "page"
    run = ["loss", "--seconds", "60", "--results", str(file), "--html", str(page)]
    done = CliRunner().invoke(main, run)
    assert done.exit_code == 130, done.output
    assert "| answers | 3,000 | more than 0 |" in done.stdout
    assert json.loads(file.read_text())["seconds"] == 2
    for _ in range(2):  # the second time there is nothing left to do
        done = CliRunner().invoke(main, run)
        assert done.exit_code == 0, done.output
        assert "| answers | 6,000 | more than 0 |" in done.stdout
        report = json.loads(file.read_text())
        assert (report["ok"], report["seconds"], report["answers"]) == (True, 60, 6000)
        assert "60 s" in page.read_text()
    assert runs == [60, 58]
    done = CliRunner().invoke(main, [*run, "--percent", "5"])
    assert done.exit_code == 2
    assert "percent was 1.0 and is 5.0 now" in done.stderr


@pytest.mark.parametrize(
    ("found", "said", "plots"),
    [
        (LOST, ("It failed", ">answers that lacked a live server</td><td>7</td>"), 1),
        (replace(LOST, wrong=0, looks=()), ("No live server was lost",), 0),
    ],
)
def test_the_page_of_lost_packets_has_its_words_and_plots(
    found: LossPart, said: tuple[str, ...], plots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "become_root", lambda *_: None)
    monkeypatch.setattr(loss, "run_loss", lambda *_, **__: [found])
    done = CliRunner().invoke(main, ["loss", "--html", str(tmp_path / "page")])
    assert done.exit_code == (0 if found.ok else 1), done.output
    text = (tmp_path / "page").read_text()
    assert text.count("<svg") == plots
    assert [words for words in said if words not in text] == []
    assert not re.search(r'(src|href)="(?!#)', text)
