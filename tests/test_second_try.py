"""Which failures are tried once more, by the project's own setup/run_tests.sh."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.namespaces import REPOSITORY

LATE = """
import os
from pathlib import Path

def test_late_at_first():
    seen = Path(__file__).with_name("seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "BrokenError: only in the text"
    assert "PYTEST_XDIST_WORKER" not in os.environ, "not alone"
"""
LATE_TWICE = """
def test_late_twice(): assert False
"""
BROKEN = """
from tests.support.second_try import BrokenError
def test_broken(): raise BrokenError("one message twice")
"""
EXACT = """
import pytest
@pytest.mark.exact
def test_exact(): raise TimeoutError
"""
MANY = """
import pytest
@pytest.mark.parametrize("number", range(21))
def test_many(number): assert False
"""
STOPPED = """
import os, subprocess, sys
from pathlib import Path

def stop_this_process():
    seen = Path(__file__).with_name("seen-stopped")
    is_first = not seen.exists()
    seen.touch()
    if is_first:
        script = f"kill -STOP {os.getpid()}; sleep 0.8; kill -CONT {os.getpid()}"
        subprocess.run(["sh", "-c", script], check=True)
    return is_first

def test_stopped():
    assert not stop_this_process(), "late"
"""
STOPPED_EXACT = "import pytest\n" + STOPPED.replace("def test_", "@pytest.mark.exact\ndef test_")
LAB_LATE_AT_FIRST = """
import pytest
from pathlib import Path

@pytest.fixture(scope="module")
def lab():
    seen = Path(__file__).with_name("seen-lab")
    is_first = not seen.exists()
    seen.touch()
    assert not is_first

@pytest.mark.parametrize("number", range(21))
def test_in_the_lab(lab, number): pass
"""
PASSES = """
def test_passes():
    seen = Path(__file__).with_name("seen-passing")
    assert not seen.exists(), "a test that passed was run twice"
    seen.touch()
"""


def run(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    """Run these as the project's own tests are run."""
    (folder / "test_failing.py").write_text(tests)
    (folder / "conftest.py").write_text((REPOSITORY / "tests/conftest.py").read_text())
    options = [
        "-q",
        "-n",
        "1",
        "-rf",
        "--tb=no",
        "-c",
        str(REPOSITORY / "pyproject.toml"),
        f"--rootdir={folder}",
    ]
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [str(REPOSITORY / "setup/run_tests.sh"), *options, str(folder)],
        env={**outer, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if left := re.search(r"what they wrote is in (/tmp/rt\.\w+)", done.stderr):
        shutil.rmtree(left[1])
    return done


def test_failed_test_that_passes_alone_at_the_end_has_passed(tmp_path: Path) -> None:
    done = run(tmp_path, LATE + PASSES + LAB_LATE_AT_FIRST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "::test_late_at_first" in done.stdout
    assert "some of them at their second try" in done.stderr


@pytest.mark.parametrize(("tests", "runs"), [(LATE_TWICE, 2), (BROKEN, 1), (LATE + EXACT, 1), (MANY, 1)])
def test_failure_that_no_busy_machine_explains_is_final(tmp_path: Path, tests: str, runs: int) -> None:
    done = run(tmp_path, tests)
    assert done.returncode == 1, done.stdout + done.stderr
    assert len(re.findall(r"^\d+ (?:failed|passed).* in \d", done.stdout, re.MULTILINE)) == runs, done.stdout


def test_failure_during_a_stall_is_run_again_at_once(tmp_path: Path) -> None:
    done = run(tmp_path, STOPPED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^1 passed, \d rerun in ", done.stdout, re.MULTILINE), done.stdout
    assert re.search(
        r"RUN AGAIN test_failing.py::test_stopped \(nothing ran for 0\.[5-9] s\): .*late", done.stdout
    ), done.stdout
    assert "second try" not in done.stderr


def test_exact_test_is_not_run_again(tmp_path: Path) -> None:
    done = run(tmp_path, STOPPED_EXACT)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "tests run again: 0" in done.stdout
