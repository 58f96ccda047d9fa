"""The files of every host of an inventory, and the commands `rspdns-registrar render` and `check` that write
and judge them; with the backend, `rspdns registrar ...` too. `render_files` is pure: inventory in, texts out.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
from daemon_kit.commands import end_with
from daemon_kit.files import replace_file

from registrar_config.gate import gate_rules
from registrar_config.in_force import missing, registrars_here
from registrar_config.inventory import Inventory, load_inventory, two_registrars_problem
from registrar_config.kernel_timers import KERNEL_TIMERS_MS, SCTPD_OPTIONS
from registrar_config.options import RegistrarSettings
from registrar_config.packet_filter import packet_filter
from registrar_config.sizing import Sizing

GATES: Final = "/etc/rspdns"
"""Folder of the gate's rules files on their hosts."""
_MADE: Final = "# Made from the inventory by `rspdns-registrar render`: change that, not this file.\n"


def render_files(inventory: Inventory) -> dict[str, dict[str, str]]:
    """Return, for each entry of the inventory by its name, the texts of its files by their names."""
    files: dict[str, dict[str, str]] = {}
    for number, (name, settings) in enumerate(inventory.registrars.items(), start=1):
        files[name] = {
            f"registrar-{name}.env": registrar_options(
                inventory, number, settings, f"{GATES}/registrar-{name}.gate"
            ),
            f"registrar-{name}.gate": gate_rules(inventory, name),
        }
    for client in (*inventory.agent, *inventory.followers):
        files[client.name] = {}
    for name, of_entry in files.items():
        if inventory.filter == "nftables":
            of_entry["rspdns.nft"] = packet_filter(inventory, name)
        of_entry |= sctp_files()
    return files


def registrar_options(inventory: Inventory, number: int, settings: RegistrarSettings, gate: str) -> str:
    """Return the option file of a registrar, which its unit reads."""
    options = [
        f"--number={number}",
        f"--address={settings.asap}",
        f"--enrp-port={settings.enrp.port}",
        *(f"--peer={peer}" for peer in settings.peers),
        f"--agent-reregistration-ms={inventory.agent_reregistration_ms}",
        f"--gate={gate}",
    ]
    sizing = inventory.sizing
    if sizing is not None:
        options.append(f"--keep-alive-ms={sizing.keep_alive_ms}")
    if settings.announce is not None:
        options.append(f"--announce={settings.announce}")
    if settings.takes_reports:
        options.append("--reports")
    if len(settings.peers) == 1:
        options.append("--force")
    return f"{_MADE}{_sized(sizing)}REGISTRAR_OPTIONS={' '.join(options)}\nSCTPD_OPTIONS={SCTPD_OPTIONS}\n"


def _sized(sizing: Sizing | None) -> str:
    if sizing is None:
        return ""
    return (
        f"# For {sizing.elements} servers and {sizing.registrars} registrars: a silent host is out after "
        f"{sizing.detection_ms} ms at most.\n"
    )


def sctp_files() -> Mapping[str, str]:
    """Return the files that set the SCTP timers of a host's kernel, which every host here needs."""
    timers = "".join(f"net.sctp.{name} = {value}\n" for name, value in KERNEL_TIMERS_MS.items())
    why = "# ms; with the kernel's own a single lost packet removes a live server from its pool.\n"
    return {
        "sysctl.d/90-rspdns-sctp.conf": f"{_MADE}{why}{timers}",
        "modules-load.d/rspdns-sctp.conf": f"{_MADE}# Before its timers can be set.\nsctp\n",
    }


@click.command("check")
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Accept two registrars.")
@click.option("--offline", is_flag=True, help="Look at the inventory only, not at this host.")
def check_inventory(inventory: Path, force: bool, offline: bool) -> None:
    """Check the INVENTORY: whether it is right, and whether its registrars bear the servers expected.

    On a registrar's host, as root, also whether packet filter and gate are in force.

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
    if not offline:
        _check_this_host(loaded)


def _check_this_host(inventory: Inventory) -> None:
    names = registrars_here(inventory)
    if not names:
        click.echo(
            "No registrar is on this host: run this on each registrar's host, too, where it sees the filter."
        )
        return
    if problems := list(missing(inventory, names)):
        end_with("\nerror: ".join(problems))
    by = "" if inventory.filter == "nftables" else ' (filter = "elsewhere")'
    click.echo(f"{', '.join(names)} on this host: behind a packet filter{by} and the gate")


def _loaded(inventory: Path, *, force: bool) -> Inventory:
    loaded = load_inventory(inventory)
    problem = two_registrars_problem(len(loaded.registrar))
    if problem and not force:
        end_with(f"{inventory}: {problem}")
    return loaded


@click.command("render")
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("rendered"),
    show_default=True,
    help="Directory to write into: a directory for each entry of the inventory.",
)
@click.option("--force", is_flag=True, help="Accept two registrars.")
def render_inventory(inventory: Path, output: Path, force: bool) -> None:
    """Write the files of every host in the INVENTORY: registrars' options, packet filters, SCTP timers."""
    loaded = _loaded(inventory, force=force)
    try:
        for name, files in render_files(loaded).items():
            for file, text in files.items():
                path = output / name / file
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, text.encode(), mode=0o644)
            click.echo(f"{output / name}: {', '.join(files)}")
        for doubt in loaded.doubts():
            click.echo(f"warning: {inventory}: {doubt}", err=True)
    except OSError as error:
        end_with(f"{error.filename}: {error.strerror}")
