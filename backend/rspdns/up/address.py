"""Whether the registrars of `rspdns up` can have an address, and how its other commands are called."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from daemon_kit.errors import FatalError
from registrar_config.kernel_timers import SCTPD_OPTIONS
from registrar_config.preflight import check_scope

PROBE_TIMEOUT_S = 20.0


def check_address(address: str, wrapper: Sequence[str]) -> None:
    """Raise FatalError when the registrars can't have `address`; `wrapper` is what makes SCTP work."""
    try:
        own = ip_address(address)
    except ValueError:
        raise FatalError(f"--address: {address!r} is no IP address") from None
    check_scope(own)
    with socket.socket(socket.AF_INET6 if own.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            raise FatalError(
                f"--address: {address} is none of this host (`ip address` shows those it has)"
            ) from None
    _check_ports(address, wrapper)


def _check_ports(address: str, wrapper: Sequence[str]) -> None:
    command = [*wrapper, sys.executable, "-P", "-m", "rspdns.up.probe", address]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            env={**os.environ, "SCTPD_OPTIONS": SCTPD_OPTIONS},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FatalError(f"SCTP can't be tried: {error}") from None
    if done.returncode == 0:
        return
    words = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "no SCTP")
    if " is in use" in words:
        address = words.partition(" is in use")[0]
        raise FatalError(
            f"{address} is in use; is another `rspdns up` or a registrar running here? End it, or give this "
            "one another address of this host with --address"
        )
    if "CAP_NET_RAW" in words:
        words += "; simplest: start `rspdns up` as root"
    raise FatalError(words)


def called(command: str) -> str:
    """How a person calls `command` in a shell: by its path when it is not found by its name."""
    if shutil.which(command):
        return command
    beside = Path(sys.executable).parent / command
    return str(beside) if os.access(beside, os.X_OK) else command
