"""The commands `rspdns-registrar render` and `check`; with the backend, `rspdns registrar ...` too."""

import sys
from pathlib import Path

import click
from daemon_kit.config_file import ConfigurationErrors

from registrar_config.inventory import Inventory, load_inventory, two_registrars_problem
from registrar_config.render import render as render_files


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Accept two registrars.")
def check(inventory: Path, force: bool) -> None:
    """Check the INVENTORY: whether it is right, and whether its registrars bear the servers expected.

    Exit status: 0 right, perhaps with warnings; 1 an error.
    """
    loaded = _loaded(inventory, force=force)
    sizing = loaded.sizing
    if sizing is not None and sizing.fits:
        click.echo(
            f"{sizing.registrars} registrars, {sizing.elements:,} servers: each is asked every "
            f"{sizing.keep_alive_ms} ms, a silent host is out after {sizing.detection_ms} ms at most; "
            f"with one registrar down another one is busy for {sizing.busy:.0%} of the time"
        )
    for doubt in loaded.doubts():
        click.echo(f"warning: {inventory}: {doubt}", err=True)


def _loaded(inventory: Path, *, force: bool) -> Inventory:
    try:
        loaded = load_inventory(inventory)
    except ConfigurationErrors as errors:
        click.echo(errors, err=True)
        sys.exit(1)
    problem = two_registrars_problem(len(loaded.registrar))
    if problem and not force:
        click.echo(f"error: {inventory}: {problem}", err=True)
        sys.exit(1)
    return loaded


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("rendered"),
    show_default=True,
    help="Directory to write into: a directory for each entry of the inventory.",
)
@click.option("--force", is_flag=True, help="Accept two registrars.")
def render(inventory: Path, output: Path, force: bool) -> None:
    """Write the files of every host in the INVENTORY: registrars' options, packet filters, SCTP timers."""
    loaded = _loaded(inventory, force=force)
    try:
        for name, files in render_files(loaded).items():
            for file, text in files.items():
                path = output / name / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            click.echo(f"{output / name}: {', '.join(files)}")
        for doubt in loaded.doubts():
            click.echo(f"warning: {inventory}: {doubt}", err=True)
    except OSError as error:
        click.echo(f"error: {error.filename}: {error.strerror}", err=True)
        sys.exit(1)
