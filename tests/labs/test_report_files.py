"""A report that can't be written is named before the lab begins, not after it."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner
from rspdns_lab import cli
from rspdns_lab.cli import main
from rspdns_lab.demo.run import DemoResult
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import LabNetwork
from rspdns_lab.report import trials
from rspdns_lab.report.files import ReportFiles, ReportPath, write_whole

WITH_TRIALS = ["ims", "bench", "compare", "chaos", "loss", "resolvers"]
ALL = ["demo", *WITH_TRIALS]
STARTERS = (cli, trials)
"""The modules that become root for a lab."""


@pytest.fixture(autouse=True)
def no_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lab that begins fails the test instead."""

    def begin() -> None:
        raise AssertionError("the lab has begun")

    for module in STARTERS:
        monkeypatch.setattr(module, "become_root", begin)


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


def test_a_report_goes_to_a_file_here_or_to_stdout(tmp_path: Path) -> None:
    for name in ("x.json", "-", str(tmp_path / "x.json")):
        assert ReportPath(stdout=True).convert(name, None, None) == Path(name)


@pytest.mark.parametrize("command", WITH_TRIALS)
def test_where_stdout_is_for_the_table_no_file_called_dash_is_made(command: str) -> None:
    done = CliRunner().invoke(main, [command, "--json", "-"])
    assert done.exit_code == 2
    assert "this report goes to a file, not to stdout; name one" in done.output


def test_figures_that_the_disk_does_not_take_are_printed_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome = DemoResult(())
    monkeypatch.setattr(cli, "end_on_signals", lambda: None)
    monkeypatch.setattr(cli, "become_root", lambda *_: None)
    monkeypatch.setattr(cli, "run_demo", lambda *_: outcome)
    done = CliRunner().invoke(cli.main, ["demo", "--json", "/dev/full"])
    assert done.exit_code == 2
    assert json.loads(done.stdout) == outcome.as_json()
    assert done.stderr == "error: /dev/full: No space left on device; the figures are printed instead\n"
    done = CliRunner().invoke(cli.main, ["demo", "--json", str(tmp_path / "figures")])
    assert (done.stdout, json.loads((tmp_path / "figures").read_text())) == ("", outcome.as_json())


ON_A_FULL_DISK = """
import contextlib, os, subprocess, sys
from pathlib import Path
from rspdns_lab.errors import LabError
from rspdns_lab.report.page import Page, Section, write_page
from rspdns_lab.net.private_file import unshare_mounts
from rspdns_lab.report.files import ReportFiles, hand_over
unshare_mounts()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", sys.argv[1]], check=True)
os.chdir(sys.argv[1])
for name in ("figures", "trials", "page"):
    Path(name).write_text("older")
much = "1234567 " * 4000
for write in (
    lambda: hand_over(Path("figures"), much),
    lambda: ReportFiles(Path("trials")).keep({"trials": [much]}, {}),
    lambda: write_page(Path("page"), Page("title", much, [Section("section")])),
):
    try:
        write()
    except (LabError, OSError) as error:
        print(error, file=sys.stderr)
print({path.name: path.read_text() for path in Path().iterdir()}, file=sys.stderr)
"""


def test_a_disk_that_is_full_leaves_older_reports_whole(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=False
    )
    figures, trials, page, files = done.stderr.splitlines()
    full = "No space left on device"
    assert figures == f"figures: {full}; the figures are printed instead"
    assert done.stdout == "1234567 " * 4000 + "\n"
    assert trials.startswith(f"trials: {full}; what it held before is kept")
    assert page == f"[Errno 28] {full}: 'page'"
    assert ast.literal_eval(files) == {"figures": "older", "trials": "older", "page": "older"}


def test_a_link_to_a_report_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("older")
    (tmp_path / "here").symlink_to("there")
    write_whole(tmp_path / "here", "newer")
    assert (tmp_path / "here").is_symlink()
    assert (tmp_path / "there").read_text() == "newer"


QUALITY = {
    "sent": 9, "lost": 0, "glitch_ms": 0.0, "worst_glitch_ms": 0.0,
    "delay_p50_ms": 0.1, "delay_p99_ms": 0.1, "jitter_ms": 0.1,
}  # fmt: skip
FOLLOWED = {
    "changes": 10, "last_wrong_p50_ms": 1.0, "last_wrong_p95_ms": 1.0, "last_wrong_max_ms": 1.0,
    "stale_after_purges": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "written", "found", "words"),
    [
        (
            "ims --fault as-killed",
            {"approaches": ["rspdns"], "rate": 10, "seconds": 20},
            [{"fault": "as-killed", "approach": "rspdns", "trial": 1, "calls": [], "to_dead_s": []}],
            "approaches was rspdns and is static, lua, gdnsd, rspdns now",
        ),
        (
            "compare --fault power-cut --approach vrrp --seconds 30",
            {"approaches": ["vrrp"], "seconds": 130},
            [{"fault": "power-cut", "approach": "vrrp", "trial": 1, "converged_ms": 1.0, "quality": QUALITY}],
            "seconds was 130 and is 30 now",
        ),
        (
            "bench --only changes",
            {"quick": True, "seconds": 1, "trials": 10},
            [{"part": "changes", "kind": kind, **FOLLOWED} for kind in ("idle", "loaded")],
            "quick was True and is False now; seconds was 1 and is 5 now; trials was 10 and is 1000 now",
        ),
    ],
)
def test_a_run_with_other_options_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: str,
    written: dict[str, object],
    found: list[dict[str, object]],
    words: str,
) -> None:
    """Trials that were measured otherwise, or for others only, would be passed off as those asked for."""
    monkeypatch.setattr(trials, "become_root", lambda: None)
    file = tmp_path / "report.json"
    ReportFiles(file).keep({"trials": found}, written)
    before = file.read_text()
    done = CliRunner().invoke(main, [*arguments.split(), "--results", str(file)])
    assert done.exit_code == 2, done.output
    assert done.stderr == (
        f"error: {file} can't be resumed: {words}; use the same options, or another file\n"
    )
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("lab", "options", "trial"),
    [
        (
            "ims",
            {"approaches": ["static", "lua", "gdnsd", "rspdns"], "rate": 10, "seconds": 20},
            {"fault": "as-melted", "approach": "rspdns", "trial": 1, "calls": [], "to_dead_s": []},
        ),
        (
            "compare --approach vrrp",
            {"approaches": ["vrrp"], "seconds": 130},
            {"fault": "melted", "approach": "vrrp", "trial": 1, "converged_ms": 1.0, "quality": QUALITY},
        ),
        (
            "bench --only changes",
            {"quick": False, "seconds": 5, "trials": 1000},
            {"part": "changes", "kind": "molten", **FOLLOWED},
        ),
    ],
)
def test_a_report_of_another_version_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    lab: str,
    options: dict[str, object],
    trial: dict[str, object],
) -> None:
    """A trial that this version doesn't know would be missing in its tables, or end it with a traceback."""
    monkeypatch.setattr(trials, "become_root", lambda: None)
    begins = MagicMock(side_effect=LabError("the lab has begun"))
    monkeypatch.setattr(LabNetwork, "__enter__", begins)
    file = tmp_path / "report.json"
    ReportFiles(file).keep({"trials": [trial]}, options)
    before = file.read_text()
    done = CliRunner().invoke(main, [*lab.split(), "--results", str(file)])
    assert done.exit_code == 2, done.output
    assert f"error: {file} is no report of this lab" in done.stderr
    assert file.read_text() == before
