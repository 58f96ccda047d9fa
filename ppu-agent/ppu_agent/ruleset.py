"""The desired state as one nftables transaction (libnftables-json(5)). Pure.

The whole table is replaced in one transaction, at every change and once a second: so the elements' timeout,
the lease, is renewed; what somebody else removed is put again; and there is one form that `check` can show.
While nothing is to be done there is no table at all, but `ppu_agent_claim`: it belongs to the agent, and
tells a second one that it is not alone.

| chain        | hook, priority                    | what it does                                       |
|--------------|-----------------------------------|----------------------------------------------------|
| `zone_*`     | output and prerouting, -300 (raw) | redirected flows get a conntrack zone of their own |
| `redirect_*` | output and prerouting, -100 (nat) | DNAT to a living member, by weight                 |
| `refuse_*`   | output and forward, 0 (filter)    | TCP reset, ICMP unreachable; SCTP is redirected to |
|              |                                   | a closed port of this host, which aborts; requests |
|              |                                   | of SIP over UDP to the 503 responder               |
| `steer_*`    | output and prerouting, -101 (nat) | DNAT of new flows to a pool's front                |
| `answers`    | input, 0 (filter)                 | the 503 responder hears redirected packets only    |

The zone makes the lease whole: conntrack remembers where a flow was redirected to, for as long as it is busy.
When the lease ends, packets leave the zone, and conntrack's memory of it with them: they go to the address
that they name. Replies are looked up in the default zone, so they come back as if from the first server.
A flow that a server began itself is in the default zone, too, and takes the client's packets for its
replies: the agent has conntrack forget that when the server dies.

TCP and SCTP are redirected outside the zone, since a connection must stay with its server: also when the
first one is back, another one dies, or the agent ends. Only set-ups get a server. Packets that still go to
a dead one belong to connections that were up before: over TCP they are reset. Over SCTP, where conntrack
takes only INIT and HEARTBEAT for the first packet of a flow, a HEARTBEAT gets a server, too: that one
aborts the association. Until the death is certain (`Treatment.is_certain`) all this passes: only what sets
up a connection is treated. A NAT chain (`established`) stays for redirected connections: without any, the
kernel translates nothing. While the agent runs, `ppu_agent_claim` has the same chain: `nft flush ruleset`
spares the tables of others, and translation must not pause until the agent has put its rules again.

Connections that the agent relays stand in a second table, `relaying()`. The kernel removes that one with
the process, since nobody else could take it.

Copies of what clients say over TCP come by a third table, `copying()`, which ends with the process, too: what
a dead server left unanswered is answered in its place. While that is done, `passing()` lets pass what goes to
the dead one: the rules above would end a connection before its client has the answer. To drop it would be no
better: TCP takes what its own host drops as not sent.

Packets with the probe's mark pass everything: the agent must reach the dead to see that they are back.
Packets to this host itself pass as well: a sidecar beside a server here must see that its server is dead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import collapse_addresses
from typing import Any, Final

from pool_user import Network

from ppu_agent.destinations import Destination
from ppu_agent.kernel import COPIES_GROUP
from ppu_agent.steering import (
    SOURCE_SEED,
    SOURCE_SLOTS,
    Copied,
    Steered,
    Steering,
    Target,
    Treatment,
    slots_by_source,
)
from rserpool import Protocol

TABLE: Final = "ppu_agent"
RELAY_TABLE: Final = "ppu_agent_relay"
COPY_TABLE: Final = "ppu_agent_copy"
CLAIM_TABLE: Final = "ppu_agent_claim"
"""Belongs to the agent that runs here, and ends with it. It has the keeping chain, or nothing."""
RELAY_ZONES: Final = range(0xB200, 0xF200)
"""Conntrack zones of datagrams to relayed fronts; each agent takes another, so that none finds old ports."""
FAMILY: Final = "inet"
LEASE_S: Final = 3
RENEW_EVERY_S: Final = 1.0
PROBE_MARK: Final = 0x70707561
"""SO_MARK of the agent's probes ("ppua")."""
ZONES: Final = range(0x7200, 0xB200)
"""Conntrack zones of redirected flows, one after the other: see `ruleset()`. Each agent begins at another, so
that it doesn't find the flows of the one before it: they may lead to a server that died meanwhile."""
PROBE_ZONE: Final = 28783
"""Conntrack zone of the agent's own connections: a program that gets the port of one that has ended would be
taken for it, and reach the dead server."""
CLOSED_SCTP_PORT: Final = 1
"""tcpmux: nobody has an SCTP server there."""
KEEPING_CHAIN: Final = "established"
SHARES: Final = 1000
"""Weights are drawn in thousandths."""

