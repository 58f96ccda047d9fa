"""gdnsd: its directory with `config` and `zones/`; the plugins multifo, weighted, simplefo and metafo."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from rspdns import names
from rspdns.importing import vscf
from rspdns.importing.model import (
    Address,
    CheckKeys,
    FileLine,
    Import,
    ImportedPool,
    ImportedServer,
    ImportProblem,
    NotCarried,
    PolicyName,
    Wishes,
    as_name,
    service_of,
    shown_addresses,
)
from rspdns.importing.records import Special, read_master_file

_TTL_RANGE: Final = re.compile(r"(?m)(?<=\s)(\d+[smhdwSMHDW]?)/\d+[smhdwSMHDW]?(?=\s+(?:IN\s+)?DYN[AC]\s)")
_ORIGINS: Final = r"(?m)(?:(?<=[\s.])|^)@{}(?=[\s;)]|$)"
_DEFAULT_TTL_S: Final = 86400
_TIMES: Final = frozenset({"plugin", "interval", "timeout", "up_thresh", "ok_thresh", "down_thresh"})
"""Keys of every service type. The checks have the times of rspdns, which each report says."""
_CHECKED: Final = {
    "tcp_connect": _TIMES | {"port"},
    "http_status": _TIMES | {"port", "vhost", "url_path", "ok_codes"},
    "extmon": _TIMES | {"cmd"},
}
_PLAIN: Final = ("multifo", "weighted", "simplefo")
_NO_CHECK: Final = frozenset({"up", "none"})
_INHERITED: Final = frozenset({"service_types", "up_thresh", "ignore_health", "multi"})
_FAMILIES: Final = ("addrs_v4", "addrs_v6")


@dataclass(frozen=True)
class _Service:
    """A service type: its check, its port and whether it is a web service."""

    check: CheckKeys
    port: int | None
    service: str | None
    found_at: FileLine


def read_gdnsd(directory: Path, wishes: Wishes) -> list[Import]:
    """Return every zone with dynamic records. Raises ImportProblem."""
    config = _read(directory / "config")
    document = vscf.read(config, str(directory / "config"))
    resources = _Resources(document, wishes)
    zones = directory / "zones"
    if not zones.is_dir():
        raise ImportProblem(f"{zones}: is no directory; the zones of gdnsd are there")
    imports = []
    has_dynamic = False
    for file in sorted(zones.iterdir()):
        if file.is_file() and not file.name.startswith("."):
            zone = names.normal(file.name.replace("@", "/"))
            change = partial(_as_others_write, zone)
            read = read_master_file(_read(file), str(file), zone, resources.default_ttl_s, change)
            special = read.special
            has_dynamic = has_dynamic or bool(special)
            made = _zone(zone, read.fixed, special, resources)
            made.lose_directives(read.directives)
            if not special:
                made.lost(
                    FileLine(str(file)), f"zone {zone}", "it has no DYNA or DYNC record: leave it where it is"
                )
            imports.append(made)
    with_pools = [zone for zone in imports if zone.pools]
    if not has_dynamic:
        raise ImportProblem(f"{zones}: no zone there has a DYNA or DYNC record")
    for found_at, what, why in resources.left_out():
        (with_pools or imports)[0].lost(found_at, what, why)
    return imports


def _as_others_write(zone: str, text: str, is_included: bool) -> str:
    """Return a zone file of gdnsd in RFC 1035's words: one TTL, and the zone's name for @Z and @F."""
    if is_included and re.search(_ORIGINS.format("F"), text):
        raise ImportProblem(f"zone {zone}: @F in an included file is not followed: write the name")
    return re.sub(_ORIGINS.format("[ZF]"), f"{zone}.", _TTL_RANGE.sub(r"\1", text))


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise ImportProblem(f"{file}: {getattr(problem, 'strerror', None) or problem}") from None


def _zone(zone: str, fixed: list[str], special: list[Special], resources: _Resources) -> Import:
    made = Import(zone, fixed=fixed)
    for record in special:
        what = f"{record.name} {record.type} {' '.join(record.words)}"
        try:
            if record.type not in ("DYNA", "DYNC"):
                raise NotCarried(f"gdnsd has no {record.type} records")  # noqa: TRY301 - told as the others
            pool, notes = resources.pool(record)
        except NotCarried as problem:
            made.lost(
                record.found_at, what, f"{problem}" + (f" ({problem.found_at})" if problem.found_at else "")
            )
            continue
        if any(pool.name == other.name for other in made.pools):
            made.lost(record.found_at, what, "another dynamic record of that name was carried over")
            continue
        made.pools.append(pool)
        for found_at, thing, why in notes:
            made.differs(found_at, thing, why)
    return made


class _Resources:
    """The plugins' resources and the service types of a configuration."""

    def __init__(self, document: vscf.Hash, wishes: Wishes) -> None:
        self._plugins = _hash(document.values.get("plugins"), document.found_at)
        self._types = _hash(document.values.get("service_types"), document.found_at)
        self._wishes = wishes
        self._used: set[tuple[str, str]] = set()
        options = _hash(document.values.get("options"), document.found_at)
        given = _text(options.values.get("zones_default_ttl"))
        self.default_ttl_s = int(given) if re.fullmatch("[0-9]{1,9}", given) else _DEFAULT_TTL_S
        """The TTL of records without one."""

    def left_out(self) -> Iterator[tuple[FileLine, str, str]]:
        """Yield what no zone names, and keys of service types that have no counterpart."""
        for plugin in (*_PLAIN, "metafo"):
            stanza = _hash(self._plugins.values.get(plugin), self._plugins.found_at)
            if plugin == "metafo":
                stanza = _hash(stanza.values.get("resources"), stanza.found_at)
            for name, value in stanza.values.items():
                if name not in _INHERITED and (plugin, name) not in self._used:
                    yield value.found_at, f"{plugin}!{name}", "no record of a zone names it"
        for name, value in self._types.values.items():
            if isinstance(value, vscf.Hash):
                known = _CHECKED.get(_text(value.values.get("plugin")), frozenset(value.values))
                for key, resource in value.values.items():
                    if key not in known:
                        yield (
                            resource.found_at,
                            f"service type {name}, {key}",
                            "it has no counterpart: it is left out",
                        )

    def pool(self, record: Special) -> tuple[ImportedPool, list[tuple[FileLine, str, str]]]:
        """Return the pool that a record asks for, and what is different. Raises NotCarried."""
        plugin, _, name = record.words[0].partition("!") if record.words else ("", "", "")
        if "*" in record.name:
            raise NotCarried("a pool has no wildcard name")
        name, _, datacenter = name.partition("/")
        notes: list[tuple[FileLine, str, str]] = []
        match plugin:
            case plain if plain in _PLAIN:
                if datacenter:
                    raise NotCarried(f"{plugin} has no datacenters")
                policy, chosen, most = self._plain(plugin, name, notes)
            case "metafo":
                policy, chosen, most = self._metafo(name, datacenter, notes)
            case _:
                raise NotCarried(f"the plugin {plugin or '(none)'} has no counterpart here")
        if not chosen:
            raise NotCarried("it has no addresses")
        services = {service for _, service in chosen}
        if len(services) > 1:
            raise NotCarried(f"its servers have several services: {', '.join(sorted(services))}")
        servers = tuple(server for server, _ in chosen)
        return (
            ImportedPool(
                record.found_at,
                record.name,
                services.pop(),
                policy,
                servers,
                shown_addresses(servers, most),
                _fallback(servers, policy),
            ),
            notes,
        )

    def _plain(
        self, plugin: str, name: str, notes: list[tuple[FileLine, str, str]]
    ) -> tuple[PolicyName, list[tuple[ImportedServer, str]], int | None]:
        self._used.add((plugin, name))
        stanza = _hash(self._plugins.values.get(plugin), self._plugins.found_at)
        value = stanza.values.get(name)
        if value is None or name in _INHERITED:
            raise NotCarried(f"there is no resource {plugin}!{name}")
        defaults = {key: default for key, default in stanza.values.items() if key in _INHERITED}
        chosen, multi = [], set()
        for entries, keys in _families(value, defaults):
            if _flag(keys.get("ignore_health")):
                raise NotCarried("ignore_health answers dead servers", entries.found_at)
            multi.add(_flag(keys.get("multi")))
            self._tell_threshold(plugin, name, keys, entries.found_at, notes)
            for label, entry in _entries(entries):
                chosen.append(self._server(plugin, label, entry, keys))
        if plugin == "multifo":
            return "round-robin", chosen, None
        if plugin == "simplefo":
            return "priority", chosen, 1
        if len(multi) > 1:
            raise NotCarried("multi is not the same for both address families", value.found_at)
        if True in multi:
            words = "each answer has all living servers, not each of them by its own chance"
            notes.append((value.found_at, f"weighted!{name} multi", words))
        return "weighted-random", chosen, None if True in multi else 1

    def _tell_threshold(
        self,
        plugin: str,
        name: str,
        keys: Mapping[str, vscf.Setting],
        found_at: FileLine,
        notes: list[tuple[FileLine, str, str]],
    ) -> None:
        if plugin == "simplefo":
            return
        threshold = keys.get("up_thresh")
        given = threshold.text if isinstance(threshold, vscf.Text) else "0.5"
        words = "all servers are answered when none lives, not when fewer than that share do"
        notes.append((found_at, f"{plugin}!{name} up_thresh {given}", words))

    def _metafo(
        self, name: str, datacenter: str, notes: list[tuple[FileLine, str, str]]
    ) -> tuple[PolicyName, list[tuple[ImportedServer, str]], int | None]:
        self._used.add(("metafo", name))
        stanza = _hash(self._plugins.values.get("metafo"), self._plugins.found_at)
        resources = _hash(stanza.values.get("resources"), stanza.found_at)
        if name not in resources.values:
            raise NotCarried(f"there is no resource metafo!{name}")
        resource = _hash(resources.values[name], resources.found_at)
        if _flag(resource.values.get("skip_first")):
            raise NotCarried("skip_first has no counterpart", resource.found_at)
        order = _texts(resource.values.get("datacenters"))
        dcmap = _hash(resource.values.get("dcmap"), resource.found_at)
        if datacenter:
            order = [listed for listed in order if listed == datacenter]
        inherited = {
            key: value
            for part in (stanza.values, resource.values)
            for key, value in part.items()
            if key in _INHERITED
        }
        chosen: list[tuple[ImportedServer, str]] = []
        for rank, tier in enumerate(order):
            value = dcmap.values.get(tier)
            if value is None:
                raise NotCarried(f"dcmap has no {tier}", dcmap.found_at)
            for server, service in self._of_datacenter(tier, value, inherited, notes):
                chosen.append((replace(server, priority=len(order) - rank), service))
        return "priority", chosen, None

    def _of_datacenter(
        self,
        datacenter: str,
        value: vscf.Setting,
        inherited: Mapping[str, vscf.Setting],
        notes: list[tuple[FileLine, str, str]],
    ) -> list[tuple[ImportedServer, str]]:
        if isinstance(value, vscf.Text) and value.text.startswith("%"):
            plugin, _, name = value.text[1:].partition("!")
            if plugin != "multifo":
                raise NotCarried(f"{value.text}: within tiers only multifo has a counterpart", value.found_at)
            return self._plain(plugin, name, notes)[1]
        if isinstance(value, vscf.Text):
            value = vscf.Array((value,), value.found_at)
        if isinstance(value, vscf.Hash) and "plugin" in value.values:
            plugin_of = value.values["plugin"]
            if not isinstance(plugin_of, vscf.Text) or plugin_of.text != "multifo":
                raise NotCarried("within tiers only multifo has a counterpart", value.found_at)
            value = vscf.Hash({key: v for key, v in value.values.items() if key != "plugin"}, value.found_at)
        chosen = []
        for entries, keys in _families(value, inherited):
            self._tell_threshold("metafo", datacenter, keys, entries.found_at, notes)
            for label, entry in _entries(entries):
                chosen.append(self._server("multifo", f"{datacenter}-{label}", entry, keys))
        return chosen

    def _server(
        self, plugin: str, label: str, value: vscf.Setting, keys: Mapping[str, vscf.Setting]
    ) -> tuple[ImportedServer, str]:
        """Return a server and its service. Raises NotCarried."""
        weight = priority = None
        address_of = value
        if plugin == "weighted":
            if isinstance(value, vscf.Hash) or not isinstance(value, vscf.Array) or len(value.values) != 2:
                raise NotCarried(
                    f"{label} is a group: weights in two levels have no counterpart", value.found_at
                )
            address_of, weight_of = value.values
            weight = _whole(weight_of)
        if plugin == "simplefo":
            if label not in ("primary", "secondary"):
                raise NotCarried(f"{label!r} is neither primary nor secondary", value.found_at)
            priority = 2 if label == "primary" else 1
        if not isinstance(address_of, vscf.Text):
            raise NotCarried(f"{label} has no address", value.found_at)
        try:
            address = ip_address(address_of.text)
        except ValueError:
            raise NotCarried(
                f"{address_of.text} is no address (names have no counterpart)", value.found_at
            ) from None
        checks, port, service = self._checks(keys, str(address), value.found_at)
        return ImportedServer(as_name(label), address, port, checks, weight, priority), service

    def _checks(
        self, keys: Mapping[str, vscf.Setting], address: str, found_at: FileLine
    ) -> tuple[tuple[CheckKeys, ...], int, str]:
        """Return the checks of a server, its port and its service."""
        wanted = [text for text in _texts(keys.get("service_types")) or ["up"] if text not in _NO_CHECK]
        kinds = [self._service_type(name, address, found_at) for name in wanted]
        ports = {kind.port for kind in kinds if kind.port is not None}
        checks = tuple(kind.check for kind in kinds) or self._wishes.checks
        if not checks:
            why = 'its service type is "up", that is no check at all: say --check tcp and --port'
            raise NotCarried(why, found_at)
        port = self._wishes.port or (ports.pop() if len(ports) == 1 else None)
        if port is None:
            why = (
                f"checks at the ports {', '.join(map(str, sorted(ports)))}"
                if ports
                else "no check has a port"
            )
            raise NotCarried(f"{why}: at which port it serves is not known; say --port", found_at)
        service = next((kind.service for kind in kinds if kind.service and kind.port == port), None)
        return checks, port, service or service_of(port)

    def _service_type(self, name: str, address: str, used: FileLine) -> _Service:
        value = self._types.values.get(name)
        if not isinstance(value, vscf.Hash):
            raise NotCarried(f"there is no service type {name}", used)
        plugin = _text(value.values.get("plugin"))
        match plugin:
            case "tcp_connect":
                port = _port(value)
                return _Service({"type": "tcp", "port": port}, port, None, value.found_at)
            case "http_status":
                return self._http(value)
            case "extmon":
                command = [text.replace("%%ITEM%%", address) for text in _texts(value.values.get("cmd"))]
                if not command:
                    raise NotCarried("extmon without cmd", value.found_at)
                return _Service({"type": "exec", "command": command}, None, None, value.found_at)
            case _:
                why = f"the service type {name} ({plugin or 'no plugin'}) has no counterpart"
                raise NotCarried(why, value.found_at)

    def _http(self, value: vscf.Hash) -> _Service:
        port = _port(value, 80)
        codes = sorted({_whole(code) for code in _values(value.values.get("ok_codes"))} or {200})
        if codes[-1] - codes[0] >= len(codes):
            raise NotCarried(
                f"ok_codes {', '.join(map(str, codes))}: only a range has a counterpart", value.found_at
            )
        check: dict[str, object] = {"type": "http", "port": port, "status": [codes[0], codes[-1]]}
        path = value.values.get("url_path")
        if path is not None:
            check["path"] = _text(path)
        if "vhost" in value.values:
            check["host"] = _text(value.values["vhost"])
        return _Service(check, port, "_http._tcp", value.found_at)


