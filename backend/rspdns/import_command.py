"""The commands `rspdns import gdnsd|powerdns|consul`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import click
from daemon_kit.commands import CommandGroup, counted, end_with, example

from rserpool import RegistrarAddress
from rspdns import names
from rspdns.importing.model import Import, ImportProblem, Wishes
from rspdns.importing.writing import REPORT, write
from rspdns.zones.adding import NewZone, parse_name_server, zone_text


def _registrars(_context: click.Context, _option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for text in value:
        try:
            RegistrarAddress.parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return value


def _common(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--check",
            type=click.Choice(["tcp"]),
            help="For servers whose description has no check: connect to their port over TCP.",
        ),
        click.option(
            "--port",
            type=click.IntRange(1, 65535),
            help="For servers whose description has no port: use this one.",
        ),
        click.option(
            "--registrar",
            "registrars",
            multiple=True,
            required=True,
            callback=_registrars,
            metavar="ADDRESS",
            help="A registrar of rspdns; give all three.",
        ),
        click.option(
            "--into",
            "directory",
            type=click.Path(path_type=Path),
            required=True,
            help="The directory to make; it must not be there yet.",
        ),
    ):
        command = option(command)
    return command


@click.group(
    name="import",
    cls=CommandGroup,
    epilog=example(
        "rspdns import gdnsd /etc/gdnsd --into trial \\",
        "  --registrar 10.0.0.1 --registrar 10.0.0.2 --registrar 10.0.0.3",
    ),
)
def import_() -> None:
    """Make zones and sidecars' files of what another system has, to try rspdns beside it.

    Nothing is guessed: what has no counterpart is left out, and REPORT.txt says what and why.
    """


@import_.command(
    epilog=example(
        "rspdns import gdnsd /etc/gdnsd --into trial \\",
        "  --registrar 10.0.0.1 --registrar 10.0.0.2 --registrar 10.0.0.3",
    )
)
@click.argument("directory_of_gdnsd", metavar="DIRECTORY", type=click.Path(path_type=Path, exists=True))
@_common
def gdnsd(directory_of_gdnsd: Path, **options: Any) -> None:
    """Read gdnsd's DIRECTORY (/etc/gdnsd, say): multifo, weighted, simplefo and metafo."""
    from rspdns.importing.gdnsd import read_gdnsd

    _run(lambda wishes: read_gdnsd(directory_of_gdnsd, wishes), **options)


@import_.command(
    epilog=example(
        "rspdns import powerdns example.org.zone --into trial \\",
        "  --registrar 10.0.0.1 --registrar 10.0.0.2 --registrar 10.0.0.3",
    )
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--zone", help="The zone's name, where FILE does not begin with it.")
@_common
def powerdns(file: Path, zone: str | None, **options: Any) -> None:
    """Read the LUA records in FILE, a zone file or the output of `pdnsutil list-zone`."""
    from rspdns.importing.powerdns import read_powerdns

    _run(lambda wishes: [read_powerdns(file, zone, wishes)], **options)


@import_.command(
    epilog=example(
        "rspdns import consul web.json --zone service.example.net --ns ns1=192.0.2.53 \\",
        "  --into trial --registrar 10.0.0.1 --registrar 10.0.0.2 --registrar 10.0.0.3",
    )
)
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option("--zone", required=True, help="The zone to make: service.consul, say.")
@click.option(
    "--ns",
    "name_servers",
    multiple=True,
    required=True,
    metavar="NAME=ADDRESS",
    help="A name server of the zone and its address; a NAME without dots is in the zone.",
)
@_common
def consul(files: Sequence[Path], zone: str, name_servers: tuple[str, ...], **options: Any) -> None:
    """Read FILES of Consul: service definitions, or answers of /v1/catalog or /v1/health/service (JSON)."""
    from rspdns.importing.consul import read_consul

    try:
        name = names.normal(zone)
        servers = tuple(parse_name_server(text, name) for text in name_servers)
    except ValueError as error:
        end_with(error)

    def read(wishes: Wishes) -> list[Import]:
        made = read_consul(files, name, wishes)
        made.fixed = zone_text(NewZone(name, servers, "", ())).splitlines()
        return [made]

    _run(read, **options)


def _run(
    read: Callable[[Wishes], list[Import]],
    *,
    directory: Path,
    registrars: Sequence[str],
    port: int | None,
    check: Literal["tcp"] | None,
) -> None:
    try:
        imports = read(Wishes(port, check))
        written = write(imports, directory, registrars)
    except (ImportProblem, OSError, ValueError) as problem:
        end_with(problem)
    zones, pools = counted(written.zones, "zone"), counted(written.pools, "pool")
    click.echo(f"wrote {directory}: {zones}, {pools}, {counted(written.agents, 'agent.toml file')}")
    for imported in imports:
        for note in imported.notes:
            if note.is_lost:
                click.echo(f"not carried over: {note}")
    click.echo(f"{directory / REPORT} has all of it, and what is different")
    click.echo(f"\nNow: rspdns check --offline -c {directory / 'rspdns.toml'}")
