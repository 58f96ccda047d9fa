"""The pieces of nftables transactions (libnftables-json(5)) that mechanisms are made of. Pure.

The table `ppu_agent` is replaced in one transaction, at every change and once a second. So the elements'
timeout, the lease, is renewed; what somebody else removed is put again; and there is one form that `check`
can show. While nothing is to be done there is no such table, but `ppu_agent_claim`: it belongs to the agent,
and tells a second one that it is not alone.

| chain        | hook, priority                    | whose, and for what                                |
|--------------|-----------------------------------|----------------------------------------------------|
| `*_zone_*`   | output and prerouting, -300 (raw) | redirected flows get a conntrack zone of their own |
| `redirect_*` | output and prerouting, -100 (nat) | redirect: DNAT to a living member, by weight       |
| `answer_*`   | output and prerouting, -100 (nat) | answer: requests of SIP to the 503 responder       |
| `abort_*`    | output and prerouting, -100 (nat) | refuse: SCTP to a closed port of this host         |
| `refuse_*`   | output and forward, 0 (filter)    | refuse: TCP reset, ICMP unreachable                |
| `steer_*`    | output and prerouting, -101 (nat) | front: DNAT of new flows to a pool's front         |
| `answers`    | input, 0 (filter)                 | answer: the responder hears redirected packets only |

Packets with the probe's mark pass everything: the agent must reach the dead to see that they are back.
Packets to this host itself pass as well: a sidecar beside a server here must see that its server is dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from ipaddress import collapse_addresses
from typing import Any, Final, NamedTuple

from pool_user import Network

from ppu_agent.destinations import Destination
from ppu_agent.drawing import SHARES, Target, shares
from ppu_agent.plan import Front, Treatment
from rserpool import Protocol

TABLE: Final = "ppu_agent"
FAMILY: Final = "inet"
LEASE_S: Final = 3
RENEW_EVERY_S: Final = 1.0
PROBE_MARK: Final = 0x70707561
"""SO_MARK of the agent's probes ("ppua")."""
PROBE_ZONE: Final = 28783
"""Conntrack zone of the agent's own connections: a program that gets the port of one that has ended would be
taken for it, and reach the dead server."""

NftCommand = dict[str, Any]
Expressions = list[NftCommand]
KEY_TYPE: Final = {
    4: ["ipv4_addr", "inet_proto", "inet_service"],
    6: ["ipv6_addr", "inet_proto", "inet_service"],
}
IP: Final = {4: "ip", 6: "ip6"}
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
IS_SET_UP: Final[NftCommand] = {
    "match": {
        "op": "==",
        "left": {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, _FIN | _SYN | _RST | _ACK]},
        "right": _SYN,
    }
}
IS_NO_SET_UP: Final[NftCommand] = {"match": IS_SET_UP["match"] | {"op": "!="}}
IS_SCTP_SET_UP: Final[NftCommand] = {
    "match": {"op": "==", "left": {"payload": {"base": "th", "offset": 96, "len": 8}}, "right": 1}
}
"""By the type of the first chunk: an INIT is alone in its packet (RFC 9260, 6.10)."""
IS_MOVED: Final[NftCommand] = {"match": {"op": "in", "left": {"ct": {"key": "status"}}, "right": "dnat"}}


class TableCommands(NamedTuple):
    """TableCommands of nftables, all of which are part of one transaction.

    `shared` go into the table `ppu_agent`, which is made anew in it; `own` change the mechanism's own tables.
    """

    shared: Sequence[NftCommand] = ()
    own: Sequence[NftCommand] = ()


NOTHING: Final = TableCommands()


def replacing(content: Sequence[NftCommand]) -> list[NftCommand]:
    """The transaction that replaces the table by this content; without any the table is removed. The table
    may be gone already."""
    table = {"table": {"family": FAMILY, "name": TABLE}}
    return [{"add": table}, {"delete": table}, *([{"add": table}, *content] if content else [])]


