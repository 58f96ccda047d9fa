"""The command `rspdns pdns-conf > pdns.conf`: a pdns.conf for this machine."""

import click
from daemon_kit.commands import example

from pdns_config.render import BESIDE, OtherBackend, PdnsSettings, installed_script, render_pdns_conf

_DEFAULT = PdnsSettings()


@click.command(
    name="pdns-conf", epilog=example("rspdns pdns-conf --listen 192.0.2.1 > /etc/powerdns/pdns.conf")
)
@click.option(
    "--listen",
    multiple=True,
    default=_DEFAULT.addresses,
    show_default=True,
    help="Address that PowerDNS answers at; can be repeated.",
)
@click.option(
    "--port", default=_DEFAULT.listen_port, show_default=True, help="Port that PowerDNS answers at."
)
@click.option("--connector", default=_DEFAULT.connector, show_default=True, help="As in rspdns.toml.")
@click.option(
    "--socket-dir", default=_DEFAULT.socket_dir, show_default=True, help="Directory of the control socket."
)
@click.option(
    "--user",
    default="pdns",
    show_default=True,
    help="User and group PowerDNS runs as; empty: those that start it.",
)
@click.option("--signed", is_flag=True, help="For zones that PowerDNS signs (DNSSEC).")
@click.option(
    "--beside",
    metavar="BACKEND",
    help=f"Another backend that holds the parent zone: {', '.join(BESIDE)}.",
)
@click.option(
    "--setting", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the other backend."
)
@click.option(
    "--axfr",
    multiple=True,
    default=_DEFAULT.axfr,
    show_default=True,
    metavar="NETWORK",
    help="Network that may transfer every zone.",
)
@click.option(
    "--near", is_flag=True, help="For pools with near or affinity: go by the client that a resolver asks for."
)
@click.option(
    "--no-denials",
    is_flag=True,
    help="Ask the backend about names that do not exist, instead of its table of names.",
)
@click.option(
    "--script",
    metavar="FILE",
    help="Script that denies names, which PowerDNS runs: root's.  [default: that of this installation]",
)
def pdns_conf(
    listen: tuple[str, ...],
    port: int,
    connector: str,
    socket_dir: str,
    user: str,
    signed: bool,
    beside: str | None,
    settings: tuple[str, ...],
    axfr: tuple[str, ...],
    near: bool,
    no_denials: bool,
    script: str | None,
) -> None:
    """Print a commented pdns.conf for PowerDNS with the backend.

    It is PowerDNS's whole configuration: for pool zones alone, for signed ones (--signed), or with another
    backend for other zones (--beside). These two do not go together.
    """
    try:
        made = PdnsSettings(
            listen,
            port,
            connector,
            socket_dir,
            user or None,
            signed=signed,
            beside=_beside(beside, settings),
            axfr=axfr,
            near=near,
            denials=not no_denials,
            script=script or installed_script(),
        )
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    click.echo(render_pdns_conf(made), nl=False)


def _beside(launch: str | None, settings: tuple[str, ...]) -> OtherBackend | None:
    """Raises ValueError."""
    if launch is None:
        if settings:
            raise ValueError("--setting is for the backend named with --beside")
        return None
    pairs = [setting.partition("=") for setting in settings]
    return OtherBackend(launch, [(key, value) for key, _, value in pairs])
