"""The IMS lab: its calls from the logs of SIPp and Kamailio, its report, callers that end early."""

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.cli import main
from rspdns_lab.errors import LabError
from rspdns_lab.ims import run
from rspdns_lab.ims.calls import Call, CallTrial, Invite, measure, read_calls, read_sent, sum_up
from rspdns_lab.ims.faults import FAULTS
from rspdns_lab.ims.hosts import Caller
from rspdns_lab.ims.lab import ImsLab
from rspdns_lab.ims.report import page_of, problems, summaries
from rspdns_lab.ims.shares import due
from rspdns_lab.net.network import Host
from rspdns_lab.report.page import tables_of, write_page


def test_a_callers_log_tells_who_answered_when_and_which_calls_failed() -> None:
    lines = [
        "start 1 100.000000 250000.000000",
        "start 2 101.000000 0.000000",
        "answer 1 100.000000 260000.000000 as2",
        "answer 9 100.000000 0.000000 as1",
        "something else",
    ]
    first, second = read_calls(lines)
    assert (first.server, second.server) == ("as2", "")
    assert first.set_up_ms is not None
    assert round(first.set_up_ms, 3) == 10
    assert second.set_up_ms is None


def test_an_s_cscfs_log_tells_where_invites_went() -> None:
    lines = [
        " 2(77) NOTICE: <script>: SENT 100.5 10.53.0.31",
        "Listening on",
        " 1(76) NOTICE: SENT 101.25 10.53.0.32",
    ]
    assert read_sent(lines) == [Invite(100.5, "10.53.0.31"), Invite(101.25, "10.53.0.32")]


def trial(dead: set[str] | None) -> CallTrial:
    calls = [
        Call(9.0, 9.01, "as1"),
        Call(9.5, 9.51, "as2"),
        Call(10.5, 42.5, "as2"),
        Call(11.0, 11.02, "as2"),
        Call(12.0),
    ]
    sent = [Invite(9.0, "A"), Invite(10.5, "A"), Invite(11.0, "B"), Invite(42.5, "B")]
    return measure("as-killed", "static", 1, calls, sent, 10.0, dead)


def test_only_calls_after_the_fault_count() -> None:
    figures = sum_up([trial({"A"})])
    assert (figures.calls, figures.failed, figures.slow) == (3, 1, 1)
    assert (figures.p50_ms, figures.max_ms) == (20.0, 32000.0)
    assert (figures.to_dead, figures.last_to_dead_s) == (1, 0.5)
    assert figures.share_before == {"as1": 0.5, "as2": 0.5}
    assert figures.share_after == {"as2": 1.0}
    assert figures.share_settled == {}


def test_a_fault_that_kills_nobody_has_no_calls_to_the_dead() -> None:
    figures = sum_up([trial(None)])
    assert (figures.to_dead, figures.last_to_dead_s) == (None, None)


def test_trials_add_up() -> None:
    figures = sum_up([trial({"A"}), trial({"A"})])
    assert (figures.trials, figures.calls, figures.to_dead) == (2, 6, 2)


TRIALS = [
    CallTrial("as-hung", "rspdns", 1, [(-1.0, 9.0, "as1"), (1.0, 12.0, "as2")], [0.3]),
    CallTrial(
        "as-killed", "static", 1, [(-1.0, 9.0, "as1"), (1.0, 32000.0, "as2"), (2.0, None, "")], [1.0, 2.0]
    ),
    CallTrial("as-killed", "rspdns", 1, [(-1.0, 9.0, "as1"), (1.0, 12.0, "as2")], []),
]


def test_faults_come_in_the_order_of_the_lab() -> None:
    assert [row.fault for row in summaries(TRIALS)] == ["as-killed", "as-killed", "as-hung"]


def test_a_static_zone_may_break_what_rspdns_may_not() -> None:
    assert problems(TRIALS) == []
    late = CallTrial("as-killed", "rspdns", 2, [(1.0, None, "")], [9.5])
    found = problems([*TRIALS, late])
    assert len(found) == 2
    assert "1 calls failed" in found[0]
    assert "9.5 s" in found[1]


def test_the_markdown_has_a_row_for_each_approach() -> None:
    text = tables_of(page_of(TRIALS))
    assert re.search(r"\| static zone .*\| 2 \| 1 \| 1 \| 32,000 \| 32,000 \| 2, the last after 2 s \|", text)
    assert "as1 100%" in text


@pytest.mark.parametrize(
    ("late", "problem"),
    [
        (["as2", "as3", "as2", "as3", "as2", "as3", "as2", "as1"], ""),
        (["as2", "as3", "as1"], "as1 kept 33% of the calls from 6 s after the fault on, allowed: 15%"),
        (["as1"], "as1 kept 100% of the calls"),
        ([], "no call was answered 6 s after the fault or later"),
    ],
)
def test_rspdns_must_move_calls_away_from_an_overloaded_server(late: Sequence[str], problem: str) -> None:
    early = [(-1.0, 9.0, "as1"), (5.9, 9.0, "as1")]  # its load rises: not judged yet
    calls = [*early, *((6.0 + index, 9.0, server) for index, server in enumerate(late))]
    found = problems([CallTrial("as-overloaded", "rspdns", 1, calls, None)])
    assert [text.startswith(f"as-overloaded: {problem}") for text in found] == ([True] if problem else [])
    assert problems([CallTrial("as-overloaded", "static", 1, calls, None)]) == []


