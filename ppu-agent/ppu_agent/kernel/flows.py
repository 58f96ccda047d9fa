"""Conntrack's memory of where flows to a front were sent: forgetting those that went to a dead server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Collection
from ipaddress import ip_address
from typing import Any, Final

from pyroute2 import NFCTSocket
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple

from ppu_agent.destinations import Address, Destination
from ppu_agent.kernel.sockets import beside_the_loop
from rserpool import Protocol

_NUMBERS: Final = {
    Protocol.UDP: socket.IPPROTO_UDP,
    Protocol.TCP: socket.IPPROTO_TCP,
    Protocol.SCTP: socket.IPPROTO_SCTP,
}


class Flows:
    """Forgets flows. `on_problem` is told, in words, what this kernel can't do.

    Strangers with forged sources can make as many flows as conntrack has room for. Each costs some 0.2 ms to
    read and 0.5 ms to forget, so `forget()` breaks off when `is_over` says so.
    """

    def __init__(
        self,
        on_problem: Callable[[str], None] = lambda words: None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._on_problem = on_problem
        self._is_over = is_over

    def forget(self, front: Destination, servers: Collection[Destination]) -> int:
        """Have conntrack forget the flows to `front` that go to one of `servers`; return how many."""
        return beside_the_loop(lambda: self._forget(front, {server.endpoint for server in servers}))

    def _forget(self, front: Destination, endpoints: Collection[tuple[Address, int]]) -> int:
        family = socket.AF_INET if front.address.version == 4 else socket.AF_INET6
        # Asked for the address too, Linux 6.18 gives the flows to all other IPv6 addresses.
        to_front = NFCTAttrTuple(family=family, proto=_NUMBERS[front.protocol], dport=front.port)
        count = 0
        try:
            with NFCTSocket(nfgen_family=family) as asking, NFCTSocket(nfgen_family=family) as conntrack:
                for entry in asking.dump(tuple_orig=to_front):
                    if self._is_over():
                        break
                    original, reply = (_read(entry, f"CTA_TUPLE_{which}") for which in ("ORIG", "REPLY"))
                    is_here = original[1] == front.address and original[3] == front.port
                    if is_here and (reply[0], reply[2]) in endpoints:
                        with contextlib.suppress(NetlinkError):  # it ended by itself meanwhile
                            conntrack.entry("del", tuple_orig=_attributes(family, original, to_front.proto))
                            count += 1
        except (OSError, NetlinkError) as problem:
            self._on_problem(f"flows to {front} could not be forgotten: {problem}")
        return count


def _read(entry: Any, name: str) -> tuple[Any, Any, int, int]:
    """Source, destination, source port and destination port of one direction of an entry."""
    addresses, protocol = (
        entry.get_attr(name).get_attr("CTA_TUPLE_IP"),
        entry.get_attr(name).get_attr("CTA_TUPLE_PROTO"),
    )
    version = "V4" if addresses.get_attr("CTA_IP_V4_SRC") else "V6"
    return (
        ip_address(addresses.get_attr(f"CTA_IP_{version}_SRC")),
        ip_address(addresses.get_attr(f"CTA_IP_{version}_DST")),
        int(protocol.get_attr("CTA_PROTO_SRC_PORT") or 0),
        int(protocol.get_attr("CTA_PROTO_DST_PORT") or 0),
    )


def _attributes(family: int, original: tuple[Any, Any, int, int], protocol: int) -> Any:
    source, destination, source_port, destination_port = original
    return NFCTAttrTuple(
        family=family,
        saddr=str(source),
        daddr=str(destination),
        proto=protocol,
        sport=source_port,
        dport=destination_port,
    )
