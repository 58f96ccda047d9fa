"""Listening at a path (AF_UNIX), where a process that died may have left its socket."""

import contextlib
import os
import socket
import stat
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from daemon_kit.errors import FatalError

SOCKET_STAYS: Final[Mapping[str, Any]] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""For `create_unix_server()`, which from Python 3.13 on removes the socket's path when the server is closed.

The process that made the path removes it: systemd's socket, or one that a successor inherits, has to stay.
"""
BACKLOG = 128
MAX_PATH_BYTES = 107
"""The longest path of a unix socket (unix(7))."""
_PROBE_TIMEOUT_S = 1.0


def listen_at(path: Path, mode: int, what: str) -> socket.socket:
    """Listen at `path`, with these permissions from its first moment; a dead process's socket is replaced.

    Raises FatalError when that can't be done, or when another process answers there; `what` says what the
    socket is for ("control socket").
    """
    if is_too_long(path):
        raise FatalError(
            f"{what} {path} can't be made: a unix socket's path has {MAX_PATH_BYTES} bytes at most"
        )
    _remove_stale(path, what)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    temporary = _temporary(path)
    previous = os.umask(0o177)
    try:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        listener.bind(str(temporary))
        temporary.chmod(mode)
        listener.listen(BACKLOG)
        temporary.rename(path)
    except OSError as error:
        listener.close()
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise FatalError(f"{what} {path} can't be made: {error.strerror or error}") from None
    finally:
        os.umask(previous)
    return listener


def is_too_long(path: Path) -> bool:
    """Tell whether no socket can be made at `path` since it has too many bytes."""
    return max(len(os.fsencode(name)) for name in (path, _temporary(path))) > MAX_PATH_BYTES


def _temporary(path: Path) -> Path:
    """Return where to bind first, so that whoever waits for the socket finds one that listens.

    A short name, or the path would be too long for it where it isn't for the socket.
    """
    return path.with_name(f".{zlib.crc32(os.fsencode(path.name), os.getpid()):08x}")


def _remove_stale(path: Path, what: str) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FatalError(f"{what} {path} can't be made: a file that is no socket is there")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_PROBE_TIMEOUT_S)
            probe.connect(str(path))
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return
    except OSError as error:
        raise FatalError(f"{what} {path} can't be made: {error.strerror or error}") from None
    raise FatalError(f"another process already answers at {what} {path}")
