"""The load of this host: how busy its processors are."""

from typing import Any, Final

import psutil

# Linux counts the time of virtual machines in `user` and `nice` too.
_COUNTED_ELSEWHERE: Final = ("guest", "guest_nice")
_NOT_BUSY: Final = ("idle", "iowait")


class CpuLoad:
    """The busy share of this host's processors since this object was last read; at first, the load average.

    psutil.cpu_percent() would remember one reading for all who ask: of several servers of one agent only the
    first would have a load.
    """

    def __init__(self) -> None:
        self._before: Any = None  # psutil's named tuple: its fields depend on the system
        self._load = 0.0

    async def read(self) -> float:
        """Return the busy share, 0..1; the last one again while the processors' times stand still."""
        now = psutil.cpu_times()
        if self._before is None:
            self._load = load_average()
            self._before = now
        elif (share := busy_share(self._before, now)) is not None:
            self._load = share
            self._before = now
        return self._load

    async def close(self) -> None:
        """Nothing is held."""


class LoadAverage:
    """The load average of the last minute for each processor, 1 at most."""

    async def read(self) -> float:
        """Return it."""
        return load_average()

    async def close(self) -> None:
        """Nothing is held."""


def busy_share(before: Any, now: Any) -> float | None:
    """Return the share, 0..1, that was busy between two `psutil.cpu_times()`; None when no time passed."""
    # A counter may go back a little, as iowait does: that is no time.
    passed: dict[str, float] = {
        key: max(0.0, getattr(now, key) - getattr(before, key)) for key in now._fields
    }
    total = sum(passed.values()) - sum(passed.get(key, 0.0) for key in _COUNTED_ELSEWHERE)
    if total <= 0:
        return None
    busy = total - sum(passed.get(key, 0.0) for key in _NOT_BUSY)
    return min(1.0, max(0.0, busy / total))


def load_average() -> float:
    """Return the load average of the last minute for each processor, 1 at most."""
    return min(1.0, psutil.getloadavg()[0] / (psutil.cpu_count() or 1))
