"""The load of this host: how busy its processors are."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# The times of all processors in /proc/stat (proc(5)) are: user, nice, system, idle, iowait, irq, softirq,
# steal, guest, guest_nice. The last two are counted in the first two as well.
_COUNTED_ONCE: Final = slice(8)
_NOT_BUSY: Final = slice(3, 5)
_FIRST_LINE_BYTES: Final = 512


class CpuLoad:
    """The busy share of this host's processors since this was last read; at first, the load average."""

    def __init__(self, statistics: Path = Path("/proc/stat")) -> None:
        self._statistics = statistics
        self._descriptor: int | None = None  # held: to open it costs more than to read it
        self._before: Sequence[int] = ()
        self._load = 0.0

    async def read(self) -> float:
        """Return the busy share, 0..1; the last one again while the processors' times stand still.

        Raises OSError and ValueError: a container's /proc/stat may be a file system's that fails (lxcfs).
        """
        if self._descriptor is None:
            self._descriptor = os.open(self._statistics, os.O_RDONLY | os.O_CLOEXEC)
        try:
            now = processor_times(self._descriptor)
        except (OSError, ValueError):
            await self.close()
            raise
        if not self._before:
            self._load = load_average()
            self._before = now
        elif (share := busy_share(self._before, now)) is not None:
            self._load = share
            self._before = now
        return self._load

    async def close(self) -> None:
        """Let go of /proc/stat."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class LoadAverage:
    """The load average of the last minute for each processor, 1 at most."""

    async def read(self) -> float:
        """Return it."""
        return load_average()

    async def close(self) -> None:
        """Nothing is held."""


def processor_times(statistics: int) -> tuple[int, ...]:
    """Return how long the processors did what, in hundredths of a second, in the order of proc(5).

    `statistics` is a descriptor of /proc/stat.
    """
    line = os.pread(statistics, _FIRST_LINE_BYTES, 0).partition(b"\n")[0]
    return tuple(map(int, line.split()[1:]))


def busy_share(before: Sequence[int], now: Sequence[int]) -> float | None:
    """Return the share, 0..1, that was busy between two `processor_times()`; None when no time passed."""
    # A counter may go back a little, as iowait does: that is no time.
    passed = [max(0, later - sooner) for sooner, later in zip(before, now, strict=True)][_COUNTED_ONCE]
    total = sum(passed)
    return (total - sum(passed[_NOT_BUSY])) / total if total > 0 else None


def load_average() -> float:
    """Return the load average of the last minute for each processor, 1 at most."""
    return min(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
