"""Ctrl-C as the way out of a command that goes on until then."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def until_ctrl_c() -> Iterator[Callable[[], bool]]:
    """End the block at Ctrl-C, quietly; what it yields says whether to go on, to be asked at each turn.

    Python drops a KeyboardInterrupt that is raised while it finalizes an object, and tells so with a
    traceback: then the next turn ends it, and nothing is told.
    """
    pressed = False

    def press(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    told = sys.unraisablehook
    sys.unraisablehook = lambda dropped: None if dropped.exc_type is KeyboardInterrupt else told(dropped)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield lambda: not pressed
    finally:
        sys.unraisablehook = told
        signal.signal(signal.SIGINT, before)
