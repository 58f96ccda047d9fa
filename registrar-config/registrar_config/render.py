"""The files of every host of an inventory. Pure: inventory in, texts out."""

from collections.abc import Mapping
from typing import Final

from registrar_config.inventory import Inventory
from registrar_config.kernel_timers import KERNEL_TIMERS_MS, SCTPD_OPTIONS
from registrar_config.options import RegistrarSettings
from registrar_config.packet_filter import packet_filter
from registrar_config.sizing import Sizing

_MADE: Final = "# Made from the inventory by `rspdns-registrar render`: change that, not this file.\n"


def render(inventory: Inventory) -> dict[str, dict[str, str]]:
    """Return, for each entry of the inventory by its name, the texts of its files by their names."""
    found: dict[str, dict[str, str]] = {}
    for number, (name, settings) in enumerate(inventory.registrars.items(), start=1):
        found[name] = {f"registrar-{name}.env": registrar_options(inventory, number, settings)}
    for client in (*inventory.agent, *inventory.backend):
        found[client.name] = {}
    for name, files in found.items():
        files |= {"rspdns.nft": packet_filter(inventory, name), **sctp_files()}
    return found


def registrar_options(inventory: Inventory, number: int, settings: RegistrarSettings) -> str:
    """Return the option file of a registrar, which its unit reads."""
    options = [
        f"--number={number}",
        f"--address={settings.asap}",
        f"--enrp-port={settings.enrp.port}",
        *(f"--peer={peer}" for peer in settings.peers),
        f"--agent-reregistration-ms={inventory.agent_reregistration_ms}",
    ]
    sizing = inventory.sizing
    if sizing is not None:
        options.append(f"--keep-alive-ms={sizing.keep_alive_ms}")
    if settings.announce is not None:
        options.append(f"--announce={settings.announce}")
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
