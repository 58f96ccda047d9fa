"""Whether what an inventory says about this host's registrars is in force here: packet filter and gate."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from daemon_kit.addresses import is_on_this_host
from daemon_kit.control import ControlError, request
from daemon_kit.errors import FatalError

from registrar_config.gate import check_rules, gate_rules
from registrar_config.inventory import WIREGUARD_INTERFACE, Inventory
from registrar_config.packet_filter import RULES_PREFIX, names_of_rules

INSTALLED_IN: Final = Path("/etc/rspdns")
"""The folder of the rendered files on their hosts."""
RUNTIME_FOLDERS: Final = Path("/run")
"""The folder in which each registrar's unit has the one of its control socket."""
FILTER_UNIT: Final = "rspdns-filter"
_TABLE: Final = ("list", "table", "inet", "rspdns")
_WITHIN_S: Final = 20


def registrars_here(inventory: Inventory) -> list[str]:
    """Return the names of the registrars whose addresses this host has."""
    return [name for name, settings in inventory.registrars.items() if is_on_this_host(settings.asap.address)]


def missing(
    inventory: Inventory, names: list[str], folder: Path = INSTALLED_IN, runtime: Path = RUNTIME_FOLDERS
) -> Iterator[str]:
    """Yield what does not protect the registrars `names` of this host, and what to do about it."""
    if inventory.filter == "nftables":
        yield from _filter_problems(inventory, names, folder)
    if inventory.wireguard is not None and not Path("/sys/class/net", WIREGUARD_INTERFACE).exists():
        yield (
            f"WireGuard's {WIREGUARD_INTERFACE} is not up on this host. Copy the file of `rspdns-registrar "
            "wireguard` for it to /etc/wireguard, then "
            f"`systemctl enable --now wg-quick@{WIREGUARD_INTERFACE}`"
        )
    for name in names:
        problem = _gate_problem(folder, name) or _running_problem(
            name, runtime / f"rspdns-registrar-{name}" / "control.sock"
        )
        if problem:
            yield f"no gate stands before registrar {name} of this host: {problem}"
        elif (rules := folder / f"registrar-{name}.gate").read_text() != gate_rules(inventory, name):
            yield f"{rules} is not made from this inventory: render it, and copy registrar-{name}.gate there"


def _filter_problems(inventory: Inventory, names: list[str], folder: Path) -> Iterator[str]:
    """Yield the problem of the packet filter of this host, if there is one."""
    table, problem = _loaded_table()
    load = f"Copy the rendered rspdns.nft to {folder}, then `systemctl restart {FILTER_UNIT}`"
    if problem:
        yield (
            f"no packet filter protects {', '.join(names)} on this host: {problem}. {load}. If another "
            'firewall keeps strangers away, write filter = "elsewhere" into the inventory'
        )
        return
    loaded = re.findall(rf"chain ({RULES_PREFIX}\w+)", table)
    addresses = {name: inventory.registrars[name].asap.address for name in names}
    others = [name for name in names if names_of_rules(inventory, addresses[name]).isdisjoint(loaded)]
    if others == names:
        yield f"the packet filter loaded on this host is not made from this inventory: render it. {load}"
    elif others:
        yield (
            f"the packet filter loaded on this host drops what is sent to {', '.join(others)}, at another "
            "address and port than the registrar that it is made for: give the registrars of one host the "
            f"same address, then render it. {load}"
        )


def _loaded_table() -> tuple[str, str]:
    """Return the table of the packet filter as nft lists it, and why it protects nobody, if it doesn't."""
    nft = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin")
    if nft is None:
        return "", "nft is not installed (Debian: apt-get install nftables)"
    try:
        done = subprocess.run([nft, *_TABLE], capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        return "", f"`{nft} {' '.join(_TABLE)}` did not end within {_WITHIN_S} s"
    if "not permitted" in done.stderr:
        return "", "only root can see it, so run this command as root (--offline: look at the inventory only)"
    # Without /etc/protocols (Debian: netbase) nft names SCTP by its number.
    if done.returncode != 0 or not re.search(r"l4proto (sctp|132) counter .*drop", done.stdout):
        return "", "nftables has no table `inet rspdns` that drops SCTP"
    return done.stdout, ""


def _gate_problem(folder: Path, name: str) -> str:
    options, rules = folder / f"registrar-{name}.env", folder / f"registrar-{name}.gate"
    for file in (options, rules):
        if not file.exists():
            return f"{file} is missing; copy the rendered one there, then restart rspdns-registrar@{name}"
    if f"--gate={rules}" not in options.read_text().split():
        return f"{options} lacks --gate={rules}; copy the rendered one there"
    try:
        check_rules(rules)
    except FatalError as problem:
        return str(problem)
    return ""


def _running_problem(name: str, control: Path) -> str:
    """Return what the running registrar says of its gate; nothing while it is stopped."""
    try:
        if not control.exists():
            return ""
        gate = request(control, "status")["gate"]
    except (ControlError, PermissionError) as problem:
        return f"it can't be asked whether its gate is loaded: {problem}"
    if gate is None:
        return f"it runs without one: it is older than its files; restart rspdns-registrar@{name}"
    return f"its rules file is wrong, those of before hold: {gate['problem']}" if gate["problem"] else ""
