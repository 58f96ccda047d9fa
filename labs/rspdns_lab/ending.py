"""How a lab's command ends: by Ctrl-C and SIGTERM once, in order, and not in the middle of cleaning up; by a
clear line and an exit status when it can't go on."""

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import click

from rspdns_lab.errors import LabError

EXIT_INTERRUPTED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S: Final = 2.0
_heard = threading.Event()
EXIT_CANNOT_RUN = 2


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
    """Hold Ctrl-C and SIGTERM back meanwhile: a half-done clean-up helps nobody.

    If the process is being unwound, that was heard, and they are dropped. Else they come afterwards: a lab
    ends programs in the middle of its work, too.
    """
    came: set[int] = set()

    def hold(number: int, _frame: FrameType | None) -> None:
        came.add(number)

    is_unwound = sys.exception() is not None
    if is_unwound:
        interruption_heard()
    before = [signal.signal(number, signal.SIG_IGN if is_unwound else hold) for number in _SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)
        for held in came:
            os.kill(os.getpid(), held)


def _remind(number: int) -> None:
    ident = threading.main_thread().ident
    if not _heard.is_set() and ident is not None:  # to another thread it would not end the main one's sleep
        signal.pthread_kill(ident, number)


def say(text: str) -> None:
    """Tell how far a lab is, on stderr: stdout is for what comes out of it."""
    click.echo(text, err=True)


def warn_of_full_disk(folder: Path) -> None:
    """Say it when the disk of a lab's folder is full: programs that can't write fail in many ways."""
    with contextlib.suppress(OSError):
        disk = os.statvfs(folder)
        if disk.f_blocks and not disk.f_bavail:
            say(f"the disk of {folder} is full: what failed may have failed for that (TMPDIR: another one)")


@contextlib.contextmanager
def ending_plainly(so_far: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Turn LabError, OSError and Ctrl-C into a line on stderr and the end of the process.

    `so_far`: what was measured until then, which is shown on stdout: it may have taken hours.
    """
    try:
        yield
    except LabError as error:
        _end(f"error: {error}", so_far, EXIT_CANNOT_RUN)
    except OSError as error:
        where = error.filename or f"a file of the lab (in {tempfile.gettempdir()}) or of its report"
        _end(f"error: {where}: {error.strerror or error}", so_far, EXIT_CANNOT_RUN)
    except KeyboardInterrupt:
        interruption_heard()
        _end("interrupted; everything is cleaned up", so_far, EXIT_INTERRUPTED)


def _end(why: str, so_far: Callable[[], str], status: int) -> NoReturn:
    measured = so_far()
    if measured:
        say("measured until then:")
        click.echo(measured)
    say(why)
    sys.exit(status)
