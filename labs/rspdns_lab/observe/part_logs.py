"""The log entries of the parts of a lab: read, also while they go on, put into time, and told in words for
a person.

An entry without a line in `_LINES` is not told.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from rich.markup import escape

from rspdns_lab.net.processes import Program

MAX_EVENTS: Final = 12
"""The most events of one program in one step."""
Entry = Mapping[str, Any]


def _agent_link(entry: Entry) -> str:
    return f"connection to {entry['registrar']} " + ("is up" if entry["up"] else "lost")


# Values are templates, filled with the entry, or functions of it. Keys: program, event.
_LINES: Final[Mapping[tuple[str, str], str | Callable[[Entry], str]]] = MappingProxyType(
    {
        ("agent", "check_down"): "{check}: {saw}; it is down",
        ("agent", "check_up"): "{check}: {saw}; it is up",
        ("agent", "drained"): "told to drain",
        ("agent", "undrained"): "told to let it in again",
        ("agent", "registered"): "registered at {registrar}",
        ("agent", "deregistered"): "deregistered at {registrar}",
        ("agent", "registrar_left"): "left its registrar {registrar}: {detail}",
        ("agent", "registrar_lost"): "lost its registrar {registrar}: {detail}",
        ("agent", "unanswered"): "{registrar}: {detail}",
        ("agent", "taken_over"): "{registrar} took over and is its registrar now",
        ("agent", "missing_at_registrar"): "{registrar} does not list it: registers again",
        ("agent", "registrar_link"): _agent_link,
        (
            "registrar",
            "registrar_died",
        ): "rspregistrar ended: {how}; started again in {restart_in_ms} ms",
        ("registrar", "registrar_hung"): "rspregistrar hangs: {problem}",
        ("registrar", "registrar_unreachable"): "rspregistrar: {problem}",
        ("registrar", "registrar_started"): "rspregistrar started",
        ("registrar", "registrar_ready"): "rspregistrar has its peers' handlespace",
        ("registrar", "sentinel_registered"): "its new sentinel is in: settled",
        ("backend", "joined"): "{identifier} is in: {why}",
        ("backend", "left"): "{identifier} is out: {why}",
        ("backend", "examined"): "{identifier} was looked at: {why}",
        ("backend", "moved"): "{identifier} moved: {why}",
        ("backend", "refused"): "{identifier} refused: {why}",
        ("backend", "vanished"): "{identifier} vanished, and answers: {why}",
        ("backend", "questioned"): "many left at once: {why}",
        ("backend", "registrar"): "{why}",
    }
)


def in_words(program: str, entry: Entry, names: Mapping[str, str]) -> str:
    """Return what a log entry of `program` says, empty when it isn't worth a line.

    `names`: what to write for addresses and identifiers.
    """
    line = _LINES.get((program, str(entry.get("event", ""))))
    if line is None:
        return ""
    try:
        text = line(entry) if callable(line) else line.format_map(entry)
    except (KeyError, ValueError):
        return ""
    for written, name in names.items():
        text = text.replace(written, name)
    return text if len(text) <= 120 else text[:117] + "..."


@dataclass(frozen=True, order=True)
class Event:
    """Something that happened: when (monotonic, s), where, and what, in words with rich's markup."""

    at_s: float
    where: str
    what: str


def monotonic_offset_s() -> float:
    """Return what to add to wall-clock time (s since the epoch) to get monotonic time."""
    return time.monotonic() - time.time()


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


class LogTail:
    """The newest events of the programs whose logs mean something, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self.events: deque[Event] = deque(maxlen=most)
        self._read_to: dict[Path, int] = {}
        self._offset_s = monotonic_offset_s()

    def look(self, programs: Iterable[Program], names: Mapping[str, str]) -> None:
        """Read what is new. `names`: of hosts and pool elements, by address and identifier."""
        new = []
        for program in programs:
            for line in self._new_lines(program.log):
                event = self._event(program, line, names)
                if event is not None:
                    new.append(event)
        self.events.extend(sorted(new))

    def _new_lines(self, log: Path) -> list[bytes]:
        """Return whole lines only; a half-written one is read when it is whole."""
        try:
            with log.open("rb") as file:
                file.seek(self._read_to.get(log, 0))
                text = file.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._read_to[log] = self._read_to.get(log, 0) + len(whole)
        return whole.splitlines()

    def _event(self, program: Program, line: bytes, names: Mapping[str, str]) -> Event | None:
        try:
            entry = json.loads(line)
        except ValueError:
            return None
        at_s = entry_time_s(entry, self._offset_s) if isinstance(entry, dict) else None
        what = in_words(program.name, entry, names) if at_s is not None else None
        if at_s is None or not what:
            return None
        return Event(at_s, f"{program.host.name} {program.name}", escape(what))
