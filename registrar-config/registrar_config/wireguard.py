"""WireGuard for all hosts of an inventory: a configuration of wg-quick for each, and the keys in them.

Between the registrars and all other hosts SCTP goes through the tunnel, and nothing else does: a routing rule
of its own (`ip rule ... ipproto sctp`) leads it there. So hosts keep their addresses, and the packets that
carry the tunnel, UDP, never meet that rule. `wireguard_files` is pure; the command at the end makes keys and
writes.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from daemon_kit.commands import end_with, example
from daemon_kit.errors import FatalError
from daemon_kit.files import read_secret, replace_file

from registrar_config.inventory import WIREGUARD_INTERFACE, Inventory, load_inventory
from registrar_config.options import IPAddress, SctpEndpoint

TABLE: Final = 51820
"""The number of the routing table with what is behind the tunnel."""
MTU: Final = 1420
_FILE: Final = f"{WIREGUARD_INTERFACE}.conf"
_PRIVATE_KEY: Final = re.compile(r"^PrivateKey = (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class KeyPair:
    """The keys of a host, as `wg` writes them."""

    private: str
    public: str


def wireguard_files(inventory: Inventory, keys: Mapping[IPAddress, KeyPair]) -> dict[IPAddress, str]:
    """Return, for each host of the inventory by its address, the text of its rspdns0.conf."""
    hosts = inventory.wireguard_hosts
    registrars = {settings.asap.address for settings in inventory.registrars.values()}
    files = {}
    for own in hosts:
        peers = [other for other in hosts if other != own and registrars & {own, other}]
        inside_only = [peer for peer in peers if peer in inventory.wireguard_outside]
        port = inventory.wireguard_endpoint(own).port
        files[own] = _interface(own, hosts[own], port, keys[own], inside_only) + "".join(
            _peer(peer, hosts[peer], inventory.wireguard_endpoint(peer), keys[peer]) for peer in peers
        )
    return files


def _interface(own: IPAddress, name: str, port: int, keys: KeyPair, inside_only: list[IPAddress]) -> str:
    rule = f"ip -{own.version} rule {{}} ipproto sctp table {TABLE}"
    return (
        f"# /etc/wireguard/{_FILE} of {own} ({name}).\n"
        f"# Start: systemctl enable --now wg-quick@{WIREGUARD_INTERFACE}\n"
        "# Made from the inventory by `rspdns-registrar wireguard`, which keeps the private key: change the\n"
        "# inventory, not this file.\n"
        "[Interface]\n"
        f"Address = {own}/{own.max_prefixlen}\n"
        f"ListenPort = {port}\n"
        f"PrivateKey = {keys.private}\n"
        f"MTU = {MTU}\n"
        "# SCTP to the peers below goes through the tunnel, all else as without it.\n"
        f"Table = {TABLE}\n"
        f"PostUp = {rule.format('add')}\n"
        + "".join(f"PostUp = ip route add {peer} dev %i\n" for peer in inside_only)
        + f"PostDown = {rule.format('del')}\n"
    )


def _peer(address: IPAddress, name: str, endpoint: SctpEndpoint, keys: KeyPair) -> str:
    return (
        f"\n# {name}\n[Peer]\nPublicKey = {keys.public}\nAllowedIPs = {address}/{address.max_prefixlen}\n"
        f"Endpoint = {endpoint}\n"
    )


def key_pair(private: str | None) -> KeyPair:
    """Return the pair with this private key; with a new one for None. Raises FatalError."""
    made = private or _wg("genkey")
    return KeyPair(made, _wg("pubkey", given=made))


def _wg(command: str, given: str = "") -> str:
    program = shutil.which("wg")
    if program is None:
        raise FatalError("wg is not installed (Debian: apt-get install wireguard-tools)")
    done = subprocess.run([program, command], input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FatalError(f"wg {command}: {done.stderr.strip()}")
    return done.stdout.strip()


def private_key_of(file: Path) -> str | None:
    """Return the private key in a file that was written before; None: there is no file. Raises FatalError."""
    if not file.exists():
        return None
    try:
        match = _PRIVATE_KEY.search(read_secret(file.absolute()))
    except ValueError as problem:
        raise FatalError(f"{file}: {problem}") from None
    if match is None:
        raise FatalError(f"{file} has no private key; delete it to give this host a new key")
    return match[1]


@click.command("wireguard", epilog=example("rspdns-registrar wireguard inventory.toml --output wireguard"))
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("wireguard"),
    show_default=True,
    help="Directory to write into, a directory for each host. Keys that it holds are kept.",
)
def render_wireguard(inventory: Path, output: Path) -> None:
    """Write rspdns0.conf of WireGuard for every host of the INVENTORY, with its private key (mode 0600).

    Run it again after each change of the inventory. To give a host a new key, delete its directory before.
    """
    loaded = load_inventory(inventory)
    if loaded.wireguard is None:
        end_with(f"{inventory}: no table [wireguard]: add one, it may be empty")
    try:
        files = {address: output / str(address) / _FILE for address in loaded.wireguard_hosts}
        keys = {address: key_pair(private_key_of(file)) for address, file in files.items()}
        for address, text in wireguard_files(loaded, keys).items():
            files[address].parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(files[address], text.encode())
            click.echo(f"{files[address]}: {loaded.wireguard_hosts[address]}")
    except OSError as error:
        end_with(f"{error.filename}: {error.strerror}")
