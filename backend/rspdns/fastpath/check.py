"""Asks a running rspdns-fastpath how it is, for `rspdns check`."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator

import orjson

from rspdns.fastpath import messages
from rspdns.fastpath.status import DaemonStatus

TIMEOUT_S = 2.0
PROBE_TIMEOUT_S = 30.0
_SEARCH_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
OLDEST_KERNEL = (6, 1)


def problems(path: str) -> Iterator[str]:
    """The obstacles that keep the kernel from answering, in words; empty without any."""
    release = os.uname().release
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is not None and tuple(map(int, match.groups())) < OLDEST_KERNEL:
        yield f"Linux {release}: rspdns-fastpath needs 6.1 or later; PowerDNS answers everything"
        return
    try:
        daemon = ask_daemon(path)
    except (FileNotFoundError, ConnectionRefusedError):
        yield f"no rspdns-fastpath listens there: PowerDNS answers everything; {_of_kernel()}"
    except PermissionError:
        yield "this user may not use it; the backend's user must be in the socket's group"
    except (OSError, messages.MessageError, KeyError, TypeError, ValueError) as error:
        yield f"rspdns-fastpath does not tell how it is: {error}"
    else:
        for interface in daemon.interfaces:
            if interface.problem:
                yield f"the interface {interface.name}: {interface.problem}"
        if daemon.decisions.get("not_grown"):
            yield "packets have no room for an answer there (not_grown): PowerDNS answers; use --mode tc"


def _of_kernel() -> str:
    """Whether it could run here, in words; that needs privileges to try."""
    program = shutil.which("rspdns-fastpath", path=_SEARCH_PATH)
    if program is None:
        return "the program is not installed here"
    if os.geteuid() != 0:
        return "rspdns-fastpath probe, as root, says whether this kernel could"
    try:
        done = subprocess.run(
            [program, "probe"], capture_output=True, text=True, check=False, timeout=PROBE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"whether this kernel could is not known: {error}"
    return done.stderr.strip() if done.returncode else "this kernel could: systemctl start rspdns-fastpath"


def ask_daemon(path: str) -> DaemonStatus:
    """The status of the daemon at this socket. Raises OSError, ValueError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(path)
        connection.sendall(messages.STATUS_OF_ALL)
        reader = messages.Reader()
        while data := connection.recv(1 << 16):
            for message in reader.feed(data):
                if message.kind == "s":
                    return DaemonStatus.read(orjson.loads(message.body))
                raise messages.MessageError(message.body.decode(errors="replace"))
    raise messages.MessageError("it ended the connection")