Command = dict[str, Any]
_IN_TABLE: Final = {"family": FAMILY, "table": TABLE}
_KEY_TYPE: Final = {
    4: ["ipv4_addr", "inet_proto", "inet_service"],
    6: ["ipv6_addr", "inet_proto", "inet_service"],
}
_IP: Final = {4: "ip", 6: "ip6"}
_SIP_METHODS: Final = (
    *("ACK ", "BYE ", "CANCEL", "INFO", "INVITE", "MESSAGE", "NOTIFY"),
    *("OPTIONS", "PRACK", "PUBLISH", "REFER", "REGISTER", "SUBSCRIBE", "UPDATE"),
)
_IS_SIP_REQUEST: Final[Command] = {
    "match": {
        "op": "==",
        "left": {"payload": {"base": "th", "offset": 64, "len": 32}},
        "right": {"set": sorted(int.from_bytes(method[:4].encode(), "big") for method in _SIP_METHODS)},
    }
}
"""By the first four bytes behind the UDP header."""
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
_IS_SET_UP: Final[Command] = {
    "match": {
        "op": "==",
        "left": {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, _FIN | _SYN | _RST | _ACK]},
        "right": _SYN,
    }
}
_IS_SCTP_SET_UP: Final[Command] = {
    "match": {"op": "==", "left": {"payload": {"base": "th", "offset": 96, "len": 8}}, "right": 1}
}
"""By the type of the first chunk: an INIT is alone in its packet (RFC 9260, 6.10)."""
_IS_NO_SET_UP: Final[Command] = {"match": _IS_SET_UP["match"] | {"op": "!="}}


def removal() -> list[Command]:
    """The transaction that removes the table; it may be gone already."""
    table = {"table": {"family": FAMILY, "name": TABLE}}
    return [{"add": table}, {"delete": table}]


def ruleset(
    steering: Steering,
    generation: int = 0,
    responder_port: int | None = None,
    *,
    keeps_connections: bool = False,
) -> list[Command]:
    """The transaction that replaces the table by what is desired.

    `generation` grows with each death: another zone, in which every redirected flow is drawn anew, since it
    may have been sent on to the server that died now. `responder_port` is the UDP port of the agent's 503
    responder, needed when a treatment answers 503. `keeps_connections`: some were redirected, and go on.
    """
    commands = removal()
    if not steering.treatments and not steering.fronts and not keeps_connections:
        return commands
    commands.append({"add": {"table": {"family": FAMILY, "name": TABLE}}})
    refused = [one for one in steering.treatments if _is_refused(one)]
    moved = [one for one in steering.treatments if _is_moved(one, responder_port)]
    if keeps_connections:
        commands += keeping()
    if moved:
        commands += _redirecting(moved, ZONES[generation % len(ZONES)], responder_port)
    if refused:
        commands += _refusing(refused)
    if steering.fronts:
        commands += _steering(steering.fronts)
    if needs_responder(steering) and responder_port is not None:
        commands += _guarded_responder(responder_port)
    return commands


_RELAY: Final = {"family": FAMILY, "table": RELAY_TABLE}
_RELAY_CHAINS: Final = {
    "relay": ("nat", "output", -102),
    "fronts_output": ("nat", "output", -103),
    "fronts_prerouting": ("nat", "prerouting", -103),
    "zone_output": ("filter", "output", -300),
    "zone_prerouting": ("filter", "prerouting", -300),
    "guard": ("filter", "input", 0),
}


