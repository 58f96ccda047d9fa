"""Which failed tests run again, by the project's own setup/run_tests.sh, conftest and pyproject.toml."""

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from tests.support.namespaces import REPOSITORY
from tests.support.second_try import MOST_RERUNS

TESTS = """
import time
from pathlib import Path

import pytest

from tests.support.second_try import BrokenError

RUNS = Path(__file__).with_name("runs")

def note(name):
    RUNS.open("a").write(f"{name}\\n")
    return RUNS.read_text().split().count(name)

@pytest.fixture(scope="module")
def lab():
    assert note("lab") > 1

def test_passes():
    note("passes")

def test_in_a_lab_that_is_late(lab):
    note("in_a_lab")

def test_late():
    assert note("late") > 1, "BrokenError: only in the text"

def test_late_each_time():
    assert note("late_each_time") > 10

def test_broken():
    note("broken")
    raise BrokenError("one message twice")

@pytest.mark.exact
def test_exact():
    note("exact")
    raise TimeoutError

@pytest.mark.timeout(0.5)
def test_out_of_time():
    note("out_of_time")
    time.sleep(60)

@pytest.mark.parametrize("number", range(30))
def test_many(number):
    note("many")
    raise TimeoutError
"""


PURE = """
from pathlib import Path

def test_pure():
    with Path(__file__).with_name("runs").open("a") as runs:
        runs.write("pure\\n")
    assert False
"""


def test_failures_that_a_busy_machine_may_explain_have_a_second_try(tmp_path: Path) -> None:
    (tmp_path / "integration").mkdir()
    (tmp_path / "integration" / "test_failing.py").write_text(TESTS)
    (tmp_path / "test_pure.py").write_text(PURE)
    (tmp_path / "conftest.py").write_text((REPOSITORY / "conftest.py").read_text())
    configuration = REPOSITORY / "pyproject.toml"
    options = ["-n", "1", "-c", str(configuration), f"--rootdir={tmp_path}"]
    done = subprocess.run(
        [str(REPOSITORY / "setup/run_tests.sh"), *options, str(tmp_path)],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
            "PYTHONPATH": str(REPOSITORY),
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if left := re.search(r"what they wrote is in (/tmp/rt\.\w+)", done.stderr):
        shutil.rmtree(left[1])
    runs = Counter((tmp_path / "integration" / "runs").read_text().split())
    assert (tmp_path / "runs").read_text() == "pure\n", "a test that runs no program has one try"
    allowed = int(re.findall(r"--max-suite-reruns=(\d+)", configuration.read_text())[0])
    assert done.returncode == 1, done.stdout + done.stderr
    assert runs.pop("many") == 30 + allowed - (1 + 1 + MOST_RERUNS), "more failures are no accident"
    assert runs == {
        "passes": 1,
        "lab": 2,
        "in_a_lab": 1,
        "late": 2,
        "late_each_time": 1 + MOST_RERUNS,
        "broken": 1,
        "exact": 1,
        "out_of_time": 1,
    }
    failed = {re.sub(r"\[.*", "", name) for name in re.findall(r"^FAILED .*::test_(\S+)", done.stdout, re.M)}
    assert failed == {"late_each_time", "broken", "exact", "out_of_time", "many", "pure"}
    assert re.search(r"^RERUN .*::test_late\n(.*\n)*.*only in the text", done.stdout, re.M), "why, too"