class NftTable:
    """One table: makes its commands."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inside: Final = {"family": FAMILY, "table": name}

    def rule(self, chain: str, *expressions: NftCommand | Expressions) -> NftCommand:
        """A rule at the end of a chain."""
        flat = [
            expression for part in expressions for expression in (part if isinstance(part, list) else [part])
        ]
        return {"add": {"rule": self.inside | {"chain": chain, "expr": flat}}}

    def chain(self, name: str) -> NftCommand:
        """A chain that rules go to."""
        return {"add": {"chain": self.inside | {"name": name}}}

    def base(self, name: str, kind: str, hook: str, priority: int) -> NftCommand:
        """A chain at a hook."""
        base = {"name": name, "type": kind, "hook": hook, "prio": priority, "policy": "accept"}
        return {"add": {"chain": self.inside | base}}

    def base_for_others(
        self, name: str, kind: str, hook: str, priority: int, first: Expressions | None = None
    ) -> list[NftCommand]:
        """A chain at a hook that leaves the agent's own packets alone, and those to this host.

        `first`: a rule before that.
        """
        return [
            self.base(name, kind, hook, priority),
            *([self.rule(name, first)] if first else []),
            self.rule(name, IS_PROBE, {"return": None}),
            self.rule(name, IS_LOCAL, {"return": None}),
        ]

    def set(self, name: str, version: int, destinations: Iterable[Destination]) -> NftCommand:
        """A set of destinations of one IP version, with the lease."""
        elements = [leased(destination) for destination in destinations]
        made = {"name": name, "type": KEY_TYPE[version], "flags": ["timeout"]}
        return {"add": {"set": self.inside | made | ({"elem": elements} if elements else {})}}

    def filled(self, name: str, version: int, elements: Sequence[NftCommand]) -> list[NftCommand]:
        """The commands that replace the elements of a set."""
        added = {"add": {"element": self.inside | {"name": name, "elem": list(elements)}}}
        return [{"flush": {"set": self.inside | {"name": name}}}, *([added] if elements else [])]

    def flushed(self, chain: str) -> NftCommand:
        """Remove the rules of a chain."""
        return {"flush": {"chain": self.inside | {"name": chain}}}


MAIN: Final = NftTable(TABLE)


def sending_on(
    kind: str,
    treatments: Sequence[Treatment],
    zone: int,
    expressions: Callable[[Treatment], Expressions],
) -> list[NftCommand]:
    """Give packets to these destinations another one, as `expressions` of each says, in chains named `kind`.

    Datagrams and SCTP that is refused do so within a conntrack `zone`, which makes the lease whole: conntrack
    remembers where a flow was sent for as long as it is busy. When the lease ends, packets leave the zone,
    and conntrack's memory of it with them: they go to the address that they name. Replies are looked up in
    the default zone, so they come back as if from the first server. A flow that a server began itself is in
    the default zone, too, and takes the client's packets for its replies: the agent has conntrack forget that
    when the server dies.
    """
    commands: list[NftCommand] = []
    chains: dict[tuple[object, ...], str] = {}
    for treatment in treatments:
        group = _group(treatment)
        if group not in chains:
            chains[group] = f"{kind}_to_{len(chains)}"
            commands.append(MAIN.chain(chains[group]))
            commands.append(MAIN.rule(chains[group], expressions(treatment)))
    versions = sorted({treatment.destination.address.version for treatment in treatments})
    for version in versions:
        of_version = [
            treatment for treatment in treatments if treatment.destination.address.version == version
        ]
        in_zone = [treatment for treatment in of_version if not is_redirected_connection(treatment)]
        for name, is_spared in (("moved", False), ("begun", True)):
            own = [
                treatment.destination for treatment in in_zone if treatment.spares_connections is is_spared
            ]
            commands.append(MAIN.set(f"{kind}_{name}{version}", version, own))
        verdicts = {
            "name": f"{kind}_moves{version}",
            "type": KEY_TYPE[version],
            "map": "verdict",
            "flags": ["timeout"],
            "elem": [
                [leased(treatment.destination), {"goto": {"target": chains[_group(treatment)]}}]
                for treatment in of_version
            ],
        }
        commands.append({"add": {"map": MAIN.inside | verdicts}})
    into_zone = in_conntrack_zone(zone)
    for hook in ("output", "prerouting") if treatments else ():
        in_hook = f"{kind}_zone_{hook}"
        commands += MAIN.base_for_others(in_hook, "filter", hook, -300, OWN_INTO_ZONE)
        for v in versions:
            commands.append(MAIN.rule(in_hook, is_in(v, f"{kind}_moved{v}"), into_zone))
            commands.append(MAIN.rule(in_hook, is_in(v, f"{kind}_begun{v}"), IS_SCTP_SET_UP, into_zone))
        commands += MAIN.base_for_others(f"{kind}_{hook}", "nat", hook, -100)
        commands += [
            MAIN.rule(f"{kind}_{hook}", {"vmap": {"key": key(v), "data": f"@{kind}_moves{v}"}})
            for v in versions
        ]
    return commands


def is_redirected_connection(treatment: Treatment) -> bool:
    """Whether set-ups get another server, with which their connection stays."""
    return treatment.action == "redirect" and treatment.destination.protocol is not Protocol.UDP


def _group(treatment: Treatment) -> tuple[object, ...]:
    """The key of treatments that share a chain: the same way of being sent on.

    `plan()` gives all that go to the same targets the same tuple: to compare thousands of targets for each of
    hundreds of treatments would take seconds.
    """
    destination = treatment.destination
    kind = treatment.action, destination.protocol, destination.address.version, treatment.spares_connections
    return *kind, id(treatment.targets)


def drawn_by_weight(targets: Sequence[Target]) -> NftCommand:
    """A living member, drawn by weight for each new flow."""
    return mapped({"numgen": {"mode": "random", "mod": SHARES}}, shares(targets))


def mapped(draw: NftCommand, numbered: Iterable[tuple[int, int, Destination]]) -> NftCommand:
    """A map from ranges of what is drawn to addresses and ports."""
    slots = [
        [
            {"range": [first, last]} if first < last else first,
            {"concat": [str(destination.address), destination.port]},
        ]
        for first, last, destination in numbered
    ]
    return {"map": {"key": draw, "data": {"set": slots}}}


def admitted(front: Destination, clients: Sequence[Network] | None) -> Expressions | None:
    """The expressions that match the packets of these clients; None: no packet."""
    if clients is None:
        return []
    prefixes = in_networks(front.address.version, clients)
    if not prefixes:
        return None
    return [match({"payload": {"protocol": IP[front.address.version], "field": "saddr"}}, {"set": prefixes})]


def to_front(table: NftTable, chains: str, front: Front, *expressions: NftCommand) -> list[NftCommand]:
    """Rules for packets to a front: of this host, and of the other hosts that may use it."""
    commands = []
    for hook in ("output", "prerouting"):
        clients = admitted(front.destination, front.policy.clients if hook == "prerouting" else None)
        if clients is not None:
            rule = [*is_to(front.destination), *clients, *expressions]
            commands.append(table.rule(f"{chains}_{hook}", rule))
    return commands


def in_networks(version: int, networks: Iterable[Network]) -> list[NftCommand]:
    """The elements of a set of the networks of this IP version."""
    collapsed = collapse_addresses(network for network in networks if network.version == version)  # type: ignore[type-var]
    return [
        {"prefix": {"addr": str(network.network_address), "len": network.prefixlen}} for network in collapsed
    ]


def admitting_moved(port: int) -> list[Expressions]:
    """Rules: what was redirected reaches this UDP port of the agent, and nothing else does."""
    here = match({"payload": {"protocol": "udp", "field": "dport"}}, port)
    return [[here, IS_MOVED, {"accept": None}], [here, {"drop": None}]]


def leased(destination: Destination) -> NftCommand:
    """A destination as an element that ends by itself unless the agent renews it."""
    value = {"concat": [str(destination.address), destination.protocol.name.lower(), destination.port]}
    return {"elem": {"val": value, "timeout": LEASE_S}}


def key(version: int) -> NftCommand:
    """The destination of a packet, as sets have it."""
    destination = {"payload": {"protocol": IP[version], "field": "daddr"}}
    port = {"payload": {"protocol": "th", "field": "dport"}}
    return {"concat": [destination, {"meta": {"key": "l4proto"}}, port]}


def is_to(destination: Destination) -> Expressions:
    """Match packets to this destination."""
    return [
        match(
            {"payload": {"protocol": IP[destination.address.version], "field": "daddr"}},
            str(destination.address),
        ),
        is_transport(destination.protocol),
        match({"payload": {"protocol": "th", "field": "dport"}}, destination.port),
    ]


def is_transport(protocol: Protocol) -> NftCommand:
    """Match packets of this transport."""
    return match({"meta": {"key": "l4proto"}}, protocol.name.lower())


def is_in(version: int, name: str) -> NftCommand:
    """Match packets whose destination is in this set."""
    return match(key(version), f"@{name}")


def match(left: NftCommand, right: object) -> NftCommand:
    """Match what is equal."""
    return {"match": {"op": "==", "left": left, "right": right}}


def in_conntrack_zone(zone: int) -> NftCommand:
    """Have conntrack look a packet up in this zone; its reply in the default one."""
    return {"mangle": {"key": {"ct": {"key": "zone", "dir": "original"}}, "value": zone}}


IS_PROBE: Final = match({"meta": {"key": "mark"}}, PROBE_MARK)
IS_LOCAL: Final = match({"fib": {"result": "type", "flags": ["daddr"]}}, "local")
OWN_INTO_ZONE: Final[Expressions] = [IS_PROBE, in_conntrack_zone(PROBE_ZONE)]
