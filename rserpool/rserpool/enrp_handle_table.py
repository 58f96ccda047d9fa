"""A handle table as it comes in, page by page (RFC 5353 sections 2.2 and 2.3)."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rserpool.enrp import HandleTableResponse
from rserpool.enrp_checksum import Key
from rserpool.enrp_follower_events import Pools
from rserpool.parameters import PoolElement

MAX_PAGES = 50_000
MAX_TABLE_ELEMENTS = 100_000
MAX_POOL_ELEMENTS = 20_000
"""Kept of one pool; one of so many was cut off, and tells nobody's absence."""


@dataclass(slots=True)
class HandleTable:
    """A handle table under way, asked for and its last page received at these times.

    `is_leftover`: the rest of one that broke off, nothing of which is kept; a whole one follows. `owned` is
    what the registrar owns by the table, `pushed` what it has told of itself since it was asked.
    """

    own_children_only: bool
    asked_at_s: float
    page_at_s: float
    is_leftover: bool
    owned: set[Key] = field(default_factory=set)
    pushed: set[Key] = field(default_factory=set)
    pages: int = 0
    elements: int = 0
    _pools: dict[bytes, list[PoolElement]] = field(default_factory=dict)

    def add(self, page: HandleTableResponse, is_wanted: Callable[[bytes], bool], now: float) -> None:
        """Take a page; of pools that are not wanted, only who owns whom."""
        self.page_at_s = now
        self.pages += 1
        for pool in page.pools:
            self.elements += len(pool.pool_elements)
            if self.is_leftover:
                continue
            if is_wanted(pool.handle):
                kept = self._pools.setdefault(pool.handle, [])
                kept.extend(pool.pool_elements[: MAX_POOL_ELEMENTS - len(kept)])
            self.owned |= {
                (pool.handle, element.identifier)
                for element in pool.pool_elements
                if element.home_registrar == page.sender
            }

    def note_push(self, key: Key) -> None:
        """The registrar told of this element by itself: it is newer than the table."""
        if len(self.pushed) < MAX_TABLE_ELEMENTS:
            self.pushed.add(key)

    @property
    def has_no_end(self) -> bool:
        """Whether it is larger than any registrar's can be."""
        return self.pages > MAX_PAGES or self.elements > MAX_TABLE_ELEMENTS

    @property
    def pools(self) -> Pools:
        """The pools that are wanted."""
        return {handle: tuple(elements) for handle, elements in self._pools.items()}
