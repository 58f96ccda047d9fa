"""The overrides of this name server: whom each names, when each holds, and the shares that result. Pure.

Times are of the wall clock, in seconds since 1970: an override holds over restarts, and ends at an hour.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from daemon_kit.addresses import endpoint, read_address, read_network
from pool_user import (
    Code,
    Member,
    MemberOverrides,
    NamedServers,
    OverrideAction,
    PoolOverride,
    PoolView,
    ServerAddress,
    weights,
)
from pydantic import Field, TypeAdapter

from rspdns.answers.site_order import ranked, site_states
from rspdns.missing import is_called
from rspdns.status.override_words import title, utc
from rspdns.zones.sites import SiteConfig
from rspdns.zones.zone import Pool

MOST_OVERRIDES = 1000
MOST_CHARACTERS = 500
"""The longest reason, and the longest name of servers."""
LONGEST_S = 10 * 365 * 86_400.0

ROUNDING = 1e-9
_IDENTIFIER = r"^[0-9a-f]{16}$"

NameOf = Callable[[str, Member], str | None]
"""The name of a member of a handle; None if it has none."""


class OverrideError(ValueError):
    """The override can't be; the words are for the person who wants it."""


@dataclass(frozen=True, slots=True)
class Override:
    """One decision. `servers` are the words it was given, `places` the endpoints these words meant then.

    `pool` is the name of SRV records or a handle, None for every pool. It holds from `starts_at_s` on, and up
    to `ends_at_s`; None: until it is cleared. `by` set it at `set_at_s`. `forced`: it may empty a pool.
    """

    number: int
    action: OverrideAction
    servers: Annotated[str, Field(max_length=MOST_CHARACTERS)]
    reason: Annotated[str, Field(max_length=MOST_CHARACTERS)]
    by: str
    set_at_s: float
    starts_at_s: float
    ends_at_s: float | None = None
    share: Annotated[float | None, Field(gt=0, lt=1)] = None
    pool: str | None = None
    places: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    """Those of the site that it names."""
    handlespace: str = ""
    """That of the site that it names, if sites are handlespaces."""
    forced: bool = False
    has_begun: bool = False
    """Whether it began, and emptied no pool then, or was forced to. A clock that is set back ends it not."""
    id: Annotated[str | None, Field(pattern=_IDENTIFIER)] = None
    """By which all name servers know it; None: it was set here alone."""

    def holds(self, now_s: float) -> bool:
        """Whether it holds at this time."""
        return (self.has_begun or self.starts_at_s <= now_s) and not self.is_over(now_s)

    def is_over(self, now_s: float) -> bool:
        """Whether its time is over."""
        return self.ends_at_s is not None and self.ends_at_s <= now_s

    def overlaps(self, other: Override) -> bool:
        """Whether there is a time at which both hold."""
        return self.overlaps_time(other.starts_at_s, other.ends_at_s)

    def overlaps_time(self, starts_at_s: float, ends_at_s: float | None) -> bool:
        """Whether it holds at a time between these; None: without an end."""
        ends = (float("inf") if each is None else each for each in (self.ends_at_s, ends_at_s))
        return max(self.starts_at_s, starts_at_s) < min(ends)

    def concerns(self, pool: Pool) -> bool:
        """Whether it is about the servers of this pool."""
        return self.pool is None or self.pool == pool.owner or self.pool in pool.config.shards

    @property
    def words(self) -> str:
        """By whom, why and until when."""
        until = "" if self.ends_at_s is None else f", until {utc(self.ends_at_s)}"
        return f"by {self.by}{until}: {self.reason}"

    @property
    def title(self) -> str:
        """The action and the servers."""
        return title(self.action, self.servers, self.share, self.pool)

    @property
    def audited(self) -> str:
        """The name of it in the log: that of the other name servers' logs, too, if they have it."""
        return f"{self.number}{'' if self.id is None else f' {self.id}'}: {self.title}"

    @property
    def meant(self) -> NamedServers:
        """The servers that it names."""
        places = frozenset(map(_place, self.places))
        if places:
            return NamedServers(places=places)
        if self.handlespace:
            return NamedServers(handlespace=self.handlespace)
        if self.networks:
            return NamedServers(networks=tuple(map(read_network, self.networks)))
        if _is_glob(self.servers):
            return NamedServers(glob=self.servers)
        return NamedServers(networks=(read_network(self.servers),))

    @property
    def in_pool(self) -> PoolOverride:
        """The form for the belief."""
        share = 0.0 if self.action is OverrideAction.DRAIN else self.share
        return PoolOverride(self.number, self.action, self.meant, self.words, share)


