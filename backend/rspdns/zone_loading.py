"""Reading zones: the TOML file, the master file it names, and what must hold between them."""

from __future__ import annotations

from pathlib import Path

from daemon_kit.config_file import ConfigurationError, ConfigurationErrors, TomlDocument, parse, read_text

from rspdns import names
from rspdns.zone import Zone, make_zone
from rspdns.zone_checks import problems_between, problems_of_zone
from rspdns.zone_configuration import ZoneConfig
from rspdns.zone_file import load_zone_file


def load_zones(directory: Path) -> tuple[Zone, ...]:
    """Every zone of the directory's *.toml files, sorted by name.

    Raises ConfigurationErrors with every error of all files. A directory without zones is no error: a backend
    may be started before its first zone.
    """
    loaded: list[tuple[TomlDocument, Zone]] = []
    errors: list[ConfigurationError] = []
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix == ".toml")
    except OSError as error:
        problem = f"the zones directory can't be read: {error.strerror or error}"
        raise ConfigurationErrors([ConfigurationError(str(directory), 0, "", problem)]) from None
    for file in files:
        try:
            loaded.append(_load(file))
        except ConfigurationErrors as error:
            errors += error.errors
    errors += problems_between(loaded)
    if errors:
        raise ConfigurationErrors(errors)
    return tuple(sorted((zone for _, zone in loaded), key=lambda zone: zone.name))


def load_zone(path: str | Path) -> Zone:
    """Read one zone. Raises ConfigurationErrors with every error of its two files."""
    return _load(Path(path))[1]


def _load(path: Path) -> tuple[TomlDocument, Zone]:
    text = read_text(path)
    document = TomlDocument(str(path), text)
    errors: list[ConfigurationError] = []
    config = static = None
    try:
        config = parse(text, str(path), ZoneConfig)
    except ConfigurationErrors as error:
        errors += error.errors
    named = document.data.get("static")
    if isinstance(named, str) and named and (origin := _zone_name(document)):
        try:
            static = load_zone_file(path.parent / named, origin)
        except ConfigurationErrors as error:
            errors += error.errors
    if config is None or static is None:
        raise ConfigurationErrors(errors)
    zone = make_zone(config, static)
    errors += problems_of_zone(document, zone)
    if errors:
        raise ConfigurationErrors(errors)
    return document, zone


def _zone_name(document: TomlDocument) -> str | None:
    """The zone's name, also in a file that has errors elsewhere."""
    named = document.data.get("zone")
    try:
        return names.normal(named) if isinstance(named, str) else None
    except ValueError:
        return None
