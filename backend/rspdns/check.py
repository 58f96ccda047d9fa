"""The part of `rspdns check` beside errors.

`warnings`: what is allowed and yet probably not meant; never a reason to refuse. `registered`: what is known
of the configured pools, asked of the running backend and of the registrars themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from daemon_kit.config_file import ConfigurationError, ConfigurationErrors, TomlDocument, read_text
from daemon_kit.control import ControlError, request
from pool_user import Handlespace

from rserpool import PoolElement, RegistrarAddress, RegistrarClient, RSerPoolError, SctpUnavailable
from rspdns import fastpath, names
from rspdns.configuration import BackendConfig
from rspdns.losses import PoolLoss
from rspdns.rrset import Record
from rspdns.status.model import OtherVersionError, ZoneStatus, read
from rspdns.zones.checks import cuts_of
from rspdns.zones.file import MAX_MESSAGE
from rspdns.zones.sites import overlap
from rspdns.zones.zone import Zone

TIMEOUT_MS = 500
PATIENCE_S = 3.0
"""How long one registrar is waited for, its association included."""
Elements = dict[str, dict[int, PoolElement]]
"""By handle and identifier, the pool elements that registrars list."""
LONGEST_TTL_S = 60
TOLD_TTL_S = 30
"""A TTL for resolvers that are told of changes."""
FEWEST_REGISTRARS = 3


@dataclass(frozen=True, slots=True)
class Registered:
    """`handles` are the configured ones under which somebody is registered; None when nobody could be asked.

    `unknown` are those that the running backend does not know, when no registrar answers either.
    `zones` are those of the running backend as its status tells them, `elements` what registrars list under
    the handles that it does not know.
    """

    handles: Collection[str] | None = None
    zones: tuple[ZoneStatus, ...] = ()
    elements: Mapping[str, tuple[PoolElement, ...]] = field(default_factory=dict)
    unknown: Collection[str] = ()


def registered(config: BackendConfig) -> Registered:
    """Ask the running backend, and the registrars about what it does not know."""
    zones, known, used = _ask_backend(config)
    missing = [handle for handle in config.accept_by_handle if handle not in known]
    if not missing:
        return Registered(used, zones)
    listed = asyncio.run(_ask_registrars(config, missing))
    if not listed and not known:
        return Registered(None, zones)
    elements = {handle: tuple(of_handle.values()) for handle, of_handle in listed.items()}
    registered_there = (handle for handle, some in elements.items() if some)
    unknown = [handle for handle in missing if handle not in listed]
    return Registered({*used, *registered_there}, zones, elements, unknown)


def _ask_backend(
    config: BackendConfig,
) -> tuple[tuple[ZoneStatus, ...], Collection[str], Collection[str]]:
    """The zones of the running backend, the handles that it knows, and those that somebody registered."""
    try:
        zones = tuple(read(request(config.admin.socket, "status")).zones)
    except (ControlError, OtherVersionError):
        return (), (), ()
    pools = [pool for zone in zones for pool in zone.pools]
    known = {handle for pool in pools if pool.known for handle in pool.handles}
    used = {handle for pool in pools if pool.members or pool.out for handle in pool.handles}
    return zones, known, used


async def _ask_registrars(config: BackendConfig, handles: Collection[str]) -> Elements:
    """The elements that the registrars list under these handles; without those of handlespaces in which no
    registrar answers."""
    asked = [
        (handlespace, [handle for handle in handles if handlespace.has(handle)], RegistrarAddress.parse(text))
        for handlespace in config.handlespaces
        for text in handlespace.registrars
    ]
    answers = await asyncio.gather(*(_ask_registrar(*question) for question in asked))
    elements_of: Elements = {}
    for answer in answers:
        for handle, elements in (answer or {}).items():
            elements_of.setdefault(handle, {}).update((element.identifier, element) for element in elements)
    return elements_of


async def _ask_registrar(
    handlespace: Handlespace, handles: Collection[str], address: RegistrarAddress
) -> dict[str, tuple[PoolElement, ...]] | None:
    """The elements that one registrar lists; None when it does not answer."""
    up = asyncio.Event()
    client = RegistrarClient(
        address, timeout_ms=TIMEOUT_MS, on_link=lambda is_up: up.set() if is_up else up.clear()
    )
    try:
        client.start()
    except (SctpUnavailable, OSError):
        return None
    try:
        async with asyncio.timeout(PATIENCE_S):
            await up.wait()
            return {
                handle: (await client.resolve(handlespace.handle(handle))).pool_elements for handle in handles
            }
    except (RSerPoolError, TimeoutError, OSError):
        return None
    finally:
        await client.close()


def warnings(
    path: Path,
    config: BackendConfig,
    registered: Collection[str] | None,
    losses: Iterable[PoolLoss] = (),
    *,
    unknown: Collection[str] = (),
) -> list[ConfigurationError]:
    """Every warning about the right configuration at `path`, each with file, line and key.

    `registered` are the pool handles with members, as far as somebody could be asked; None: nobody could.
    No registrar could be asked about those that are `unknown`.
    `losses` are what the pools of the running backend would lose.
    """
    errors = [*_registrars(_CheckedFile(path), config), *_hooks(_CheckedFile(path), config)]
    errors += _resolvers(_CheckedFile(path), config)
    errors += _publications(_CheckedFile(path), config)
    errors += _push(_CheckedFile(path), config)
    if config.fastpath.socket is not None:
        file = _CheckedFile(path)
        errors += [
            file.warn(("fastpath", "socket"), words) for words in fastpath.problems(config.fastpath.socket)
        ]
    losses = list(losses)
    for zone_file in sorted((path.parent / config.zones_dir).glob("*.toml")):
        file = _CheckedFile(zone_file)
        name = file.data("zone")
        zone = next((served for served in config.zones if served.name == str(name).lower().rstrip(".")), None)
        if zone is not None:
            errors += _zone(file, zone, None if registered is None else {*registered, *unknown})
            errors += _delegation(file, zone, config.zones)
            errors += _zone_file(zone)
            errors += [_loss(file, zone, loss) for loss in losses if loss.zone == zone.name]
    gone = [loss for loss in losses if loss.zone_is_gone]
    return errors + [
        ConfigurationError(str(path.parent / config.zones_dir), 0, "", loss.words) for loss in gone
    ]


def _loss(file: _CheckedFile, zone: Zone, loss: PoolLoss) -> ConfigurationError:
    """The members that a pool would lose, as an error at the key that is the cause."""
    pools = (pool for site in zone.sites for pool in site.pools if pool.owner == loss.owner)
    position = next((pool.position for pool in pools), None)
    location: tuple[str | int, ...] = () if position is None else ("pool", position, loss.key)
    only = "; reload --force is needed" if loss.is_refused else ""
    return file.warn(location, loss.words + only)


class _CheckedFile:
    """The positions of the keys of one file."""

    def __init__(self, path: Path) -> None:
        self._document: TomlDocument | None = None
        self._path = path
        try:
            self._document = TomlDocument(str(path), read_text(path))
        except ConfigurationErrors:  # it changed since it was read
            self._document = None

    def data(self, key: str) -> object:
        return self._document.data.get(key) if self._document else None

    def warn(self, location: tuple[str | int, ...], text: str) -> ConfigurationError:
        if self._document is None:
            return ConfigurationError(str(self._path), 0, "", text)
        return self._document.error(location, text)


def _registrars(file: _CheckedFile, config: BackendConfig) -> Iterator[ConfigurationError]:
    for index, handlespace in enumerate(config.handlespaces):
        key: tuple[str | int, ...] = ("handlespace", index) if handlespace.name else ()
        count = len(handlespace.registrars)
        if count < FEWEST_REGISTRARS:
            why = {
                1: "when the only registrar fails, no change is heard of",
                2: "with two registrars nobody can tell which of them is cut off",
            }[count]
            yield file.warn((*key, "registrars"), f"{why}; run three or more")
        for position, text in enumerate(handlespace.registrars):
            host = RegistrarAddress.parse(text).host
            if ip_address(host).is_loopback:
                words = (
                    f"{host} is reached from this host only, and rspregistrar uses no loopback "
                    "addresses: no server could register there; write the address that the sidecars use"
                )
                yield file.warn((*key, "registrars", position), words)


def _hooks(file: _CheckedFile, config: BackendConfig) -> Iterator[ConfigurationError]:
    pools = [pool for zone in config.zones for site in zone.sites for pool in site.pools]
    known = {name for pool in pools for name in (pool.owner, *pool.config.shards)}
    for position, hook in enumerate(config.hooks):
        if hook.is_readable_on_the_way:
            yield file.warn(
                ("hook", position, "url"), "http: anybody on the way reads what is told; use https"
            )
        for place, name in enumerate(hook.pools):
            if name not in known:
                text = f"{name!r} is no pool: neither the name of SRV records nor a handle"
                yield file.warn(("hook", position, "pools", place), text)


def _resolvers(file: _CheckedFile, config: BackendConfig) -> Iterator[ConfigurationError]:
    for position, resolver in enumerate(config.resolvers):
        if resolver.risk is not None:
            yield file.warn(("resolver", position, "address"), resolver.risk)


def _publications(file: _CheckedFile, config: BackendConfig) -> Iterator[ConfigurationError]:
    for position, publication in enumerate(config.publications):
        if publication.is_forgeable:
            text = "without key, anybody on the way can change the zone there: tsig-keygen makes a key"
            yield file.warn(("publish", position, "server"), text)
        pools = [
            pool.owner
            for zone in config.zones
            if zone.name == publication.zone
            for site in zone.sites
            for pool in site.pools
            if pool.config.when_empty == "servfail"
        ]
        if pools:
            text = f'{pools[0]} has when_empty = "servfail": when it is empty, its records are removed there'
            yield file.warn(("publish", position, "zone"), text)


def _push(file: _CheckedFile, config: BackendConfig) -> Iterator[ConfigurationError]:
    for zone in config.zones if config.news is not None and config.news.push is not None else ():
        name = f"_dns-push-tls._tcp.{zone.name}"
        if not any(record.type == "SRV" for record in zone.static.records.get(name, ())):
            text = f"{zone.static.file} has no SRV record {name}: clients do not find this server"
            yield file.warn(("news", "push", "listen"), text)


def _delegation(file: _CheckedFile, zone: Zone, zones: Sequence[Zone]) -> Iterator[ConfigurationError]:
    """A zone below another one of ours that does not tell of it."""
    served = [served_zone.name for served_zone in zones]
    for outer in zones:
        at_cut = outer.static.records.get(zone.name, ())
        if zone.name in cuts_of(outer.name, served) and not any(record.type == "NS" for record in at_cut):
            text = (
                f"lies inside the zone {outer.name}, whose file {outer.static.file} has no NS record for it: "
                f"resolvers that got the keys of {outer.name} refuse its answers, and so do those that asked "
                "another name server"
            )
            yield file.warn(("zone",), text)


def _zone(file: _CheckedFile, zone: Zone, registered: Collection[str] | None) -> Iterator[ConfigurationError]:
    ttls: tuple[tuple[str, int, str], ...] = (
        ("ttl", zone.config.ttl, "resolvers may send clients to a dead server for so long"),
        ("negative_ttl", zone.config.negative_ttl_s, "a returning server may stay hidden for so long"),
    )
    for key, value, why in ttls:
        if value > LONGEST_TTL_S and (key == "ttl" or zone.config.negative_ttl is not None):
            yield file.warn(
                (key,), f"{value} s: {why}; up to {LONGEST_TTL_S} is usual, 1 to 5 is recommended"
            )
    for pool_of_site in (pool for site in zone.sites for pool in site.pools if pool.sites is not None):
        accept, of_site = pool_of_site.config.accept, pool_of_site.sites.networks  # type: ignore[union-attr]
        for name, networks in of_site.items():
            if networks and not any(
                overlap(network, accepted) for network in networks for accepted in accept
            ):
                text = f"site {name}: none of its addresses is in accept, so it never has a member"
                yield file.warn(("pool", pool_of_site.position, "order"), text)
    for position, pool in enumerate(zone.config.pools):
        if len(pool.accept) and any(network.prefixlen == 0 for network in pool.accept):
            yield file.warn(
                ("pool", position, "accept"), "whoever reaches a registrar may join from anywhere"
            )
        if registered is None:
            continue
        key = "handle" if pool.handle is not None else "handles"
        for handle in pool.shards:
            if handle not in registered:
                text = f"no server registers {handle!r}; is it the `handle` of the sidecars' agent.toml?"
                yield file.warn(("pool", position, key), text)


NEIGHBOURS = 100
"""Records that PowerDNS puts into one message of a zone transfer, in the order of the zone file (issue 11804
of PowerDNS)."""
_AROUND_RECORD = 12
"""Octets of a record in a message besides data and name, with the pointer to the zone's name."""


