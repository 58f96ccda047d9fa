"""Structured logs on standard error."""

import contextlib
import logging
import sys
from typing import Any, TextIO, cast

_LOADS_RICH = "rich" not in sys.modules
if _LOADS_RICH:
    # structlog would load rich to colour tracebacks: 5 MB in every service. Commands load it themselves.
    sys.modules["rich"] = cast("Any", None)
try:
    import structlog
finally:
    if _LOADS_RICH:
        del sys.modules["rich"]

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
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if json else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=False,
    )


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
