"""Which members the backend's own probe has a say about, and which it takes out.

It has a say about all members of a pool that is stale or verified (`Reachability`), and about the orphans:
members whose home registrar is lost (`OrphanedMembers`).

The home of an orphan can't say that it is gone. So the orphan stays in until another registrar has taken it
over and found it dead, which takes seconds, or until its registration life ends. A live member registers
elsewhere within 100 ms. So a member that has not is a suspect: it is probed, and out when nobody answers.

While all registrars are lost, all members are probed. A member that this did not reach stays a suspect
afterwards: it may have registered before it died, at a registrar that is not settled yet, while settled ones
still list it.

An element whose home never was a settled registrar, as far as is known here, is a suspect from the beginning,
and for as long as that is so: nobody else looks whether it lives. A member that had a settled home is one too
when registrars tell it at such a home.

In a keyed pool an identifier proves its server, but not that the server lives: a registrar that lies can
repeat it, with itself as the home. So two kinds of members are suspects until their former home lists them,
or their sidecars start again, which takes a fresh identifier: a member that left and is back at another
home, and a member that moves while its former home is settled, unless that home is lost soon afterwards.
A former home that is lost for 30 s can't list anybody: it is forgotten then, unless the member was not
reached.

No other suspicion lasts. A takeover and a registration life take seconds. A member that settled registrars
list for longer answers to its home, and only the way from here to the member is broken.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from daemon_kit.finding import Finding

from pool_user.belief.rules import ADOPTED_AFTER_S, ORPHAN_AFTER_S, ORPHAN_OUT_S, ORPHAN_PROBED_S
from pool_user.cause import Cause, Code
from pool_user.views import Departure, Member, OutMember, TransportAddresses

_MOST_FORMER = 10_000
"""The most former homes that are kept of a pool's members. Only the holder of a key can add to them."""


@dataclass(slots=True)
class _Orphan:
    suspected_s: float
    """From when on it is a suspect."""
    adopted_s: float | None = None
    """When another settled registrar became its home."""
    is_homeless: bool = False
    """Its home was never a settled registrar, or is another than before in a keyed pool: nobody else who is
    believed looks whether it lives."""
    alone_s: float = math.inf
    """Since when its former home is not settled."""

    @property
    def probed_until_s(self) -> float:
        return math.inf if self.is_homeless else self.suspected_s + ORPHAN_PROBED_S

    @property
    def out_until_s(self) -> float:
        return math.inf if self.is_homeless else self.suspected_s + ORPHAN_OUT_S

    @property
    def alone_until_s(self) -> float:
        return self.alone_s + ORPHAN_OUT_S