def relay_chains() -> list[Command]:
    """The chains of the table of relayed connections, whoever is in it."""
    commands: list[Command] = []
    for version in _IP:
        kind = {"name": f"relayed{version}", "type": _KEY_TYPE[version], "flags": ["timeout"]}
        commands.append({"add": {"set": _RELAY | kind}})
    for name, (kind_of_chain, hook, priority) in _RELAY_CHAINS.items():
        base = {"name": name, "type": kind_of_chain, "hook": hook, "prio": priority, "policy": "accept"}
        commands.append({"add": {"chain": _RELAY | base}})
    return commands


def relaying(
    destinations: Iterable[Destination],
    port: int,
    fronts: Mapping[Destination, int] | None = None,
    zone: int = RELAY_ZONES[0],
    clients: Mapping[Destination, Sequence[Network]] | None = None,
) -> list[Command]:
    """The transaction that has this host's connections to these go to the relay at `port`, for a lease.

    `fronts` are relayed for others as well, each to a port of this host, and some only for these `clients`.
    Datagrams to them get a conntrack zone: when the table ends with the agent, so does what conntrack
    remembers of a flow that is busy.
    """
    commands: list[Command] = [{"flush": {"chain": _RELAY | {"name": name}}} for name in _RELAY_CHAINS]
    wanted = list(destinations)
    rules: list[tuple[str, list[Command]]] = [("zone_output", _own_zone())]
    own = [_match({"meta": {"key": "mark"}}, PROBE_MARK), {"return": None}]
    local = [_match({"fib": {"result": "type", "flags": ["daddr"]}}, "local"), {"return": None}]
    for version in _IP:
        elements = [_leased(one) for one in wanted if one.address.version == version]
        commands.append({"flush": {"set": _RELAY | {"name": f"relayed{version}"}}})
        if elements:
            commands.append({"add": {"element": _RELAY | {"name": f"relayed{version}", "elem": elements}}})
            is_tcp = _match({"meta": {"key": "l4proto"}}, "tcp")
            is_relayed = _is_in(version, f"relayed{version}")
            rules.append(("relay", [is_relayed, is_tcp, {"redirect": {"port": port}}]))
    if wanted:
        rules = [("relay", own), ("relay", local), *rules]
    for front, to_port in (fronts or {}).items():
        for hook in ("output", "prerouting"):
            admitted = _admitted(front, (clients or {}).get(front) if hook == "prerouting" else None)
            if admitted is None:
                continue
            is_front = [*_is_to(front), *admitted]
            rules.append((f"fronts_{hook}", [*is_front, {"redirect": {"port": to_port}}]))
            if front.protocol is Protocol.UDP:
                key = {"ct": {"key": "zone", "dir": "original"}}
                rules.append((f"zone_{hook}", [*is_front, {"mangle": {"key": key, "value": zone}}]))
        if front.protocol is Protocol.UDP:  # the relay of TCP asks conntrack itself
            rules += [("guard", rule) for rule in _admitting_moved(to_port)]
    return [*commands, *({"add": {"rule": _RELAY | {"chain": chain, "expr": rule}}} for chain, rule in rules)]


_COPY: Final = {"family": FAMILY, "table": COPY_TABLE}
_COPY_CHAINS: Final = {
    "to_output": ("output", -150),
    "to_prerouting": ("prerouting", -150),
    "from_input": ("input", 150),
    "from_postrouting": ("postrouting", 150),
    "pass_output": ("output", -1),
    "pass_forward": ("forward", -1),
}
"""Copies are taken where packets have the addresses that the client knows: before DNAT, and behind it."""
PASS_S: Final = LEASE_S
"""Longer than it takes to answer, also where servers died one after the other."""


def copy_chains() -> list[Command]:
    """The chains of the table of copies, whatever is copied."""
    commands: list[Command] = []
    for version in _IP:
        kind = {"name": f"passing{version}", "type": _KEY_TYPE[version], "flags": ["timeout"]}
        commands.append({"add": {"set": _COPY | kind}})
    for name, (hook, priority) in _COPY_CHAINS.items():
        base = {"name": name, "type": "filter", "hook": hook, "prio": priority, "policy": "accept"}
        commands.append({"add": {"chain": _COPY | base}})
        if name.startswith("pass"):
            as_probes = {"mangle": {"key": {"meta": {"key": "mark"}}, "value": PROBE_MARK}}
            for version in _IP:
                passes = [_is_in(version, f"passing{version}"), _IS_NO_SET_UP, as_probes]
                commands.append({"add": {"rule": _COPY | {"chain": name, "expr": passes}}})
    return commands


