"""The needs of `rspdns up` on the machine, each lack as one clear line before anything is started:
programs, and an address that its registrars can have.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path

from daemon_kit.errors import FatalError
from pdns_config import lacks_remote_backend
from registrar_config import SCTPD_OPTIONS, check_scope

from rspdns.up.files import DNS_ADDRESS

PROBE_TIMEOUT_S = 20.0
_TRY_PORTS = """\
import sys
from daemon_kit.errors import FatalError
from registrar_config import check_embedded
try:
    check_embedded(sys.argv[1])
except FatalError as problem:
    sys.exit(str(problem))
"""
"""In a process of its own, for which the wrapper makes SCTP work."""


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
                f"--address: {address} is not an address of this host (`ip address` shows those it has)"
            ) from None
    _check_ports(address, wrapper)


def _check_ports(address: str, wrapper: Sequence[str]) -> None:
    command = [*wrapper, sys.executable, "-P", "-c", _TRY_PORTS, address]
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


PROGRAMS = {"pdns_server": "pdns-server pdns-backend-remote", "rspregistrar": "rsplib-registrar"}
_SEARCH_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


def find_programs() -> dict[str, str]:
    """Return the paths of the programs. Raises FatalError naming all that are missing."""
    paths = {name: shutil.which(name, path=_SEARCH_PATH) for name in PROGRAMS}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        packages = " ".join(PROGRAMS[name] for name in missing)
        raise FatalError(f"not installed: {', '.join(missing)} (Debian: apt-get install {packages})")
    programs = {name: path for name, path in paths.items() if path is not None}
    if lacks_remote_backend(programs["pdns_server"]):
        raise FatalError("PowerDNS has no remote backend (Debian: apt-get install pdns-backend-remote)")
    return programs


def check_dns_port(port: int) -> None:
    """Raise FatalError when DNS can't answer at this port."""
    _check_port(DNS_ADDRESS, port, "choose another one with --port")


def check_server_ports(address: str, ports: Iterable[int]) -> None:
    """Raise FatalError when one of the SIP servers can't have its port."""
    for port in ports:
        _check_port(address, port, "end the program that has it, or start without SIP servers: --no-servers")


def _check_port(address: str, port: int, remedy: str) -> None:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                raise FatalError(_explain(error, address, port, remedy)) from None


def _explain(error: OSError, address: str, port: int, remedy: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {address} is in use; {remedy}"
    if error.errno == errno.EACCES:
        return f"port {port} is for root only; choose one above 1023 with --port"
    return f"port {port} of {address} can't be used: {error.strerror or error}"
