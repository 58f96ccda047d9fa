"""A lab that is interrupted at its work: does it end soon, and leave nothing."""

import os
import signal
import subprocess
from dataclasses import dataclass

from tests.support.labs import LAB, traces
from tests.support.stalls import Mark


@dataclass(frozen=True)
class Interruption:
    """A lab, by its arguments, that gets a signal as soon as it has said `said`."""

    arguments: str
    said: str
    number: signal.Signals

    def complaints(self) -> list[str]:
        """Run it; return what is not as it should be."""
        with subprocess.Popen(
            [*LAB, *self.arguments.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # a lab may keep it with its own files
        ) as lab:
            assert lab.stdout is not None
            story = ""
            while self.said not in story and (line := lab.stdout.readline()):
                story += line
            lab.send_signal(self.number)
            interrupted = Mark.now()
            try:
                story += lab.communicate(timeout=120)[0]
            except subprocess.TimeoutExpired:
                lab.kill()
        found = [f"left {one}" for one in traces(lab.pid)]
        if interrupted.ran_s() > 30:
            found.append("did not end soon")
        if self.said not in story or "interrupted; everything is cleaned up" not in story:
            found.append("did not say what it should")
        if lab.returncode != 130 or "Traceback" in story:
            found.append(f"exit status {lab.returncode}")
        return [f"{self.arguments}: {'; '.join(found)}:\n{story}"] if found else []
