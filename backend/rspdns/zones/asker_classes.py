"""Classes of askers: all askers of a class get the same answers about a name. Pure.

`near` of the pools at a name makes them. rspdns-fastpath finds an asker's class by the longest prefix, among
blocks that cover all addresses: the length of a block is the scope of its answers (`NearTable.scope`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from rspdns.zones.near import BITS, NearOrder, NearTable

MOST_CLASSES = 16
"""The most classes of one name that rspdns-fastpath answers."""

Orders = tuple[NearOrder | None, ...]
"""The order of the sites of each pool at a name; None: the pool's own."""
_Range = tuple[int, int]
"""The first address of a range, and its class."""


class AskerBlock(NamedTuple):
    """The widest prefix around its askers that has one class everywhere."""

    version: int
    address: int
    length: int
    asker_class: int


class AskerClasses:
    """The classes of a name whose pools have these tables, at least one. Equal ones have equal blocks."""

    def __init__(self, tables: Sequence[NearTable | None]) -> None:
        numbers: dict[Orders, int] = {(None,) * len(tables): 0}
        self._ranges = {version: _Ranges(_ranges(version, tables, numbers)) for version in BITS}
        self.orders = tuple(numbers)
        """The orders of each class; class 0 has those of the pools themselves."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AskerClasses):
            return NotImplemented
        return (self.orders, self._ranges) == (other.orders, other._ranges)

    def __hash__(self) -> int:
        return hash(self.orders)

    def blocks(self) -> Iterator[AskerBlock]:
        """The blocks; there may be many more than networks."""
        for version, bits in BITS.items():
            ranges = self._ranges[version]
            bounds = pairwise((*ranges.starts, 1 << bits))
            for (start, end), asker_class in zip(bounds, ranges.classes, strict=True):
                at = start
                while at < end:
                    size = min(at & -at or 1 << bits, 1 << ((end - at).bit_length() - 1))
                    yield AskerBlock(version, at, bits + 1 - size.bit_length(), asker_class)
                    at += size


class _Ranges:
    """Ranges of one class, as small in memory as their number asks for."""

    def __init__(self, ranges: Iterator[_Range]) -> None:
        self.starts: list[int] = []
        self.classes = array("I")
        for start, asker_class in ranges:
            self.starts.append(start)
            self.classes.append(asker_class)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Ranges):
            return NotImplemented
        return (self.starts, self.classes) == (other.starts, other.classes)

    __hash__ = None  # type: ignore[assignment]


def _ranges(version: int, tables: Sequence[NearTable | None], numbers: dict[Orders, int]) -> Iterator[_Range]:
    """The ranges in which no table changes its order."""
    changes = sorted(
        (
            (start, position, order)
            for position, table in enumerate(tables)
            if table is not None
            for start, order in table.ranges(version)
        ),
        key=lambda change: change[:2],
    )
    orders: list[NearOrder | None] = [None] * len(tables)
    for start, at_start in groupby(changes, key=lambda change: change[0]):
        for _, position, order in at_start:
            orders[position] = order
        yield start, numbers.setdefault(tuple(orders), len(numbers))