class OrphanedMembers:
    """The members of one pool whose home is lost, and those that have had a new home for a moment only."""

    def __init__(self) -> None:
        self._homes: dict[int, int] = {}
        """The settled registrar that each member had last."""
        self._former: dict[int, tuple[int, float]] = {}
        """In a keyed pool: the home of each member that left, or moved while that home was settled, and until
        when the loss of that home explains the move; the oldest first."""
        self._orphans: dict[int, _Orphan] = {}
        self._was_stale = False
        self._now = float("-inf")

    def remember(self, departures: Iterable[Departure]) -> None:
        """Take the departures of a keyed pool of before a restart. The home that was told of a member that
        the probe had taken out may have lied: it does not count."""
        for departure in departures:
            told = 0 if departure.cause.code.is_unreached else departure.member.home_registrar
            if home := departure.settled_home or told:
                self._former[departure.member.identifier] = home, -math.inf

    def home_of(self, identifier: int) -> int:
        """The settled registrar that was the home of a member, or of a former one, before another repeated
        its identifier; 0 if it is not known."""
        former = self._former.get(identifier)
        return self._homes.get(identifier, 0) if former is None else former[0]

    def update(
        self,
        members: Mapping[int, Member],
        settled: Collection[int],
        unreachable: Collection[int],
        changed: Collection[int],
        now: float,
        *,
        is_keyed: bool,
    ) -> None:
        """Note which members are orphans now.

        `members` are all members, `settled` the identifiers of the settled registrars, `unreachable` the
        members that the backend's own probe does not reach. `changed` are those that may have changed since
        the last time: all when the settled registrars have.
        """
        self._now = now
        for identifier in (self._homes.keys() | self._orphans.keys()) - members.keys():
            home = self._homes.pop(identifier, 0)
            self._orphans.pop(identifier, None)
            if is_keyed and home:
                self._former[identifier] = home, -math.inf
        while len(self._former) > _MOST_FORMER:
            del self._former[next(iter(self._former))]
        was_stale, self._was_stale = self._was_stale, not settled
        if was_stale:
            for identifier in members.keys() & set(unreachable):
                orphan = self._orphans.get(identifier)
                is_homeless = identifier not in self._homes or (orphan is not None and orphan.is_homeless)
                self._orphans[identifier] = _Orphan(now, is_homeless=is_homeless)
                if not is_homeless:  # it may have moved: no registrar was settled there
                    self._homes[identifier] = members[identifier].home_registrar
        if self._was_stale:
            return  # all are probed, and out when they are not reached
        for identifier in (members.keys() & changed) | self._orphans.keys():
            home = members[identifier].home_registrar
            orphan = self._orphans.get(identifier)
            if home in settled and not (
                is_keyed and self._is_doubtful(identifier, home, settled, unreachable)
            ):
                self._homes[identifier] = home
                if orphan is not None and self._is_adopted(orphan):
                    del self._orphans[identifier]
                continue
            if orphan is None:
                after_s = 0.0 if home in settled else ORPHAN_AFTER_S
                orphan = self._orphans[identifier] = _Orphan(now + after_s)
            orphan.adopted_s = None
            orphan.is_homeless |= self._homes.get(identifier) != home
            if is_keyed:
                former, _ = self._former.get(identifier, (home, 0.0))
                orphan.alone_s = math.inf if former in settled else min(orphan.alone_s, now)

    def _is_doubtful(
        self, identifier: int, home: int, settled: Collection[int], unreachable: Collection[int]
    ) -> bool:
        """Whether the settled `home` may repeat the identifier of a server that left its former home. A
        member that was probed for long while that home was lost, and is not `unreachable`, has moved."""
        known = self._homes.get(identifier, home)
        if known != home and known in settled:
            self._former[identifier] = self._homes.pop(identifier), self._now + ORPHAN_PROBED_S
        former, until_s = self._former.get(identifier, (home, 0.0))
        orphan = self._orphans.get(identifier)
        has_moved = (
            orphan is not None
            and former not in settled
            and self._now >= orphan.alone_until_s
            and identifier not in unreachable
        )
        if former != home and not has_moved and (former in settled or self._now >= until_s):
            return True
        self._former.pop(identifier, None)
        return False

    def _is_adopted(self, orphan: _Orphan) -> bool:
        """Whether its new home has listed it for so long that it answered a keep-alive."""
        if orphan.adopted_s is None:
            orphan.adopted_s = self._now
        was_quick = orphan.adopted_s < orphan.suspected_s
        return was_quick or self._now >= orphan.adopted_s + ADOPTED_AFTER_S

    def suspects(self, unreachable: Collection[int]) -> tuple[int, ...]:
        """The members to be probed.

        A member that was found unreachable is a suspect until it answers, has a home, or is gone, or until it
        was listed for so long that it must live.
        """
        return tuple(
            sorted(
                identifier
                for identifier, orphan in self._orphans.items()
                if self._now >= orphan.suspected_s
                and self._now < (orphan.out_until_s if identifier in unreachable else orphan.probed_until_s)
            )
        )

    @property
    def next_deadline_s(self) -> float | None:
        """When time alone changes who is a suspect."""
        times = []
        for orphan in self._orphans.values():
            times += [orphan.suspected_s, orphan.probed_until_s, orphan.out_until_s, orphan.alone_until_s]
            if orphan.adopted_s is not None:
                times.append(orphan.adopted_s + ADOPTED_AFTER_S)
        return min((time_s for time_s in times if self._now < time_s < math.inf), default=None)


class Reachability:
    """The conclusions of the probe about members, by identifier: each holds for a member at these
    addresses."""

    def __init__(self) -> None:
        self._unreachable: dict[int, tuple[TransportAddresses, Finding | None]] = {}

    @property
    def unreachable(self) -> Collection[int]:
        """The identifiers of those it did not reach."""
        return self._unreachable.keys()

    def probed(self, member: Member, reachable: bool, finding: Finding | None = None) -> bool:
        """The probe came to a conclusion, the last time by this `finding`. Return whether it is another one
        than before."""
        addresses = member.transport_addresses
        known, _ = self._unreachable.get(member.identifier, (None, None))
        if not reachable and known != addresses:
            self._unreachable[member.identifier] = addresses, finding
            return True
        if reachable and known == addresses:
            del self._unreachable[member.identifier]
            return True
        return False

    def forget(self) -> None:
        """The probe has no say any more."""
        self._unreachable.clear()

    def drop(
        self,
        members: dict[int, Member],
        out: dict[int, OutMember],
        suspected: Collection[int],
        *,
        everybody: bool,
        stale: bool,
    ) -> tuple[Member, ...]:
        """Move the members that the probe does not reach from `members` to `out`, and return them.

        It has a say about the `suspected`, whose home registrar is lost, or about `everybody`. `stale`: no
        registrar can vouch for anybody.
        """
        dropped = []
        for identifier, (addresses, finding) in sorted(self._unreachable.items()):
            member = members.get(identifier) if everybody or identifier in suspected else None
            if member is not None and member.transport_addresses == addresses:
                code = Code.UNREACHED_ORPHAN if identifier in suspected else Code.UNREACHED
                dropped.append(members.pop(identifier))
                cause = Cause(Code.UNREACHED_STALE if stale else code, finding=finding)
                out[identifier] = OutMember(identifier, member.addresses[0], member.port, cause, 0.0)
        return tuple(dropped)