def copying(wanted: Copied) -> list[Command]:
    """The transaction that has packets of TCP to and from these networks and ports copied.

    Those of this host's own servers are not: they are never treated as dead, and anybody may send to them.
    """
    copying = [name for name in _COPY_CHAINS if not name.startswith("pass")]
    commands: list[Command] = [{"flush": {"chain": _COPY | {"name": name}}} for name in copying]
    for chain in copying:
        address, port = ("daddr", "dport") if chain.startswith("to") else ("saddr", "sport")
        for version, ip in _IP.items():
            networks = collapse_addresses(one for one in wanted.networks if one.version == version)  # type: ignore[type-var]
            prefixes = [
                {"prefix": {"addr": str(one.network_address), "len": one.prefixlen}} for one in networks
            ]
            if not prefixes or not wanted.ports:
                continue
            rule = [
                _match({"payload": {"protocol": ip, "field": address}}, {"set": prefixes}),
                _match({"payload": {"protocol": "tcp", "field": port}}, {"set": sorted(wanted.ports)}),
                {"match": {"op": "!=", "left": {"meta": {"key": "mark"}}, "right": PROBE_MARK}},
                {
                    "match": {
                        "op": "!=",
                        "left": {"fib": {"result": "type", "flags": [address]}},
                        "right": "local",
                    }
                },
                {"log": {"group": COPIES_GROUP}},
            ]
            commands.append({"add": {"rule": _COPY | {"chain": chain, "expr": rule}}})
    return commands


def passing(servers: Iterable[Destination]) -> list[Command]:
    """The transaction that lets pass what connections send to these servers, as probes do, for a moment."""
    return [
        {
            "add": {
                "element": _COPY | {"name": f"passing{one.address.version}", "elem": [_leased(one, PASS_S)]}
            }
        }
        for one in servers
    ]


def passing_no_more() -> list[Command]:
    """The transaction that ends `passing()`."""
    return [{"flush": {"set": _COPY | {"name": f"passing{version}"}}} for version in _IP]


def _is_to(destination: Destination) -> list[Command]:
    ip = _IP[destination.address.version]
    return [
        _match({"payload": {"protocol": ip, "field": "daddr"}}, str(destination.address)),
        _match({"meta": {"key": "l4proto"}}, destination.protocol.name.lower()),
        _match({"payload": {"protocol": "th", "field": "dport"}}, destination.port),
    ]


def _is_moved(one: Treatment, responder_port: int | None) -> bool:
    """Whether packets may get another destination.

    Refused SCTP gets this host, whose own SCTP aborts the set-up: nftables makes no ABORT, and an ICMP error
    doesn't end COOKIE-WAIT everywhere. Refused SIP over UDP gets the responder: a retransmission that can't
    be sent ends its call, whereas 503 has the client go on to the next server.
    """
    match one.action, one.destination.protocol:
        case "refuse", Protocol.UDP:
            return responder_port is not None
        case ("refuse", Protocol.TCP) | ("repeat", _):
            return False
    return True


def _is_refused(one: Treatment) -> bool:
    """Whether packets that keep their destination are refused."""
    is_refused = one.action == "refuse" and one.destination.protocol is not Protocol.SCTP
    is_tcp = one.destination.protocol is Protocol.TCP
    return is_refused or one.action == "repeat" or (_is_redirected_connection(one) and is_tcp)


def needs_responder(steering: Steering) -> bool:
    """Whether requests are sent to the agent's 503 responder, and so a rule guards that."""
    return any(
        one.action == "answer-503" or (one.action == "refuse" and one.destination.protocol is Protocol.UDP)
        for one in steering.treatments
    )


def _is_redirected_connection(one: Treatment) -> bool:
    return one.action == "redirect" and one.destination.protocol is not Protocol.UDP


