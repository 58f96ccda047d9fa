"""What `rspdns up` needs of the machine, each lack as one clear line before anything is started."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Iterable

from daemon_kit.errors import FatalError
from pdns_config.modules import lacks_remote_backend

from rspdns.up.files import DNS_ADDRESS

PROGRAMS = {"pdns_server": "pdns-server pdns-backend-remote", "rspregistrar": "rsplib-registrar"}
_SEARCH_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


def find_programs() -> dict[str, str]:
    """Return the paths of the programs. Raises FatalError naming all that are missing."""
    found = {name: shutil.which(name, path=_SEARCH_PATH) for name in PROGRAMS}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        packages = " ".join(PROGRAMS[name] for name in missing)
        raise FatalError(f"not installed: {', '.join(missing)} (Debian: apt-get install {packages})")
    programs = {name: path for name, path in found.items() if path is not None}
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
