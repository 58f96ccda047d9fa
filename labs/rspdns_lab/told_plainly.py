"""What a lab's command says as it runs, and how it ends when it can't go on: a clear line, an exit status."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

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
def told_plainly() -> Iterator[None]:
    """Turn LabError, OSError and Ctrl-C into a line on stderr and the end of the process."""
    try:
        yield
    except LabError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_CANNOT_RUN)
    except OSError as error:
        where = error.filename or f"a file of the lab (in {tempfile.gettempdir()}) or of its report"
        click.echo(f"error: {where}: {error.strerror or error}", err=True)
        sys.exit(EXIT_CANNOT_RUN)
    except KeyboardInterrupt:
        interruption_heard()
        click.echo("interrupted; everything is cleaned up", err=True)
        sys.exit(EXIT_INTERRUPTED)