def _fallback(servers: Sequence[ImportedServer], policy: PolicyName) -> tuple[Address, ...]:
    """The servers that are answered while none lives: all, or the first ones where they come in order."""
    highest = max(server.priority or 0 for server in servers)
    addresses = [server.address for server in servers if policy != "priority" or server.priority == highest]
    return tuple(dict.fromkeys(addresses))


def _families(
    value: vscf.Setting, defaults: Mapping[str, vscf.Setting]
) -> Iterator[tuple[vscf.Hash | vscf.Array, dict[str, vscf.Setting]]]:
    """Yield the entries of each address family, with the keys that hold for them."""
    if isinstance(value, vscf.Text):
        raise NotCarried("no addresses", value.found_at)
    if isinstance(value, vscf.Array):
        yield value, dict(defaults)
        return
    keys = {**defaults, **{key: default for key, default in value.values.items() if key in _INHERITED}}
    families = [value.values[key] for key in _FAMILIES if key in value.values]
    if not families:
        yield value, keys
    for family in families:
        if isinstance(family, vscf.Text):
            raise NotCarried("no addresses", family.found_at)
        own = family.values if isinstance(family, vscf.Hash) else {}
        yield family, {**keys, **{key: default for key, default in own.items() if key in _INHERITED}}


def _entries(value: vscf.Hash | vscf.Array) -> Iterator[tuple[str, vscf.Setting]]:
    if isinstance(value, vscf.Array):
        yield from ((str(number), entry) for number, entry in enumerate(value.values, start=1))
    else:
        yield from ((key, entry) for key, entry in value.values.items() if key not in _INHERITED)


