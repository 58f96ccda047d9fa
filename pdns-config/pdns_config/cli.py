"""Prints a pdns.conf for this machine."""

import click

from pdns_config.render import PdnsSettings, render

_DEFAULT = PdnsSettings()


@click.command()
@click.option(
    "--listen", multiple=True, default=_DEFAULT.addresses, show_default=True, help="Address to use."
)
@click.option("--port", default=_DEFAULT.listen_port, show_default=True)
@click.option("--connector", default=_DEFAULT.connector, show_default=True, help="As in rspdns.toml.")
@click.option("--socket-dir", default=_DEFAULT.socket_dir, show_default=True, help="For the control socket.")
@click.option("--user", default="pdns", show_default=True, help="User and group to run as; empty for none.")
def main(listen: tuple[str, ...], port: int, connector: str, socket_dir: str, user: str) -> None:
    """Print a commented pdns.conf."""
    try:
        settings = PdnsSettings(listen, port, connector, socket_dir, user or None)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    click.echo(render(settings), nl=False)
