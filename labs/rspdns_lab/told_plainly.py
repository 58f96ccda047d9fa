"""How a lab's command ends when it can't go on: one clear line, and an exit status."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator

import click

from rspdns_lab.errors import LabError
from rspdns_lab.interruption import EXIT_INTERRUPTED, interruption_heard

EXIT_CANNOT_RUN = 2


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