def _hash(value: vscf.Setting | None, found_at: FileLine) -> vscf.Hash:
    if value is None:
        return vscf.Hash({}, found_at)
    if not isinstance(value, vscf.Hash):
        raise ImportProblem(f"{value.found_at}: a hash {{ ... }} belongs there")
    return value


def _values(value: vscf.Setting | None) -> list[vscf.Setting]:
    if value is None:
        return []
    return list(value.values) if isinstance(value, vscf.Array) else [value]


def _texts(value: vscf.Setting | None) -> list[str]:
    return [item.text for item in _values(value) if isinstance(item, vscf.Text)]


def _text(value: vscf.Setting | None) -> str:
    return value.text if isinstance(value, vscf.Text) else ""


def _flag(value: vscf.Setting | None) -> bool:
    return _text(value).lower() in ("true", "on", "yes", "1")


def _whole(value: vscf.Setting) -> int:
    if not isinstance(value, vscf.Text) or not re.fullmatch(r"[0-9]{1,9}", value.text):
        raise NotCarried("a whole number belongs there", value.found_at)
    return int(value.text)


def _port(value: vscf.Hash, default: int | None = None) -> int:
    given = value.values.get("port")
    if given is None and default is not None:
        return default
    if given is None:
        raise NotCarried("a service type without a port", value.found_at)
    return _whole(given)
