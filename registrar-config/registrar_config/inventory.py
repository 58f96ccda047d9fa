"""The inventory: every host that speaks to the registrars, and they themselves, in one TOML file."""

import contextlib
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from daemon_kit.addresses import read_address, read_network
from daemon_kit.config_file import StrictModel, duplicates, find, load
from daemon_kit.errors import FatalError
from daemon_kit.model_keys import none_of
from pydantic import AfterValidator, Field, PrivateAttr

from registrar_config.options import (
    ASAP_PORT,
    ENRP_PORT,
    IPAddress,
    RegistrarSettings,
    SctpEndpoint,
    announce_problem,
    parse_group,
    without_own,
)
from registrar_config.preflight import check_scope
from registrar_config.sentinel import AGENT_REREGISTRATION_MS
from registrar_config.sizing import (
    SHORTEST_KEEP_ALIVE_MS,
    TIMEOUT_MS,
    Sizing,
    most_elements,
    registrars_for,
    registrars_for_bursts,
    shortest_reregistration_ms,
    size,
)
from rserpool import POLICY_KINDS, SENTINEL_POOL_PREFIX, UnsafeMessageError, check_handle

TWO_REGISTRARS = (
    "two registrars are worse than one or three: a takeover completes only when a third registrar "
    "acknowledges it, so what the dead one owned, dead servers included, would stay until its registration "
    "life ends. "
    "Add a third one (it may share a machine with something else), or give --force"
)

_SHARED_BUSY = 0.2
"""Registrars on one machine that are busier than this are worth a word."""

FLAT_MOST: Final = 15_000
"""The most servers of one handlespace (docs/explanation/scale.md)."""
SHORTEST_LIFE_BOUND_S = 300
WIREGUARD_INTERFACE: Final = "rspdns0"
WIREGUARD_PORT: Final = 51820
_CLIENTS: Final = ("agent", "backend", "client")

Network = IPv4Network | IPv6Network
Port = Annotated[int, Field(ge=1, le=65535)]


def _name(text: str) -> str:
    if not text.isascii() or not text.replace("-", "").replace("_", "").isalnum() or len(text) > 64:
        raise ValueError("must be 1 to 64 letters, digits, - or _: it names files and units")
    return text


def _address(text: str) -> str:
    try:
        check_scope(read_address(text))
    except FatalError as error:
        raise ValueError(str(error)) from None
    return text


def _group(text: str) -> str:
    parse_group(text)
    return text


def _network(text: str) -> str:
    read_network(text)
    return text


def _handle(text: str) -> str:
    stem = text.removesuffix("*")
    if "*" in stem:
        raise ValueError(f"{text!r}: * stands at the end only")
    if stem.startswith(SENTINEL_POOL_PREFIX):
        raise ValueError(f"{text!r}: pools that begin with {SENTINEL_POOL_PREFIX} are the registrars' own")
    if text != "*":
        try:
            check_handle(stem.encode())
        except UnsafeMessageError as error:
            raise ValueError(str(error)) from None
    return text


def _policy(text: str) -> str:
    if text not in POLICY_KINDS:
        raise ValueError(none_of(text, POLICY_KINDS))
    return text


Name = Annotated[str, AfterValidator(_name)]


def _outside(text: str) -> str:
    SctpEndpoint.parse(text, WIREGUARD_PORT)
    return text


class RegistrarEntry(StrictModel):
    """One registrar. Several may share an address: then each has ports of its own."""

    name: Name
    """How the registrar is called; `render` writes its files into a folder of that name."""
    address: Annotated[str, AfterValidator(_address)]
    """Its IP address. All registrars have IPv4 addresses, or all have IPv6 ones."""
    asap_port: Port | None = None
    """For agents and backends; default: 3863, and 3864, ... for further ones at the same address."""
    enrp_port: Port | None = None
    """For the other registrars; default: 9901, and 9902, ..."""
    outside: Annotated[str, AfterValidator(_outside)] | None = None
    """With `[wireguard]`: where others reach this host (UDP port 51820 unless given), if `address` exists in
    the tunnel only. Default: at `address`."""


