"""Structured logs on standard error, limited by kind and source.

The source of a line is the value of the first of SOURCES that it has. `_source` is not written.

`LogLimit` says how many lines one source may cause, so that no stranger fills a disk. Lines are of a kind
(what happened, in which part) and have a source (an address, a pool, a registrar). Within each `WINDOW_S`,
`MOST_OF_A_SOURCE` lines of one kind about one source are written, and `MOST_OF_A_KIND` of one kind in all;
the others are counted, and their number is logged when the time is over."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

WINDOW_S = 10.0
MOST_OF_A_SOURCE = 30
MOST_OF_A_KIND = 500
MOST_SOURCES = 10_000
"""Remembered within one window; lines about further sources count for their kind alone."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The number of lines of a kind that were left out within `seconds`; `sources` is about how many
    sources."""

    part: str
    event: str
    lines: int
    sources: int
    seconds: float


@dataclass(slots=True)
class _Kind:
    began_s: float
    lines: int = 0
    left_out: int = 0
    of_source: dict[str, int] = field(default_factory=dict)
    silenced: set[str] = field(default_factory=set)


class LogLimit:
    """Decides which lines are written. `now` is monotonic, in seconds."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def admits(self, part: str, event: str, source: str, now: float) -> bool:
        """Whether a line is written; to be called once for each line, after `over()`."""
        kind = self._kinds.get((part, event))
        if kind is None:
            kind = self._kinds[part, event] = _Kind(now)
        of_source = kind.of_source.get(source, 0)
        if of_source < MOST_OF_A_SOURCE and kind.lines < MOST_OF_A_KIND:
            kind.lines += 1
            if of_source or len(kind.of_source) < MOST_SOURCES:
                kind.of_source[source] = of_source + 1
            return True
        kind.left_out += 1
        if len(kind.silenced) < MOST_SOURCES:
            kind.silenced.add(source)
        return False

    def over(self, now: float) -> list[LeftOut]:
        """Begin anew for each kind whose window is over; return what was left out of it."""
        left_out = []
        for (part, event), kind in list(self._kinds.items()):
            if now >= kind.began_s + WINDOW_S:
                del self._kinds[part, event]
                if kind.left_out:
                    seconds = round(now - kind.began_s, 1)
                    left_out.append(LeftOut(part, event, kind.left_out, len(kind.silenced), seconds))
        return left_out

    @property
    def next_over_s(self) -> float | None:
        """When there is something to tell of lines that were left out; None while none were."""
        began_s = [kind.began_s for kind in self._kinds.values() if kind.left_out]
        return min(began_s) + WINDOW_S if began_s else None


_LOADS_RICH = "rich" not in sys.modules
if _LOADS_RICH:
    # structlog would load rich to colour tracebacks: 5 MB in every service. Commands load it themselves.
    sys.modules["rich"] = cast("Any", None)
try:
    import structlog
finally:
    if _LOADS_RICH:
        del sys.modules["rich"]

SOURCES = ("_source", "source", "address", "peer", "registrar", "server", "handle", "socket", "path")
LEFT_OUT = "lines_left_out"
LEVELS = ("debug", "info", "warning", "error")


def configure(level: str = "info", json: bool = False) -> None:
    """Log events of `level` (one of LEVELS) and above; as JSON lines, or for people. Raises ValueError."""
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is none of {', '.join(LEVELS)}")
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[
            _Limited(),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if json else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=False,
    )


class _Limited:
    """Leaves out what is too much, and tells how much that was when the time is over."""

    def __init__(self) -> None:
        self._limit = LogLimit()
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None

    def __call__(
        self, _logger: object, _method: str, line: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        source = next((str(line[key]) for key in SOURCES if key in line), "")
        line.pop("_source", None)
        part, event = str(line.get("part", "")), str(line.get("event", ""))
        if event == LEFT_OUT:
            return line
        with self._lock:
            self._tell(time.monotonic())
            is_admitted = self._limit.admits(part, event, source, time.monotonic())
            self._set_timer()
        if not is_admitted:
            raise structlog.DropEvent
        return line

    def _tell(self, now: float) -> None:
        for excess in self._limit.over(now):
            get_logger(excess.part).warning(
                LEFT_OUT,
                kind=excess.event,
                lines=excess.lines,
                sources=excess.sources,
                within_s=excess.seconds,
            )

    def _set_timer(self) -> None:
        over_s = self._limit.next_over_s
        if over_s is not None and self._timer is None:
            self._timer = threading.Timer(max(0.0, over_s - time.monotonic()), self._is_over)
            self._timer.daemon = True
            self._timer.start()

    def _is_over(self) -> None:
        with self._lock:
            self._timer = None
            self._tell(time.monotonic())
            self._set_timer()


class _Stderr:
    """Standard error as it is now; when nobody reads it any more, the service goes on without its log."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return the logger of one part of a program; `name` is in every event as `part`."""
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger(part=name))