@dataclass(frozen=True, slots=True)
class KeptOverrides:
    """The contents of the file. `last_number` was the last one given: none is given twice, or somebody would
    clear the override of somebody else."""

    last_number: Annotated[int, Field(ge=0)] = 0
    overrides: tuple[Override, ...] = ()


KEPT: TypeAdapter[KeptOverrides] = TypeAdapter(KeptOverrides)
"""Reads and writes the file."""


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A server that is in, or was, or is listed: its place, identifier, name and handlespace."""

    handle: str
    place: ServerAddress
    identifier: int
    name: str | None
    handlespace: str


def known_servers(
    views: Mapping[str, PoolView], handles: Collection[str], name_of: NameOf
) -> Iterator[KnownServer]:
    """Yield the servers of these pools that have, or had, a place in the answers."""
    for handle in handles:
        view = views.get(handle)
        if view is None:
            continue
        departed = (departure.member for departure in view.departures)
        for member in (*view.members, *departed, *view.unreachable):
            name = name_of(handle, member)
            for address in member.addresses:
                place = address, member.port
                yield KnownServer(handle, place, member.identifier, name, member.handlespace)


SITE = "site:"
"""Before the name of a site, in the words for servers."""


def site_meant(words: str, sites: Iterable[SiteConfig]) -> SiteConfig | None:
    """Return the site that `words` mean; None if they mean no site. Raises OverrideError."""
    if not words.startswith(SITE):
        return None
    by_name = {site.name: site for site in sites}
    name = words.removeprefix(SITE)
    if name not in by_name:
        known = f"there is {', '.join(by_name)}" if by_name else "there is none"
        raise OverrideError(f"no [[site]] has the name {name!r}; {known}")
    return by_name[name]


def places_of(words: str, known: Iterable[KnownServer]) -> tuple[str, ...]:
    """Return the endpoints that `words` mean: empty for a network, an address or a glob, which stay as they
    are.

    A name and an identifier are looked up now: after a restart of its sidecar the server has another
    identifier, and the override is still about it. Raises OverrideError, if no server is called so.
    """
    known = tuple(known)
    if "/" in words:
        try:
            read_network(words)
        except ValueError as error:
            raise OverrideError(str(error)) from None
    if _is_glob(words) or _is_network(words):
        if not any(_servers_of(words).has(server.place) for server in known):
            raise OverrideError(f"{words}: no server is known there")
        return ()
    found = {
        server.place for server in known if is_called((words,), server.place, server.identifier, server.name)
    }
    if not found:
        raise OverrideError(
            f"{words}: no server has this name, address, address:port or PE identifier; "
            "rspdns status lists them"
        )
    return tuple(sorted(endpoint(str(address), port) for address, port in found))


def contradicting(
    wanted: Override, others: Iterable[Override], known: Iterable[KnownServer]
) -> Override | None:
    """Return the first of the `others` that names one of the servers at a time of `wanted`, too."""
    meant = wanted.meant
    concerned = [
        (server.place, server.handlespace) for server in known if meant.has(server.place, server.handlespace)
    ]
    return next(
        (
            other
            for other in others
            if wanted.overlaps(other) and any(itertools.starmap(other.meant.has, concerned))
        ),
        None,
    )


@dataclass(frozen=True, slots=True)
class ServerShare:
    """The part of the calls, 0..1, that a server of a pool has before and after. None: it is out."""

    server: str
    name: str | None
    before: float | None
    after: float | None


def outlook(
    pool: Pool,
    views: Mapping[str, PoolView],
    held: Sequence[PoolOverride],
    wanted: Sequence[PoolOverride],
    now: float,
    name_of: NameOf,
) -> list[ServerShare]:
    """Return the shares of a pool's servers under the overrides that are `held`, and under those `wanted`.

    Slow start counts for nothing, and sites as if `back_after_s` were over. `now` is monotonic.
    """
    before, after = (_members(pool, views, overrides, now) for overrides in (held, wanted))
    shares = [_shares(pool, members, now) for members in (before, after)]
    members = before | after
    return [
        ServerShare(
            endpoint(str(members[key].addresses[0]), members[key].port),
            name_of(key[0], members[key]),
            *(of_time.get(key) for of_time in shares),
        )
        for key in sorted(members)
    ]


def _shares(
    pool: Pool, members: Mapping[tuple[str, int], Member], now: float
) -> dict[tuple[str, int], float]:
    weighted = weights.weigh(members, {}, now, 0.0, wide=True)
    if pool.sites is not None:
        states = site_states(pool.sites, members, {}, now)
        weighted = ranked(pool.sites, states, members, weighted)
    return weights.shares(weights.with_shares(members, weighted))


def has_no_rest(
    pool: Pool, views: Mapping[str, PoolView], overrides: Sequence[PoolOverride], now: float
) -> bool:
    """Whether all servers of a pool have shares of less than all calls together: each gets more."""
    shares = [member.share for member in _members(pool, views, overrides, now).values()]
    return bool(shares) and None not in shares and sum(share or 0.0 for share in shares) < 1 - ROUNDING


def given(pool: Pool, views: Mapping[str, PoolView], overrides: Sequence[PoolOverride], now: float) -> float:
    """Return the shares that these overrides give the servers of a pool, together; 1 is all calls.

    A pool with an order of sites tells the most that the servers of one site have.
    """
    of_site: dict[str | None, float] = {None: 0.0}
    for member in _members(pool, views, overrides, now).values():
        site = None if pool.sites is None else pool.sites.site_of(member)
        of_site[site] = of_site.get(site, 0.0) + (member.share or 0.0)
    return max(of_site.values())


def _members(
    pool: Pool, views: Mapping[str, PoolView], overrides: Sequence[PoolOverride], now: float
) -> dict[tuple[str, int], Member]:
    """The members of a pool as they would be."""
    result = {}
    for handle in pool.config.shards:
        view = views.get(handle) or PoolView(handle)
        listed = {out.identifier for out in view.out if out.cause.code is Code.OVERRIDDEN}
        departed = [departure.member for departure in view.departures]
        members = {
            member.identifier: member
            for member in (*view.members, *(member for member in departed if member.identifier in listed))
        }
        of_handle = MemberOverrides()
        of_handle.set(overrides)
        kept, _ = of_handle.apply(members, lambda departed=departed: departed, now)  # type: ignore[misc]
        for identifier, member in kept.items():
            if member.protocol == pool.config.protocol:
                result[handle, identifier] = member
    return result


def by_handle(pools: Iterable[Pool], overrides: Iterable[Override]) -> dict[str, tuple[PoolOverride, ...]]:
    """Return the overrides of each pool handle, in the form for the belief.

    If several pools have a handle, an override of one of them holds in all: a member is in or out.
    """
    pools_of: dict[str, list[Pool]] = {}
    for pool in pools:
        for handle in pool.config.shards:
            pools_of.setdefault(handle, []).append(pool)
    overrides = tuple(overrides)
    return {
        handle: tuple(override.in_pool for override in overrides if any(map(override.concerns, of_handle)))
        for handle, of_handle in pools_of.items()
    }


def next_moment_s(overrides: Iterable[Override], now_s: float) -> float | None:
    """Return when the next one begins or ends; None: never."""
    moments = [
        moment
        for override in overrides
        for moment in (override.starts_at_s, override.ends_at_s)
        if moment is not None and moment > now_s
    ]
    return min(moments, default=None)


def new_identifier() -> str:
    """Return an identifier by which all name servers know an override."""
    return secrets.token_hex(8)


def is_identifier(word: str) -> bool:
    """Whether a word is such an identifier, and no number."""
    return re.fullmatch(_IDENTIFIER, word) is not None


def _is_glob(words: str) -> bool:
    return "*" in words or "?" in words


def _is_network(words: str) -> bool:
    try:
        read_network(words)
    except ValueError:
        return False
    return True


def _servers_of(words: str) -> NamedServers:
    return NamedServers(glob=words) if _is_glob(words) else NamedServers(networks=(read_network(words),))


def _place(text: str) -> ServerAddress:
    address, _, port = text.rpartition(":")
    return read_address(address.strip("[]")), int(port)
