"""A lab that is interrupted ends, even when the interruption is lost on the way, and cleans up whole."""

import signal
import subprocess
import sys

import pytest

HEAD = "import time\nfrom rspdns_lab.interruption import end_on_signals, uninterrupted\n"
# What is raised while an object is finalized, Python only tells about.
LOST = (
    HEAD
    + """
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
)
# So it is with what is raised in a fork, while the standard library looks after its locks.
FORKING = (
    HEAD
    + """
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
)
CLEANING_UP = (
    HEAD
    + """
end_on_signals()
with uninterrupted():
    print("ready", flush=True)
    time.sleep(0.5)
    print("ended")
"""
)


@pytest.mark.parametrize(
    ("code", "number"),
    [(LOST, signal.SIGTERM), (FORKING, signal.SIGHUP), (CLEANING_UP, signal.SIGINT)],
    ids=["lost", "forking", "cleaning up"],
)
def test_it_ends_and_tells_no_traceback(code: str, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert process.communicate(timeout=40)[0] == "ended\n"
            assert process.returncode == 0
        finally:
            process.kill()
