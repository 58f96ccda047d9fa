"""The classes of askers that the daemon is told of, and the numbers that stand for them. Pure.

The blocks of a name's classes may be very many. So they are told in messages, one by one, before any answer
names them; PowerDNS answers until then. They are forgotten when no answer names them any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from rspdns.fastpath import messages
from rspdns.zones.asker_classes import AskerBlock, AskerClasses
from rspdns.zones.zone import Zone

MOST_NUMBERS = 1023
"""The most numbers that the daemon knows at a time; they begin at 1."""
MOST_BLOCKS = 1 << 20
"""The most blocks of the classes of one name; the daemon has room for as many of all names."""


class NumberedClasses:
    """The classes of the zones that are served, and the numbers of those that the daemon knows."""

    def __init__(self) -> None:
        self.known: Mapping[AskerClasses, int] = {}
        """Those that the daemon knows: another mapping after each change."""
        self.too_large: set[AskerClasses] = set()
        """Those that it can't know."""
        self._last = 0
        self._wanted: dict[AskerClasses, AskerClasses] = {}
        self._telling: tuple[AskerClasses, int] | None = None
        self._left: Iterator[AskerBlock] = iter(())
        """The blocks of those that are being told."""
        self._told = 0
        """How many went before."""

    def want(self, zones: Collection[Zone]) -> None:
        """These zones are served from now on."""
        found = (site.classes for zone in zones for site in zone.sites if site.classes is not None)
        self._wanted = {classes: classes for classes in found}
        self.too_large &= self._wanted.keys()
        # The very objects that are looked for from now on: comparing others would take long.
        self.known = {self._wanted.get(classes, classes): number for classes, number in self.known.items()}

    def start_over(self) -> None:
        """A daemon that was just greeted knows none."""
        self.known, self._telling = {}, None

    @property
    def is_told(self) -> bool:
        """Whether nothing is left to be told."""
        return self._telling is None and self._next() is None

    def _next(self) -> AskerClasses | None:
        if len(self.known) >= MOST_NUMBERS:
            return None
        left = (classes for classes in self._wanted if classes not in self.known)
        return next((classes for classes in left if classes not in self.too_large), None)

    def next_message(self) -> bytes:
        """The next message to the daemon; with the last one of some classes these are `known`."""
        if self._telling is None:
            classes = self._next()
            if classes is None:
                return b""
            self._last = number = self._free_number()
            self._telling, self._left, self._told = (classes, number), classes.blocks(), 0
        classes, number = self._telling
        blocks = list(islice(self._left, messages.BLOCKS_A_MESSAGE))
        self._told += len(blocks)
        if self._told > MOST_BLOCKS:
            self.too_large.add(classes)
        if classes not in self._wanted or classes in self.too_large:
            self._telling = None
            return messages.forget_classes(number)
        if len(blocks) < messages.BLOCKS_A_MESSAGE:
            self._telling, self.known = None, {**self.known, classes: number}
        return messages.classes(number, blocks)

    def _free_number(self) -> int:
        """The next number after the last one, so that the daemon has had time to forget it."""
        numbers = (1 + (self._last + step) % MOST_NUMBERS for step in range(MOST_NUMBERS))
        return next(number for number in numbers if number not in self.known.values())

    def forget_all_but(self, numbers: Collection[int]) -> bytes:
        """The messages that let the daemon forget what neither a zone wants nor an answer needs."""
        gone = {
            classes: number
            for classes, number in self.known.items()
            if classes not in self._wanted and number not in numbers
        }
        if not gone:
            return b""
        self.known = {classes: number for classes, number in self.known.items() if classes not in gone}
        return b"".join(map(messages.forget_classes, gone.values()))
