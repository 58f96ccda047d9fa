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
    ImportProblem,
    Policy,
    Pool,
    Server,
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


class _NotCarried(Exception):  # noqa: N818 - reads as what it is
    """There is no counterpart; the message says for what."""

    def __init__(self, why: str, found_at: FileLine | None = None) -> None:
        super().__init__(why)
        self.found_at = found_at


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
    found = []
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
            found.append(made)
    with_pools = [one for one in found if one.pools]
    if not has_dynamic:
        raise ImportProblem(f"{zones}: no zone there has a DYNA or DYNC record")
    for found_at, what, why in resources.left_out():
        (with_pools or found)[0].lost(found_at, what, why)
    return found


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
    for one in special:
        what = f"{one.name} {one.type} {' '.join(one.words)}"
        try:
            if one.type not in ("DYNA", "DYNC"):
                raise _NotCarried(f"gdnsd has no {one.type} records")  # noqa: TRY301 - told as the others
            pool, told = resources.pool(one)
        except _NotCarried as problem:
            made.lost(
                one.found_at, what, f"{problem}" + (f" ({problem.found_at})" if problem.found_at else "")
            )
            continue
        if any(pool.name == other.name for other in made.pools):
            made.lost(one.found_at, what, "another dynamic record of that name was carried over")
            continue
        made.pools.append(pool)
        for found_at, thing, why in told:
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
                for key, one in value.values.items():
                    if key not in known:
                        yield (
                            one.found_at,
                            f"service type {name}, {key}",
                            "it has no counterpart: it is left out",
                        )

    def pool(self, record: Special) -> tuple[Pool, list[tuple[FileLine, str, str]]]:
        """Return the pool that a record asks for, and what is different. Raises _NotCarried."""
        plugin, _, name = record.words[0].partition("!") if record.words else ("", "", "")
        if "*" in record.name:
            raise _NotCarried("a pool has no wildcard name")
        name, _, datacenter = name.partition("/")
        told: list[tuple[FileLine, str, str]] = []
        match plugin:
            case plain if plain in _PLAIN:
                if datacenter:
                    raise _NotCarried(f"{plugin} has no datacenters")
                policy, found, most = self._plain(plugin, name, told)
            case "metafo":
                policy, found, most = self._metafo(name, datacenter, told)
            case _:
                raise _NotCarried(f"the plugin {plugin or '(none)'} has no counterpart here")
        if not found:
            raise _NotCarried("it has no addresses")
        services = {service for _, service in found}
        if len(services) > 1:
            raise _NotCarried(f"its servers have several services: {', '.join(sorted(services))}")
        servers = tuple(server for server, _ in found)
        return (
            Pool(
                record.found_at,
                record.name,
                services.pop(),
                policy,
                servers,
                shown_addresses(servers, most),
                _fallback(servers, policy),
            ),
            told,
        )

    def _plain(
        self, plugin: str, name: str, told: list[tuple[FileLine, str, str]]
    ) -> tuple[Policy, list[tuple[Server, str]], int | None]:
        self._used.add((plugin, name))
        stanza = _hash(self._plugins.values.get(plugin), self._plugins.found_at)
        value = stanza.values.get(name)
        if value is None or name in _INHERITED:
            raise _NotCarried(f"there is no resource {plugin}!{name}")
        defaults = {key: one for key, one in stanza.values.items() if key in _INHERITED}
        found, multi = [], set()
        for entries, keys in _families(value, defaults):
            if _flag(keys.get("ignore_health")):
                raise _NotCarried("ignore_health answers dead servers", entries.found_at)
            multi.add(_flag(keys.get("multi")))
            self._tell_threshold(plugin, name, keys, entries.found_at, told)
            for label, one in _entries(entries):
                found.append(self._server(plugin, label, one, keys))
        if plugin == "multifo":
            return "round-robin", found, None
        if plugin == "simplefo":
            return "priority", found, 1
        if len(multi) > 1:
            raise _NotCarried("multi is not the same for both address families", value.found_at)
        if True in multi:
            words = "each answer has all living servers, not each of them by its own chance"
            told.append((value.found_at, f"weighted!{name} multi", words))
        return "weighted-random", found, None if True in multi else 1

    def _tell_threshold(
        self,
        plugin: str,
        name: str,
        keys: Mapping[str, vscf.Value],
        found_at: FileLine,
        told: list[tuple[FileLine, str, str]],
    ) -> None:
        if plugin == "simplefo":
            return
        threshold = keys.get("up_thresh")
        given = threshold.text if isinstance(threshold, vscf.Text) else "0.5"
        words = "all servers are answered when none lives, not when fewer than that share do"
        told.append((found_at, f"{plugin}!{name} up_thresh {given}", words))

    def _metafo(
        self, name: str, datacenter: str, told: list[tuple[FileLine, str, str]]
    ) -> tuple[Policy, list[tuple[Server, str]], int | None]:
        self._used.add(("metafo", name))
        stanza = _hash(self._plugins.values.get("metafo"), self._plugins.found_at)
        resources = _hash(stanza.values.get("resources"), stanza.found_at)
        if name not in resources.values:
            raise _NotCarried(f"there is no resource metafo!{name}")
        resource = _hash(resources.values[name], resources.found_at)
        if _flag(resource.values.get("skip_first")):
            raise _NotCarried("skip_first has no counterpart", resource.found_at)
        order = _texts(resource.values.get("datacenters"))
        dcmap = _hash(resource.values.get("dcmap"), resource.found_at)
        if datacenter:
            order = [one for one in order if one == datacenter]
        inherited = {
            key: value
            for part in (stanza.values, resource.values)
            for key, value in part.items()
            if key in _INHERITED
        }
        found: list[tuple[Server, str]] = []
        for rank, one in enumerate(order):
            value = dcmap.values.get(one)
            if value is None:
                raise _NotCarried(f"dcmap has no {one}", dcmap.found_at)
            for server, service in self._of_datacenter(one, value, inherited, told):
                found.append((replace(server, priority=len(order) - rank), service))
        return "priority", found, None

    def _of_datacenter(
        self,
        datacenter: str,
        value: vscf.Value,
        inherited: Mapping[str, vscf.Value],
        told: list[tuple[FileLine, str, str]],
    ) -> list[tuple[Server, str]]:
        if isinstance(value, vscf.Text) and value.text.startswith("%"):
            plugin, _, name = value.text[1:].partition("!")
            if plugin != "multifo":
                raise _NotCarried(
                    f"{value.text}: within tiers only multifo has a counterpart", value.found_at
                )
            return self._plain(plugin, name, told)[1]
        if isinstance(value, vscf.Text):
            value = vscf.Array((value,), value.found_at)
        if isinstance(value, vscf.Hash) and "plugin" in value.values:
            plugin_of = value.values["plugin"]
            if not isinstance(plugin_of, vscf.Text) or plugin_of.text != "multifo":
                raise _NotCarried("within tiers only multifo has a counterpart", value.found_at)
            value = vscf.Hash({key: v for key, v in value.values.items() if key != "plugin"}, value.found_at)
        found = []
        for entries, keys in _families(value, inherited):
            self._tell_threshold("metafo", datacenter, keys, entries.found_at, told)
            for label, one in _entries(entries):
                found.append(self._server("multifo", f"{datacenter}-{label}", one, keys))
        return found

    def _server(
        self, plugin: str, label: str, value: vscf.Value, keys: Mapping[str, vscf.Value]
    ) -> tuple[Server, str]:
        """Return a server and its service. Raises _NotCarried."""
        weight = priority = None
        address_of = value
        if plugin == "weighted":
            if isinstance(value, vscf.Hash) or not isinstance(value, vscf.Array) or len(value.values) != 2:
                raise _NotCarried(
                    f"{label} is a group: weights in two levels have no counterpart", value.found_at
                )
            address_of, weight_of = value.values
            weight = _whole(weight_of)
        if plugin == "simplefo":
            if label not in ("primary", "secondary"):
                raise _NotCarried(f"{label!r} is neither primary nor secondary", value.found_at)
            priority = 2 if label == "primary" else 1
        if not isinstance(address_of, vscf.Text):
            raise _NotCarried(f"{label} has no address", value.found_at)
        try:
            address = ip_address(address_of.text)
        except ValueError:
            raise _NotCarried(
                f"{address_of.text} is no address (names have no counterpart)", value.found_at
            ) from None
        checks, port, service = self._checks(keys, str(address), value.found_at)
        return Server(as_name(label), address, port, checks, weight, priority), service

    def _checks(
        self, keys: Mapping[str, vscf.Value], address: str, found_at: FileLine
    ) -> tuple[tuple[CheckKeys, ...], int, str]:
        """Return the checks of a server, its port and its service."""
        wanted = [one for one in _texts(keys.get("service_types")) or ["up"] if one not in _NO_CHECK]
        found = [self._service_type(one, address, found_at) for one in wanted]
        ports = {one.port for one in found if one.port is not None}
        checks = tuple(one.check for one in found) or self._wishes.checks
        if not checks:
            why = 'its service type is "up", that is no check at all: say --check tcp and --port'
            raise _NotCarried(why, found_at)
        port = self._wishes.port or (ports.pop() if len(ports) == 1 else None)
        if port is None:
            why = (
                f"checks at the ports {', '.join(map(str, sorted(ports)))}"
                if ports
                else "no check has a port"
            )
            raise _NotCarried(f"{why}: at which port it serves is not known; say --port", found_at)
        service = next((one.service for one in found if one.service and one.port == port), None)
        return checks, port, service or service_of(port)

    def _service_type(self, name: str, address: str, used: FileLine) -> _Service:
        value = self._types.values.get(name)
        if not isinstance(value, vscf.Hash):
            raise _NotCarried(f"there is no service type {name}", used)
        plugin = _text(value.values.get("plugin"))
        match plugin:
            case "tcp_connect":
                port = _port(value)
                return _Service({"type": "tcp", "port": port}, port, None, value.found_at)
            case "http_status":
                return self._http(value)
            case "extmon":
                command = [one.replace("%%ITEM%%", address) for one in _texts(value.values.get("cmd"))]
                if not command:
                    raise _NotCarried("extmon without cmd", value.found_at)
                return _Service({"type": "exec", "command": command}, None, None, value.found_at)
            case _:
                why = f"the service type {name} ({plugin or 'no plugin'}) has no counterpart"
                raise _NotCarried(why, value.found_at)

    def _http(self, value: vscf.Hash) -> _Service:
        port = _port(value, 80)
        codes = sorted({_whole(one) for one in _values(value.values.get("ok_codes"))} or {200})
        if codes[-1] - codes[0] >= len(codes):
            raise _NotCarried(
                f"ok_codes {', '.join(map(str, codes))}: only a range has a counterpart", value.found_at
            )
        check: dict[str, object] = {"type": "http", "port": port, "status": [codes[0], codes[-1]]}
        path = value.values.get("url_path")
        if path is not None:
            check["path"] = _text(path)
        if "vhost" in value.values:
            check["host"] = _text(value.values["vhost"])
        return _Service(check, port, "_http._tcp", value.found_at)


