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
    ("code", "number"), [(LOST, signal.SIGTERM), (CLEANING_UP, signal.SIGINT)], ids=["lost", "cleaning up"]
)
def test_it_ends(code: str, number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert process.communicate(timeout=40)[0] == "ended\n"
            assert process.returncode == 0
        finally:
            process.kill()
