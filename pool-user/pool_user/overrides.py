"""Overrides: an administrator takes servers out of a pool, holds them in, or gives them a share. Pure.

An override is kept and timed by its owner. The belief gets those that hold now, as a `PoolOverride` each:

| action | the belief |
|---|---|
| DOWN | takes the servers out, with `Code.OVERRIDDEN` as their cause |
| UP | keeps the servers in that it knows, whatever registrars and probes say; `accept` and keys hold |
| SHARE | notes the share in the `Member`; `pool_user.weights` makes weights of it |
| DRAIN | notes a share of 0: a standby, shown only when nothing else lives |

If several name a server, the first one counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from daemon_kit.addresses import endpoint

from pool_user.cause import Cause, Code
from pool_user.views import Member, OutMember, ServerAddress

MOST_DECIDED = 50_000
"""The most places whose override is remembered: a glob is compared once with each, not at each change."""


class OverrideAction(StrEnum):
    """The effect of an override. The values are stable: files, status and API carry them."""

    DOWN = "down"
    UP = "up"
    SHARE = "share"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class NamedServers:
    """The servers that an override names: at these places, in these networks, called as the glob says, or all
    those of a handlespace.

    A glob is compared with address and `address:port`, for IPv6 `[address]:port`.
    """

    places: frozenset[ServerAddress] = frozenset()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    glob: str = ""
    handlespace: str = ""

    def has(self, place: ServerAddress, handlespace: str = "") -> bool:
        """Whether the server at this address and port, of this handlespace, is one of them."""
        if self.handlespace:
            return handlespace == self.handlespace
        address, port = place
        if place in self.places or any(address in network for network in self.networks):
            return True
        words = (str(address), endpoint(str(address), port))
        return bool(self.glob) and any(fnmatchcase(word, self.glob) for word in words)

    def has_member(self, member: Member) -> bool:
        """Whether the member is one of them, by one of its addresses."""
        return any(self.has((address, member.port), member.handlespace) for address in member.addresses)


@dataclass(frozen=True, slots=True)
class PoolOverride:
    """An override that holds now in a pool.

    `number` is its owner's. `words` say by whom, why and until when. `share`, 0 or above and below 1, is the
    part of the calls that each of the servers gets.
    """

    number: int
    action: OverrideAction
    servers: NamedServers
    words: str = ""
    share: float | None = None

    @property
    def cause(self) -> Cause:
        """The cause of those that it takes out."""
        return Cause(Code.OVERRIDDEN, count=self.number, detail=self.words)


class MemberOverrides:
    """The overrides that hold now in a pool, and what they do to its members."""

    def __init__(self) -> None:
        self._overrides: tuple[PoolOverride, ...] = ()
        self._at: dict[ServerAddress, int] = {}
        """By place, the first override that names it so: its position."""
        self._wide: list[int] = []
        """The positions of those with networks, a glob or a handlespace."""
        self._decided: dict[tuple[tuple[IPv4Address | IPv6Address, ...], int], int | None] = {}
        """By addresses and port, the position of the override that decides."""
        self._out: frozenset[int] = frozenset()
        self._returned_s: dict[int, float] = {}
        """When members came in again that had been out by an override."""

    def set(self, overrides: Iterable[PoolOverride]) -> bool:
        """Let these hold from now on. Return whether any is new or gone."""
        before, self._overrides = self._overrides, tuple(overrides)
        self._at, self._wide, self._decided = {}, [], {}
        for position, override in enumerate(self._overrides):
            for place in override.servers.places:
                self._at.setdefault(place, position)
            if override.servers.networks or override.servers.glob or override.servers.handlespace:
                self._wide.append(position)
        return self._overrides != before

    def _deciding(self, member: Member) -> PoolOverride | None:
        """The override that decides about a member; None if there is none."""
        if not self._overrides:
            return None
        key = member.addresses, member.port
        if key not in self._decided:
            if len(self._decided) >= MOST_DECIDED:
                self._decided.clear()
            self._decided[key] = self._first(member)
        first = self._decided[key]
        return None if first is None else self._overrides[first]

    def _first(self, member: Member) -> int | None:
        """The position of the first override that names the member."""
        places = ((address, member.port) for address in member.addresses)
        named = [self._at[place] for place in places if place in self._at]
        wide = (position for position in self._wide if self._overrides[position].servers.has_member(member))
        return min((*named, *itertools.islice(wide, 1)), default=None)

    def down(self, member: Member) -> Cause | None:
        """The cause of a member that an override takes out; None: none does."""
        override = self._deciding(member)
        return override.cause if override is not None and override.action is OverrideAction.DOWN else None

    def is_down(self, member: Member) -> bool:
        """Whether an override takes the member out."""
        return self.down(member) is not None

    def apply(
        self, members: dict[int, Member], known: Callable[[], Iterable[Member]], now: float
    ) -> tuple[dict[int, Member], dict[int, OutMember]]:
        """Return the members that are in, of those that are in without overrides, and those that are out.

        `known` gives others, of before too, that UP may bring in: as `stale`, since no registrar vouches for
        them. A member whose override ended has come in then, and starts slowly.
        """
        if not self._overrides and not self._out and not self._returned_s:
            return members, {}
        kept, out = dict(members), dict[int, OutMember]()
        for identifier, member in members.items():
            override = self._deciding(member)
            if override is None:
                continue
            if override.action is OverrideAction.DOWN:
                del kept[identifier]
                address, port = member.server_address
                out[identifier] = OutMember(identifier, address, port, override.cause, 0.0)
            elif override.action in (OverrideAction.SHARE, OverrideAction.DRAIN):
                kept[identifier] = replace(member, share=override.share)
        if any(override.action is OverrideAction.UP for override in self._overrides):
            self._hold_in(kept, known())
        ended = self._out - out.keys()
        self._out = frozenset(out)
        times_s = {**self._returned_s, **dict.fromkeys(ended, now)}
        self._returned_s = {identifier: at_s for identifier, at_s in times_s.items() if identifier in kept}
        for identifier, at_s in self._returned_s.items():
            member = kept[identifier]
            if member.since_s < at_s:
                kept[identifier] = replace(member, since_s=at_s)
        return kept, out

    def _hold_in(self, members: dict[int, Member], known: Iterable[Member]) -> None:
        """Bring in those known that UP names. A server has one place."""
        places = {(address, member.port) for member in members.values() for address in member.addresses}
        for member in known:
            override = self._deciding(member)
            if override is None or override.action is not OverrideAction.UP:
                continue
            if member.identifier not in members and places.isdisjoint(
                (address, member.port) for address in member.addresses
            ):
                members[member.identifier] = replace(member, stale=True, share=None)
                places.add(member.server_address)
