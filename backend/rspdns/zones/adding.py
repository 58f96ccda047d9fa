"""A new zone: the texts of its two files, and its delegation."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from daemon_kit.config_file import ConfigurationError, ConfigurationErrors

from rspdns import names
from rspdns.zones.loading import load_zone, load_zones
from rspdns.zones.zone import Zone

DELEGATION_TTL_S = 3600
_OPTIONS = {
    "handle": "--handle",
    "label": "--label",
    "service": "--service",
    "name": "--pool-name",
    "accept": "--accept",
    "answers": "--answers",
    "weights": "--weights",
}
"""The options that the keys of a pool come from."""


DEFAULT_SERVICE = "_sip._udp"
DEFAULT_POOL_NAME = "as"


@dataclass(frozen=True, slots=True)
class NameServer:
    """A name server: its absolute name without the final dot, and its address."""

    name: str
    address: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class NewZone:
    """The arguments of `rspdns zone add`."""

    zone: str
    name_servers: tuple[NameServer, ...]
    handle: str
    accept: tuple[str, ...]
    service: str = DEFAULT_SERVICE
    pool_name: str = DEFAULT_POOL_NAME
    label: str | None = None
    answers: str | None = None
    weights: str | None = None

    @property
    def owner(self) -> str:
        """The owner name of the SRV records."""
        zone = names.normal(self.zone)
        return names.join(self.service.lower(), names.join(self.pool_name.lower().rstrip("."), zone))


def parse_name_server(text: str, zone: str) -> NameServer:
    """Read "ns1=192.0.2.53"; a name without dots lies in the zone. Raises ValueError."""
    name, equals, address = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not NAME=ADDRESS, e.g. ns1=192.0.2.53")
    try:
        own = ip_address(address)
    except ValueError:
        raise ValueError(f"{text!r}: {address!r} is no IP address") from None
    return NameServer(names.normal(name if "." in name else f"{name}.{zone}"), own)


def toml_text(new: NewZone) -> str:
    """The zone's TOML file."""
    lines = [
        f"zone = {_text(new.zone)}",
        f"static = {_text(f'{new.zone}.zone')} # SOA, NS and whatever else is fixed",
        "ttl = 1 # s, of live records",
        "",
        "[[pool]]",
        f"handle = {_text(new.handle)}",
        *([f"label = {_text(label)}"] if (label := _label(new)) else []),
        f"service = {_text(new.service)}",
        f"name = {_text(new.pool_name)}",
        f"accept = [{', '.join(map(_text, new.accept))}] # members elsewhere are refused",
        *([f"answers = {_text(new.answers)}"] if new.answers else []),
        *([f"weights = {_text(new.weights)}"] if new.weights else []),
    ]
    return "\n".join(lines) + "\n"


def _label(new: NewZone) -> str | None:
    """The label given; else the handle in lower case where only that makes it one."""
    lower = new.handle.lower()
    return new.label or (lower if lower != new.handle and names.is_label(lower) else None)


def zone_text(new: NewZone) -> str:
    """The zone's master file."""
    first = new.name_servers[0].name
    lines = [
        f"; The fixed records of {new.zone}. The serial served moves with the live records, not this one.",
        "$TTL 3600",
        f"@ SOA {first}. hostmaster 1 7200 900 1209600 300",
        *(f"@ NS {name}." for name in dict.fromkeys(server.name for server in new.name_servers)),
        *(_address(server) for server in new.name_servers if names.is_below(server.name, new.zone)),
    ]
    return "\n".join(lines) + "\n"


def delegation(new: NewZone) -> str:
    """The records the parent zone needs, glue included."""
    lines = [
        f"{new.zone}. {DELEGATION_TTL_S} IN NS {name}."
        for name in dict.fromkeys(server.name for server in new.name_servers)
    ]
    lines += [
        _address(server, f"{DELEGATION_TTL_S} IN ")
        for server in new.name_servers
        if names.is_below(server.name, new.zone)
    ]
    return "\n".join(lines)


def add_zone(new: NewZone, directory: Path) -> tuple[Path, Path]:
    """Write the two files and return their paths.

    Raises ConfigurationErrors when they would not do, or would not do beside the zones that are there; then
    nothing is written. Raises ValueError for a name that is none.
    """
    zone = names.normal(new.zone)
    paths = directory / f"{zone}.zone", directory / f"{zone}.toml"
    for path in paths:
        if path.exists():
            problem = "is there already; add a [[pool]] to its .toml file, or `rspdns zone remove` it first"
            raise ConfigurationErrors([ConfigurationError(str(path), 0, "", problem)])
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as trial:
        written = Path(trial) / paths[0].name, Path(trial) / paths[1].name
        for path, text in zip(written, (zone_text(new), toml_text(new)), strict=True):
            path.write_text(text)
        try:
            _check_between(load_zone(written[1]), directory)
        except ConfigurationErrors as errors:
            raise _by_options(errors, trial) from None
        for path, source in zip(paths, written, strict=True):
            path.write_text(source.read_text())
    try:
        load_zones(directory)
    except ConfigurationErrors as errors:
        for path in paths:
            path.unlink(missing_ok=True)
        raise _by_options(errors, *map(str, paths)) from None
    return paths


def _check_between(zone: Zone, directory: Path) -> None:
    """Raise ConfigurationErrors where a handle of `zone` has other networks in a zone that is there."""
    pools = [pool for site in zone.sites for pool in site.pools]
    for other in load_zones(directory):
        for there in (pool for site in other.sites for pool in site.pools):
            for pool in pools:
                handles = set(pool.config.shards) & set(there.config.shards)
                if handles and set(pool.config.accept) != set(there.config.accept):
                    networks = " ".join(f"--accept {network}" for network in there.config.accept)
                    gives = f"the zone {other.name} gives the pool {handles.pop()!r} other networks"
                    text = f"{gives}; use the same: {networks}"
                    raise ConfigurationErrors([ConfigurationError("--accept", 0, "", text)])


def _by_options(errors: ConfigurationErrors, *written: str) -> ConfigurationErrors:
    """The errors with the options in place of keys in files we wrote, which the reader will not find."""
    ours = [error for error in errors.errors if error.file.startswith(written)]
    return ConfigurationErrors(
        [error for error in errors.errors if error not in ours] + [_by_option(error) for error in ours]
    )


def _by_option(error: ConfigurationError) -> ConfigurationError:
    key = re.sub(r"\[\d+\]$", "", error.key).rpartition(".")[2]
    if key == "pool[0]" or "needs a label" in error.problem:
        option = "--label"
    elif error.file.endswith(".zone"):
        option = "--ns"
    else:
        option = _OPTIONS.get(key, "NAME")
    return ConfigurationError(option, 0, "", error.problem)


def _address(server: NameServer, more: str = "") -> str:
    kind = "A" if server.address.version == 4 else "AAAA"
    return f"{server.name}. {more}{kind} {server.address}"


def _text(value: str) -> str:
    """A TOML string; JSON's escapes are TOML's too."""
    return json.dumps(value)
