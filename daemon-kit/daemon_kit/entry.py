"""Starts a command whose libraries may not be installed: all commands come with the one package."""

import contextlib
import errno
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Final

_OF_OUTPUT: Final = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
EXIT_FAILED: Final = 1
EXIT_NOT_INSTALLED: Final = 2
EXIT_INTERRUPTED: Final = 130


def run(command: str, module: str, extra: str) -> None:
    """Call `main()` of `module`; where a library is missing, say what brings it."""
    try:
        main = import_module(module).main
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if sys.modules.get(missing) is not None:  # there, but not whole: a fault for a traceback
            raise
        print(
            f"{command}: the Python package {missing!r} is missing. {_remedy(command, extra)}",
            file=sys.stderr,
        )
        sys.exit(EXIT_NOT_INSTALLED)
    except KeyboardInterrupt:  # Ctrl-C while still being loaded
        print(f"{command}: stopped", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without UTF-8 shows "?"
            stream.reconfigure(errors="replace")
    try:
        try:
            main()
        finally:
            sys.stdout.flush()
    except OSError as error:
        where = error.filename or ("its output can't be written" if error.errno in _OF_OUTPUT else None)
        print(f"error: {f'{where}: ' if where else ''}{error.strerror or error}", file=sys.stderr)
        with contextlib.suppress(OSError):  # what is still to be written isn't tried again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)


def _remedy(command: str, extra: str) -> str:
    """The command to run in the folder of the source: into Debian's own Python pip installs nothing."""
    if sys.prefix == sys.base_prefix:
        return f"In the folder of its source run `make setup`, then .venv/bin/{command}"
    return f"In the folder of its source run: {sys.prefix}/bin/python -m pip install '.[{extra}]'"