class ClientEntry(StrictModel):
    """Hosts of one kind: addresses or networks, e.g. ["10.20.0.0/16"]."""

    name: Name
    """How these hosts are called; `render` writes their files into a folder of that name."""
    addresses: Annotated[tuple[Annotated[str, AfterValidator(_network)], ...], Field(min_length=1)]
    """Addresses or networks: `10.20.0.0/16`, say."""
    reports_per_s: Annotated[int, Field(ge=0, le=1000)] = 0
    """How many reports of unreachable servers a second registrars take from each of these hosts. Three
    reports by anybody remove a server, so the default is none; needed by `report_unreachable` of a zone."""

    @property
    def networks(self) -> tuple[Network, ...]:
        """`addresses`, parsed."""
        return tuple(ip_network(text) for text in self.addresses)


class AgentEntry(ClientEntry):
    """Hosts of application servers, with a ppe-agent each."""

    handles: Annotated[
        tuple[Annotated[str, AfterValidator(_handle)], ...], Field(min_length=1, max_length=64)
    ] = ("*",)
    """The pools that these hosts may join; "sip-*": all that begin so. Default: every pool."""
    registrations: Annotated[int, Field(ge=1, le=1_000_000)] = 64
    """How many servers each of these hosts may have at each registrar."""
    sctp_ports: tuple[Port, ...] = ()
    """SCTP ports that everyone may reach: of servers that speak SCTP, and 4630 for `[relay]`."""


class PoolKindEntry(StrictModel):
    """Pools whose members are all of one kind. rspregistrar refuses members that differ from the first one;
    with this entry the gate takes no first member that differs."""

    handles: Annotated[
        tuple[Annotated[str, AfterValidator(_handle)], ...], Field(min_length=1, max_length=64)
    ]
    """The pools; "sip-*": all that begin so. If several entries name a pool, all of them count."""
    policy: Annotated[str, AfterValidator(_policy)] | None = None
    """As in agent.toml, `least-used` there by default. Default here: any."""
    transport: Literal["udp", "tcp", "sctp", "tcp+control", "sctp+control"] | None = None
    """As in agent.toml; "+control" is said by members without a ppe-agent whose control channel shares the
    transport. Default: any."""


class BackendEntry(ClientEntry):
    """Hosts of name servers, with a DNS backend each."""

    follow: Literal["enrp", "poll"] = "enrp"
    """As in rspdns.toml. With "poll" the registrars' ENRP port stays closed to them."""


class PoolUserEntry(BackendEntry):
    """Hosts of clients, with a ppu-agent each."""

    follow: Literal["enrp", "poll"] = "poll"
    """As in ppu-agent.toml. With "poll" the registrars' ENRP port stays closed to them."""


class WireGuardConfig(StrictModel):
    """Has `rspdns-registrar wireguard` make a configuration for every host, and lets SCTP in by it only."""

    hosts: tuple[Annotated[str, AfterValidator(_address)], ...] = ()
    """The hosts of the networks in `addresses`, each by its address. Single addresses are hosts anyway."""


