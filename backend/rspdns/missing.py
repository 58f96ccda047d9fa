"""The servers that each pool lacks: departures of its ledger, and what the zones `expect`. Pure.

A server is known by its address and port: after a restart its PE identifier may be another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from daemon_kit.addresses import endpoint
from pool_user import Departure, Member, PoolView, ServerAddress, accepted

from rspdns.zones.configuration import PoolConfig
from rspdns.zones.zone import Zone

FORGOTTEN_AFTER_S = 86_400.0
"""How long a server that is out is missed, unless the pool has an `expect`."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The servers that a pool lacks.

    `expected` is how many servers should be in. `departed` are the missing ones that were in once, with their
    handles; `never` are those that `expect` names and that were never seen, with the first of their handles;
    `unknown` is how many more are missing of which nothing is known. `planned` are those that a person took
    out: they are not missing.
    """

    expected: int
    departed: tuple[tuple[str, Departure], ...] = ()
    never: tuple[tuple[str, ServerAddress], ...] = ()
    unknown: int = 0
    planned: tuple[tuple[str, Departure], ...] = ()

    @property
    def count(self) -> int:
        """How many servers are missing."""
        return len(self.departed) + len(self.never) + self.unknown


def missing(pool: PoolConfig, members: Sequence[Member], views: Iterable[PoolView], now: float) -> Missing:
    """The servers that the pool lacks: its `members` are in, `views` are those of its handles."""
    tables = {server.handlespace for server in pool.expect} if isinstance(pool.expect, tuple) else set[str]()

    def place(member: Member) -> tuple[str, ServerAddress]:
        return (member.handlespace if member.handlespace in tables else "", member.server_address)

    present = {
        (handlespace, (address, member.port))
        for member in members
        for address in member.addresses
        for handlespace in ("", member.handlespace)
    }
    departed = [(view.handle, departure) for view in views for departure in view.departures]
    departed.sort(key=lambda item: item[1].left_s)
    latest = {place(departure.member): (handle, departure) for handle, departure in departed}
    outside = [
        item
        for at, item in latest.items()
        if at not in present and accepted(item[1].member.addresses[:1], pool.accept)
    ]
    absent = [item for item in outside if not item[1].is_planned(now)]
    planned = tuple(item for item in outside if item[1].is_planned(now))
    planned_at = {place(departure.member) for _, departure in planned}
    if pool.expect is None:
        kept = [item for item in absent if now - item[1].left_s < FORGOTTEN_AFTER_S]
        return Missing(len(members) + len(kept), tuple(kept), planned=planned)
    if isinstance(pool.expect, int):
        lacking = max(0, pool.expect - len(members) - len(planned_at))
        kept = sorted(absent, key=lambda item: item[1].left_s, reverse=True)[:lacking]
        return Missing(pool.expect, tuple(kept), unknown=lacking - len(kept), planned=planned)
    planned_at |= {("", server) for _, server in planned_at}
    expected = [(server.handlespace, (server.address, server.port)) for server in pool.expect]
    lacked = set(expected) - present - planned_at
    known = [item for item in absent if _places(place(item[1].member)) & lacked]
    never = lacked.difference(*(_places(place(departure.member)) for _, departure in known))
    never_in = tuple(
        (pool.shards_in(handlespace)[0], server)
        for handlespace, server in expected
        if (handlespace, server) in never
    )
    return Missing(len(expected), tuple(known), never_in, planned=planned)


def _places(place: tuple[str, ServerAddress]) -> set[tuple[str, ServerAddress]]:
    """The places of `expect` that name a server: the table of its handlespace, and what is in no table."""
    return {place, ("", place[1])}


def is_called(
    wanted: Collection[str], server: ServerAddress, identifier: int | None, name: str | None
) -> bool:
    """Whether one of the words `wanted` is about this server: its name, address, address and port, or its
    PE identifier."""
    address = str(server[0])
    words = {name, address, endpoint(address, server[1])}
    return not (words if identifier is None else words | {f"{identifier:08x}"}).isdisjoint(wanted)


class ServerNames:
    """The names that `expect` gives to servers, by pool handle, address and port."""

    def __init__(self, zones: Iterable[Zone]) -> None:
        self._names: dict[str, dict[ServerAddress, str]] = {}
        self.set_zones(zones)

    def set_zones(self, zones: Iterable[Zone]) -> None:
        """Take the names of these zones."""
        self._names.clear()
        for pool in (pool.config for zone in zones for site in zone.sites for pool in site.pools):
            for server in pool.expect if isinstance(pool.expect, tuple) else ():
                for handle in pool.shards_in(server.handlespace):
                    self._names.setdefault(handle, {})[server.address, server.port] = server.name

    def at(self, handle: str, server: ServerAddress) -> str | None:
        """The name of the server at an address and port; None if it has none."""
        return self._names.get(handle, {}).get(server)

    def of(self, handle: str, member: Member) -> str | None:
        """The name of a member; None if it has none."""
        return self.at(handle, member.server_address)

    def expected(self, wanted: Sequence[str], views: Mapping[str, PoolView]) -> list[str]:
        """The names of the servers of these pools, by handle, that are `wanted` (`is_called`)."""
        names = set()
        for handle, view in views.items():
            identifiers = {
                departure.member.server_address: departure.member.identifier for departure in view.departures
            }
            for server, name in self._names.get(handle, {}).items():
                if is_called(wanted, server, identifiers.get(server), name):
                    names.add(name)
        return sorted(names)
