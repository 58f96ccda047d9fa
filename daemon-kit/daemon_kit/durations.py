"""Durations as people read and write them, the same in every command and on every page."""

from __future__ import annotations

import re

_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:s|min|m|h|d))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(s|min|m|h|d)")


def duration(seconds: float | None) -> str:
    """Return "0.4 s", "7 s", "3 min 20 s", "1 h 8 min" or "2 d 5 h"; empty for None.

    A negative time counts as 0: clocks are corrected.
    """
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{max(0.0, int(seconds * 10) / 10):.1f}".removesuffix(".0") + " s"
    if seconds < 60:
        return f"{int(seconds)} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def seconds_of(text: str) -> float:
    """Return the seconds of "90s", "10m", "2h", "1d" or "1h30m". Raises ValueError."""
    words = text.strip().lower().replace(" ", "")
    if not _DURATION.fullmatch(words):
        raise ValueError(f"{text!r} is no duration: write 90s, 10m, 2h, 1d or 1h30m")
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(words))
