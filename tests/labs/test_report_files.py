"""Where a report can't be written is said before the lab begins, not after it."""

import importlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rspdns_lab import cli
from rspdns_lab.cli import main
from rspdns_lab.demo import Outcome
from rspdns_lab.report_files import ReportPath

ALL = ["demo", "ims", "bench", "compare", "chaos", "loss", "bench-sctp"]
MODULES = [
    "rspdns_lab.cli",
    "rspdns_lab.chaos_cli",
    "rspdns_lab.bench.cli",
    "rspdns_lab.compare.cli",
    "rspdns_lab.ims.cli",
]


@pytest.fixture(autouse=True)
def no_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lab that begins fails the test instead."""

    def begin(_: object) -> None:
        raise AssertionError("the lab has begun")

    for module in MODULES:
        monkeypatch.setattr(importlib.import_module(module), "become_root", begin)


@pytest.mark.parametrize("command", ALL)
def test_a_report_in_no_folder(tmp_path: Path, command: str) -> None:
    done = CliRunner().invoke(main, [command, "--json", str(tmp_path / "none" / "x.json")])
    assert done.exit_code == 2, done.output
    last = done.output.splitlines()[-1]
    assert last.startswith("Error: Invalid value for '--json': there is no folder ")
    assert "none; make it, or name another file" in last


def test_a_report_that_is_a_folder(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["demo", "--json", str(tmp_path)])
    assert done.exit_code == 2, done.output
    assert "is a directory" in done.output


def test_a_file_here_and_stdout_are_places_for_a_report(tmp_path: Path) -> None:
    for name in ("x.json", "-", str(tmp_path / "x.json")):
        assert ReportPath().convert(name, None, None) == Path(name)


def test_figures_that_the_disk_does_not_take_are_printed_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome = Outcome(())
    monkeypatch.setattr(cli, "end_on_signals", lambda: None)
    monkeypatch.setattr(cli, "become_root", lambda *_: None)
    monkeypatch.setattr(cli, "run_demo", lambda *_: outcome)
    done = CliRunner().invoke(cli.main, ["demo", "--json", "/dev/full"])
    assert done.exit_code == 2
    assert json.loads(done.stdout) == outcome.as_json()
    assert done.stderr == "error: /dev/full: No space left on device; the figures are printed instead\n"
    done = CliRunner().invoke(cli.main, ["demo", "--json", str(tmp_path / "figures")])
    assert (done.stdout, json.loads((tmp_path / "figures").read_text())) == ("", outcome.as_json())
