"""When each part noticed: events from the parts' own logs and from what the client saw."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rich.markup import escape

from rspdns_lab.lab import Lab
from rspdns_lab.plan import NAME_SERVERS
from rspdns_lab.steps import Fault, Result
from rspdns_lab.verdict import Observation, is_wrong
from rspdns_lab.words import in_words

_SERVER_NAMES: Final = tuple(NAME_SERVERS)
MAX_EVENTS: Final = 12
"""Of one program in one step."""


@dataclass(frozen=True, order=True)
class Event:
    """Something that happened: when (monotonic, s), where, and what, in words with rich's markup."""

    at_s: float
    where: str
    what: str


def monotonic_offset_s() -> float:
    """Return what to add to wall-clock time (s since the epoch) to get monotonic time."""
    return time.monotonic() - time.time()


def events_of(lab: Lab, result: Result) -> list[Event]:
    """Return all that is worth telling about a step, in order."""
    fault = result.fault
    events = [Event(fault.at_s, "lab", f"[bold]{fault.what}[/bold]")]
    if fault.started_at_s is not None:
        events.append(Event(fault.started_at_s, "lab", "SIP server started"))
    span = (fault.started_at_s or fault.at_s, result.ended_at_s)
    names = lab.names()
    for program in lab.programs():
        if program.name in ("agent", "backend", "registrar"):
            events += log_events(program.log, program.host.name, program.name, span, names)
    events += client_events(result.observations, fault)
    return sorted(events)


def log_events(
    log: Path, host: str, program: str, span: tuple[float, float], names: Mapping[str, str]
) -> list[Event]:
    """Return what a program's JSON log says of the time `span` (monotonic, s)."""
    offset_s = monotonic_offset_s()
    found = []
    for entry in read_log(log):
        at_s = entry_time_s(entry, offset_s)
        if at_s is not None and span[0] <= at_s <= span[1] and (what := in_words(program, entry, names)):
            found.append(Event(at_s, f"{host} {program}", escape(what)))
    return found[:MAX_EVENTS]


def read_log(log: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON lines of a log; other lines are passed over."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("{"):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry


def entry_time_s(entry: Mapping[str, Any], offset_s: float) -> float | None:
    """Return the monotonic time of a log entry, or None when it has none."""
    try:
        return datetime.fromisoformat(str(entry["timestamp"])).timestamp() + offset_s
    except (KeyError, ValueError):
        return None


def client_events(observations: Iterable[Observation], fault: Fault) -> list[Event]:
    """Return when the client was last told wrong, and when right, by each name server."""
    events = []
    for server in fault.servers:
        answers = [
            one
            for one in observations
            if one.server == server and one.asked_at_s >= fault.at_s and one.answered_at_s is not None
        ]
        wrong = [one for one in answers if is_wrong(one, fault.live, fault.dead)]
        if wrong:
            last = max(one.answered_at_s or 0.0 for one in wrong)
            events.append(Event(last, "client", f"[red]last wrong answer from {_SERVER_NAMES[server]}[/red]"))
            right = [one.answered_at_s for one in answers if one.answered_at_s and one.answered_at_s > last]
            if right:
                text = f"[green]{_SERVER_NAMES[server]} answers right from now on[/green]"
                events.append(Event(min(right), "client", text))
    return events
