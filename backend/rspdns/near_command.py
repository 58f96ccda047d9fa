"""The commands `rspdns near`: networks and their sites, from a CSV file into a `near_file`."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import click
from daemon_kit.commands import CommandGroup, config_option, counted, end_with, example
from daemon_kit.config_file import ConfigurationError, ConfigurationErrors, load
from daemon_kit.files import open_regular, replace_file

from rspdns.configuration import DEFAULT_PATH, BackendConfig
from rspdns.zones.near import NearOrder, check_order, collapsed, read_lines, unknown_sites

MOST_BYTES = 4 * 1024 * 1024
"""The longest near_file."""


@click.group(
    cls=CommandGroup, epilog=example("rspdns near import table.csv --to /etc/rspdns/zones.d/near.csv")
)
def near() -> None:
    """Nearness: the networks of askers, and the sites that are near to them (`near_file` of a pool)."""


def _maps(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> Mapping[str, NearOrder] | None:
    orders = {}
    for text in value:
        word, _, sites = text.partition("=")
        order = tuple(sites.split(","))
        try:
            check_order(order)
        except ValueError as error:
            raise click.BadParameter(f"{text!r}: {error}; write WORD=eu,us") from None
        orders[word] = order
    return orders or None


@near.command(
    name="import",
    epilog=example("rspdns near import countries.csv --map AU=ap,us --to /etc/rspdns/zones.d/near.csv"),
)
@config_option(DEFAULT_PATH, "The backend's configuration file, which tells the sites.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The near_file to write, beside the zone's file.",
)
@click.option(
    "--map",
    "sites_of",
    multiple=True,
    callback=_maps,
    metavar="WORD=SITES",
    help="Sites for lines with this word in the second column: AU=ap,us. Can be repeated; other lines are "
    "left out.",
)
def import_(config: Path, file: Path, target: Path, sites_of: Mapping[str, NearOrder] | None) -> None:
    """Write the networks of the CSV FILE into a near_file, in as few lines as they need.

    Lines are `10.1.0.0/16,eu,us`: a network and its sites. With --map the second column is any word: a
    country of a table that you have. Every error is told with its line, and then nothing is written.
    """
    sites = {site.name for site in load(config, BackendConfig).sites}
    for word, order in (sites_of or {}).items():
        if problem := unknown_sites(order, sites):
            end_with(f"--map {word}={','.join(order)}: {problem}")
    try:
        with open_regular(file) as opened, io.TextIOWrapper(opened, "utf-8-sig") as lines:
            orders, problems = read_lines(lines, sites, sites_of)
    except OSError as error:
        end_with(f"{file}: can't be read: {error.strerror or error}")
    except UnicodeDecodeError:
        end_with(f"{file}: not UTF-8")
    if problems:
        raise ConfigurationErrors(
            [ConfigurationError(str(file), line, "", problem) for line, problem in problems]
        )
    if not orders:
        end_with(f"{file}: has no network{' of these words' if sites_of else ''}; nothing was written")
    written = [f"{network},{','.join(order)}\n" for network, order in collapsed(orders)]
    data = "".join(written).encode()
    if len(data) > MOST_BYTES:
        end_with(f"{target}: {counted(len(written), 'line')} are more than 4 MiB; leave some networks out")
    try:
        replace_file(target, data, mode=0o644)
    except OSError as error:
        end_with(f"{target}: can't be written: {error.strerror or error}")
    click.echo(f"{target}: {counted(len(written), 'network')}, of {counted(len(orders), 'line')} of {file}")
    click.echo('Now: near_file = "..." in the pool, if it is new there; then rspdns reload')
