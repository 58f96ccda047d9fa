"""Files: paths in configuration that the system can take, opening regular files only, certificates, and
replacing a file so that a crash at any moment leaves the old one or the new one, whole.

A pipe or a device in the place of a file must not hold a program up.
"""

from __future__ import annotations

import contextlib
import errno
import os
import ssl
import stat
import tempfile
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import AfterValidator, BeforeValidator


def check_path(text: str) -> str:
    """Return `text`. Raises ValueError when it is empty or holds a NUL byte: no path has one."""
    if not text:
        raise ValueError("a path is not empty")
    if "\0" in text:
        raise ValueError("a path holds no NUL byte")
    return text


def _check(value: object) -> object:
    return check_path(value) if isinstance(value, str) else value


PathText = Annotated[str, AfterValidator(check_path)]
"""A path kept as text."""
FilePath = Annotated[Path, BeforeValidator(_check)]
"""A path as `pathlib.Path`; looked at before, since that takes an empty text for the directory "."."""


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


_MOST_SECRET_BYTES = 64 * 1024


def read_secret(path: str | Path) -> str:
    """Return the text of a file that holds secrets. Raises ValueError, in words, never with the text.

    The file must not be readable for everybody on the host.
    """
    if not Path(path).is_absolute():
        raise ValueError(f"{path}: name the key file by its whole path, /etc/rspdns/keys/pool.key say")
    try:
        with open_regular(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_MOST_SECRET_BYTES)
    except OSError as error:
        raise ValueError(f"{path}: can't be read: {error.strerror or error}") from None
    if mode & stat.S_IRWXO:
        raise ValueError(f"{path}: everybody on this host may read the key: chmod o= {path}")
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is no key file: it holds other than ASCII text") from None


def replace_file(path: str | Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put `data` into the file at `path`, all or nothing, and durably. Raises OSError, the old file intact.

    The new file is written beside it, synced and renamed; then the directory is synced, or a power cut might
    bring the old one back. Several writers don't disturb each other: the last one counts.
    """
    path = Path(path)
    descriptor, name = tempfile.mkstemp(prefix=_unfinished(path), dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def remove_unfinished(path: str | Path) -> None:
    """Remove what a crash in the middle of `replace_file()` left beside `path`; call it before writing."""
    path = Path(path)
    with contextlib.suppress(OSError):
        for left in path.parent.glob(f"{_unfinished(path)}*"):
            with contextlib.suppress(OSError):
                left.unlink()


def _unfinished(path: Path) -> str:
    return f".{path.name}."


class TrustFile:
    """The TLS context that trusts the certificates in a file (PEM), made anew once the file changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made: tuple[tuple[int, int, int], ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context: the former while the file can't be read. Raises OSError when there is none."""
        try:
            file = self._path.stat()
            state = (file.st_mtime_ns, file.st_ino, file.st_size)
            if self._made is None or self._made[0] != state:
                self._made = state, trusting(self._path)
        except OSError:
            if self._made is None:
                raise
        return self._made[1]


def trusting(path: Path) -> ssl.SSLContext:
    """Return what trusts the certificates in `path` (PEM). Raises OSError, in words."""
    open_regular(path).close()  # OpenSSL would wait at a pipe, and the whole agent with it
    try:
        return ssl.create_default_context(cafile=str(path))
    except ssl.SSLError:
        raise OSError(errno.EINVAL, "it holds no certificates (PEM)", str(path)) from None
