"""Three registrars on one machine: the default of `rspdns up`."""

import os
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from registrar_config.gate import rules_of
from registrar_config.inventory import AgentEntry, BackendEntry, Inventory, RegistrarEntry
from registrar_config.options import ASAP_PORT, ENRP_PORT, RegistrarSettings, SctpEndpoint, without_own
from registrar_config.preflight import check_ports
from rserpool import RegistrarAddress

_REGISTRARS: Final = 3


def embedded_settings(address: str) -> list[RegistrarSettings]:
    """Return three registrars that share one `address`, at ports 3863, ... (ASAP) and 9901, ... (ENRP)."""
    own = ip_address(address)
    enrp = [SctpEndpoint(own, ENRP_PORT + position) for position in range(_REGISTRARS)]
    return [
        RegistrarSettings(SctpEndpoint(own, ASAP_PORT + position), each, without_own(enrp, each))
        for position, each in enumerate(enrp)
    ]


def embedded_rules(address: str) -> str:
    """Return the rules file of the gate before `embedded_commands()`: only this host, as `address`, may speak
    to them."""
    here = (address,)
    inventory = Inventory(
        registrar=tuple(RegistrarEntry(name=f"r{n}", address=address) for n in range(1, _REGISTRARS + 1)),
        agent=(AgentEntry(name="sidecars", addresses=here),),
        backend=(BackendEntry(name="name-server", addresses=here),),
    )
    return f"# The host that may speak to the registrars; written anew at each start.\n{rules_of(inventory)}"


def embedded_commands(address: str, rules: Path | None = None) -> list[list[str]]:
    """Return the command line of each of three supervised registrars sharing `address`.

    `rules` is the rules file of the gate before them; None: there is no gate.
    `address` is one of this host, but not of its loopback network: rspregistrar passes over those, among its
    peers as among pool elements. The ports are 3863, 3864, ... (ASAP) and 9901, 9902, ... (ENRP).
    Run them under sctp-run if the kernel has no SCTP; where it has, and with root, its SCTP timers are set.
    """
    return [
        [
            sys.executable,
            "-P",
            "-m",
            "registrar_config",
            "run",
            f"--number={number}",
            f"--address={settings.asap}",
            f"--enrp-port={settings.enrp.port}",
            *(f"--peer={peer}" for peer in settings.peers),
            *([f"--gate={rules}"] if rules is not None else []),
            *(["--set-kernel-timers"] if os.geteuid() == 0 else []),
        ]
        for number, settings in enumerate(embedded_settings(address), start=1)
    ]


def embedded_registrars(address: str) -> list[str]:
    """Return what belongs into the `registrars` list of agents and backends for `embedded_commands()`."""
    return [
        str(RegistrarAddress(str(settings.asap.address), settings.asap.port, settings.enrp.port))
        for settings in embedded_settings(address)
    ]


def check_embedded(address: str) -> None:
    """Raise FatalError when the registrars could not have their ports at `address`. Needs SCTP."""
    for settings in embedded_settings(address):
        check_ports(settings)