class Inventory(StrictModel):
    """The inventory file."""

    registrar: Annotated[tuple[RegistrarEntry, ...], Field(min_length=1, max_length=99)]
    agent: tuple[AgentEntry, ...] = ()
    pool: tuple[PoolKindEntry, ...] = ()
    """Policy and transport of pools. Without them a host that may join a pool can enter it with others, while
    it is empty, and so keep everybody else out."""
    backend: tuple[BackendEntry, ...] = ()
    """Hosts of name servers, with a DNS backend each."""
    client: tuple[PoolUserEntry, ...] = ()
    """Hosts of clients, with a ppu-agent each; what is rendered for them is as for `backend`."""
    agent_reregistration_ms: Annotated[int, Field(ge=100, le=600_000)] = AGENT_REREGISTRATION_MS
    """`reregistration_ms` of the agents."""
    expected_elements: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How many application servers there will be, in all pools: from it `render` computes the keep-alives."""
    announce: Annotated[str, AfterValidator(_group)] | None = None
    """The multicast group to which registrars announce themselves, for agents that find them by it."""
    filter: Literal["nftables", "elsewhere"] = "nftables"
    """The packet filter of these hosts. "nftables": `render` writes it, the unit `rspdns-filter` loads it,
    and `check` fails on a registrar's host without it. "elsewhere": your firewall keeps strangers away."""
    wireguard: WireGuardConfig | None = None
    """`[wireguard]`: between registrars and all others SCTP goes through tunnels of WireGuard only."""

    _neighbours: tuple["Inventory", ...] = PrivateAttr(default=())

    @classmethod
    def document_problems(cls, document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield what is wrong between entries: names or ports taken twice, both address families."""
        seen: dict[str, str] = {}
        for kind in ("registrar", "agent", "backend", "client"):
            yield from duplicates(document, (kind, "*", "name"))
            for location, name in find(document, (kind, "*", "name")):
                if isinstance(name, str) and seen.setdefault(name, kind) != kind:
                    yield location, f"{name!r} is there twice: {seen[name]} and {kind} need different names"
        yield from _port_problems(document)
        locations = list(find(document, ("registrar", "*", "address")))
        versions = [
            (location, 6 if isinstance(value, str) and ":" in value else 4) for location, value in locations
        ]
        for location, version in versions[1:]:
            if version != versions[0][1]:
                yield location, "the registrars must all have IPv4 addresses, or all IPv6 ones"
        yield from _announce_problems(document)
        for location, entry in find(document, ("pool", "*")):
            if isinstance(entry, dict) and not entry.keys() & {"policy", "transport"}:
                yield location, "needs policy or transport, or both"
        yield from _wireguard_problems(document)

    @property
    def neighbours(self) -> tuple["Inventory", ...]:
        """The other handlespaces of a file of cells. A host that is in several has one packet filter."""
        return self._neighbours

    def beside(self, neighbours: tuple["Inventory", ...]) -> "Inventory":
        """Return this inventory with these neighbours."""
        inventory = self.model_copy()
        inventory._neighbours = neighbours
        return inventory

    @property
    def followers(self) -> tuple[BackendEntry, ...]:
        """All hosts that follow the registrars: name servers, then clients."""
        return (*self.backend, *self.client)

    @property
    def wireguard_hosts(self) -> dict[IPAddress, str]:
        """The hosts that WireGuard connects, by address, each with the names of its entries."""
        entries: list[tuple[str, tuple[Network, ...]]] = [
            (entry.name, (ip_network(entry.address),)) for entry in self.registrar
        ]
        entries += [(client.name, client.networks) for client in (*self.agent, *self.followers)]
        single = [
            network.network_address
            for _, networks in entries
            for network in networks
            if network.num_addresses == 1
        ]
        listed = [ip_address(host) for host in self.wireguard.hosts] if self.wireguard else []
        return {
            host: ", ".join(
                name for name, networks in entries if any(host in network for network in networks)
            )
            for host in dict.fromkeys((*single, *listed))
        }

    def wireguard_endpoint(self, host: IPAddress) -> SctpEndpoint:
        """Return where a host receives what others send through the tunnel."""
        return SctpEndpoint.parse(self.wireguard_outside.get(host, str(host)), WIREGUARD_PORT)

    @property
    def wireguard_outside(self) -> dict[IPAddress, str]:
        """The registrars whose addresses exist in the tunnel only, and where they are reached."""
        return {
            ip_address(entry.address): entry.outside for entry in self.registrar if entry.outside is not None
        }

    @property
    def sizing(self) -> Sizing | None:
        """The sizing of these registrars for `expected_elements`; None if these are not given."""
        if self.expected_elements is None:
            return None
        return size(self.expected_elements, len(self.registrar), self.agent_reregistration_ms)

    @property
    def longest_life_s(self) -> int:
        """The longest registration life that the gate lets pass."""
        return max(SHORTEST_LIFE_BOUND_S, 3 * self.agent_reregistration_ms // 1000)

    @property
    def takes_reports(self) -> bool:
        """Whether any host may report servers as unreachable."""
        return any(client.reports_per_s for client in (*self.agent, *self.followers))

    def doubts(self) -> Iterator[str]:
        """Yield what is allowed and may not do what is wanted."""
        machines = {entry.address for entry in self.registrar}
        for agent in self.agent:
            if "*" in agent.handles:
                yield (
                    f"agent {agent.name!r} may join every pool; name its pools: handles = [...], or one host "
                    "that is taken over can put itself into all of them"
                )
        if loose := self._loose_handles():
            yield (
                f"no [[pool]] gives policy and transport of {', '.join(map(repr, loose))}: a host that may "
                "join such a pool can enter it with others, while it is empty; all other servers are then "
                "refused"
            )
        if self.wireguard is not None:
            for client in (*self.agent, *self.followers):
                for network in client.networks:
                    if not any(host in network for host in self.wireguard_hosts):
                        yield (
                            f"{network} of {client.name!r}: [wireguard] lists none of its hosts, so they "
                            "reach no registrar; name them in `hosts`"
                        )
        sizing = self.sizing
        if sizing is None:
            most = most_elements(len(self.registrar), self.agent_reregistration_ms)
            yield (
                f"expected_elements is not given: these registrars bear {most:,} application servers at "
                f"{SHORTEST_KEEP_ALIVE_MS} ms between keep-alives; say how many there will be"
            )
        elif not sizing.fits:
            wanted_ms = shortest_reregistration_ms(sizing.elements)
            yield (
                f"expected_elements: {sizing.elements:,} servers that register again every "
                f"{self.agent_reregistration_ms} ms are too many for one thread of rspregistrar; set "
                f"agent_reregistration_ms here, and reregistration_ms of the agents, to {wanted_ms} or more"
            )
        elif not sizing.bursts_fit:
            yield (
                f"expected_elements: with one registrar down another one asks its servers in bursts of "
                f"{sizing.burst_ms:.0f} ms, and drops live ones when a burst takes {TIMEOUT_MS} ms; run "
                f"{registrars_for_bursts(sizing.elements)} registrars"
            )
        elif sizing.keep_alive_ms > SHORTEST_KEEP_ALIVE_MS:
            number = registrars_for(sizing.elements, self.agent_reregistration_ms)
            better = f"; {number} registrars can ask every {SHORTEST_KEEP_ALIVE_MS} ms" if number else ""
            yield (
                f"expected_elements: {len(self.registrar)} registrars can ask {sizing.elements:,} servers "
                f"every {sizing.keep_alive_ms} ms only, so a silent host stays for up to "
                f"{sizing.detection_ms / 1000:.1f} s{better}"
            )
        if sizing is not None and sizing.elements > FLAT_MOST:
            yield (
                f"expected_elements: {sizing.elements:,} servers are more than one handlespace was measured "
                f"with, {FLAT_MOST:,}: make cells of 3,000, [[cell]] in one file"
            )
        if len(machines) < len(self.registrar) and sizing and sizing.busy > _SHARED_BUSY:
            yield (
                "registrars share a machine: each needs a processor core of its own for so many servers, and "
                "they all end with it"
            )

    def _loose_handles(self) -> list[str]:
        """Return the handles of agents, "*" left out, that no `pool` covers whole."""

        def is_covered(handle: str, key: str) -> bool:
            return any(
                handle == pattern or (pattern.endswith("*") and handle.startswith(pattern[:-1]))
                for pool in self.pool
                if getattr(pool, key) is not None
                for pattern in pool.handles
            )

        named = dict.fromkeys(handle for agent in self.agent for handle in agent.handles if handle != "*")
        return [
            handle
            for handle in named
            if not (is_covered(handle, "policy") and is_covered(handle, "transport"))
        ]

    @property
    def registrars(self) -> dict[str, RegistrarSettings]:
        """The settings that each registrar is started with, by its name, in the order of the file."""
        asap = _endpoints(self.registrar, "asap_port", ASAP_PORT)
        enrp = _endpoints(self.registrar, "enrp_port", ENRP_PORT)
        announce = parse_group(self.announce) if self.announce is not None else None
        return {
            entry.name: RegistrarSettings(
                asap[position],
                enrp[position],
                without_own(enrp, enrp[position]),
                announce=announce,
                takes_reports=self.takes_reports,
            )
            for position, entry in enumerate(self.registrar)
        }


def load_inventory(path: str | Path) -> Inventory:
    """Read the file. Raises ConfigurationErrors with every error in it."""
    return load(path, Inventory)


def two_registrars_problem(count: int) -> str:
    """Return why `count` registrars are refused, or nothing."""
    return TWO_REGISTRARS if count == 2 else ""


def _endpoints(entries: Sequence[RegistrarEntry], key: str, first: int) -> list[SctpEndpoint]:
    """Return one endpoint each; those without a port get the next free one at their address."""
    taken: dict[IPAddress, set[int]] = {}
    for entry in entries:
        if (port := getattr(entry, key)) is not None:
            taken.setdefault(ip_address(entry.address), set()).add(port)
    endpoints = []
    for entry in entries:
        address = ip_address(entry.address)
        here = taken.setdefault(address, set())
        port = getattr(entry, key)
        if port is None:
            port = next(candidate for candidate in range(first, first + 1000) if candidate not in here)
            here.add(port)
        endpoints.append(SctpEndpoint(address, port))
    return endpoints


def _announce_problems(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield why the registrars can't announce themselves to the group."""
    for location, announce in find(document, ("announce",)):
        addresses = [value for _, value in find(document, ("registrar", "*", "address"))]
        try:
            problem = announce_problem(parse_group(announce), ip_address(addresses[0]))
        except (IndexError, TypeError, ValueError):
            continue  # told elsewhere
        if problem:
            yield location, problem


def _wireguard_problems(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the hosts of [wireguard] that no entry has, and outside addresses without [wireguard]."""
    networks = []
    for path in (("registrar", "*", "address"), *((kind, "*", "addresses", "*") for kind in _CLIENTS)):
        for _, text in find(document, path):
            with contextlib.suppress(TypeError, ValueError):
                networks.append(ip_network(text))
    for location, text in find(document, ("wireguard", "hosts", "*")):
        with contextlib.suppress(ValueError):  # told elsewhere
            if not any(ip_address(text) in network for network in networks):
                yield location, f"no registrar, agent, backend or client has the address {text}"
    for location, _ in find(document, ("registrar", "*", "outside")) if "wireguard" not in document else ():
        yield location, "it is for WireGuard, and there is no table [wireguard]"


def _port_problems(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the ports that two registrars of one address have been given."""
    for key in ("asap_port", "enrp_port"):
        seen = set()
        for location, entry in find(document, ("registrar", "*")):
            if isinstance(entry, dict) and key in entry:
                endpoint = (str(entry.get("address")), str(entry[key]))
                if endpoint in seen:
                    yield (*location, key), f"another registrar at {endpoint[0]} has this port"
                seen.add(endpoint)
    for location, entry in find(document, ("registrar", "*")):
        if isinstance(entry, dict) and "asap_port" in entry and entry["asap_port"] == entry.get("enrp_port"):
            yield (*location, "enrp_port"), "must differ from asap_port"
