"""`rspdns watch`: runs a command whenever a pool changes, never two at a time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from daemon_kit import logs
from daemon_kit.child import die_with_parent
from daemon_kit.commands import config_option, duration_option, log_options, until_ctrl_c
from daemon_kit.control import ControlError, request
from daemon_kit.logs import get_logger

from rspdns.configuration import DEFAULT_PATH, control_path
from rspdns.next_change import WAIT_S

ASK_AGAIN_S = 0.5
"""Time between two trials to reach a backend that is not there."""
REPEAT_S, MOST_REPEAT_S = 5.0, 60.0
"""Time until a command that failed runs again: the first time, and after doubling."""
END_S = 5.0
"""How long a command may take to end after SIGTERM."""
MOST_CHANGES = 1000
LEAST_PAUSE_S = 0.1
_log = get_logger("watch")


@dataclass
class PendingChanges:
    """The changes that no successful run of the command was told of. Pure."""

    at_most_every_s: float
    pool: dict[str, Any] = field(default_factory=dict)
    changes: list[dict[str, Any]] = field(default_factory=list)
    missed: bool = False
    """Whether there were changes that are not among `changes`."""
    why: str | None = "start"
    """Why the command is to run: start, change, or repeat; None: it need not."""
    due_s: float = 0.0
    """The time before which it does not run."""
    _failures: int = 0

    def take(self, answer: Mapping[str, Any]) -> None:
        """Take what the backend tells."""
        before, self.pool = self.pool, answer["pool"]
        is_other = bool(before) and members_of(before) != members_of(self.pool)
        if answer["changes"] or is_other:
            self.why = self.why or "change"
        # Changes were lost with a former life of the backend: that matters if the members are others now.
        self.missed |= is_other and not answer["changes"]
        self.missed |= answer["missed"] and (is_other or bool(answer["changes"]))
        self.changes += answer["changes"]
        self.missed |= len(self.changes) > MOST_CHANGES
        del self.changes[:-MOST_CHANGES]

    def wait_s(self, now: float) -> float:
        """Return how long to wait for changes; 0: the command is to run now.

        It never runs for a pool that no registrar has told of: its members are not known.
        """
        if self.why is None or not self.pool["known"]:
            return WAIT_S
        return min(WAIT_S, max(0.0, self.due_s - now))

    def document(self, host: str) -> dict[str, Any]:
        """Return what the command reads."""
        return {
            "host": host,
            "why": self.why,
            "missed": self.missed,
            "changes": self.changes,
            "pool": self.pool,
        }

    def ran(self, began_s: float, now: float, *, is_done: bool) -> None:
        """The command ended; if it failed it runs again, with the same changes and those of the meantime."""
        self.due_s = began_s + self.at_most_every_s
        if is_done:
            self.changes, self.missed, self.why, self._failures = [], False, None, 0
            return
        self.why = "repeat"
        self.due_s = max(self.due_s, now + min(MOST_REPEAT_S, REPEAT_S * 2**self._failures))
        self._failures = min(self._failures + 1, 10)


def members_of(pool: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    """Return who is in: handle, identifier, addresses and port of each."""
    return {
        (member["handle"], member["identifier"], tuple(member["addresses"]), member["port"])
        for member in pool["members"]
    }


def _span(context: click.Context, parameter: click.Parameter, text: str) -> float:
    span_s = duration_option(context, parameter, text) or 0.0
    if span_s < LEAST_PAUSE_S:
        raise click.BadParameter(f"at least {LEAST_PAUSE_S:g}s")
    return span_s


@click.command()
@config_option(DEFAULT_PATH)
@click.argument("pool")
@click.option("--exec", "command", required=True, help="The command, run by /bin/sh -c.")
@click.option(
    "--at-most-every",
    "at_most_every_s",
    callback=_span,
    default="1s",
    show_default=True,
    help="Time from one run to the next; changes of the meantime come together.",
)
@click.option(
    "--timeout",
    "timeout_s",
    callback=_span,
    default="30s",
    show_default=True,
    help="Time after which the command is ended, and has failed.",
)
@log_options()
def watch(
    config: Path,
    pool: str,
    command: str,
    at_most_every_s: float,
    timeout_s: float,
    log_level: str,
    log_json: bool,
) -> None:
    """Run a command at the start, and whenever a server joins or leaves POOL, until SIGTERM.

    POOL is the name of its SRV records, or a handle. The command reads one JSON object from its standard
    input: `pool`, as in `rspdns status --json`, with `members` and `out`; `changes`, the events since its
    last run, with their causes. Never two run at a time. A command that exits with other than 0 runs again
    after 5 s, later up to 60 s. The backend may be restarted meanwhile.
    """
    logs.configure(log_level, json=log_json)
    path, pending = control_path(config), PendingChanges(at_most_every_s)
    answer = request(path, "changes", pool=pool)  # a wrong name ends it at once
    is_there = True
    with until_ctrl_c() as goes_on:
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
        while goes_on():
            pending.take(answer)
            began_s = time.monotonic()
            wait_s = pending.wait_s(began_s)
            if wait_s == 0:
                is_done = _run(command, pending.document(answer["host"]), timeout_s)
                pending.ran(began_s, time.monotonic(), is_done=is_done)
                wait_s = pending.wait_s(time.monotonic())
            elif pending.why:
                time.sleep(LEAST_PAUSE_S)  # changes may come fast
            keys = {"pool": pool, "life": answer["life"], "after": answer["number"]}
            try:
                answer = request(path, "changes", timeout_s=WAIT_S + 5.0, **keys, wait_s=wait_s)
            except ControlError as problem:
                if is_there:
                    _log.warning("watch_interrupted", problem=str(problem))
                is_there, answer = False, {**answer, "changes": []}
                time.sleep(ASK_AGAIN_S)
                continue
            if not is_there:
                _log.info("watch_goes_on")
            is_there = True


def _run(command: str, document: Mapping[str, Any], timeout_s: float) -> bool:
    """Run the command with this document as its input; return whether it exited with 0."""
    began_s = time.monotonic()
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=die_with_parent(signal.SIGTERM),
    )
    exited: int | str = "timeout"
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(json.dumps(document).encode() + b"\n", timeout_s)
            exited = process.returncode
    finally:
        _end(process)
    facts = {
        "why": document["why"],
        "changes": len(document["changes"]),
        "members": len(document["pool"]["members"]),
        "ms": round((time.monotonic() - began_s) * 1000, 1),
    }
    if exited == 0:
        _log.info("watch_ran", **facts)
    else:
        _log.warning("watch_failed", exit=exited, **facts)
    return exited == 0


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and what it started, if it still runs."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
