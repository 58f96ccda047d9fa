"""The steps of a child process before it becomes the program it is to run."""

import ctypes
import signal
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)


def die_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return a `preexec_fn`: the child gets this signal when its parent is gone, however (prctl(2))."""

    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, number)

    return prepare
