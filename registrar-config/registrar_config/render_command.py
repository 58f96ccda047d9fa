"""The command `rspdns-registrar render`; with the backend installed, also `rspdns registrar render`."""

import sys
from pathlib import Path

import click
from daemon_kit.config_file import ConfigurationErrors

from registrar_config.inventory import load_inventory, two_registrars_problem
from registrar_config.render import render as render_files


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
    try:
        loaded = load_inventory(inventory)
    except ConfigurationErrors as errors:
        click.echo(errors, err=True)
        sys.exit(1)
    problem = two_registrars_problem(len(loaded.registrar))
    if problem and not force:
        click.echo(f"error: {inventory}: {problem}", err=True)
        sys.exit(1)
    try:
        for name, files in render_files(loaded).items():
            for file, text in files.items():
                path = output / name / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            click.echo(f"{output / name}: {', '.join(files)}")
    except OSError as error:
        click.echo(f"error: {error.filename}: {error.strerror}", err=True)
        sys.exit(1)
