"""The problems between the keys of agent.toml: duplicates, values that don't go together.

Works on the unchecked document, so that these errors are reported together with those of single keys.
"""

import contextlib
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any, Final

from daemon_kit.addresses import ListenAddress
from daemon_kit.config_file import duplicates, find
from pydantic import TypeAdapter, ValidationError

from ppe_agent.addresses import Address, NoLocalAddress, address_towards
from ppe_agent.config_types import POLICY_KEYS, Port, has_load, keys_of
from rserpool import POLICY_KINDS, RegistrarAddress

MULTICAST = "multicast"
"""In place of a list of registrars: those that announce themselves."""
ANNOUNCE_GROUP: Final = "239.0.0.50:3863"
"""The group at which rspregistrar announces itself by default."""

_PORT: Final[TypeAdapter[int]] = TypeAdapter(Port)

Problem = tuple[tuple[str | int, ...], str]


def problems(document: dict[str, Any]) -> Iterator[Problem]:
    """Yield location and words of everything that is wrong between keys."""
    yield from _registrars_twice(document)
    yield from _handlespace_problems(document)
    yield from _multicast_problems(document)
    yield from duplicates(document, ("as", "*", "name"))
    yield from _same_endpoint_twice(document)
    yield from _pools_at_odds(document)
    for location, server in find(document, ("as", "*")):
        if isinstance(server, dict):
            for problem in (
                _policy_problems(server),
                _address_problems(server, document),
                _remote_problems(server),
                _icmp_problems(server),
                _relay_problems(server, document),
            ):
                yield from (((*location, *key), words) for key, words in problem)


def _registrars_twice(document: dict[str, Any]) -> Iterator[Problem]:
    first: dict[tuple[str, int], object] = {}
    listed = (
        *find(document, ("registrars", "*")),
        *find(document, ("handlespace", "*", "registrars", "*")),
    )
    for location, text in listed:
        registrar = _parsed(text)
        if registrar is None:
            continue
        table = location[1] if location[0] == "handlespace" else None
        if registrar.endpoint in first:
            is_same = first[registrar.endpoint] == table
            yield location, f"{text} is {'there twice' if is_same else 'in another handlespace already'}"
        first.setdefault(registrar.endpoint, table)


def _handlespace_problems(document: dict[str, Any]) -> Iterator[Problem]:
    if "registrars" in document and "handlespace" in document:
        yield ("registrars",), "goes without [[handlespace]]: move these registrars into one of them"
    if "registrars" not in document and not document.get("handlespace"):
        yield (), "registrars are missing: the addresses of three, or several [[handlespace]] with theirs"
    yield from duplicates(document, ("handlespace", "*", "name"))
    known = [name for _, name in find(document, ("handlespace", "*", "name"))]
    for location, server in find(document, ("as", "*")):
        name = server.get("handlespace") if isinstance(server, dict) else None
        if isinstance(server, dict) and name is None and len(known) > 1:
            yield location, f"needs handlespace: there are several, {', '.join(map(str, known))}"
        elif name is not None and name not in known:
            yield (*location, "handlespace"), f"{name}: no [[handlespace]] has this name"


def _multicast_problems(document: dict[str, Any]) -> Iterator[Problem]:
    is_wanted, is_there = document.get("registrars") == MULTICAST, "multicast" in document
    if is_wanted and not is_there:
        yield (
            ("registrars",),
            'needs [multicast] with accept = ["10.0.0.0/24"]: the networks of the registrars',
        )
    if is_there and not is_wanted:
        yield ("multicast",), f'goes with registrars = "{MULTICAST}" only'
    yield from _networks_of_another_family(document)


