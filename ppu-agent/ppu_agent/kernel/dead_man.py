"""A kernel timer that kills this process unless it is set again in time; SIGKILL ends a stopped process, too.

Connections that stand in this process would hang as long as it does. The kernel takes back with the process
what it holds for others: sockets, a table of nftables.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Final

_SIGEV_SIGNAL: Final = 0


class _Event(ctypes.Structure):
    """struct sigevent (sigevent(3type)), 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )


class _Setting(ctypes.Structure):
    """struct itimerspec: interval and value, each in seconds and nanoseconds."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "in_s", "in_ns"))


class DeadManTimer:
    """Kills this process `after_s` seconds after the last `renew()`. Raises OSError."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._library = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        event = _Event(None, signal.SIGKILL, _SIGEV_SIGNAL)
        self._check(
            self._library.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer))
        )
        self.renew()

    def renew(self) -> None:
        """Live on for another `after_s` seconds."""
        setting = _Setting(0, 0, int(self._after_s), int(self._after_s % 1 * 1e9))
        self._check(self._library.timer_settime(self._timer, 0, ctypes.byref(setting), None))

    def close(self) -> None:
        """Kill nobody."""
        self._library.timer_delete(self._timer)

    def _check(self, result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
