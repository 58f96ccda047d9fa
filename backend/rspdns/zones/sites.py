"""Sites: the places where servers are, by network, and the order of a pool's sites. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any

from daemon_kit.config_file import StrictModel, duplicates, find
from pool_user import HandlespaceName, Member, Network, not_empty, read_trusted_network
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

OWN_FIRST = "own-first"
SITE_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
SiteName = Annotated[str, Field(pattern=SITE_NAME)]


def _networks(value: object) -> tuple[Network, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError('a list of networks: ["10.1.0.0/16"]')  # noqa: TRY004 - pydantic wants it
    return tuple(read_trusted_network(network) for network in value)


class SiteConfig(StrictModel):
    """A site, [[site]] in `rspdns.toml`: the same at every name server. Either all sites have networks, or
    each has a handlespace."""

    name: SiteName
    """The name of the site in `order`, status and overrides."""
    networks: Annotated[tuple[Network, ...], PlainValidator(_networks), AfterValidator(not_empty)] = ()
    """The networks of its servers; no address is in two sites."""
    handlespace: HandlespaceName | None = None
    """The `[[handlespace]]` whose registrars vouch for its servers, in place of networks."""


def _order(value: object) -> object:
    return (OWN_FIRST,) if value == OWN_FIRST else value


SiteOrder = Annotated[tuple[SiteName, ...], BeforeValidator(_order), AfterValidator(not_empty)]
"""The sites of a pool, the first one first; `("own-first",)`: that of the name server before the others."""


@dataclass(frozen=True, slots=True)
class SiteRules:
    """The rules by which the sites of one pool follow each other.

    `names` are in their order. A site is enough with `least` members, by its name. `spill_at` and
    `spill_back` are loads, 0..1; without them it never spills. A site that was not enough counts again when
    it has been enough for `back_after_s`; spilling ends after as long at or below `spill_back`.
    `of_handlespaces` has the site of each handlespace, if sites are these.
    """

    names: tuple[str, ...]
    networks: Mapping[str, tuple[Network, ...]]
    least: Mapping[str, int]
    spill_at: float | None = None
    spill_back: float | None = None
    back_after_s: float = 60.0
    of_handlespaces: Mapping[str, str] = field(default_factory=dict)

    def site_of(self, member: Member) -> str | None:
        """The site of a member; None: it is in none."""
        if self.of_handlespaces:
            return self.of_handlespaces.get(member.handlespace)
        return site_at(self.networks, member.addresses[0])


def site_at(networks: Mapping[str, Collection[Network]], address: IPv4Address | IPv6Address) -> str | None:
    """Return the site whose networks have an address; None if none has."""
    return next(
        (name for name, of_site in networks.items() if any(address in network for network in of_site)), None
    )


def overlap(network: Network, other: Network) -> bool:
    """Whether two networks have an address in common."""
    return network.version == other.version and network.overlaps(other)


@dataclass(frozen=True, slots=True)
class Sites:
    """All sites, and `own`: that of this name server. `handlespaces` are by site, too."""

    networks: Mapping[str, tuple[Network, ...]] = field(default_factory=dict)
    own: str | None = None
    handlespaces: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, configs: Collection[SiteConfig], own: str | None) -> Sites:
        """The sites of a configuration."""
        named = {config.name: config.handlespace for config in configs if config.handlespace is not None}
        return cls({config.name: config.networks for config in configs}, own, named)

    def ordered(self, order: tuple[str, ...]) -> tuple[str, ...]:
        """The names of a pool's `order`, "own-first" resolved."""
        if order != (OWN_FIRST,):
            return order
        return (*([self.own] if self.own else []), *(name for name in self.networks if name != self.own))

    def problem(
        self, order: tuple[str, ...], accept: Collection[Network], handlespaces: Collection[str] = ()
    ) -> str | None:
        """The problem of the `order` of a pool with these networks and handlespaces, in words; None: there is
        none.

        A pool names the sites whose servers it may have; "own-first" names all.
        """
        if order == (OWN_FIRST,) and not self.own:
            return "needs own_site in rspdns.toml: the site of this name server"
        order = self.ordered(order)
        unknown = [name for name in order if name not in self.networks]
        if unknown:
            return f"{', '.join(unknown)}: no [[site]] in rspdns.toml has this name"
        if len(set(order)) < len(order):
            return "names a site twice"
        with_members = [name for name in self.networks if self._has_any(name, accept, handlespaces)]
        empty = [name for name in order if name not in with_members]
        if empty:
            why = (
                "its handlespace is none of the pool's"
                if self.handlespaces
                else "no network of it is in accept"
            )
            return f"{', '.join(empty)}: has no server, since {why}"
        lacking = [name for name in with_members if name not in order]
        where = "in its handlespaces" if self.handlespaces else "in accept"
        return f"lacks {', '.join(lacking)}: name every [[site]] with servers {where}" if lacking else None

    def _has_any(self, name: str, accept: Collection[Network], handlespaces: Collection[str]) -> bool:
        """Whether a server of the site could be in a pool with these networks and handlespaces."""
        if self.handlespaces:
            return self.handlespaces.get(name) in handlespaces
        return any(overlap(network, other) for network in self.networks[name] for other in accept)


def _kind_problems(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The problems of sites that are no networks, nor a handlespace, or both, or one beside the other."""
    known = [
        table.get("name") for _, table in find(document, ("handlespace", "*")) if isinstance(table, dict)
    ]
    tables = [(at, table) for at, table in find(document, ("site", "*")) if isinstance(table, dict)]
    has_networks = any("networks" in table for _, table in tables)
    for location, table in tables:
        name = table.get("handlespace")
        if name is None and "networks" not in table:
            yield location, "needs networks, or a handlespace"
        elif name is not None and has_networks:
            words = (
                "a server in it could be in the networks of a [[site]], too: give all sites one or the other"
            )
            yield (*location, "handlespace"), words
        elif name is not None and name not in known:
            yield (*location, "handlespace"), f"{name}: no [[handlespace]] has this name"


def problems(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The problems between the keys of all [[site]] in the unchecked `document`."""
    yield from duplicates(document, ("site", "*", "name"))
    yield from duplicates(document, ("site", "*", "handlespace"))
    yield from _kind_problems(document)
    seen: list[tuple[Network, str]] = []
    for location, table in find(document, ("site", "*")):
        if not isinstance(table, dict) or not isinstance(table.get("networks"), list):
            continue
        name = str(table.get("name"))
        for position, text in enumerate(table["networks"]):
            try:
                network = read_trusted_network(text)
            except ValueError:
                continue  # told at its own line
            other = next((of for known, of in seen if overlap(known, network)), None)
            if other is not None and other != name:
                yield (*location, "networks", position), f"{text} overlaps a network of the site {other!r}"
            seen.append((network, name))
    own = document.get("own_site")
    names = [name for _, name in find(document, ("site", "*", "name"))]
    if isinstance(own, str) and own not in names:
        yield ("own_site",), f"{own}: no [[site]] has this name"
