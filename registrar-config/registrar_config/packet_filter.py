"""Packet filters (nftables) for the hosts of an inventory. Pure: inventory in, text out.

rspregistrar believes everyone who reaches it. So agents and backends reach ASAP, registrars and following
backends ENRP, registrars reach agents and backends, and nobody else anything.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import collapse_addresses, ip_network
from typing import Any, Final

from registrar_config.inventory import (
    WIREGUARD_INTERFACE,
    AgentEntry,
    BackendEntry,
    ClientEntry,
    Inventory,
    Network,
)
from registrar_config.options import IPAddress, RegistrarSettings, parse_group

RULES_PREFIX: Final = "rules_"
_TUNNEL_ONLY: Final = (
    "# All others speak SCTP through the tunnel, where a key proves the sender's address.",
    f'iifname != "{WIREGUARD_INTERFACE}" meta l4proto sctp counter drop',
)


@dataclass(frozen=True)
class FilterRule:
    """The sources (None: everyone) that may send SCTP (or UDP) to which ports (empty: to all), and why."""

    why: str
    sources: tuple[Network, ...] | None
    ports: tuple[int, ...] = ()
    protocol: str = "sctp"


def packet_filter(inventory: Inventory, name: str) -> str:
    """Return the nftables file for the hosts of the entry `name`; KeyError if there is none.

    Every other entry of the inventory, and of its neighbours, at the same addresses is let in too.
    """
    chain = _chain(inventory, name)
    return f"""#!/usr/sbin/nft -f
# The hosts that may speak SCTP to {name}.
# Made from the inventory by `rspdns-registrar render`: change that, not this file. It adds to a firewall that
# is there: what it drops stays dropped; what it lets through, another may still drop.
# The unit rspdns-filter loads it: with the services of rspdns, with nftables, and at its reload. By hand:
#   systemctl reload-or-restart rspdns-filter
table inet rspdns
delete table inet rspdns
table inet rspdns {{
    # A name for these rules: by it `rspdns-registrar check` sees whether the newest ones are loaded.
    chain {_named(chain)} {{
    }}
{chain}}}
"""


def names_of_rules(inventory: Inventory, here: IPAddress) -> frozenset[str]:
    """Return the names that the rules have in all files for a host with the address `here`."""
    host = ip_network(str(here))
    entries = [*inventory.registrars, *(client.name for client in (*inventory.agent, *inventory.followers))]
    return frozenset(
        _named(_chain(inventory, name)) for name in entries if _is_among(host, _addresses_of(inventory, name))
    )


def _named(chain: str) -> str:
    return f"{RULES_PREFIX}{hashlib.sha256(chain.encode()).hexdigest()[:16]}"


def _chain(inventory: Inventory, name: str) -> str:
    """Return the chain of the hosts of the entry `name`; KeyError if there is none."""
    networks = _addresses_of(inventory, name)
    spaces = (inventory, *inventory.neighbours)
    admissions = [admission for space in spaces for admission in _admissions(space, networks)]
    # Servers that everyone may reach are reached outside of the tunnel, too.
    admissions.sort(key=lambda admission: admission.sources is not None)
    rules: list[str] = []
    for admission in admissions:
        if inventory.wireguard is not None and admission.sources is not None and _TUNNEL_ONLY[1] not in rules:
            rules += _TUNNEL_ONLY
        rules += _rules(admission)
    dropped = {3863, 9899, 9901}
    if inventory.announce is not None:
        dropped.add(parse_group(inventory.announce).port)
    lines = "\n".join(f"        {rule}" for rule in rules)
    return f"""    chain input {{
        type filter hook input priority filter - 10; policy accept;
        # Within the host: the sentinel, and other registrars on the same machine.
        iif lo accept
{lines}
        meta l4proto sctp counter drop
        # SCTP in UDP (RFC 6951), and announcements by multicast, which nobody else makes.
        udp dport {_set(sorted(dropped))} counter drop
    }}
"""


def _addresses_of(inventory: Inventory, name: str) -> tuple[Network, ...]:
    registrars = inventory.registrars
    if name in registrars:
        return (ip_network(str(registrars[name].asap.address)),)
    for client in (*inventory.agent, *inventory.followers):
        if client.name == name:
            return client.networks
    raise KeyError(name)


def _admissions(inventory: Inventory, networks: Sequence[Network]) -> Iterable[FilterRule]:
    """Yield who may reach hosts with these addresses."""
    registrars = inventory.registrars.values()
    here = [
        registrar for registrar in registrars if _is_among(ip_network(str(registrar.asap.address)), networks)
    ]
    agents = [agent for agent in inventory.agent if _overlap(agent, networks)]
    backends = [backend for backend in inventory.followers if _overlap(backend, networks)]
    of_registrars = tuple(ip_network(str(registrar.asap.address)) for registrar in registrars)
    if here:
        yield from _to_registrars(inventory, here, of_registrars)
    for agent in agents:
        if agent.sctp_ports:
            yield FilterRule("everyone, to the application servers themselves", None, agent.sctp_ports)
    if agents and inventory.announce is not None:
        group = parse_group(inventory.announce)
        yield FilterRule("announcements of registrars, to agents", of_registrars, (group.port,), "udp")
    if agents or backends:
        what = " and ".join(
            ["keep-alives to agents"] * bool(agents) + ["answers to backends"] * bool(backends)
        )
        yield FilterRule(f"registrars: {what}", of_registrars)


def _to_registrars(
    inventory: Inventory, here: Sequence[RegistrarSettings], of_registrars: tuple[Network, ...]
) -> Iterable[FilterRule]:
    clients: list[ClientEntry] = [*inventory.agent, *inventory.followers]
    following = [client for client in inventory.followers if client.follow == "enrp"]
    asap, enrp = (
        tuple(registrar.asap.port for registrar in here),
        tuple(registrar.enrp.port for registrar in here),
    )
    yield FilterRule("agents and backends: ASAP", _sources(clients), asap)
    yield FilterRule("the other registrars: ENRP", of_registrars, enrp)
    if following:
        yield FilterRule("backends that follow the registrars: ENRP", _sources(following), enrp)


def _sources(clients: Iterable[ClientEntry]) -> tuple[Network, ...]:
    return tuple(network for client in clients for network in client.networks)


def _overlap(client: AgentEntry | BackendEntry, networks: Sequence[Network]) -> bool:
    return any(_is_among(network, networks) for network in client.networks)


def _is_among(network: Network, others: Sequence[Network]) -> bool:
    return any(network.version == other.version and network.overlaps(other) for other in others)


def _rules(admission: FilterRule) -> Iterable[str]:
    if admission.sources is not None and not admission.sources:
        return
    yield f"# {admission.why}"
    ports = (
        f"{admission.protocol} dport {_set(sorted(set(admission.ports)))}"
        if admission.ports
        else "meta l4proto sctp"
    )
    if admission.sources is None:
        yield f"{ports} accept"
        return
    for version, key in ((4, "ip"), (6, "ip6")):
        of_version: Any = [network for network in admission.sources if network.version == version]
        if networks := list(collapse_addresses(of_version)):
            shown = [
                str(network.network_address) if network.num_addresses == 1 else str(network)
                for network in networks
            ]
            yield f"{key} saddr {_set(shown)} {ports} accept"


def _set(elements: Sequence[object]) -> str:
    return "{ " + ", ".join(map(str, elements)) + " }"
