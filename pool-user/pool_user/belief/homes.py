"""Which home registrar may take a member out: the contest about members that others took away.

Registrars obey each other. A registrar that lies can push that it is the home of another's PEs, push that
these are gone, or tell that it takes all of them over. The true home then lists them no more, or elsewhere,
although they live. Two things tell such a removal from a true one:

- The home pushes each deletion that it makes itself. A home that is followed and answers without the PE, but
  has pushed no deletion, was told to forget it.
- A PE that moves has lost its home. While the former home answers, the new one speaks for the PE only once it
  has been its home for `ESTABLISHED_AFTER_S`.

A member that leaves in such a way is **contested**: it stays in, and is probed, for `CONTESTED_S`. By then a
live one has noticed that it is missing and has registered again.

A home that is asked only, by polling, pushes nothing: its answer without the PE counts at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field

from pool_user.belief.listing import Listing
from pool_user.belief.rules import CONTESTED_S, ESTABLISHED_AFTER_S
from pool_user.registrars.standing import Court


@dataclass(slots=True)
class _Home:
    """`home` is the established home of a member; `next_home` lists it as its own since `next_s`."""

    home: int
    next_home: int = 0
    next_s: float = float("inf")
    has_let_go: bool = False
    """The home said itself that the member is gone."""
    contested_s: float | None = None
    """When others took it out."""
    deleted_at: set[int] = field(default_factory=set)
    """The registrars, by their places in the configuration, that pushed its deletion."""


class Homes:
    """The home registrar, by its identifier, of each member of one pool that a home has confirmed."""

    def __init__(self) -> None:
        self._homes: dict[int, _Home] = {}

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._homes

    def may_be_questioned(self, identifier: int) -> bool:
        """Whether a member that leaves may be held as one of a crowd: a home confirmed it, and nobody has
        waited for it yet."""
        known = self._homes.get(identifier)
        return known is not None and known.contested_s is None

    def confirm(
        self, identifier: int, home: int, listings: Mapping[int, Listing], court: Court, now: float
    ) -> None:
        """The registrar `home`, which is settled, lists the PE as its own."""
        known = self._homes.get(identifier)
        former = None if known is None or known.has_let_go else court.homes.get(known.home)
        if (
            known is None
            or known.home == home
            or former is None
            or former in known.deleted_at
            or (former in listings and listings[former].has_deleted(identifier))
        ):
            self._homes[identifier] = _Home(home)
        elif known.next_home != home:
            known.next_home, known.next_s = home, now
            known.contested_s = None
        else:
            known.contested_s = None

    def deleted(self, identifier: int, index: int) -> None:
        """Registrar `index` pushed that the PE is gone. Its listing forgets that with its next answer."""
        known = self._homes.get(identifier)
        if known is not None:
            known.deleted_at.add(index)

    def remember(self, identifier: int, home: int) -> None:
        """The PE was confirmed before a restart."""
        self._homes[identifier] = _Home(home)

    def keep(self, members: Collection[int]) -> None:
        """Forget all others than these."""
        for identifier in self._homes.keys() - set(members):
            del self._homes[identifier]

    def hold(
        self,
        leaving: Set[int],
        listings: Mapping[int, Listing],
        court: Court,
        followed: Collection[int],
        now: float,
    ) -> set[int]:
        """Return those of the `leaving` members that stay for now. `followed` registrars push changes."""
        held = set()
        for identifier in leaving:
            known = self._homes.get(identifier)
            if known is None or known.has_let_go:
                continue
            if self._is_first_hand(identifier, known, listings, court, followed, now):
                known.has_let_go = True
                continue
            if known.contested_s is None:
                known.contested_s = now
            if now < known.contested_s + CONTESTED_S:
                held.add(identifier)
        return held

    def _is_first_hand(
        self,
        identifier: int,
        known: _Home,
        listings: Mapping[int, Listing],
        court: Court,
        followed: Collection[int],
        now: float,
    ) -> bool:
        """Whether the home itself took the member out, or has no say any more."""
        has_moved = now >= known.next_s + ESTABLISHED_AFTER_S
        home = known.next_home if has_moved else known.home
        index = court.homes.get(home)
        listing = None if index is None else listings.get(index)
        if listing is None:
            return True
        if listing.has_deleted(identifier) or index in known.deleted_at:
            return True
        is_moving = known.next_home != 0 and not has_moved
        return index not in followed and not is_moving and listing.present(identifier) is None

    @property
    def contested(self) -> tuple[int, ...]:
        """Members that others took out and that are to be probed."""
        return tuple(
            identifier
            for identifier, known in self._homes.items()
            if known.contested_s is not None and not known.has_let_go
        )

    @property
    def next_deadline_s(self) -> float | None:
        """When a contested member may leave."""
        times = [
            known.contested_s + CONTESTED_S
            for known in self._homes.values()
            if known.contested_s is not None and not known.has_let_go
        ]
        return min(times, default=None)