def moves_connections(steering: Steering) -> bool:
    """Whether connections may get another server than they asked for: these go on when the rules end."""
    has_front = any(one.front.protocol is not Protocol.UDP for one in steering.fronts)
    return has_front or any(map(_is_redirected_connection, steering.treatments))


def keeping(table: str = TABLE) -> list[Command]:
    """NAT and conntrack, for the connections that they know already. The rule asks for conntrack's work."""
    chain = {"family": FAMILY, "table": table}
    base = {"name": KEEPING_CHAIN, "type": "nat", "hook": "output", "prio": -104, "policy": "accept"}
    known = {"match": {"op": "in", "left": {"ct": {"key": "status"}}, "right": "dnat"}}
    rule = {"chain": KEEPING_CHAIN, "expr": [known, {"accept": None}]}
    return [{"add": {"chain": chain | base}}, {"add": {"rule": chain | rule}}]


def keeping_no_more(table: str) -> list[Command]:
    """The transaction that removes what `keeping()` made."""
    chain = {"family": FAMILY, "table": table, "name": KEEPING_CHAIN}
    return [{"flush": {"chain": chain}}, {"delete": {"chain": chain}}]


def _redirecting(moved: Sequence[Treatment], zone: int, responder_port: int | None) -> list[Command]:
    commands: list[Command] = []
    chains: dict[tuple[object, ...], str] = {}
    for one in moved:
        group = _group(one)
        if group not in chains:
            chains[group] = f"to_{len(chains)}"
            commands.append(_chain(chains[group]))
            commands.append(_rule(chains[group], _sending(one, responder_port)))
    versions = sorted({one.destination.address.version for one in moved})
    for version in versions:
        of_version = [one for one in moved if one.destination.address.version == version]
        in_zone = [one for one in of_version if not _is_redirected_connection(one)]
        for name, is_spared in (("moved", False), ("begun", True)):
            own = [one.destination for one in in_zone if one.spares_connections is is_spared]
            commands.append(_set(f"{name}{version}", version, own))
        elements = [
            [_leased(one.destination), {"goto": {"target": chains[_group(one)]}}] for one in of_version
        ]
        verdicts = {
            "name": f"moves{version}",
            "type": _KEY_TYPE[version],
            "map": "verdict",
            "flags": ["timeout"],
            "elem": elements,
        }
        commands.append({"add": {"map": _IN_TABLE | verdicts}})
    into_zone = {"mangle": {"key": {"ct": {"key": "zone", "dir": "original"}}, "value": zone}}
    for hook in ("output", "prerouting"):
        commands += _base(f"zone_{hook}", "filter", hook, -300, _own_zone())
        for v in versions:
            commands.append(_rule(f"zone_{hook}", _is_in(v, f"moved{v}"), into_zone))
            commands.append(_rule(f"zone_{hook}", _is_in(v, f"begun{v}"), _IS_SCTP_SET_UP, into_zone))
        commands += _base(f"redirect_{hook}", "nat", hook, -100)
        commands += [
            _rule(f"redirect_{hook}", {"vmap": {"key": _key(v), "data": f"@moves{v}"}}) for v in versions
        ]
    return commands


def _steering(fronts: Sequence[Steered]) -> list[Command]:
    """Fronts of pools. They have no lease: clients know no other address, so they outlive the agent."""
    commands: list[Command] = []
    for hook in ("output", "prerouting"):
        base = {"name": f"steer_{hook}", "type": "nat", "hook": hook, "prio": -101, "policy": "accept"}
        commands.append({"add": {"chain": _IN_TABLE | base}})
        commands.append(
            _rule(f"steer_{hook}", _match({"meta": {"key": "mark"}}, PROBE_MARK), {"return": None})
        )
    for number, one in enumerate(fronts):
        chain, version = f"front_{number}", one.front.address.version
        protocol = one.front.protocol.name.lower()
        is_transport = _match({"meta": {"key": "l4proto"}}, protocol)
        target = _by_source(one) if one.by_source else _drawn(one.targets)
        commands.append(_chain(chain))
        commands.append(_rule(chain, is_transport, {"dnat": {"family": _IP[version], "addr": target}}))
        for hook in ("output", "prerouting"):
            admitted = _admitted(one.front, one.clients if hook == "prerouting" else None)
            if admitted is not None:
                to_chain = {"goto": {"target": chain}}
                commands.append(_rule(f"steer_{hook}", _is_to(one.front), admitted, to_chain))
    return commands


