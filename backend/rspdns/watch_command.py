"""`rspdns watch`: runs a command whenever a pool changes, never two at a time.

The changes come from the backend of this host, or as news from another one, to which no connection is held.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import click
from daemon_kit import logs
from daemon_kit.child import die_with_parent
from daemon_kit.commands import config_option, duration_option, example, log_options, until_ctrl_c
from daemon_kit.control import ControlError, request
from daemon_kit.logs import get_logger

from rspdns.configuration import DEFAULT_PATH, control_path
from rspdns.next_change import WAIT_S
from rspdns.pending_changes import PendingChanges

ASK_AGAIN_S = 0.5
"""Time between two trials to reach a backend that is not there."""
END_S = 5.0
"""How long a command may take to end after SIGTERM."""
LEAST_PAUSE_S = 0.1
_log = get_logger("watch")


def _span(context: click.Context, parameter: click.Parameter, text: str) -> float:
    span_s = duration_option(context, parameter, text) or 0.0
    if span_s < LEAST_PAUSE_S:
        raise click.BadParameter(f"at least {LEAST_PAUSE_S:g}s")
    return span_s


@click.command(epilog=example("rspdns watch sip-as-udp --exec 'jq .pool.members[].name'"))
@config_option(DEFAULT_PATH)
@click.argument("pool")
@click.option(
    "--exec",
    "command",
    required=True,
    help="The command, run by /bin/sh -c; {name} in it is the name of the pool's SRV records.",
)
@click.option(
    "--from",
    "server",
    metavar="HOST:PORT",
    help="Poll the news of that name server (its [news] listen) instead of asking the backend of this host.",
)
@click.option(
    "--key", "key_file", metavar="FILE", help="With --from: the file with the key that signs the zone's news."
)
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
    server: str | None,
    key_file: str | None,
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
    pending = PendingChanges(at_most_every_s)
    source = _source(config, pool, server, key_file)
    answer = source.first()  # a wrong name ends it at once
    is_there = True
    with until_ctrl_c() as goes_on:
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
        while goes_on():
            pending.take(answer)
            began_s = time.monotonic()
            wait_s = pending.wait_s(began_s)
            if wait_s == 0:
                named = command.replace("{name}", shlex.quote(pending.pool["owner"]))
                is_done = _run(named, pending.document(answer["host"]), timeout_s)
                pending.ran(began_s, time.monotonic(), is_done=is_done)
                wait_s = pending.wait_s(time.monotonic())
            elif pending.why:
                time.sleep(LEAST_PAUSE_S)  # changes may come fast
            try:
                answer = source.next(wait_s)
            except ControlError as problem:
                if is_there:
                    _log.warning("watch_interrupted", problem=str(problem))
                is_there, answer = False, {**answer, "changes": []}
                time.sleep(ASK_AGAIN_S)
                continue
            if not is_there:
                _log.info("watch_goes_on")
            is_there = True


class ChangeSource(Protocol):
    """The source of the changes of a pool. Both functions raise ControlError."""

    def first(self) -> dict[str, Any]:
        """Return the pool as it is."""

    def next(self, wait_s: float) -> dict[str, Any]:
        """Return the changes since the last answer once there are any, or none after `wait_s`."""


class BackendChanges:
    """The changes as the backend of this host tells them, at its control socket `path`."""

    def __init__(self, path: str, pool: str) -> None:
        self._path = path
        self._keys: dict[str, Any] = {"pool": pool}

    def first(self) -> dict[str, Any]:
        """See `ChangeSource`."""
        return self._ask()

    def next(self, wait_s: float) -> dict[str, Any]:
        """See `ChangeSource`."""
        return self._ask(wait_s=wait_s)

    def _ask(self, **wait: float) -> dict[str, Any]:
        answer = request(self._path, "changes", timeout_s=WAIT_S + 5.0, **self._keys, **wait)
        self._keys |= {"life": answer["life"], "after": answer["number"]}
        return answer


def _source(config: Path, pool: str, server: str | None, key_file: str | None) -> ChangeSource:
    if (server is None) != (key_file is None):
        raise click.UsageError("--from and --key belong together")
    if server is None or key_file is None:
        return BackendChanges(control_path(config), pool)
    from rspdns.hooks.configuration import read_key
    from rspdns.news.client import PolledNews

    host, colon, port = server.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{server!r}: give host and port, ns1.example.net:8056", param_hint="--from")
    try:
        return PolledNews(host.strip("[]"), int(port), pool, read_key(os.path.abspath(key_file)))
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="--key") from None


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
