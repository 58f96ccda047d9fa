"""Which figures of the SCTP benchmark miss their aim, how they are shown, and how a run is gone on with."""

import json
import re
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from bench_sctp import cli as bench_sctp_cli
from bench_sctp.cli import bench_sctp
from bench_sctp.report import AIMS, MEASUREMENTS, TITLES, Measured, missed, page_of
from click.testing import CliRunner
from daemon import SCTP_USERLAND
from rspdns_lab.report import trials
from rspdns_lab.report.page import tables_of

GOOD = {
    "round_trip_ratio": 7.0,
    "associations_held": 1.0,
    "idle_cpu_percent": 0.99,
    "killed_median_ms": 9.9,
    "killed_group_median_ms": 9.9,
    "soak_lost": 0.0,
    "soak_wrong": 0.0,
}


def test_figures_at_their_aim_are_good() -> None:
    assert not missed(GOOD)


def test_each_figure_can_miss_its_aim() -> None:
    bad = {
        "associations_held": 0.99,
        "idle_cpu_percent": 1.0,
        "killed_median_ms": 10.0,
        "killed_group_median_ms": 10.0,
    }
    for key in GOOD:
        assert missed(GOOD | {key: bad.get(key, GOOD[key] + 1)}) == [key]


def test_an_aim_that_was_not_measured_is_not_missed() -> None:
    """The kernel's own SCTP has no daemon whose time could be measured."""
    assert not missed({"round_trip_ratio": 2.0})


def test_table_shows_aims() -> None:
    assert set(AIMS) <= set(TITLES)
    shown = tables_of(page_of([Measured("soak", GOOD)]))
    assert "| SCTP round trip against UDP | 7 | <= 7 |" in shown
    assert "| kill -9 to peer told, median (ms) | 9.90 | < 10 |" in shown


ROUND_TRIPS = Measured(
    "round-trips", {"udp_round_trip_us": 50.0, "sctp_round_trip_us": 500.0, "round_trip_ratio": 10.0}
)
KILLED = Measured("killed", {"killed_p99_ms": 1.0})


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return what each run was to measure; the first is interrupted after its first measurement."""
    asked: list[list[str]] = []

    def run(_prefix: str, _extent: object, names: Collection[str], _say: object) -> Iterator[list[Measured]]:
        asked.append(list(names))
        for name in names:
            yield [ROUND_TRIPS if name == "round-trips" else Measured(name, {})]
            if len(asked) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(trials, "become_root", lambda: None)
    monkeypatch.setattr(bench_sctp_cli, "run_sctp_bench", run)
    return asked


def test_a_run_that_was_interrupted_is_gone_on_with(tmp_path: Path, runs: list[list[str]]) -> None:
    file = tmp_path / "figures.json"
    command = ["--results", str(file)]
    done = CliRunner().invoke(bench_sctp, command)
    assert done.exit_code == 130, done.output
    assert "| SCTP round trip against UDP | 10 | <= 7 |" in done.stdout
    assert json.loads(file.read_text())["round_trip_ratio"] == 10
    for _ in range(2):  # the second time there is nothing left to do
        done = CliRunner().invoke(bench_sctp, command)
        assert done.exit_code == 1, done.output
        assert "broken: SCTP round trip against UDP: 10.00, aim <= 7.0" in done.stderr
    assert runs == [list(MEASUREMENTS), list(MEASUREMENTS[1:])]
    done = CliRunner().invoke(bench_sctp, [*command, "--quick"])
    assert done.exit_code == 2
    assert "quick was False and is True now; soak was 100000 and is 10000 now" in done.stderr
    file.write_text('{"trials": [{"measurement": "round-trips", "figures": {"of": 1}}]}')
    done = CliRunner().invoke(bench_sctp, command)
    assert (done.exit_code, "no report of this lab" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("found", "said", "plots"),
    [
        ((ROUND_TRIPS, KILLED), ("Missed its aim: SCTP round trip against UDP.", "<td>&lt;= 7</td>"), 2),
        ((Measured("soak", {"soak_lost": 0.0}),), ("Every aim was reached.",), 0),
    ],
)
def test_the_page_of_the_sctp_benchmark_has_its_words_and_plots(
    found: Collection[Measured],
    said: tuple[str, ...],
    plots: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trials, "become_root", lambda: None)
    monkeypatch.setattr(bench_sctp_cli, "run_sctp_bench", lambda *_: [found])
    done = CliRunner().invoke(bench_sctp, ["--html", str(tmp_path / "page")])
    assert done.exit_code in (0, 1), done.output
    text = (tmp_path / "page").read_text()
    assert text.count("<svg") == plots
    assert [words for words in said if words not in text] == []
    assert not re.search(r'(src|href)="(?!#)', text)


def test_bench_sets_up_before_it_compiles() -> None:
    """The set-up installs libusrsctp's header, without which nothing compiles."""
    command = ["make", "-n", "-C", str(SCTP_USERLAND), "bench", "BUILD=absent"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    steps = [word for line in lines for word in ("setup.sh demo", "-lusrsctp") if word in line]
    assert steps == ["setup.sh demo", "-lusrsctp"]
