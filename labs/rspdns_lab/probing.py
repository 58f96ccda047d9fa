"""Starts the prober on the client host."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rspdns_lab.network import Host
from rspdns_lab.observations import Recorder
from rspdns_lab.processes import Program


def start_prober(
    client: Host,
    servers: Sequence[str],
    questions: Sequence[str],
    recorder: Recorder,
    folder: Path,
    interval_ms: float = 1.0,
) -> Program:
    """Ask `servers` (IPv4 addresses) all `questions` ("TYPE:NAME") from now on; answers go to `recorder`."""
    command = [sys.executable, "-m", "rspdns_lab.prober", f"--interval-ms={interval_ms}"]
    command += [f"--server={server}:53" for server in servers]
    command += [f"--question={question}" for question in questions]
    prober = Program("prober", client, command, folder / "prober.log")
    prober.start(stdout=subprocess.PIPE)
    recorder.follow(prober.stdout)
    return prober
