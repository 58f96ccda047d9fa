"""rspdns-fastpath in the benchmark, and what an answer costs the server by the meter of batches.

The kernel answers in the time of whoever asks: the processor time of a name server's processes does not tell
what an answer costs. The meter counts all of it: the asking process and the server's, less what the same
questions cost with an echo that does nothing but turn packets round.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rspdns_lab.chain import fast_path
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program, processor_s

ECHO_PORT: Final = 5399
INTERFACE: Final = "lo"
_ECHO: Final = fast_path.BUILT / "echo.bpf.o"
_TIMEOUT_S: Final = 120
IDLE_S: Final = 0.5


def why_not() -> str:
    """Why nothing can be answered from the kernel and measured here; empty: it can."""
    return fast_path.why_not() or ("" if _ECHO.exists() else f"{_ECHO.name} is not built (make -C fastpath)")


def start_daemon(host: Host, folder: Path, port: int) -> Program:
    """Start rspdns-fastpath for the name server at this port of the host. Raises LabError."""
    daemon = fast_path.daemon(host, folder, port, INTERFACE)
    daemon.start()
    wait_until((folder / fast_path.SOCKET).exists, "rspdns-fastpath", 60, daemon)
    return daemon


def wait_until_it_answers(folder: Path, programs: Sequence[Program]) -> None:
    """Wait until the kernel answers for the name server in this folder. Raises LabError."""
    wait_until(lambda: fast_path.answers(folder), "answers from the kernel", 60, *programs)


def start_echo(host: Host) -> None:
    """Turn datagrams to ECHO_PORT round, for as long as the host lives. Raises LabError."""
    for command in (
        ["qdisc", "replace", "dev", INTERFACE, "clsact"],
        [
            *("filter", "replace", "dev", INTERFACE, "ingress", "pref", "1", "handle", "1"),
            *("bpf", "direct-action", "obj", str(_ECHO), "sec", "tc"),
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

    The work of its programs without questions (membership changes, keep-alives) is not counted.
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
    """The part of one processor that the programs use without questions."""
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
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                text = (process / "stat").read_text()
                parents[int(process.name)] = int(text[text.rindex(")") + 2 :].split()[1])
            except (OSError, ValueError):
                continue  # it ended
    while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
    return sum(processor_s(pid) for pid in wanted)
