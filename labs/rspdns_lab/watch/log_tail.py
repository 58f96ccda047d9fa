"""Reads what is added to the logs of a running lab."""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.markup import escape

from rspdns_lab.net.processes import Program
from rspdns_lab.observe.part_logs import Event, entry_time_s, in_words, monotonic_offset_s


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