def _admitted(front: Destination, clients: Sequence[Network] | None) -> list[Command] | None:
    """The expressions that match the packets of these clients; None: no packet."""
    if clients is None:
        return []
    ip = _IP[front.address.version]
    networks = collapse_addresses(one for one in clients if one.version == front.address.version)  # type: ignore[type-var]
    prefixes = [{"prefix": {"addr": str(one.network_address), "len": one.prefixlen}} for one in networks]
    if not prefixes:
        return None
    return [_match({"payload": {"protocol": ip, "field": "saddr"}}, {"set": prefixes})]


def _by_source(one: Steered) -> Command:
    """A living member by the client's address: the same one while it lives, at every agent."""
    source = {"payload": {"protocol": _IP[one.front.address.version], "field": "saddr"}}
    draw = {"jhash": {"mod": SOURCE_SLOTS, "seed": SOURCE_SEED, "expr": source}}
    slots = []
    for destination, numbers in itertools.groupby(
        enumerate(slots_by_source(one.targets)), key=lambda numbered: numbered[1]
    ):
        first, *_ = own = [number for number, _ in numbers]
        slots.append((first, own[-1], destination))
    return _mapped(draw, slots)


def _group(one: Treatment) -> tuple[object, ...]:
    """The key of treatments that share a chain: the same way of being sent on.

    `plan()` gives all that go to the same targets the same tuple: to compare thousands of targets for each of
    hundreds of treatments would take seconds.
    """
    kind = one.action, one.destination.protocol, one.destination.address.version, one.spares_connections
    return *kind, id(one.targets)


def _sending(one: Treatment, responder_port: int | None) -> list[Command]:
    is_transport = _match({"meta": {"key": "l4proto"}}, one.destination.protocol.name.lower())
    is_sctp, is_tcp = (one.destination.protocol is kind for kind in (Protocol.SCTP, Protocol.TCP))
    matches = [is_transport, *([_IS_SCTP_SET_UP] if is_sctp and one.spares_connections else [])]
    if one.action == "refuse" and is_sctp:
        return [*matches, {"redirect": {"port": CLOSED_SCTP_PORT}}]
    if one.action in ("refuse", "answer-503"):
        is_meant = [_IS_SIP_REQUEST] if one.action == "refuse" else []
        return [is_transport, *is_meant, {"redirect": {"port": responder_port}}]
    to_target = {"dnat": {"family": _IP[one.destination.address.version], "addr": _drawn(one.targets)}}
    return [*matches, *([_IS_SET_UP] if is_tcp else []), to_target]


def _drawn(targets: Sequence[Target]) -> Command:
    """A living member, drawn by weight for each new flow."""
    return _mapped({"numgen": {"mode": "random", "mod": SHARES}}, shares(targets))


def _mapped(draw: Command, numbered: Iterable[tuple[int, int, Destination]]) -> Command:
    """A map from ranges of what is drawn to addresses and ports."""
    slots = [
        [
            {"range": [first, last]} if first < last else first,
            {"concat": [str(destination.address), destination.port]},
        ]
        for first, last, destination in numbered
    ]
    return {"map": {"key": draw, "data": {"set": slots}}}


def shares(targets: Sequence[Target]) -> list[tuple[int, int, Destination]]:
    """Divide 0..999 by weight: first and last number of each target; each has one number at least.

    If there are more than 1,000 targets the first 1,000 have a share.
    """
    targets = targets[:SHARES]
    total = sum(target.weight for target in targets)
    spare = SHARES - len(targets)
    found, first, sum_so_far = [], 0, 0
    for number, target in enumerate(targets, start=1):
        sum_so_far += target.weight
        end = number + spare * sum_so_far // total
        found.append((first, end - 1, target.destination))
        first = end
    return found


