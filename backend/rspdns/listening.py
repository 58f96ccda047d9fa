"""Unix sockets to listen at: one of our own, or one that systemd holds for us (sd_listen_fds(3)).

systemd also keeps the connections that a former process of this service stored there (`daemon_kit.notify`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from daemon_kit.errors import FatalError

_FIRST_FD = 3
_MOST_FDS = 1024
CONNECTION = "pdns-connection"
"""The name under which connections are stored."""
BACKLOG = 128


def inherited_listener(path: Path, environment: Mapping[str, str] = os.environ) -> socket.socket | None:
    """Return the listening socket at `path` that this process was started with, None if there is none."""
    for fd, name in _inherited(environment):
        if name == CONNECTION:
            continue
        try:
            copy = os.dup(fd)
        except OSError:
            continue
        try:
            candidate = socket.socket(fileno=copy)
        except OSError:  # no socket
            os.close(copy)
            continue
        if candidate.family == socket.AF_UNIX and candidate.getsockname() == str(path):
            candidate.setblocking(False)
            return candidate
        candidate.close()
    return None


def inherited_connections(environment: Mapping[str, str] = os.environ) -> list[socket.socket]:
    """Return the connections that a former process of this service stored; they are the caller's, once."""
    found = []
    for fd, name in _inherited(environment):
        if name != CONNECTION:
            continue
        try:
            connection = socket.socket(fileno=fd)
        except OSError:  # not there, or no socket
            continue
        connection.set_inheritable(False)
        connection.setblocking(False)
        found.append(connection)
    return found


def _inherited(environment: Mapping[str, str]) -> list[tuple[int, str]]:
    """The descriptors this process was started with, and their names."""
    count = environment.get("LISTEN_FDS", "")
    if environment.get("LISTEN_PID") != str(os.getpid()) or not (count.isascii() and count.isdigit()):
        return []
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    number = min(int(count), _MOST_FDS)
    names += [""] * (number - len(names))
    return [(_FIRST_FD + place, names[place]) for place in range(number)]


def make_listener(path: Path, mode: int) -> socket.socket:
    """Listen at `path`, with these permissions from its first moment; a dead process's socket is replaced.

    Raises FatalError when that can't be done, or when another process answers there.
    """
    _remove_stale(path)
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
        raise FatalError(f"the socket {path} can't be made: {error.strerror or error}") from None
    finally:
        os.umask(previous)
    return listener


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that died. Raises FatalError when one answers, or it is no socket."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FatalError(f"the socket {path} can't be made: a file that is no socket is there")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return
    except OSError as error:
        raise FatalError(f"the socket {path} can't be made: {error.strerror or error}") from None
    raise FatalError(f"another process already answers at the socket {path}; is a backend running?")
