"""The load of the server, 0..1: where it comes from, smoothed, and when a change is worth an update.

Every update goes to all registrars and from there to all DNS backends: small changes are held back.
"""

import math
import os
import stat
import time
from pathlib import Path
from typing import Protocol

import psutil

from ppe_agent.configuration import LoadConfig

_MAX_FILE_BYTES = 64


class LoadUnknown(Exception):  # noqa: N818 - reads as what it is
    """A source has no load to give; the message says why."""


class LoadSource(Protocol):
    """Somewhere a load comes from."""

    def read(self) -> float:
        """Return the load now, 0..1. Raises LoadUnknown."""


class CpuLoad:
    """The share of this host's processors that was busy since the last read; at first, its load average."""

    def __init__(self) -> None:
        self._is_first = True

    def read(self) -> float:
        """Return the busy share, 0..1."""
        busy = psutil.cpu_percent(interval=None) / 100
        if self._is_first:
            self._is_first = False
            busy = psutil.getloadavg()[0] / (psutil.cpu_count() or 1)
        return min(1.0, max(0.0, busy))


class FileLoad:
    """A number 0..1 in a file that the server, or something beside it, writes again and again."""

    def __init__(self, path: Path, max_age_ms: int) -> None:
        self._path = path
        self._max_age_ms = max_age_ms

    def read(self) -> float:
        """Return the number in the file. Raises LoadUnknown when it is missing, old or no number 0..1."""
        try:
            # A pipe or a device must not block the agent.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                data = os.read(descriptor, _MAX_FILE_BYTES) if stat.S_ISREG(status.st_mode) else None
            finally:
                os.close(descriptor)
        except OSError as error:
            raise LoadUnknown(f"{self._path}: {error.strerror}") from None
        if data is None:
            raise LoadUnknown(f"{self._path} is no ordinary file")
        age_ms = (time.time() - status.st_mtime) * 1000
        if age_ms > self._max_age_ms:
            raise LoadUnknown(f"{self._path} was not written for {age_ms / 1000:.0f} s")
        try:
            value = float(data)
        except ValueError:
            value = math.nan
        if not 0 <= value <= 1:
            raise LoadUnknown(f"{self._path} holds no number from 0 to 1")
        return value


def make_source(config: LoadConfig) -> LoadSource | None:
    """Return the configured source, None when there is none."""
    if config.source == "file":
        assert config.path is not None  # noqa: S101 - the configuration was checked
        return FileLoad(config.path, config.max_age_ms)
    return CpuLoad() if config.source == "cpu" else None


class LoadReporter:
    """Smooths a load and says when to report it. Pure: takes `now`.

    Smoothing is exponential with time constant `smoothing_ms`. A value is due when it differs by
    `min_change` or more from the last one reported, and `min_update_interval_ms` have passed.
    Without readings (source "none") the load stays 0.
    """

    def __init__(self, config: LoadConfig) -> None:
        self._config = config
        self._smoothed: float | None = None
        self._sampled_at_s = 0.0
        self._reported_at_s = -math.inf
        self.reported = 0.0
        self.problem: str | None = None

    def sample(self, load: float, now: float) -> None:
        """Take in a reading."""
        if self._smoothed is None or self._config.smoothing_ms == 0:
            self._smoothed = load
        else:
            passed_ms = max(0.0, now - self._sampled_at_s) * 1000
            share = 1 - math.exp(-passed_ms / self._config.smoothing_ms)
            self._smoothed += share * (load - self._smoothed)
        self._sampled_at_s = now
        self.problem = None

    def unknown(self, problem: str) -> None:
        """Take in that there is no reading: the load counts as `when_unknown` until there is one."""
        self._smoothed = None
        self.problem = problem

    def due(self, now: float) -> float | None:
        """Return the load to report now, None when the last one still serves."""
        value = self._config.when_unknown if self._smoothed is None else self._smoothed
        is_first = self._reported_at_s == -math.inf
        if not is_first:
            if abs(value - self.reported) < self._config.min_change:
                return None
            if (now - self._reported_at_s) * 1000 < self._config.min_update_interval_ms:
                return None
        self.reported = value
        self._reported_at_s = now
        return value
