"""A lab that is interrupted ends, even when the interruption is lost on the way, and cleans up whole."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.labs import as_ordinary_user

HEAD = "import time\nfrom rspdns_lab.ending import end_on_signals, uninterrupted\n"
# Python only reports an exception that is raised while an object is finalized.
LOST = """
class Thing:
    def __del__(self):
        print("ready", flush=True)
        time.sleep(60)
end_on_signals()
try:
    thing = Thing()
    del thing
    time.sleep(60)
except KeyboardInterrupt:
    print("ended")
"""
# So it is with what is raised in a fork, while the standard library looks after its locks.
FORKING = """
import os
end_on_signals()
def ready():
    print("ready", flush=True)
    time.sleep(60)
os.register_at_fork(after_in_parent=ready)
try:
    if not os.fork():
        os._exit(0)
    time.sleep(60)
except KeyboardInterrupt:
    print("ended")
"""
CLEANING_UP = """
end_on_signals()
try:
    try:
        raise KeyboardInterrupt
    finally:
        with uninterrupted():
            print("ready", flush=True)
            time.sleep(0.5)
            cleaned_up = True
except KeyboardInterrupt:
    print("ended" if cleaned_up else "torn")
"""
# A lab ends programs in the middle of its work, too: what comes meanwhile, or was lost before, comes then.
WHILE_A_PROGRAM_ENDS = """
end_on_signals()
try:
    with uninterrupted():
        print("ready", flush=True)
        time.sleep(0.5)
        ended_in_order = True
    time.sleep(60)
except KeyboardInterrupt:
    print("ended" if ended_in_order else "torn")
"""
LOST_BEFORE_A_PROGRAM_ENDS = """
class Thing:
    def __del__(self):
        print("ready", flush=True)
        time.sleep(60)
end_on_signals()
try:
    thing = Thing()
    del thing
    with uninterrupted():
        pass
    time.sleep(60)
except KeyboardInterrupt:
    print("ended")
"""


@pytest.mark.parametrize(
    ("code", "number"),
    [
        (LOST, signal.SIGTERM),
        (FORKING, signal.SIGHUP),
        (CLEANING_UP, signal.SIGINT),
        (WHILE_A_PROGRAM_ENDS, signal.SIGHUP),
        (LOST_BEFORE_A_PROGRAM_ENDS, signal.SIGHUP),
    ],
    ids=["lost", "forking", "cleaning up", "while a program ends", "lost before a program ends"],
)
def test_an_interrupted_process_ends_and_tells_no_traceback(code: str, number: signal.Signals) -> None:
    with subprocess.Popen(
        # From Python 3.12 on a program that forks beside its threads is warned, if it is `-c` itself.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", HEAD + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert process.communicate(timeout=40)[0] == "ended\n"
            assert process.returncode == 0
        finally:
            process.kill()


# Python reads this before anything else: Ctrl-C comes while the lab that became root loads its libraries.
INTERRUPTS_LOADING = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "pyroute2" and os.geteuid() == 0:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.integration
def test_ctrl_c_while_the_lab_in_its_user_namespace_loads_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS_LOADING)
    command = [sys.executable, "-c", "from rspdns.entry import lab; lab()", "demo"]
    done = subprocess.run(
        [*as_ordinary_user(), *command],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "rspdns-lab: stopped\n")
