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

A home that is asked only, by polling, pushes nothing: its answer without the PE counts at once. If the server
is back within RESTLESS_WITHIN_S, somebody may be taking it out again and again: it is *restless*, and
contested from then on, for RESTLESS_S. It may be back under another identifier.

A polled home that was told of a takeover goes on listing the PE, and asks it whether it lives. The PE stays
as long: the polls may miss the moments between each renewal and the next takeover.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field

from pool_user.belief.identities import Place, place_of
from pool_user.belief.listing import Listings
from pool_user.belief.rules import CONTESTED_S, ESTABLISHED_AFTER_S, RESTLESS_S, RESTLESS_WITHIN_S
from pool_user.registrars.standing import SettledRegistrars
from pool_user.views import Member


@dataclass(slots=True)
class _Home:
    """`home` is the established home of a member; `next_home` lists it as its own since `next_s`."""

    home: int
    next_home: int = 0
    next_s: float = float("inf")
    has_let_go: bool = False
    """The home said itself that the member is gone."""
    deleted_at: set[int] = field(default_factory=set)
    """The registrars, by their places in the configuration, that pushed its deletion."""


class Homes:
    """The home registrar, by its identifier, of each member of one pool that a home has confirmed."""

    def __init__(self) -> None:
        self._homes: dict[int, _Home] = {}
        self._contested_s: dict[int, float] = {}
        """When others took members out that their homes do not say are gone."""
        self._left_s: dict[Place, float] = {}
        """When a polled home answered without the server there; the oldest first."""
        self._restless_s: dict[Place, float] = {}
        """Since when servers are restless; the oldest first."""
        self._now = float("-inf")

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._homes

    def may_be_questioned(self, identifier: int) -> bool:
        """Whether a member that leaves may be held as one of a crowd: a home confirmed it, and nobody has
        waited for it yet."""
        return identifier in self._homes and identifier not in self._contested_s

    def confirm(
        self,
        member: Member,
        listings: Listings,
        registrars: SettledRegistrars,
        now: float,
    ) -> None:
        """Its home registrar, which is settled, lists the member as its own."""
        identifier, home = member.identifier, member.home_registrar
        self._note_return(place_of(member), now)
        known = self._homes.get(identifier)
        former = None if known is None or known.has_let_go else registrars.homes.get(known.home)
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
        self._contested_s.pop(identifier, None)

    def home_of(self, identifier: int) -> int:
        """The established home of a member; 0 if it has none."""
        known = self._homes.get(identifier)
        return 0 if known is None else known.home

    def has_confirmed(self, identifier: int, home: int) -> bool:
        """Whether this home confirmed the member while it was settled."""
        known = self._homes.get(identifier)
        return known is not None and home in (known.home, known.next_home)

    def deleted(self, identifier: int, index: int) -> None:
        """Registrar `index` pushed that the PE is gone. Its listing forgets that with its next answer."""
        known = self._homes.get(identifier)
        if known is not None:
            known.deleted_at.add(index)

    def remember(self, identifier: int, home: int) -> None:
        """The PE was confirmed before a restart."""
        self._homes[identifier] = _Home(home)
        self._contested_s.pop(identifier, None)

    def keep(self, members: Set[int]) -> None:
        """Forget all others than these."""
        for identifier in self._homes.keys() - members:
            del self._homes[identifier]
            self._contested_s.pop(identifier, None)

    def hold(
        self,
        leaving: Mapping[int, Member],
        listings: Listings,
        registrars: SettledRegistrars,
        followed: Collection[int],
        now: float,
    ) -> set[int]:
        """Return those of the `leaving` members that stay for now. `followed` registrars push changes."""
        self._now = now
        held = set()
        for identifier, member in leaving.items():
            known = self._homes.get(identifier)
            if known is None or known.has_let_go:
                continue
            if self._is_first_hand(identifier, known, listings, registrars, now):
                known.has_let_go = True
                continue
            if self._is_polled_word(identifier, known, listings, registrars, followed, now):
                place = place_of(member)
                if place not in self._restless_s:
                    known.has_let_go = True
                    self._left_s.pop(place, None)  # the order is that of leaving
                    self._left_s[place] = now
                    continue
            stays = not self._has_moved(known, now) and self._is_listed_by_polled_home(
                identifier, known, listings, registrars, followed
            )
            if now < self._contested_s.setdefault(identifier, now) + CONTESTED_S or stays:
                held.add(identifier)
        return held

    def _is_first_hand(
        self,
        identifier: int,
        known: _Home,
        listings: Listings,
        registrars: SettledRegistrars,
        now: float,
    ) -> bool:
        """Whether the home pushed itself that the member is gone, or has no say any more."""
        home = known.next_home if self._has_moved(known, now) else known.home
        index = registrars.homes.get(home)
        listing = None if index is None else listings.get(index)
        if listing is None:
            return True
        return listing.has_deleted(identifier) or index in known.deleted_at

    def _is_polled_word(
        self,
        identifier: int,
        known: _Home,
        listings: Listings,
        registrars: SettledRegistrars,
        followed: Collection[int],
        now: float,
    ) -> bool:
        """Whether the home, which pushes nothing, answered without the member."""
        has_moved = self._has_moved(known, now)
        index = registrars.homes.get(known.next_home if has_moved else known.home)
        listing = None if index is None else listings.get(index)
        is_moving = known.next_home != 0 and not has_moved
        if listing is None or is_moving or index in followed:
            return False
        return listing.present(identifier) is None

    @staticmethod
    def _is_listed_by_polled_home(
        identifier: int,
        known: _Home,
        listings: Listings,
        registrars: SettledRegistrars,
        followed: Collection[int],
    ) -> bool:
        """Whether the established home, which pushes nothing, lists the member, if under another home."""
        index = registrars.homes.get(known.home)
        listing = None if index is None or index in followed else listings.get(index)
        return listing is not None and listing.present(identifier) is not None

    @staticmethod
    def _has_moved(known: _Home, now: float) -> bool:
        return now >= known.next_s + ESTABLISHED_AFTER_S

    def _note_return(self, place: Place, now: float) -> None:
        """A server is in; note whether it was out for a moment only, and forget what is long ago."""
        left_s = self._left_s.pop(place, None)
        if left_s is not None and now <= left_s + RESTLESS_WITHIN_S:
            self._restless_s.pop(place, None)
            self._restless_s[place] = now
        while self._left_s and now > self._left_s[first := next(iter(self._left_s))] + RESTLESS_WITHIN_S:
            del self._left_s[first]
        while self._restless_s and now > self._restless_s[first := next(iter(self._restless_s))] + RESTLESS_S:
            del self._restless_s[first]

    @property
    def contested(self) -> tuple[int, ...]:
        """Members that others took out and that are to be probed."""
        return tuple(identifier for identifier in self._contested_s if not self._homes[identifier].has_let_go)

    @property
    def next_deadline_s(self) -> float | None:
        """When the next contested member may leave. A member whose time is over may be in by the word of a
        registrar that is not settled."""
        contested = self.contested
        times = [self._contested_s[identifier] + CONTESTED_S for identifier in contested]
        times += [self._homes[identifier].next_s + ESTABLISHED_AFTER_S for identifier in contested]
        return min((time_s for time_s in times if self._now < time_s < float("inf")), default=None)