def _fallback(servers: Sequence[Server], policy: Policy) -> tuple[Address, ...]:
    """The servers that are answered while none lives: all, or the first ones where they come in order."""
    highest = max(one.priority or 0 for one in servers)
    found = [one.address for one in servers if policy != "priority" or one.priority == highest]
    return tuple(dict.fromkeys(found))


def _families(
    value: vscf.Value, defaults: Mapping[str, vscf.Value]
) -> Iterator[tuple[vscf.Hash | vscf.Array, dict[str, vscf.Value]]]:
    """Yield the entries of each address family, with the keys that hold for them."""
    if isinstance(value, vscf.Text):
        raise _NotCarried("no addresses", value.found_at)
    if isinstance(value, vscf.Array):
        yield value, dict(defaults)
        return
    keys = {**defaults, **{key: one for key, one in value.values.items() if key in _INHERITED}}
    families = [value.values[key] for key in _FAMILIES if key in value.values]
    if not families:
        yield value, keys
    for family in families:
        if isinstance(family, vscf.Text):
            raise _NotCarried("no addresses", family.found_at)
        own = family.values if isinstance(family, vscf.Hash) else {}
        yield family, {**keys, **{key: one for key, one in own.items() if key in _INHERITED}}


def _entries(value: vscf.Hash | vscf.Array) -> Iterator[tuple[str, vscf.Value]]:
    if isinstance(value, vscf.Array):
        yield from ((str(number), one) for number, one in enumerate(value.values, start=1))
    else:
        yield from ((key, one) for key, one in value.values.items() if key not in _INHERITED)


