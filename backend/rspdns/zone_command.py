"""The commands `rspdns zone add|list|show|remove`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
from daemon_kit.commands import CommandGroup, config_option, end_with, example
from daemon_kit.config_file import ConfigurationError, ConfigurationErrors

from rspdns.configuration import DEFAULT_PATH, control_path, zones_directory
from rspdns.zones.adding import (
    DEFAULT_POOL_NAME,
    DEFAULT_SERVICE,
    NewZone,
    add_zone,
    delegation,
    parse_name_server,
)
from rspdns.zones.loading import load_zones
from rspdns.zones.showing import delegation_of, described, file_of, files_to_remove
from rspdns.zones.zone import Zone

_CONFIG = config_option(DEFAULT_PATH, "The backend's configuration file, which tells where its zones are.")
_ZONES_DIR = click.option(
    "--zones-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the zones; default: as in the configuration file.",
)


def _complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """The zones there are, for shells."""
    try:
        directory = _directory(context.params.get("config") or DEFAULT_PATH, context.params.get("zones_dir"))
        zones = [served.name for served in load_zones(directory)]
    except ConfigurationErrors:
        return []
    return [name for name in zones if name.startswith(begun.lower())]


_NAME = click.argument("name", shell_complete=_complete)


@click.group(cls=CommandGroup, epilog=example("rspdns zone show ims.example.net"))
def zone() -> None:
    """Zones: the files in `zones.d`."""


@zone.command(
    epilog=example(
        "rspdns zone add ims.example.net --ns ns1=192.0.2.1 --handle sip-as-udp \\", "  --accept 10.20.0.0/16"
    )
)
@click.argument("name")
@click.option(
    "--ns",
    "name_servers",
    multiple=True,
    required=True,
    metavar="NAME=ADDRESS",
    help="A name server and its address; a NAME without dots is in the zone. Give all of them.",
)
@click.option("--handle", required=True, help="Pool handle, as in the sidecars' agent.toml.")
@click.option(
    "--accept",
    multiple=True,
    required=True,
    metavar="NETWORK",
    help="A network that servers may join from; can be repeated.",
)
@click.option("--service", help=f"Protocol of the SRV records; default: {DEFAULT_SERVICE}.")
@click.option("--pool-name", help=f'Name of the pool; "@": the zone itself; default: {DEFAULT_POOL_NAME}.')
@click.option("--label", help="Label of the pool in target names; default: the handle.")
@click.option(
    "--answers",
    type=click.Choice(["some", "all"]),
    help="Answers with some members, or with all of the pool, e.g. for HAProxy; default: some.",
)
@click.option(
    "--weights",
    type=click.Choice(["narrow", "wide"]),
    help="Scale of the SRV weights; HAProxy needs wide; default: narrow.",
)
@_CONFIG
@_ZONES_DIR
def add(
    name: str,
    name_servers: tuple[str, ...],
    handle: str,
    accept: tuple[str, ...],
    service: str | None,
    pool_name: str | None,
    label: str | None,
    answers: str | None,
    weights: str | None,
    config: Path,
    zones_dir: Path | None,
) -> None:
    """Write the two files of zone NAME with one pool, and print what its parent zone needs."""
    try:
        servers = tuple(parse_name_server(text, name) for text in name_servers)
        where = (service or DEFAULT_SERVICE, pool_name or DEFAULT_POOL_NAME)
        new = NewZone(name, servers, handle, accept, *where, label, answers, weights)
        files = add_zone(new, _directory(config, zones_dir))
    except (ValueError, OSError) as error:
        end_with(error)
    for file in files:
        click.echo(f"wrote {file}")
    click.echo(f"SRV records at {new.owner}: the members of pool {handle}")
    for option, given, taken in (
        ("--service", service, new.service),
        ("--pool-name", pool_name, new.pool_name),
    ):
        if given is None:
            click.echo(f"  {taken} is the default; {option} gives another")
    click.echo("\nThe parent zone needs this; hand it to whoever runs that:\n")
    click.echo(delegation(new))
    if config.exists():
        _tell_next(config)
    else:
        click.echo("\nNow: rspdns reload -c FILE, the configuration with these zones")


@zone.command(name="list", epilog=example("rspdns zone list"))
@_CONFIG
@_ZONES_DIR
def list_zones(config: Path, zones_dir: Path | None) -> None:
    """List the zones and the names of their pools."""
    for served in _load(config, zones_dir):
        click.echo(served.name)
        for owner in (pool.owner for site in served.sites for pool in site.pools):
            click.echo(f"  {owner}")


@zone.command(epilog=example("rspdns zone show ims.example.net"))
@_NAME
@_CONFIG
@_ZONES_DIR
def show(name: str, config: Path, zones_dir: Path | None) -> None:
    """Show zone NAME: its files, its pools, and the delegation that its parent zone needs."""
    wanted = name.lower().rstrip(".")
    for served in _load(config, zones_dir):
        if served.name == wanted:
            click.echo(described(served, _file(name, config, zones_dir)))
            click.echo(f"\nIn the parent zone:\n\n{delegation_of(served)}")
            return
    end_with(f"no zone {name}; `rspdns zone list` tells which there are")


@zone.command(epilog=example("rspdns zone remove ims.example.net"))
@_NAME
@_CONFIG
@_ZONES_DIR
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(name: str, config: Path, zones_dir: Path | None, yes: bool) -> None:
    """Delete the files of zone NAME. Remove its delegation from the parent zone first."""
    paths = files_to_remove(_file(name, config, zones_dir))
    click.echo("to delete: " + ", ".join(map(str, paths)))
    if not yes and not click.confirm("Is its delegation gone from the parent, and shall they be deleted?"):
        end_with("nothing was deleted")
    try:
        for path in paths:
            path.unlink()
    except OSError as error:
        end_with(f"{error.filename}: {error.strerror or error}")
    _tell_next(config)


def _tell_next(config: Path) -> None:
    """Say how the backend takes the change: one that runs has to be told."""
    if Path(control_path(config)).exists():
        click.echo(f"\nNow: {shlex.join(['rspdns', 'reload', '-c', str(config)])}")
    else:
        click.echo(f"\nNow: {shlex.join(['rspdns', 'check', '-c', str(config)])}")
        click.echo("No backend runs here; it serves this once it is started: systemctl enable --now rspdns")


def _load(config: Path, zones_dir: Path | None) -> tuple[Zone, ...]:
    return load_zones(_directory(config, zones_dir))


def _file(name: str, config: Path, zones_dir: Path | None) -> Path:
    file = file_of(name, _directory(config, zones_dir))
    if file is None:
        end_with(f"no zone {name}; `rspdns zone list` tells which there are")
    return file


def _directory(config: Path, zones_dir: Path | None) -> Path:
    """The directory of the zones. Raises ConfigurationErrors when no backend seems to be set up there."""
    if not config.exists() and (zones_dir is None or not zones_dir.is_dir()):
        problem = "is not there: name the backend's configuration with -c FILE, or its zones with --zones-dir"
        raise ConfigurationErrors([ConfigurationError(str(config), 0, "", problem)])
    return zones_dir or zones_directory(config)