def _zone_file(zone: Zone) -> Iterator[ConfigurationError]:
    """Records that PowerDNS never answers, or can't transfer."""
    records = zone.static.records

    def at(record: Record, text: str) -> ConfigurationError:
        where = f"{record.name} {record.type}"
        return ConfigurationError(zone.static.file, zone.static.lines[record], where, text)

    aliases = {record.name: record for some in records.values() for record in some if record.type == "CNAME"}
    for loop in _loops({name: alias.content.lower() for name, alias in aliases.items()}):
        yield at(aliases[loop[0]], f"a loop of CNAME records, which has no answer: {' -> '.join(loop)}")
    # Their addresses go along with a referral.
    servers = {record.content.lower() for some in records.values() for record in some if record.type == "NS"}
    for name, some in records.items():
        above = [name, *names.ancestors(name, zone.name)]
        cut = next((cut for cut in reversed(above) if cut != zone.name and _servers(records, cut)), None)
        if cut is None:
            continue
        usual = {"NS", "DS"} if name == cut else set()
        if name in servers:
            usual |= {"A", "AAAA"}
        hidden = next((record for record in some if record.type not in usual), None)
        if hidden is not None:
            yield at(hidden, f"is never answered: the NS records of {cut} delegate this name")
    in_order = [record for some in records.values() for record in some]
    if (first := _too_large_together(in_order, zone.name)) is not None:
        text = (
            f"this and the {NEIGHBOURS - 1} records behind it have about {MAX_MESSAGE} octets or more: "
            "PowerDNS can't transfer such a zone; put small records between them"
        )
        yield at(first, text)


def _servers(records: Mapping[str, Sequence[Record]], name: str) -> set[str]:
    """The name servers that `name` is delegated to."""
    return {record.content.lower() for record in records.get(name, ()) if record.type == "NS"}


def _loops(aliases: Mapping[str, str]) -> Iterator[list[str]]:
    """The loops among aliases, each once, its first name repeated at the end."""
    known: set[str] = set()
    for start in aliases:
        way: list[str] = []
        name = start
        while name in aliases and name not in known:
            known.add(name)
            way.append(name)
            name = aliases[name]
        if name in way:
            yield [*way[way.index(name) :], name]


def _too_large_together(records: Sequence[Record], zone: str) -> Record | None:
    """The first record that with its neighbours may be too large for a message of a zone transfer.

    Large data are no shorter as text than on the wire.
    """
    sizes = [len(record.name) - len(zone) + _AROUND_RECORD + len(record.content) for record in records]
    together = sum(sizes[:NEIGHBOURS])
    for start in range(len(records)):
        if together > MAX_MESSAGE:
            return records[start]
        together -= sizes[start]
        together += sizes[start + NEIGHBOURS] if start + NEIGHBOURS < len(sizes) else 0
    return None
