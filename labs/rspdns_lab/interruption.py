"""How Ctrl-C and SIGTERM end a lab: once, in order, and not in the middle of cleaning up."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

EXIT_INTERRUPTED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S: Final = 2.0
_heard = threading.Event()


def end_on_signals() -> None:
    """Have SIGINT, SIGTERM and SIGHUP unwind this process, and this one only.

    A child forked on the way (there are some, in libraries) must not run our clean-up when it is signalled.
    Python drops what is raised while it finalizes an object or forks, and tells so with a traceback: nothing
    is told of an interruption, which is raised again until somebody heard it.
    """
    owner = os.getpid()
    told = sys.unraisablehook
    sys.unraisablehook = lambda dropped: None if dropped.exc_type is KeyboardInterrupt else told(dropped)

    def interrupt(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != owner:
            os._exit(EXIT_INTERRUPTED)
        _heard.clear()
        again = threading.Timer(_AGAIN_S, _remind, (number,))
        again.daemon = True
        again.start()
        raise KeyboardInterrupt

    for number in _SIGNALS:
        signal.signal(number, interrupt)


def interruption_heard() -> None:
    """Say that the interruption, if there was one, is being acted upon: it need not be repeated."""
    _heard.set()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM meanwhile: a half-done clean-up helps nobody."""
    interruption_heard()
    before = [signal.signal(number, signal.SIG_IGN) for number in _SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)


def _remind(number: int) -> None:
    if not _heard.is_set():
        os.kill(os.getpid(), number)
