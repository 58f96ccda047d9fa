"""The unix socket that systemd holds for us (sd_listen_fds(3)).

systemd also keeps the connections that a former process of this service stored there (`daemon_kit.notify`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

_FIRST_FD = 3
_MOST_FDS = 1024
CONNECTION = "pdns-connection"
"""The name under which connections are stored."""


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
    return [(_FIRST_FD + index, names[index]) for index in range(number)]