def _hash(value: vscf.Value | None, found_at: FileLine) -> vscf.Hash:
    if value is None:
        return vscf.Hash({}, found_at)
    if not isinstance(value, vscf.Hash):
        raise ImportProblem(f"{value.found_at}: a hash {{ ... }} belongs there")
    return value


def _values(value: vscf.Value | None) -> list[vscf.Value]:
    if value is None:
        return []
    return list(value.values) if isinstance(value, vscf.Array) else [value]


def _texts(value: vscf.Value | None) -> list[str]:
    return [one.text for one in _values(value) if isinstance(one, vscf.Text)]


def _text(value: vscf.Value | None) -> str:
    return value.text if isinstance(value, vscf.Text) else ""


def _flag(value: vscf.Value | None) -> bool:
    return _text(value).lower() in ("true", "on", "yes", "1")


def _whole(value: vscf.Value) -> int:
    if not isinstance(value, vscf.Text) or not re.fullmatch(r"[0-9]{1,9}", value.text):
        raise _NotCarried("a whole number belongs there", value.found_at)
    return int(value.text)


def _port(value: vscf.Hash, default: int | None = None) -> int:
    given = value.values.get("port")
    if given is None and default is not None:
        return default
    if given is None:
        raise _NotCarried("a service type without a port", value.found_at)
    return _whole(given)
