"""rspdns-fastpath in the benchmark, and what an answer costs the server by the meter of batches.

The kernel answers in the time of whoever asks: the processor time of a name server's processes does not tell
what an answer costs. The meter counts all of it: the asking process and the server's, less what the same
questions cost with an echo that does nothing but turn packets round.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rspdns.fastpath import DaemonStatus, ask_daemon

from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program, processor_s

ECHO_PORT: Final = 5399
INTERFACE: Final = "lo"
_BESIDE_US: Final = Path(__file__).resolve().parents[3] / "fastpath" / "build"
_PROGRAM: Final = "rspdns-fastpath"
_SEARCH_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
_TIMEOUT_S: Final = 120
IDLE_S: Final = 0.5


def _program() -> str:
    """The daemon of this source tree, or the installed one; empty: there is none."""
    own = _BESIDE_US / _PROGRAM
    return str(own) if own.exists() else shutil.which(_PROGRAM, path=_SEARCH_PATH) or ""


@functools.cache
def why_not() -> str:
    """Why nothing can be answered from the kernel here; empty: it can."""
    if not _program():
        return f"{_PROGRAM} is not built (make -C fastpath)"
    if not (_BESIDE_US / "echo.bpf.o").exists():
        return "the echo to compare with is not built (make -C fastpath)"
    done = subprocess.run(
        [_program(), "probe"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    return done.stderr.strip() if done.returncode else ""


def start_daemon(host: Host, folder: Path, port: int) -> Program:
    """Start rspdns-fastpath for the name server at this port of the host. Raises LabError."""
    socket = folder / "fastpath.sock"
    command = [_program(), "run", "--interface", INTERFACE, "--address", host.address, "--port", str(port)]
    daemon = Program("fastpath", host, [*command, "--socket", str(socket)], folder / "fastpath.log")
    daemon.start()
    wait_until(socket.exists, "rspdns-fastpath", 60, daemon)
    return daemon


def wait_until_it_answers(folder: Path, programs: Sequence[Program]) -> None:
    """Wait until the kernel answers for the name server in this folder. Raises LabError."""

    def answers() -> bool:
        try:
            status: DaemonStatus = ask_daemon(str(folder / "fastpath.sock"))
        except (OSError, ValueError):
            return False
        return status.names > 0 and status.lease_ms > 0

    wait_until(answers, "answers from the kernel", 60, *programs)


def start_echo(host: Host) -> None:
    """Turn datagrams to ECHO_PORT round, for as long as the host lives. Raises LabError."""
    for command in (
        ["qdisc", "replace", "dev", INTERFACE, "clsact"],
        [
            *("filter", "replace", "dev", INTERFACE, "ingress", "pref", "1", "handle", "1"),
            *("bpf", "direct-action", "obj", str(_BESIDE_US / "echo.bpf.o"), "sec", "tc"),
        ],
    ):
        done = subprocess.run(
            ["nsenter", f"--net={host.path}", "--", "tc", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise LabError(f"the echo can't be set up: {done.stderr.strip()[-400:]}")


def server_us(host: Host, folder: Path, port: int, programs: Sequence[Program], questions: int) -> float:
    """Processor time that the server needs for an answer, in microseconds. Raises LabError.

    What its programs do while nobody asks (membership changes, keep-alives) is not counted.
    """
    idle = _share(programs)
    before = _batches(host, folder, ECHO_PORT, questions)["cpu_us"]
    began_s, began_spent_s = time.monotonic(), _spent_s(programs)
    asked = _batches(host, folder, port, questions)
    spent_s = _spent_s(programs) - began_spent_s - idle * (time.monotonic() - began_s)
    spent_us = 1e6 * max(0.0, spent_s) / asked["asked"]
    after = _batches(host, folder, ECHO_PORT, questions)["cpu_us"]
    if not asked["answers"]:
        raise LabError(f"what came from port {port} of {host.address} were no answers")
    return max(0.0, asked["cpu_us"] + spent_us - (before + after) / 2)


def _share(programs: Sequence[Program]) -> float:
    """Of one processor, what the programs use while nobody asks."""
    began_s, before_s = time.monotonic(), _spent_s(programs)
    time.sleep(IDLE_S)
    return (_spent_s(programs) - before_s) / (time.monotonic() - began_s)


def _batches(host: Host, folder: Path, port: int, questions: int) -> dict[str, float]:
    command = [sys.executable, "-m", "rspdns_lab.bench.batches", host.address, str(port), str(questions)]
    done = subprocess.run(
        ["nsenter", f"--net={host.path}", "--", *command, str(folder / "questions")],
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    if done.returncode:
        raise LabError(f"asking in batches failed: {done.stderr.strip()[-400:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _spent_s(programs: Sequence[Program]) -> float:
    """Processor time of the programs, and of all that they started, to the nanosecond."""
    wanted = {program.pid for program in programs}
    parents = {}
    for one in Path("/proc").iterdir():
        if one.name.isdigit():
            try:
                text = (one / "stat").read_text()
                parents[int(one.name)] = int(text[text.rindex(")") + 2 :].split()[1])
            except (OSError, ValueError):
                continue  # it ended
    while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
    return sum(processor_s(pid) for pid in wanted)