def test_calls_per_server_stand_beside_what_the_weights_say() -> None:
    text = tables_of(page_of(TRIALS))
    assert "| rspdns | as1 44%, as2 33%, as3 22% | as1 100% | as1 0%, as2 60%, as3 40% | as2 100% |\n" in text
    assert re.search(r"\| static zone .*\| as1 33%, as2 33%, as3 33% \|.* as1 0%, as2 50%, as3 50% \|", text)


def test_where_calls_go_once_weights_have_followed_is_told_where_a_load_rose() -> None:
    """After other faults it would be the same, or one call that came late."""
    moved = CallTrial("as-overloaded", "rspdns", 1, [(-1.0, 9.0, "as1"), (7.0, 9.0, "as2")], None)
    assert "| as2 100% | as2 100% |" in tables_of(page_of([moved]))
    assert "calls from 6 s after on" not in tables_of(page_of(TRIALS))


def test_a_load_that_rises_changes_what_is_due_where_loads_are_known() -> None:
    overloaded = next(fault for fault in FAULTS if fault.name == "as-overloaded")
    assert due("rspdns", overloaded) == pytest.approx({"as1": 0, "as2": 0.6, "as3": 0.4})
    assert due("gdnsd", overloaded) == pytest.approx({"as1": 1 / 3, "as2": 1 / 3, "as3": 1 / 3})


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = tmp_path / "ims.html"
    write_page(page, page_of(TRIALS))
    text = page.read_text()
    assert text.count("<svg") == 3  # who waited; of each fault: set-up delays
    assert not re.search(r'(src|href)="(?!#)', text)
    assert "@import" not in text


def test_a_finished_run_is_resumed_without_a_lab(tmp_path: Path) -> None:
    file, page = tmp_path / "ims.json", tmp_path / "ims.html"
    trial = {
        "fault": "as-killed",
        "approach": "rspdns",
        "trial": 1,
        "calls": [[1.0, 9.0, "as2"]],
        "to_dead_s": [],
    }
    file.write_text(json.dumps({"trials": [trial]}))
    arguments = ["ims", "--fault", "as-killed", "--results", str(file), "--html", str(page)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "as2 100%" in done.output
    assert page.exists()


def test_a_file_of_something_else_is_not_resumed(tmp_path: Path) -> None:
    file = tmp_path / "ims.json"
    file.write_text("[]")
    done = CliRunner().invoke(main, ["ims", "--results", str(file)])
    assert done.exit_code == 2
    assert "no report of this lab" in done.output


NSENTER = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'
SIPP = """#!/bin/sh
log=$(echo "$*" | sed 's/.*-log_file \\([^ ]*\\).*/\\1/')
index() { echo "start $1 $(date +%s) 0"; echo "answer $1 $(date +%s) 2000 as2"; }
index 1 >>"$log"
while [ ! -e "$FAULT" ]; do sleep 0.02; done
"""
ALL_PLACED = 'for call in 2 3 4; do index $call >>"$log"; done; '
ORDERED = 4


def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: str) -> ImsLab:
    """Make a lab whose one caller runs a SIPp of ours, which places a call and then does what is said."""
    for name, script in (("nsenter", NSENTER), ("sipp", SIPP + goes_on)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAULT", str(tmp_path / "fault"))
    monkeypatch.setattr(run, "CALM_S", 1)
    folder = tmp_path / "caller-rspdns"
    folder.mkdir()
    (tmp_path / "cscf.log").touch()
    caller = Caller(cast(Host, SimpleNamespace(name="caller", path="", address="::1")), "cscf", 5071, folder)
    cscf = SimpleNamespace(log=tmp_path / "cscf.log", expect_running=lambda: None)
    made: Any = SimpleNamespace(
        approaches={"rspdns": None}, callers={"rspdns": caller}, cscfs={"rspdns": cscf}, network=None
    )
    return cast(ImsLab, made)


def placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: str) -> int:
    """Return how many calls were measured of the four that were to be placed."""
    made = lab(tmp_path, monkeypatch, goes_on)
    fault = replace(FAULTS[0], do=lambda _: (tmp_path / "fault").touch())

    def sleep(_: float) -> None:
        """Sleep for as little as there is to wait for."""
        wait_until(lambda: "answer" in "".join(made.callers["rspdns"].lines()), "a call", 20)

    clock = SimpleNamespace(sleep=sleep, time=time.time, monotonic=time.monotonic)
    monkeypatch.setattr(run, "time", clock)
    (found,) = run.run_fault(made, fault, 1, 2, 1, lambda _: None)
    return len(found.calls)


def test_a_caller_that_places_all_its_calls_may_fail_with_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert placed(tmp_path, monkeypatch, ALL_PLACED + "exit 1") == ORDERED


@pytest.mark.parametrize(
    ("goes_on", "how"),
    [
        ("kill -9 $$", "signal 9"),
        ("exit 0", "exit status 0"),
        ("echo 'no port left'; exit 255", "no port left"),
    ],
)
def test_a_caller_that_dies_after_the_fault_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: str, how: str
) -> None:
    with pytest.raises(LabError, match="caller-rspdns ended early") as told:
        placed(tmp_path, monkeypatch, goes_on)
    assert how in str(told.value)
    assert "placed 1 of 4 calls" in str(told.value)


def test_a_caller_that_is_killed_while_its_last_calls_wait_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LabError, match=r"signal 9.* 4 of 4 calls"):
        placed(tmp_path, monkeypatch, ALL_PLACED + "kill -9 $$")


def test_a_caller_that_is_too_slow_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_TAIL_S", 0.2)
    with pytest.raises(LabError, match="placed 1 of 4 calls in time"):
        placed(tmp_path, monkeypatch, "exec sleep 60")
