#!/usr/bin/env python3
"""Ansible's inventory, made of the one that `rspdns-registrar render` reads: $RSPDNS_INVENTORY.

    RSPDNS_INVENTORY=inventory.toml ansible-playbook -i rspdns_inventory.py site.yml

Each address is a host: in the groups rspdns_registrars, rspdns_sidecars and rspdns_name_servers. A network
(10.20.0.0/16) is no host: name such hosts in a second inventory, in one of these groups. Needs Python 3.11.
"""

import json
import os
import sys
import tomllib
from ipaddress import ip_network
from typing import Any

ASAP_PORT, ENRP_PORT = 3863, 9901
GROUPS = {"registrar": "rspdns_registrars", "agent": "rspdns_sidecars", "backend": "rspdns_name_servers"}


def inventory(document: dict[str, Any], path: str) -> dict[str, Any]:
    """Return what `--list` prints."""
    groups: dict[str, list[str]] = {name: [] for name in GROUPS.values()}
    hosts: dict[str, dict[str, Any]] = {}
    for kind, group in GROUPS.items():
        for entry in document.get(kind, []):
            for address in [entry["address"]] if kind == "registrar" else _hosts(entry["addresses"]):
                of_host = hosts.setdefault(
                    address, {"ansible_host": _reached_at(entry.get("outside", address))}
                )
                of_host.setdefault(f"rspdns_{kind}_entries", []).append(entry["name"])
                if address not in groups[group]:
                    groups[group].append(address)
    ports = _ports(document.get("registrar", []))
    variables = {
        "rspdns_inventory": os.path.abspath(path),
        "rspdns_filter": document.get("filter", "nftables"),
        "rspdns_registrars_of_sidecars": [_written(*registrar) for registrar in ports],
        "rspdns_registrars_of_name_servers": [_written(*registrar, enrp=True) for registrar in ports],
    }
    return {
        "_meta": {"hostvars": hosts},
        "all": {"children": list(groups), "vars": variables},
        **{name: {"hosts": members} for name, members in groups.items()},
    }


def _reached_at(text: str) -> str:
    """Return the address of ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT."""
    return text.partition("]")[0].strip("[") if text.count(":") != 1 else text.partition(":")[0]


def _hosts(addresses: list[str]) -> list[str]:
    networks = [ip_network(address) for address in addresses]
    return [str(network.network_address) for network in networks if network.num_addresses == 1]


def _ports(registrars: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Return address and both ports of each; who has none given gets the next free one at its address."""
    ports = {}
    for key, first in (("asap_port", ASAP_PORT), ("enrp_port", ENRP_PORT)):
        taken = {(registrar["address"], registrar[key]) for registrar in registrars if key in registrar}
        for registrar in registrars:
            port = registrar.get(key, first)
            while key not in registrar and (registrar["address"], port) in taken:
                port += 1
            taken.add((registrar["address"], port))
            ports[registrar["name"], key] = port
    return [
        (registrar["address"], ports[registrar["name"], "asap_port"], ports[registrar["name"], "enrp_port"])
        for registrar in registrars
    ]


def _written(address: str, asap_port: int, enrp_port: int, *, enrp: bool = False) -> str:
    host = f"[{address}]" if ":" in address else address
    if enrp and enrp_port != ENRP_PORT:
        return f"{host}:{asap_port}/{enrp_port}"
    return f"{host}:{asap_port}" if asap_port != ASAP_PORT else address


def main() -> None:
    """Answer Ansible."""
    path = os.environ.get("RSPDNS_INVENTORY", "inventory.toml")
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
        print(json.dumps(inventory(document, path) if "--list" in sys.argv else {}))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        sys.exit(f"{path}: {problem!r}; `rspdns-registrar check {path}` says what is wrong")


if __name__ == "__main__":
    main()