def _refusing(refused: Sequence[Treatment]) -> list[Command]:
    commands = [_chain("refuse")]
    for match, kind in (
        (_match({"meta": {"key": "l4proto"}}, "tcp"), {"type": "tcp reset"}),
        ([], {"type": "icmpx", "expr": "port-unreachable"}),
    ):
        commands.append(_rule("refuse", match, {"reject": kind}))
    versions = sorted({one.destination.address.version for one in refused})
    for version in versions:
        of_version = [one for one in refused if one.destination.address.version == version]
        for name, is_spared in (("refused", False), ("unready", True)):
            own = [one.destination for one in of_version if one.spares_connections is is_spared]
            commands.append(_set(f"{name}{version}", version, own))
    refusal = {"goto": {"target": "refuse"}}
    for hook in ("output", "forward"):
        commands += _base(f"refuse_{hook}", "filter", hook, 0)
        for v in versions:
            commands.append(_rule(f"refuse_{hook}", _is_in(v, f"refused{v}"), refusal))
            commands.append(_rule(f"refuse_{hook}", _is_in(v, f"unready{v}"), _IS_SET_UP, refusal))
    return commands


def _guarded_responder(port: int) -> list[Command]:
    """Only what was redirected to the responder reaches it: it answers nobody who asks it by itself."""
    base = {"name": "answers", "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}
    rules = [_rule("answers", rule) for rule in _admitting_moved(port)]
    return [{"add": {"chain": _IN_TABLE | base}}, *rules]


def _admitting_moved(port: int) -> list[list[Command]]:
    """Rules: what was redirected reaches this UDP port of the agent, and nothing else does."""
    here = _match({"payload": {"protocol": "udp", "field": "dport"}}, port)
    moved = {"match": {"op": "in", "left": {"ct": {"key": "status"}}, "right": "dnat"}}
    return [[here, moved, {"accept": None}], [here, {"drop": None}]]


def _chain(name: str) -> Command:
    return {"add": {"chain": _IN_TABLE | {"name": name}}}


def _base(
    name: str, kind: str, hook: str, priority: int, first: Sequence[Command] | None = None
) -> list[Command]:
    base = {"name": name, "type": kind, "hook": hook, "prio": priority, "policy": "accept"}
    own = _match({"meta": {"key": "mark"}}, PROBE_MARK)
    local = _match({"fib": {"result": "type", "flags": ["daddr"]}}, "local")
    return [
        {"add": {"chain": _IN_TABLE | base}},
        *([_rule(name, list(first))] if first else []),
        _rule(name, own, {"return": None}),
        _rule(name, local, {"return": None}),
    ]


def _rule(chain: str, *expressions: Command | list[Command]) -> Command:
    flat = [one for part in expressions for one in (part if isinstance(part, list) else [part])]
    return {"add": {"rule": _IN_TABLE | {"chain": chain, "expr": flat}}}


def _set(name: str, version: int, destinations: Iterable[Destination]) -> Command:
    elements = [_leased(destination) for destination in destinations]
    return {
        "add": {
            "set": _IN_TABLE
            | {"name": name, "type": _KEY_TYPE[version], "flags": ["timeout"]}
            | ({"elem": elements} if elements else {})
        }
    }


def _leased(destination: Destination, for_s: int = LEASE_S) -> Command:
    """A destination as an element that ends by itself unless the agent renews it."""
    key = {"concat": [str(destination.address), destination.protocol.name.lower(), destination.port]}
    return {"elem": {"val": key, "timeout": for_s}}


def _key(version: int) -> Command:
    destination = {"payload": {"protocol": _IP[version], "field": "daddr"}}
    port = {"payload": {"protocol": "th", "field": "dport"}}
    return {"concat": [destination, {"meta": {"key": "l4proto"}}, port]}


def _own_zone() -> list[Command]:
    into_zone = {"mangle": {"key": {"ct": {"key": "zone", "dir": "original"}}, "value": PROBE_ZONE}}
    return [_match({"meta": {"key": "mark"}}, PROBE_MARK), into_zone]


def _is_in(version: int, name: str) -> Command:
    return _match(_key(version), f"@{name}")


def _match(left: Command, right: object) -> Command:
    return {"match": {"op": "==", "left": left, "right": right}}
