"""Cells of a pool: each element is a gateway, which stands for the servers of a cell with names of its own.

Such a pool's answers lead to the cells' names: NAPTR to a cell's SRV records, SRV to its name. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from pool_user import Network, read_trusted_network

from rspdns import names
from rspdns.zones.sites import overlap

_USELESS = ("verify", "affinity", "svcb", "remote_agents", "report_unreachable", "key")
"""Keys of a pool that are about servers; a gateway is none."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The gateways in a network stand for the servers at `name`: its A, AAAA and NAPTR records, and below it
    its SRV records."""

    gateways: Network
    name: str


def read_cells(value: object) -> tuple[Cell, ...]:
    """The cells of a table of names by networks. Raises ValueError."""
    if not isinstance(value, dict) or not value:
        raise ValueError('a table of gateways and names: {"10.1.0.31" = "as.eu1.ims.example.net"}')
    cells: list[Cell] = []
    for text, name in value.items():
        network = read_trusted_network(text)
        if not isinstance(name, str) or not name.rstrip("."):
            raise ValueError(f"{text}: needs the name of its cell, as text")
        try:
            cell = Cell(network, names.normal(name.lower()))
        except ValueError as problem:
            raise ValueError(f"{text}: {problem}") from None
        for other in cells:
            if other.name != cell.name and overlap(other.gateways, network):
                raise ValueError(f"{text} overlaps {other.gateways}, of the cell {other.name}")
        cells.append(cell)
    return tuple(cells)


def cell_at(cells: Iterable[Cell], address: IPv4Address | IPv6Address) -> str | None:
    """The name of the cell that a gateway stands for; None for an address of no cell."""
    return next((cell.name for cell in cells if address in cell.gateways), None)


def problems(pool: Mapping[str, object]) -> Iterator[str]:
    """Yield what is wrong between `cells` and the other keys of an unchecked pool."""
    cells, accept = pool.get("cells"), pool.get("accept")
    if cells is None:
        return
    for key in _USELESS:
        if pool.get(key):
            yield f"has no use for {key} with cells: its elements are gateways, not servers"
    try:
        known = cells if isinstance(cells, tuple) else read_cells(cells)
        accepted = [read_trusted_network(each) for each in accept] if isinstance(accept, list | tuple) else []
    except ValueError:
        return  # told at its own key
    for network in accepted:
        if not any(_holds(cell.gateways, network) for cell in known):
            yield f"cells has no cell for the gateways in {network}, which accept lets in"
    for cell in known:
        if not any(overlap(cell.gateways, network) for network in accepted):
            yield f"cells: {cell.gateways} ({cell.name}) is not in accept, so it could never come in"


def _holds(outer: Network, inner: Network) -> bool:
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]
