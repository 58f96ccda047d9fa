"""The files of every host of an inventory, and the commands `rspdns-registrar render` and `check` that write
and judge them; with the backend, `rspdns registrar ...` too. `render_files` is pure: inventory in, texts out.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
from daemon_kit.commands import end_with, example
from daemon_kit.files import replace_file

from registrar_config.cells import Inventories, load_inventories
from registrar_config.gate import gate_rules
from registrar_config.in_force import missing, registrars_here
from registrar_config.inventory import Inventory, two_registrars_problem
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


@click.command("check", epilog=example("rspdns-registrar check inventory.toml"))
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Accept two registrars.")
@click.option("--offline", is_flag=True, help="Look at the inventory only, not at this host.")
def check_inventory(inventory: Path, force: bool, offline: bool) -> None:
    """Check the INVENTORY: whether it is right, and whether its registrars bear the servers expected.

    A file of cells ([[cell]]) is checked cell by cell; it says which cell is full. On a registrar's host, as
    root, also whether packet filter and gate are in force.

    Exit status: 0 right, perhaps with warnings; 1 an error.
    """
    loaded = _loaded(inventory, force=force)
    for name, each in loaded.by_name.items():
        sizing = each.sizing
        if sizing is not None and sizing.fits:
            click.echo(
                f"{f'{name}: ' if name else ''}"
                f"{sizing.registrars} registrars, {sizing.elements:,} servers: each is asked every "
                f"{sizing.keep_alive_ms} ms, a silent host is out after {sizing.detection_ms} ms at most; "
                f"with one registrar down another one is busy for {sizing.busy:.0%} of the time"
            )
    _warn(inventory, loaded)
    if not offline:
        _check_this_host(loaded)


def _warn(inventory: Path, loaded: Inventories) -> None:
    for name, each in loaded.by_name.items():
        for doubt in each.doubts():
            click.echo(f"warning: {inventory}: {f'{name}: ' if name else ''}{doubt}", err=True)
    for words in loaded.cells.full() if loaded.cells is not None else ():
        click.echo(f"warning: {inventory}: {words}", err=True)


def _check_this_host(loaded: Inventories) -> None:
    here = {name: names for name, each in loaded.by_name.items() if (names := registrars_here(each))}
    if not here:
        click.echo(
            "No registrar is on this host: run this on each registrar's host, too, where it sees the filter."
        )
    for name, names in here.items():
        inventory = loaded.by_name[name]
        if problems := list(missing(inventory, names)):
            end_with("\nerror: ".join(problems))
        by = "" if inventory.filter == "nftables" else ' (filter = "elsewhere")'
        click.echo(f"{', '.join(names)} on this host: behind a packet filter{by} and the gate")


def _loaded(inventory: Path, *, force: bool) -> Inventories:
    loaded = load_inventories(inventory)
    for name, each in loaded.by_name.items():
        problem = two_registrars_problem(len(each.registrar))
        if problem and not force:
            end_with(f"{inventory}: {f'{name}: ' if name else ''}{problem}")
    return loaded


@click.command("render", epilog=example("rspdns-registrar render inventory.toml --output rendered"))
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("rendered"),
    show_default=True,
    help="Directory to write into: a directory for each entry of the inventory, of cells one in each cell's.",
)
@click.option("--force", is_flag=True, help="Accept two registrars.")
def render_inventory(inventory: Path, output: Path, force: bool) -> None:
    """Write the files of every host in the INVENTORY: registrars' options, packet filters, SCTP timers.

    A file of cells ([[cell]]) gives also the files that join them: the gateways', the delegations, and the
    table `cells` of the upper zone.
    """
    loaded = _loaded(inventory, force=force)
    try:
        for name, each in loaded.by_name.items():
            for entry, files in render_files(each).items():
                for file, text in files.items():
                    _write(output / name / entry / file, text)
                click.echo(f"{output / name / entry}: {', '.join(files)}")
        for file, text in loaded.cells.joining_files().items() if loaded.cells is not None else ():
            _write(output / file, text)
            click.echo(str(output / file))
        _warn(inventory, loaded)
    except OSError as error:
        end_with(f"{error.filename}: {error.strerror}")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode(), mode=0o644)
