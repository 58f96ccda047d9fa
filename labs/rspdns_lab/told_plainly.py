"""What a lab's command says as it runs, and how it ends when it can't go on: a clear line, an exit status."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import click

from rspdns_lab.errors import LabError
from rspdns_lab.interruption import EXIT_INTERRUPTED, interruption_heard

EXIT_CANNOT_RUN = 2


def say(text: str) -> None:
    """Tell how far a lab is, on stderr: stdout is for what comes out of it."""
    click.echo(text, err=True)


def tell_of_full_disk(folder: Path) -> None:
    """Say it when the disk of a lab's folder is full: programs that can't write fail in many ways."""
    with contextlib.suppress(OSError):
        disk = os.statvfs(folder)
        if disk.f_blocks and not disk.f_bavail:
            say(f"the disk of {folder} is full: what failed may have failed for that (TMPDIR: another place)")


@contextlib.contextmanager
def told_plainly(so_far: Callable[[], str] = lambda: "") -> Iterator[None]:
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
