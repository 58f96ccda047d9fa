"""Connections of this host to a server that died: ending them (SOCK_DESTROY of sock_diag(7)).

Needs CAP_NET_ADMIN and a kernel with INET_DIAG_DESTROY.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeVar

from pyroute2 import DiagSocket
from pyroute2.netlink.exceptions import NetlinkError

from ppu_agent.destinations import AddressPort

IsMeant = Callable[[AddressPort, AddressPort], bool]
FindMeant = Callable[[Collection[tuple[AddressPort, AddressPort]]], IsMeant]
"""Told connections, each its own address and port and the server's: which are meant."""
NetlinkResult = TypeVar("NetlinkResult")

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DESTROY: Final = 21
_NLM_F_REQUEST, _NLM_F_ACK = 1, 4
_STATES: Final = 1 << 1 | 1 << 2 | 1 << 8
"""ESTABLISHED, SYN_SENT, CLOSE_WAIT: those that still want something of the server."""
_GONE: Final = {errno.ENOENT, errno.ESTALE, errno.EINVAL}
_ANSWER_TIMEOUT_S: Final = 0.5


def beside_the_loop(function: Callable[[], NetlinkResult]) -> NetlinkResult:
    """Call this in a thread of its own, and wait: pyroute2's sockets don't work where an event loop runs."""
    with ThreadPoolExecutor(1, "netlink") as thread:
        return thread.submit(function).result()


def _end(stats: dict[str, object], address: str, port: str) -> AddressPort:
    """Address and port of one end as others name them: IPv4, also where an IPv6 socket has it."""
    found = ip_address(str(stats[f"idiag_{address}"]))
    plain = (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
    return plain, int(str(stats[f"idiag_{port}"]))


def _listings(servers: Collection[AddressPort]) -> set[tuple[int, int]]:
    """The kernel's lists in which connections to these are: a family, and a port of the other side.

    A program with one socket for both has its IPv4 connections in an IPv6 one, ::ffff:192.0.2.1.
    """
    v4 = {(int(socket.AF_INET), port) for address, port in servers if address.version == 4}
    return v4 | {(int(socket.AF_INET6), port) for _, port in servers}


class LocalSockets:
    """Ends connections. `on_problem` is told, in words, what this kernel can't do; breaks off when `is_over`
    says so."""

    def __init__(
        self,
        on_problem: Callable[[str], None] = lambda words: None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._on_problem = on_problem
        self._is_over = is_over

    def end_connections(
        self,
        servers: Collection[AddressPort],
        find_meant: FindMeant = lambda connections: lambda source, server: True,
        before: Callable[[AddressPort, AddressPort], object] = lambda source, server: None,
    ) -> int:
        """End this host's TCP connections to these addresses and ports; return how many.

        `find_meant` is called once they are listed, so that what it asks knows every connection of the list.
        `before` is told of each that ends now.

        Their owners get ECONNABORTED at once, those that are still connecting, too.
        """
        return beside_the_loop(lambda: self._end_connections(frozenset(servers), find_meant, before))

    def _end_connections(
        self,
        servers: Collection[AddressPort],
        find_meant: FindMeant,
        before: Callable[[AddressPort, AddressPort], object],
    ) -> int:
        if not servers:
            return 0
        try:
            with DiagSocket() as diag:
                diag.bind()
                found = [
                    (family, stats)
                    for family, port in sorted(_listings(servers))
                    for stats in diag.get_sock_stats(
                        family=family, states=_STATES, protocol=socket.IPPROTO_TCP, dport=port
                    )
                    if _end(stats, "dst", "dport") in servers
                ]
            if not found:
                return 0
            ends = [(_end(stats, "src", "sport"), _end(stats, "dst", "dport")) for _, stats in found]
            is_meant = find_meant(ends)
            ended = 0
            for (family, stats), (source, server) in zip(found, ends, strict=True):
                if is_meant(source, server) and not self._is_over():
                    before(source, server)
                    ended += self._destroy(family, stats)
            return ended
        except (OSError, NetlinkError) as problem:
            self._on_problem(f"connections to servers that died could not be ended: {problem}")
            return 0

    def _destroy(self, family: int, stats: dict[str, object]) -> bool:
        """Send SOCK_DESTROY for one socket: pyroute2 has the look-up only."""
        source, target = (
            ip_address(str(stats[key])).packed.ljust(16, b"\0") for key in ("idiag_src", "idiag_dst")
        )
        request = (
            struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, _STATES)
            + struct.pack(">HH", stats["idiag_sport"], stats["idiag_dport"])
            + source
            + target
            + struct.pack("=IQ", stats["idiag_if"], stats["idiag_cookie"])
        )
        header = struct.pack("=IHHII", 16 + len(request), _SOCK_DESTROY, _NLM_F_REQUEST | _NLM_F_ACK, 1, 0)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
            netlink.settimeout(_ANSWER_TIMEOUT_S)
            netlink.send(header + request)
            answer = netlink.recv(4096)
        code: int = -struct.unpack_from("=i", answer, 16)[0]
        if code and code not in _GONE:
            raise OSError(code, "SOCK_DESTROY was refused")
        return code == 0
