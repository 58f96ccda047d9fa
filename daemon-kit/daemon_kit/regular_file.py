"""Opens files that are regular ones: a pipe or a device in their place must not hold a program up."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: str | Path) -> BinaryIO:
    """Open `path` for reading bytes. Raises OSError, also when it is a pipe, a device or a socket.

    A pipe would be waited at until somebody writes, a device can have no end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise _no_file(path) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise _no_file(path)


def _no_file(path: str | Path) -> OSError:
    return OSError(errno.EINVAL, "it is no regular file (a pipe, a device or a socket)", str(path))
