"""The text of a `named.conf` for BIND as a distributor of zones: whole from PowerDNS, increments on.

PowerDNS has no increments of a zone from a remote backend: it answers IXFR with the whole zone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from textwrap import wrap

import click
from daemon_kit.commands import example

_WIDTH = 100
_ZONE = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?\.?")
_KEY_FILE = re.compile(r'/[^\s"\\;{}]+')
_KEY_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,250}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class DistributorSettings:
    """The addresses: `primary` is PowerDNS's, `listen` the distributor's. Raises ValueError.

    `key` is the name of the TSIG key in `key_file`, which `tsig-keygen` writes: with both, secondaries
    transfer, and are told, by that key alone. `signs`: it signs the zones, with keys that it makes.
    """

    listen: str
    primary: str
    zones: Sequence[str]
    secondaries: Sequence[str]
    port: int = 53
    directory: str = "/var/cache/bind"
    key: str | None = None
    key_file: str | None = None
    signs: bool = False

    def __post_init__(self) -> None:
        for address in (self.listen, self.primary, *self.secondaries):
            try:
                ip_address(address)
            except ValueError:
                raise ValueError(f"{address!r} is no IP address") from None
        if not self.zones:
            raise ValueError("name at least one zone")
        for zone in self.zones:
            if not _ZONE.fullmatch(zone):
                raise ValueError(f"{zone!r} is no zone that named.conf can hold")
        if not 1 <= self.port <= 65535:
            raise ValueError(f"the port {self.port} is not in 1..65535")
        if (self.key is None) != (self.key_file is None):
            raise ValueError("a key needs its name and its file")
        if self.key is not None and not _KEY_NAME.fullmatch(self.key):
            raise ValueError(f"{self.key!r} is no name of a key")
        for path in (self.directory, self.key_file):
            if path is not None and not _KEY_FILE.fullmatch(path):
                raise ValueError(f"{path!r} is no whole path that named.conf can hold")


def render_named_conf(settings: DistributorSettings) -> str:
    """Return the whole text of named.conf, each setting with the reason for it."""
    own, other, suffix = "listen-on", "listen-on-v6", ""
    if ip_address(settings.listen).version == 6:
        own, other, suffix = other, own, "-v6"
    key = "" if settings.key is None else f' key "{settings.key}"'
    tell = "".join(f"{address}{key}; " for address in settings.secondaries)
    transfer = f"{key.strip()}; " if key else "".join(f"{address}; " for address in settings.secondaries)
    lines = [
        ("directory", f'"{settings.directory}"', "BIND keeps zones and their journals here."),
        (own, f"port {settings.port} {{ {settings.listen}; }}", ""),
        (other, "{ none; }", ""),
        ("recursion", "no", "It answers for its zones alone."),
        (
            "ixfr-from-differences",
            "yes",
            "After each transfer BIND compares the zone with the one before, and keeps the difference: that "
            "is what it sends on.",
        ),
        ("allow-notify", f"{{ {settings.primary}; }}", "The backend tells of changes, from this address."),
        ("allow-transfer", f"{{ {transfer}}}", ""),
        (f"notify-source{suffix}", settings.listen, "The address that the secondaries know."),
        (f"transfer-source{suffix}", settings.listen, "The address that PowerDNS knows."),
        ("notify", "explicit", "Tell the secondaries that are named here, no NS records."),
        ("also-notify", f"{{ {tell}}}", ""),
        ("notify-delay", "0", "Its 5 s would be the age of each change."),
        ("notify-rate", "10000", "Its 20 a second would take 2.5 s for 50 secondaries."),
        ("serial-query-rate", "10000", "Likewise for its own questions to PowerDNS."),
        ("transfers-out", "1000", "As many secondaries may transfer at a time."),
        ("tcp-clients", "1000", "Likewise."),
        (
            "tcp-listen-queue",
            "1000",
            "All secondaries connect at once. A connection that finds the queue (default 10) full is tried "
            "again after 1 s.",
        ),
        (
            "max-records-per-type",
            "0",
            "With its default BIND refuses a zone in which a pool has more than 100 members.",
        ),
        ("max-journal-size", "16m", "Increments that are kept; a secondary that lacks more gets it all."),
        ("min-retry-time", "1", "A PowerDNS that was away is asked again soon."),
        ("max-retry-time", "60", ""),
        ("dnssec-validation", "no", ""),
    ]
    parts = ["// BIND 9.18.28 or later, as a distributor of zones that PowerDNS with rspdns has.\n"]
    if settings.key_file is not None:
        parts.append(f'include "{settings.key_file}";\n')
    parts.append("options {\n")
    for name, value, reason in lines:
        parts += [f"    // {line}\n" for line in wrap(reason, _WIDTH)]
        parts.append(f"    {name} {value};\n")
    parts.append("};\n")
    signing = " inline-signing yes; dnssec-policy default;" if settings.signs else ""
    if signing:
        parts.append("// BIND makes a key for each zone in its directory: back it up.\n")
    for zone in settings.zones:
        name = zone.removesuffix(".")
        fed = f"type secondary; primaries {{ {settings.primary}; }};"
        parts.append(f'zone "{name}" {{ {fed} file "{name}";{signing} }};\n')
    return "".join(parts)


@click.command(
    name="distributor-conf",
    epilog=example(
        "rspdns distributor-conf --listen 192.0.2.10 --primary 192.0.2.1 \\",
        "  --zone ims.example.net --secondary 192.0.2.11 > /etc/bind/named.conf",
    ),
)
@click.option("--listen", required=True, help="Address that the distributor answers at.")
@click.option("--port", default=53, show_default=True, help="Port that it answers at.")
@click.option("--primary", required=True, help="Address of PowerDNS, and of the backend's NOTIFYs.")
@click.option("--zone", "zones", multiple=True, required=True, help="Zone; can be repeated.")
@click.option("--secondary", "secondaries", multiple=True, help="Address of a secondary; can be repeated.")
@click.option(
    "--directory", default="/var/cache/bind", show_default=True, help="Directory of zones and journals."
)
@click.option("--key", help="Name of the TSIG key that secondaries transfer with.")
@click.option("--key-file", help="Whole path of the file with that key, as tsig-keygen writes it.")
@click.option("--sign", "signs", is_flag=True, help="Sign the zones (DNSSEC), with keys that BIND makes.")
def distributor_conf(
    listen: str,
    port: int,
    primary: str,
    zones: tuple[str, ...],
    secondaries: tuple[str, ...],
    directory: str,
    key: str | None,
    key_file: str | None,
    signs: bool,
) -> None:
    """Print a commented named.conf for BIND between PowerDNS and many secondaries.

    It transfers the zones from PowerDNS, whole, and sends the differences on (IXFR).
    """
    try:
        settings = DistributorSettings(
            *(listen, primary, zones, secondaries, port, directory, key, key_file), signs=signs
        )
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    click.echo(render_named_conf(settings), nl=False)