def _networks_of_another_family(document: dict[str, Any]) -> Iterator[Problem]:
    """An announcement to a group comes from an address of its family: networks of the other are of no use."""
    group = next((text for _, text in find(document, ("multicast", "group"))), ANNOUNCE_GROUP)
    try:
        version = ListenAddress.parse(group).address.version
    except (ValueError, TypeError):
        return  # reported at its own line
    for location, text in find(document, ("multicast", "accept", "*")):
        with contextlib.suppress(ValueError):
            if isinstance(text, str) and ip_network(text).version != version:
                yield (
                    location,
                    f"{text} is not IPv{version} as the group {group} is: no announcement comes from there",
                )


def _same_endpoint_twice(document: dict[str, Any]) -> Iterator[Problem]:
    """Two entries of one pool for the same address and port would be one server with two identifiers."""
    seen: set[tuple[object, ...]] = set()
    for location, server in find(document, ("as", "*")):
        port = _port(server.get("port")) if isinstance(server, dict) else None
        if port is None or "handle" not in server:  # reported at its own line
            continue
        first = _first_registrar(document, server)
        pool = (*(repr(server.get(key)) for key in ("handlespace", "handle", "transport")), port)
        mine = {(*pool, address): address for address in _registered(server.get("address", "auto"), first)}
        if shared := sorted(str(mine[endpoint]) for endpoint in mine.keys() & seen):
            yield (
                (*location, "port"),
                f"the same pool, transport, address ({', '.join(shared)}) and port as in another [[as]]",
            )
        seen |= mine.keys()


def _registered(value: object, first: RegistrarAddress | None) -> set[Address | str]:
    """Return the addresses that `value` stands for, however spelt; "auto" where no registrar is known yet."""
    if value == "auto":
        if first is not None:
            with contextlib.suppress(NoLocalAddress):
                return {address_towards(first.host, first.asap_port)}
        return {"auto"}
    return set(_addresses(value))


def _addresses(value: object) -> list[Address]:
    """Return the addresses in a text or a list of texts; what is none is reported at its own line."""
    addresses = []
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str):
            with contextlib.suppress(ValueError):
                addresses.append(ip_address(text))
    return addresses


def _port(value: object) -> int | None:
    try:
        return _PORT.validate_python(value)
    except ValidationError:
        return None


def _pools_at_odds(document: dict[str, Any]) -> Iterator[Problem]:
    """A registrar refuses members of a pool that don't agree."""
    first_of_pool: dict[tuple[str, str], dict[str, Any]] = {}
    for location, server in find(document, ("as", "*")):
        handle = server.get("handle") if isinstance(server, dict) else None
        if not isinstance(handle, str):
            continue
        first = first_of_pool.setdefault((str(server.get("handlespace")), handle), server)
        for key, default in (("transport", None), ("policy", "least-used"), ("remote", False)):
            mine, others = server.get(key, default), first.get(key, default)
            if mine != others:
                yield (*location, key), f"{mine!r}, but pool {handle!r} above has {others!r}: all must agree"


def _policy_problems(server: dict[str, Any]) -> Iterator[Problem]:
    name = server.get("policy", "least-used")
    if not isinstance(name, str) or name not in POLICY_KINDS:
        return  # reported at its own line
    needed = keys_of(name)
    for key in POLICY_KEYS:
        if key in needed and key not in server:
            yield (key,), f"is missing; policy {name} needs it"
        if key in server and key not in needed:
            yield (key,), f"policy {name} takes no {key}"
    source = server["load"].get("source", "cpu") if isinstance(server.get("load"), dict) else None
    if not has_load(name) and source not in (None, "none"):
        yield ("load",), f"policy {name} carries no load; take least-used, or leave [as.load] out"


def _relay_problems(server: dict[str, Any], document: dict[str, Any]) -> Iterator[Problem]:
    if server.get("relay") is not True:
        return
    if "relay" not in document:
        yield ("relay",), 'needs [relay] with accept = ["10.1.0.0/24"]: the networks of the ppu-agents'
    if server.get("remote") is True:
        yield ("relay",), "is for servers on this host: a remote one is reached by its own network alone"
    if server.get("transport") == "sctp":
        yield ("relay",), "is for TCP and UDP; clients reach a server over SCTP by its own associations"


