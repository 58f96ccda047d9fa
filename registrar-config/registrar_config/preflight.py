"""The conditions for rspregistrar's start, each fault as one clear line; and how programs get SCTP on this
machine, from the kernel or through sctp-run.
"""

import contextlib
import errno
import os
import re
import shutil
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from daemon_kit.errors import FatalError

from registrar_config.options import IPAddress, RegistrarSettings, SctpEndpoint
from rserpool import IPPROTO_SCTP


def find_program(program: str = "rspregistrar") -> str:
    """Return the path of `program`. Raises FatalError when it isn't installed."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/bin:/usr/sbin")
    if path is None:
        raise FatalError(f"{program} is not installed (Debian: apt-get install rsplib-registrar)")
    return path


def own_address() -> str:
    """Return an IPv4 address of this host that rspregistrar takes: the one it uses towards others, or any.

    Raises FatalError when there is none.
    """
    candidates = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # no packet is sent; without a route this raises
        candidates.append(str(probe.getsockname()[0]))
    candidates += local_addresses(_local_table())
    for address in candidates:
        if not _is_passed_over(ip_address(address)):
            return address
    passed_over = ", ".join(dict.fromkeys(candidates))
    raise FatalError(
        f"this host has no IPv4 address{f' but {passed_over}' if passed_over else ''}, and "
        "rspregistrar uses no loopback and link-local ones. Add another address, then start this again: "
        "ip link set lo up; ip address add 10.255.255.1/32 dev lo"
    )


def local_addresses(fib_trie: str) -> list[str]:
    """Return the IPv4 addresses of all interfaces that are up, from the text of /proc/net/fib_trie."""
    return list(dict.fromkeys(re.findall(r"\|-- ([0-9.]+)\n +/32 host LOCAL\b", fib_trie)))


def _local_table() -> str:
    try:
        return Path("/proc/net/fib_trie").read_text()
    except OSError:
        return ""


def check_ports(settings: RegistrarSettings) -> None:
    """Raise FatalError when rspregistrar could not have its addresses and ports."""
    check_scope(settings.asap.address)
    for endpoint, purpose in ((settings.asap, "ASAP"), (settings.enrp, "ENRP")):
        check_port(endpoint, purpose)


def check_port(endpoint: SctpEndpoint, purpose: str) -> None:
    """Raise FatalError when `endpoint` can't be bound for SCTP."""
    family = socket.AF_INET6 if endpoint.address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_SEQPACKET, IPPROTO_SCTP) as probe:
            probe.bind((str(endpoint.address), endpoint.port))
    except OSError as error:
        raise FatalError(_explain(error, endpoint, purpose)) from None


def _is_passed_over(address: IPAddress) -> bool:
    return address.is_loopback or address.is_link_local


def check_scope(address: IPAddress) -> None:
    """Raise FatalError when rspregistrar would pass over `address`."""
    if _is_passed_over(address):
        raise FatalError(
            f"rspregistrar uses no loopback and link-local addresses such as {address}: give it another "
            "one of this host; without a network: ip address add 10.255.255.1/32 dev lo"
        )


def _explain(error: OSError, endpoint: SctpEndpoint, purpose: str) -> str:
    if error.errno in (errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT, errno.EAFNOSUPPORT):
        return "this kernel has no SCTP; start it as: sctp-run rspdns-registrar ..."
    if error.errno == errno.EADDRINUSE:
        return f"{purpose} port {endpoint} is in use; is another registrar running here?"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{purpose} address {endpoint.address} is not an address of this host"
    return f"{purpose} port {endpoint} can't be used: {error.strerror or error}"


_SEARCH_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
_BESIDE_US: Final = Path(__file__).resolve().parents[2] / "sctp-userland" / "sctp-run"


def sctp_wrapper() -> list[str]:
    """Return what to put before a command so that SCTP works for it: nothing where the kernel has it.

    Else sctp-run: the one named in RSPDNS_SCTP_RUN, that of this source tree, or the installed one. Raises
    FatalError when there is none.
    """
    try:
        socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, IPPROTO_SCTP).close()
    except OSError:
        pass
    else:
        return []
    named = os.environ.get("RSPDNS_SCTP_RUN")
    for candidate in [named] if named else [str(_BESIDE_US), shutil.which("sctp-run", path=_SEARCH_PATH)]:
        if candidate and os.access(candidate, os.X_OK):
            return [candidate]
    if named:
        raise FatalError(f"RSPDNS_SCTP_RUN names {named}, which is no program that can be run")
    raise FatalError(
        "this kernel has no SCTP and sctp-run is missing; build it (make -C sctp-userland) or name it in "
        "RSPDNS_SCTP_RUN"
    )
