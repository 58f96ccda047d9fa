"""The command `rspdns zone add`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
from daemon_kit.config_file import ConfigurationError, ConfigurationErrors

from rspdns.configuration import DEFAULT_PATH, zones_directory
from rspdns.zone_adding import NewZone, add_zone, delegation, parse_name_server


@click.group()
def zone() -> None:
    """Zones: the files in `zones.d`."""


@zone.command()
@click.argument("name")
@click.option(
    "--ns",
    "name_servers",
    multiple=True,
    required=True,
    metavar="NAME=ADDRESS",
    help="A name server and its address; a NAME without dots is in the zone. Give all of them.",
)
@click.option("--handle", required=True, help="Pool handle, as the agents register it.")
@click.option("--accept", multiple=True, required=True, metavar="NETWORK", help="Where members may be.")
@click.option("--service", default="_sip._udp", show_default=True, help="Protocol of the SRV records.")
@click.option("--pool-name", default="as", show_default=True, help='Name of the pool; "@": the zone itself.')
@click.option("--label", help="Label of the pool in target names; default: the handle.")
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_PATH,
    show_default=True,
    help="The backend's configuration file, which tells where its zones are.",
)
@click.option(
    "--zones-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the zones are; default: as in the configuration file.",
)
def add(
    name: str,
    name_servers: tuple[str, ...],
    handle: str,
    accept: tuple[str, ...],
    service: str,
    pool_name: str,
    label: str | None,
    config: Path,
    zones_dir: Path | None,
) -> None:
    """Write the two files of zone NAME with one pool, and print what its parent zone needs."""
    try:
        servers = tuple(parse_name_server(text, name) for text in name_servers)
        new = NewZone(name, servers, handle, accept, service, pool_name, label)
        files = add_zone(new, _directory(config, zones_dir))
    except ConfigurationErrors as errors:
        click.echo(errors, err=True)
        sys.exit(1)
    except (ValueError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    for file in files:
        click.echo(f"wrote {file}")
    click.echo("\nThe parent zone needs this; hand it to whoever runs that:\n")
    click.echo(delegation(new))
    if config.exists():
        click.echo(f"\nNow: {shlex.join(['rspdns', 'reload', '-c', str(config)])}")
    else:
        click.echo("\nNow: rspdns reload -c FILE, the configuration with these zones")


def _directory(config: Path, zones_dir: Path | None) -> Path:
    """Where the zones are. Raises ConfigurationErrors when no backend seems to be set up there."""
    if not config.exists() and (zones_dir is None or not zones_dir.is_dir()):
        problem = "is not there: name the backend's configuration with -c FILE, or its zones with --zones-dir"
        raise ConfigurationErrors([ConfigurationError(str(config), 0, "", problem)])
    return zones_dir or zones_directory(config)