_OF_THIS_HOST: Final = frozenset({"process", "systemd"})
_LOADS_OF_THIS_HOST: Final = frozenset({"cpu", "load-average"})


def _remote_problems(server: dict[str, Any]) -> Iterator[Problem]:
    """If a server is on another host, this host knows only what the network shows of it."""
    if server.get("remote") is not True:
        return
    for location, kind in find(server, ("check", "*", "type")):
        if kind in _OF_THIS_HOST:
            yield location, f'"{kind}" looks at this host, but the server is remote: take tcp-hold, say'
    if "key" in server:
        yield ("key",), "has no use for a remote server: its identifier is its address"
    kinds = {kind for _, kind in find(server, ("check", "*", "type"))}
    if kinds == {"tcp-hold"}:
        words = "tcp-hold alone does not see that the server's host is silent: add a check that asks, tcp say"
        yield ("check",), words
    policy, load = server.get("policy", "least-used"), server.get("load")
    if not isinstance(policy, str) or policy not in POLICY_KINDS or not has_load(policy):
        return
    source = load.get("source", "cpu") if isinstance(load, dict) else "cpu"
    if source in _LOADS_OF_THIS_HOST:
        where = ("load", "source") if isinstance(load, dict) and "source" in load else ("remote",)
        yield (
            where,
            f'the load "{source}" would be this host\'s, but the server is remote: set source in [as.load] '
            'to one that asks it (snmp, http-json, prometheus, sip-options), or to "none"',
        )


def _icmp_problems(server: dict[str, Any]) -> Iterator[Problem]:
    """Find echoes that prove nothing: a host's kernel answers for itself, whatever its servers do."""
    checks = list(find(server, ("check", "*", "type")))
    if checks and all(kind == "icmp" for _, kind in checks):
        yield ("check",), "icmp alone does not see the server itself: add a check of it, tcp say"
    if server.get("remote") is True:
        return
    for location, check in find(server, ("check", "*")):
        if isinstance(check, dict) and check.get("type") == "icmp" and "address" not in check:
            words = (
                '"icmp" would ask this host, whose kernel always answers itself: add the address to ask, '
                "the gateway's say"
            )
            yield (*location, "type"), words


def _address_problems(server: dict[str, Any], document: dict[str, Any]) -> Iterator[Problem]:
    address = server.get("address", "auto")
    transport = server.get("transport")
    if isinstance(address, list) and len(address) > 1 and transport in ("udp", "tcp"):
        # rspregistrar aborts on two.
        yield ("address",), f"{transport} takes one address; several are for sctp"
    addresses = _addresses(address)
    if len(set(addresses)) < len(addresses):
        yield ("address",), "an address is there twice"
    first = _first_registrar(document, server)
    if (address == "auto" or server.get("remote") is True) and first is not None:
        try:
            address_towards(first.host, first.asap_port)
        except NoLocalAddress as error:
            if address == "auto":
                yield ("address",), f'"auto" finds no address: {error}; write the address of the server'
            else:
                yield (
                    ("remote",),
                    f"this host finds no address of its own to register the server with: {error}",
                )


def _first_registrar(document: dict[str, Any], server: dict[str, Any]) -> RegistrarAddress | None:
    registrars = document.get("registrars")
    for _, table in find(document, ("handlespace", "*")):
        if isinstance(table, dict) and server.get("handlespace", table.get("name")) == table.get("name"):
            registrars = table.get("registrars")
            break
    return _parsed(registrars[0]) if isinstance(registrars, list) and registrars else None


def _parsed(text: object) -> RegistrarAddress | None:
    """Return a registrar's address, or None for what is none (it is reported at its own line)."""
    try:
        return RegistrarAddress.parse(text) if isinstance(text, str) else None
    except ValueError:
        return None
