"""Listening at a path (AF_UNIX), where a process that died may have left its socket."""

import contextlib
import os
import socket
import stat
from pathlib import Path

from daemon_kit.errors import FatalError

BACKLOG = 128
_PROBE_TIMEOUT_S = 1.0


def listen_at(path: Path, mode: int, what: str) -> socket.socket:
    """Listen at `path`, with these permissions from its first moment; a dead process's socket is replaced.

    Raises FatalError when that can't be done, or when another process answers there; `what` says what the
    socket is for ("control socket").
    """
    _remove_stale(path, what)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    # Bound under another name, so that whoever waits for the socket finds one that listens.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
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
