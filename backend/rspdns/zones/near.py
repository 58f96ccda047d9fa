"""Nearness: the order of a pool's sites by the prefix of the asker, as an administrator gives it. Pure.

`NearTable` finds the longest prefix, and the scope: the widest prefix around the asker that has this order
everywhere (RFC 7871 section 7.2.1). `read_lines` reads a `near_file`.
"""

from __future__ import annotations

import csv
import re
import socket
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from itertools import pairwise
from typing import NamedTuple

from rspdns.zones.sites import SITE_NAME

MOST_NETWORKS = 1_000_000
"""The most networks that are read of one file."""
BITS = {4: 32, 6: 128}
_SITE = re.compile(SITE_NAME)

AnyNetwork = IPv4Network | IPv6Network
NearOrder = tuple[str, ...]
"""Names of sites, the nearest first."""


class AskerPrefix(NamedTuple):
    """The prefix that a question comes from: an address, or the prefix that a resolver tells (RFC 7871)."""

    version: int
    address: int
    length: int

    @property
    def packed(self) -> bytes:
        """The prefix as bytes, different for each."""
        return bytes([self.version, self.length]) + self.address.to_bytes(BITS[self.version] // 8, "big")


def asker_of(text: object) -> AskerPrefix | None:
    """Read `10.1.2.0/24`; None for anything else, and for a prefix that says nothing (`0.0.0.0/0`)."""
    if not isinstance(text, str):
        return None
    address, slash, length_text = text.partition("/")
    version = 6 if ":" in address else 4
    bits = BITS[version]
    try:
        packed = socket.inet_pton(socket.AF_INET6 if version == 6 else socket.AF_INET, address)
        length = int(length_text) if slash else bits
    except (OSError, ValueError):
        return None
    if not 1 <= length <= bits:
        return None
    unused = bits - length
    return AskerPrefix(version, int.from_bytes(packed, "big") >> unused << unused, length)


class NearTable:
    """The orders of networks. A network without one has the order of the pool."""

    def __init__(self, orders: Mapping[AnyNetwork, NearOrder]) -> None:
        self._families = {version: _Family(version, orders) for version in BITS}
        self._networks = len(orders)

    def __len__(self) -> int:
        return self._networks

    def order(self, asker: AskerPrefix) -> NearOrder | None:
        """The order of the longest prefix around an asker; None: there is none."""
        return self._families[asker.version].order(asker)

    def scope(self, asker: AskerPrefix) -> int:
        """The length of the widest prefix around an asker that has one order everywhere.

        It is longer than that of the asker where the asker's prefix has several orders.
        """
        return self._families[asker.version].scope(asker.address)

    def ranges(self, version: int) -> Iterator[tuple[int, NearOrder | None]]:
        """The first address of each range of one order, with the order: sorted, without gaps, from 0 on."""
        family = self._families[version]
        return zip(family.starts, family.orders, strict=True)


class _Family:
    """The networks of one version of IP."""

    def __init__(self, version: int, orders: Mapping[AnyNetwork, NearOrder]) -> None:
        self._bits = bits = BITS[version]
        by_length: dict[int, dict[int, NearOrder]] = {}
        nested = []
        for network, order in orders.items():
            if network.version == version:
                first, length = int(network.network_address), network.prefixlen
                by_length.setdefault(length, {})[first >> (bits - length)] = order
                nested.append((first, length, order))
        self._by_length = sorted(by_length.items(), reverse=True)
        self.starts, self.orders = _ranges(nested, bits)
        """The first addresses of the ranges of one order, sorted, and these orders: without gaps."""

    def order(self, asker: AskerPrefix) -> NearOrder | None:
        for length, orders in self._by_length:
            if length <= asker.length:
                order = orders.get(asker.address >> (self._bits - length))
                if order is not None:
                    return order
        return None

    def scope(self, address: int) -> int:
        position = bisect_right(self.starts, address)
        outside = [self.starts[position - 1] - 1] if position > 1 else []
        outside += self.starts[position : position + 1]
        # A prefix excludes an address from the first bit on in which they differ.
        return max((self._bits + 1 - (address ^ other).bit_length() for other in outside), default=0)


def _ranges(nested: list[tuple[int, int, NearOrder]], bits: int) -> tuple[list[int], list[NearOrder | None]]:
    """The addresses at which the order is another one than before, and 0; the orders from there on."""
    starts: list[int] = [0]
    orders: list[NearOrder | None] = [None]

    def begin(at: int, order: NearOrder | None) -> None:
        if at == 1 << bits:
            return
        if starts[-1] == at:
            starts.pop()
            orders.pop()
        if not orders or orders[-1] != order:
            starts.append(at)
            orders.append(order)

    around: list[tuple[int, NearOrder]] = []
    """The networks around the present address: where each ends, and its order."""
    for first, length, order in sorted(nested, key=lambda network: network[:2]):
        while around and around[-1][0] <= first:
            end, _ = around.pop()
            begin(end, around[-1][1] if around else None)
        begin(first, order)
        around.append((first + (1 << (bits - length)), order))
    while around:
        end, _ = around.pop()
        begin(end, around[-1][1] if around else None)
    return starts, orders


class LineProblem(NamedTuple):
    """An error in a near_file."""

    line: int
    problem: str


def read_lines(
    lines: Iterable[str],
    sites: Collection[str] | None = None,
    sites_of: Mapping[str, NearOrder] | None = None,
) -> tuple[dict[AnyNetwork, NearOrder], list[LineProblem]]:
    """Read lines `network,site,site`: the orders by network, and all errors.

    A first line that begins with "network" names the columns; `#` begins a comment. `sites` are those there
    are; None: any may be. With `sites_of`, a line has a word instead of sites, and this is the order of each
    word; other words are no error.
    """
    orders: dict[AnyNetwork, NearOrder] = {}
    problems: list[LineProblem] = []
    rows = csv.reader(line.partition("#")[0] for line in lines)
    try:
        for cells in rows:
            words = [cell.strip() for cell in cells]
            if not any(words) or (not orders and words[0].lower() == "network"):
                continue
            if len(orders) >= MOST_NETWORKS:
                problems.append(LineProblem(rows.line_num, f"more than {MOST_NETWORKS} networks"))
                break
            try:
                network, order = _row(words, sites_of)
            except ValueError as error:
                problems.append(LineProblem(rows.line_num, str(error)))
                continue
            problem = f"{network} is there twice" if network in orders else unknown_sites(order or (), sites)
            if problem is not None:
                problems.append(LineProblem(rows.line_num, problem))
            elif order is not None:
                orders[network] = order
    except csv.Error as error:
        problems.append(LineProblem(rows.line_num, f"no CSV: {error}"))
    return orders, problems


def _row(
    words: Sequence[str], sites_of: Mapping[str, NearOrder] | None
) -> tuple[AnyNetwork, NearOrder | None]:
    network = near_network(words[0])
    if sites_of is not None:
        if len(words) < 2:
            raise ValueError(f"{network} has no second column")
        return network, sites_of.get(words[1])
    order = tuple(word for word in words[1:] if word)
    check_order(order)
    return network, order


def near_network(text: object) -> AnyNetwork:
    """Read a network. Raises ValueError in words."""
    try:
        return ip_network(text if isinstance(text, str) else "")
    except ValueError as error:
        raise ValueError(f"{text!r} is no network like 10.1.0.0/16: {error}") from None


def check_order(order: Sequence[object]) -> None:
    """Raise ValueError for what can't be the sites of a network."""
    if not order:
        raise ValueError("names no site")
    for name in order:
        if not isinstance(name, str) or not _SITE.match(name):
            raise ValueError(f"{name!r} is no name of a site")
    if len(set(order)) < len(order):
        raise ValueError(f"names a site twice: {', '.join(map(str, order))}")


def unknown_sites(order: Sequence[str], sites: Collection[str] | None) -> str | None:
    """The problem of an order that names other `sites` than there are; None: there is none."""
    unknown = [name for name in order if sites is not None and name not in sites]
    return f"{', '.join(unknown)}: no [[site]] in rspdns.toml has this name" if unknown else None


def collapsed(orders: Mapping[AnyNetwork, NearOrder]) -> Iterator[tuple[AnyNetwork, NearOrder]]:
    """The same orders in as few networks as neighbours of one order make; if networks nest, as they are."""
    by_order: dict[NearOrder, list[AnyNetwork]] = {}
    for network, order in orders.items():
        by_order.setdefault(order, []).append(network)
    if _has_nested(orders):
        yield from sorted(orders.items(), key=lambda item: (item[0].version, int(item[0].network_address)))
        return
    for order, networks in by_order.items():
        for version in BITS:
            of_version = [network for network in networks if network.version == version]
            yield from ((network, order) for network in collapse_addresses(of_version))  # type: ignore[type-var]


def _has_nested(networks: Iterable[AnyNetwork]) -> bool:
    ranges = sorted((n.version, int(n.network_address), int(n.broadcast_address)) for n in networks)
    return any(
        version == before[0] and first <= before[2] for before, (version, first, _) in pairwise(ranges)
    )
