"""Structured logs on standard error, limited by kind and source (`daemon_kit.log_limit`).

What a line is about is its source: the value of the first of SOURCES that it has. `_source` is one that is
not written.
"""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

from daemon_kit.log_limit import LogLimit

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
        for one in self._limit.over(now):
            get_logger(one.part).warning(
                LEFT_OUT, kind=one.event, lines=one.lines, sources=one.sources, within_s=one.seconds
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
