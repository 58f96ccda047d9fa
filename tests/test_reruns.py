"""Which failures are run once more, by the project's own conftest.py."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.namespaces import REPOSITORY

FAILING = """
import pytest
from tests.support.exact import BrokenError

def test_late(): assert False, "BrokenError: only in the text"
def test_broken(): raise BrokenError("one message twice")
@pytest.mark.exact
def test_exact(): assert False
@pytest.mark.flaky(reruns=1)
@pytest.mark.exact
def test_exact_in_a_file_that_is_run_again(): raise TimeoutError
"""


def test_only_what_a_busy_machine_explains_is_run_again(tmp_path: Path) -> None:
    folder = tmp_path / "integration"
    folder.mkdir()
    (folder / "test_failing.py").write_text(FAILING)
    (tmp_path / "conftest.py").write_text((REPOSITORY / "tests/conftest.py").read_text())
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-q", "-rfR", "--tb=no"]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "-c",
            str(REPOSITORY / "pyproject.toml"),
            f"--rootdir={tmp_path}",
            str(folder),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "4 failed" in run.stdout, run.stdout + run.stderr
    again = [line.split("::")[1].split()[0] for line in run.stdout.splitlines() if line.startswith("RERUN")]
    assert again == ["test_late"], run.stdout
