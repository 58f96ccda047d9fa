"""Reading zones: the TOML file, the master file it names, and what must hold between them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from daemon_kit.config_file import (
    ConfigurationError,
    ConfigurationErrors,
    TomlDocument,
    check,
    find,
    read_text,
)
from pydantic import ValidationError

from rspdns import names
from rspdns.zones.checks import Readable, problems_between, problems_of_zone
from rspdns.zones.configuration import PoolConfig, ZoneConfig
from rspdns.zones.file import StaticZone, ZoneFileErrors, load_zone_file
from rspdns.zones.near import AnyNetwork, NearOrder, read_lines, unknown_sites
from rspdns.zones.sites import Sites
from rspdns.zones.zone import Zone, make_zone

_POOL = re.compile(r"pool\[(\d+)\]")


class Progress(NamedTuple):
    """How far the reading of zones is: zones read, zones there are, records of master files read."""

    files: int = 0
    of_files: int = 0
    records: int = 0


def load_zones(
    directory: Path,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    sites: Sites | None = None,
    handlespaces: Sequence[str] | None = None,
) -> tuple[Zone, ...]:
    """Every zone of the directory's *.toml files, sorted by name; `on_progress` is told how far it is.

    `sites` and the names of `handlespaces` are those of rspdns.toml; None: they are not known, and what the
    pools say of them is not checked.

    Raises ConfigurationErrors with every error of all files. A directory without zones is no error: a backend
    may be started before its first zone.
    """
    readables: list[Readable] = []
    errors: list[ConfigurationError] = []
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix == ".toml")
    except OSError as error:
        advice = "; `rspdns zone add` makes it" if isinstance(error, FileNotFoundError) else ""
        problem = f"the zones directory can't be read: {error.strerror or error}{advice}"
        raise ConfigurationErrors([ConfigurationError(str(directory), 0, "", problem)]) from None
    progress = Progress(0, len(files), 0)

    def on_records(more: int) -> None:
        nonlocal progress
        progress = progress._replace(records=progress.records + more)
        on_progress(progress)

    for number, file in enumerate(files):
        progress = progress._replace(files=number)
        readable, of_zone = _load(file, on_records, sites, handlespaces)
        readables += [readable] if readable is not None else []
        errors += of_zone
    errors += problems_between(readables)
    if errors:
        raise ConfigurationErrors(errors)
    return tuple(sorted((readable.zone for readable in readables), key=lambda zone: zone.name))


def load_zone(path: str | Path) -> Zone:
    """Read one zone. Raises ConfigurationErrors with every error of its two files."""
    readable, errors = _load(Path(path))
    if errors or readable is None:
        raise ConfigurationErrors(errors)
    return readable.zone


def _load(
    path: Path,
    on_records: Callable[[int], None] = lambda more: None,
    sites: Sites | None = None,
    handlespaces: Sequence[str] | None = None,
) -> tuple[Readable | None, list[ConfigurationError]]:
    """Read one zone, or as much of it as can be checked, and tell every error of its two files."""
    try:
        document = TomlDocument(str(path), read_text(path))
    except ConfigurationErrors as error:
        return None, error.errors
    errors: list[ConfigurationError] = []
    config = static = None
    try:
        config = check(document, ZoneConfig)
    except ConfigurationErrors as error:
        errors += error.errors
    unread: frozenset[str] | None = frozenset()
    doubtful = frozenset(int(match[1]) for error in errors if (match := _POOL.match(error.key)))
    zone = _zone_name(document)
    named = document.data.get("static")
    if isinstance(named, str) and named and zone:
        try:
            static = load_zone_file(path.parent / named, zone, on_records)
        except ZoneFileErrors as error:
            errors += error.errors
            static, unread = error.rest, error.unread
        except ConfigurationErrors as error:
            errors += where_named(document, error.errors, {str(path.parent / named): ("static",)})
    if not zone:
        return None, errors
    if static is None:
        static, unread = StaticZone.of_lines("", zone, ()), None
    if config is not None:
        near_files, of_files = _near_files(document, config, path.parent, sites)
        resolved = _resolved(config, handlespaces)
        errors += [*of_files, *_order_problems(document, resolved, sites)]
        errors += _handlespace_problems(document, config, handlespaces)
        made = make_zone(resolved, static, sites_of_all=sites, near_files=near_files)
    else:
        pools = _readable_pools(document)
        made = make_zone(ZoneConfig(zone=zone, static="-", pools=tuple(pools.values())), static, tuple(pools))
    readable = Readable(document, made, doubtful, unread)
    return readable, errors + problems_of_zone(readable)


def _order_problems(
    document: TomlDocument, config: ZoneConfig, sites: Sites | None
) -> Iterator[ConfigurationError]:
    for position, pool in enumerate(config.pools):
        problem = pool.site_problem(sites) if sites is not None else None
        if problem is not None:
            key, words = problem
            yield document.error(("pool", position, key), words)


def _handlespace_problems(
    document: TomlDocument, config: ZoneConfig, known: Sequence[str] | None
) -> Iterator[ConfigurationError]:
    for position, pool in enumerate(config.pools if known is not None else ()):
        table = document.data["pool"][position]
        key = "handlespaces" if "handlespaces" in table else "handlespace"
        unknown = [name for name in pool.own_handlespaces if name not in (known or ())]
        if unknown:
            words = f"{', '.join(unknown)}: no [[handlespace]] in rspdns.toml has this name"
            yield document.error(("pool", position, key), words)
        elif not pool.own_handlespaces and len(known or ()) > 1:
            words = f"needs handlespace: rspdns.toml has several, {', '.join(known or ())}"
            yield document.error(("pool", position), words)
        expected = pool.expect if isinstance(pool.expect, tuple) else ()
        foreign = {each.handlespace for each in expected} - {
            "",
            *(pool.own_handlespaces or (known or ())[:1]),
        }
        if foreign:
            words = f"{', '.join(sorted(foreign))}: no handlespace of the pool has this name"
            yield document.error(("pool", position, "expect"), words)


def _resolved(config: ZoneConfig, known: Sequence[str] | None) -> ZoneConfig:
    """The configuration with the only handlespace, if it has a name, in the pools that name none."""
    only = (known or ())[:1]
    if not any(only):
        return config
    pools = (
        pool if pool.own_handlespaces else pool.model_copy(update={"handlespaces": only})
        for pool in config.pools
    )
    return config.model_copy(update={"pools": tuple(pools)})


_NearFiles = dict[str, Mapping[AnyNetwork, NearOrder]]


def _near_files(
    document: TomlDocument, config: ZoneConfig, folder: Path, sites: Sites | None
) -> tuple[_NearFiles, list[ConfigurationError]]:
    """The contents of every `near_file` by its name, and the errors of these and of `near`."""
    names_of_all = None if sites is None else sites.networks
    files: _NearFiles = {}
    errors: list[ConfigurationError] = []
    for position, pool in enumerate(config.pools):
        name = pool.near_file
        if name is not None and name not in files:
            files[name] = {}
            file = str(folder / name)
            try:
                files[name], problems = read_lines(read_text(file).splitlines(), names_of_all)
            except ConfigurationErrors as error:
                errors += where_named(document, error.errors, {file: ("pool", position, "near_file")})
            else:
                errors += [ConfigurationError(file, line, "", text) for line, text in problems]
        for network, order in (pool.near or {}).items():
            problem = unknown_sites(order, names_of_all)
            if network in files.get(name or "", {}):
                problem = f"is in {name}, too"
            if problem is not None:
                errors.append(document.error(("pool", position, "near"), f"{network}: {problem}"))
    return files, errors


def where_named(
    document: TomlDocument,
    errors: Sequence[ConfigurationError],
    key_of_file: Mapping[str, tuple[str | int, ...]],
) -> list[ConfigurationError]:
    """The errors; one about a file as a whole, at the key in `key_of_file` that names the file."""
    return [
        document.error(key_of_file[error.file], f"{error.file}: {error.problem}")
        if not error.line and error.file in key_of_file
        else error
        for error in errors
    ]


def _readable_pools(document: TomlDocument) -> dict[int, PoolConfig]:
    """The pools that are right but for unknown keys, by position."""
    pools: dict[int, PoolConfig] = {}
    for location, table in find(document.data, ("pool", "*")):
        if isinstance(table, dict) and isinstance(location[1], int):
            known = {key: value for key, value in table.items() if key in PoolConfig.model_fields}
            with contextlib.suppress(ValidationError):
                pools[location[1]] = PoolConfig.model_validate(known)
    return pools


def _zone_name(document: TomlDocument) -> str | None:
    """The zone's name, also in a file that has errors elsewhere."""
    named = document.data.get("zone")
    try:
        return names.normal(named) if isinstance(named, str) else None
    except ValueError:
        return None
