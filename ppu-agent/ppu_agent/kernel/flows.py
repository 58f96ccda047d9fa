"""Conntrack's memory of where flows were sent: finding those sent elsewhere, forgetting those to the dead."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Collection, Iterator
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from pyroute2 import NFCTSocket
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple

from ppu_agent.destinations import Address, AddressPort, Destination
from ppu_agent.kernel.sockets import beside_the_loop
from rserpool import Protocol

_NUMBERS: Final = {
    Protocol.UDP: socket.IPPROTO_UDP,
    Protocol.TCP: socket.IPPROTO_TCP,
    Protocol.SCTP: socket.IPPROTO_SCTP,
}
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_ESTABLISHED: Final = 3
"""TCP_CONNTRACK_ESTABLISHED."""
SEARCH_S: Final = 1.0
MOST_ONE_BY_ONE: Final = 100
"""To ask for one flow takes some 0.5 ms, to read one of a list 0.2 ms."""


class Flow(NamedTuple):
    """A flow that conntrack knows: who began it, where it was to go, and who answers there."""

    source: AddressPort
    asked: Destination
    server: AddressPort

    @property
    def is_moved(self) -> bool:
        """Whether another server answers than the one that was asked."""
        return self.server != self.asked.endpoint


class Flows:
    """Finds and forgets flows. `on_problem` is told, in words, what this kernel can't do.

    Strangers with forged sources can make as many flows as conntrack has room for. Each costs some 0.2 ms to
    read and 0.5 ms to forget, so all breaks off when `is_over` says so.
    """

    def __init__(
        self,
        on_problem: Callable[[str], None] = lambda words: None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._on_problem = on_problem
        self._is_over = is_over

    def forget(
        self,
        asked: Collection[Destination],
        servers: Collection[Destination],
        before: Callable[[Collection[Flow]], None] = lambda flows: None,
    ) -> list[Flow]:
        """Have conntrack forget the flows to what was `asked` that `servers` answer; return them.

        `before` is told of them while conntrack knows them yet.
        """
        endpoints = {server.endpoint for server in servers}
        return beside_the_loop(lambda: self._forget(asked, endpoints, before))

    def forget_begun_by(self, servers: Collection[Destination]) -> list[Flow]:
        """Have conntrack forget the flows that these servers began; return them.

        Also the SCTP associations with them that were not redirected: their next set-up would go to the same
        server.
        """
        over_sctp = [server for server in servers if server.protocol is Protocol.SCTP]

        def find() -> list[Flow]:
            with_them = (flow for flow in self._flows(over_sctp) if not flow.is_moved)
            return [*self._flows(servers, are_sources=True), *with_them]

        return beside_the_loop(lambda: self._delete(find()))

    def moved(
        self, asked: Collection[Destination], connections: Collection[tuple[AddressPort, AddressPort]]
    ) -> set[tuple[AddressPort, AddressPort]]:
        """Those of the TCP connections to what was `asked` that another server answers.

        Each is its source and the endpoint that it asked for. Few are asked for one by one: conntrack keeps
        connections that have ended for minutes, by the thousand where each has a request only.
        """

        def find() -> set[tuple[AddressPort, AddressPort]]:
            is_few = len(connections) <= MOST_ONE_BY_ONE
            flows = self._of_connections(connections) if is_few else self._flows(asked)
            return {(flow.source, flow.asked.endpoint) for flow in flows if flow.is_moved}

        return beside_the_loop(find)

    def has_moved_connection(self, is_ours: Callable[[Address, int], bool]) -> bool:
        """Whether a connection, TCP or SCTP, to one of our addresses and ports is up with another server.

        Conntrack forgets an association that was not heard of for some minutes: all that it knows count.

        True, too, when that could not be found out within 1 s: an agent that ends has no more time.
        """
        return beside_the_loop(lambda: self._has_moved_connection(is_ours))

    def _forget(
        self,
        asked: Collection[Destination],
        endpoints: Collection[AddressPort],
        before: Callable[[Collection[Flow]], None],
    ) -> list[Flow]:
        found = [flow for flow in self._flows(asked) if flow.server in endpoints and flow.is_moved]
        before(found)
        return self._delete(found)

    def _delete(self, found: Collection[Flow]) -> list[Flow]:
        forgotten: list[Flow] = []
        for version, family in _FAMILIES.items():
            of_version = [flow for flow in found if flow.asked.address.version == version]
            if not of_version:
                continue
            try:
                with NFCTSocket(nfgen_family=family) as conntrack:
                    for flow in itertools.takewhile(lambda flow: not self._is_over(), of_version):
                        with contextlib.suppress(NetlinkError):  # it ended by itself meanwhile
                            conntrack.entry("del", tuple_orig=_attributes(family, flow))
                            forgotten.append(flow)
            except OSError as problem:
                self._on_problem(f"flows could not be forgotten: {problem}")
        return forgotten

    def _of_connections(self, connections: Collection[tuple[AddressPort, AddressPort]]) -> Iterator[Flow]:
        """The flows of these TCP connections, as far as conntrack has them."""
        for version, family in _FAMILIES.items():
            of_version = [connection for connection in connections if connection[1][0].version == version]
            if not of_version:
                continue
            try:
                with NFCTSocket(nfgen_family=family) as conntrack:
                    for source, (address, port) in of_version:
                        asked = Flow(source, Destination(address, Protocol.TCP, port), (address, port))
                        with contextlib.suppress(NetlinkError):  # it has none
                            yield _read(
                                conntrack.entry("get", tuple_orig=_attributes(family, asked))[0], Protocol.TCP
                            )
            except OSError as problem:
                self._on_problem(f"conntrack could not be asked for connections: {problem}")

    def _flows(self, wanted: Collection[Destination], *, are_sources: bool = False) -> Iterator[Flow]:
        """The flows to these, or from these. One look at conntrack for each port. For a single IPv4 address
        it is asked for that too; asked for an IPv6 one, Linux 6.18 gives the flows to all others."""
        wanted = set(wanted)
        for (version, protocol, port), group in itertools.groupby(sorted(wanted, key=_group), _group):
            family = _FAMILIES[version]
            number = _NUMBERS[Protocol[protocol]]
            addresses = [str(destination.address) for destination in group]
            try:
                with NFCTSocket(nfgen_family=family) as conntrack:
                    this_end: dict[str, Any] = {"sport" if are_sources else "dport": port}
                    if version == 4 and len(addresses) == 1:
                        this_end["saddr" if are_sources else "daddr"] = addresses[0]
                    of_port = NFCTAttrTuple(family=family, proto=number, **this_end)
                    for entry in conntrack.dump(tuple_orig=of_port):
                        if self._is_over():
                            return
                        flow = _read(entry, Protocol[protocol])
                        end = Destination(flow.source[0], flow.asked.protocol, flow.source[1])
                        if (end if are_sources else flow.asked) in wanted:
                            yield flow
            except (OSError, NetlinkError) as problem:
                self._on_problem(f"conntrack could not be asked for flows to port {port}: {problem}")

    def _has_moved_connection(self, is_ours: Callable[[Address, int], bool]) -> bool:
        until_s = time.monotonic() + SEARCH_S
        try:
            for family, protocol in itertools.product(_FAMILIES.values(), (Protocol.TCP, Protocol.SCTP)):
                with NFCTSocket(nfgen_family=family) as conntrack:
                    of_protocol = NFCTAttrTuple(family=family, proto=_NUMBERS[protocol])
                    for entry in conntrack.dump(tuple_orig=of_protocol):
                        if self._is_over() or time.monotonic() > until_s:
                            return True
                        if protocol is Protocol.SCTP or _state(entry) == _ESTABLISHED:
                            flow = _read(entry, protocol)
                            if flow.is_moved and is_ours(*flow.asked.endpoint):
                                return True
        except (OSError, NetlinkError) as problem:
            self._on_problem(f"conntrack could not be asked for redirected connections: {problem}")
        return False


def _group(destination: Destination) -> tuple[int, str, int]:
    return destination.address.version, destination.protocol.name, destination.port


def _state(entry: Any) -> int | None:
    """The state of a TCP connection; None of what is none."""
    tcp = (entry.get_attr("CTA_PROTOINFO") or entry).get_attr("CTA_PROTOINFO_TCP")
    state: int | None = tcp.get_attr("CTA_PROTOINFO_TCP_STATE") if tcp else None
    return state


def _read(entry: Any, protocol: Protocol) -> Flow:
    source, asked, source_port, port = _direction(entry, "CTA_TUPLE_ORIG")
    server, _, server_port, _ = _direction(entry, "CTA_TUPLE_REPLY")
    return Flow((source, source_port), Destination(asked, protocol, port), (server, server_port))


def _direction(entry: Any, name: str) -> tuple[Any, Any, int, int]:
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


def _attributes(family: int, flow: Flow) -> Any:
    return NFCTAttrTuple(
        family=family,
        saddr=str(flow.source[0]),
        daddr=str(flow.asked.address),
        proto=_NUMBERS[flow.asked.protocol],
        sport=flow.source[1],
        dport=flow.asked.port,
    )
