"""Ends what was up with a server that died: connections to it, and flows that were sent on to it.

SIP repeats nothing over TCP, so requests that the server left unanswered are answered with 503 in its place
before their connection ends (`ppu_agent.overheard`). They are known from copies of what clients and servers
say, which come by the table `ppu_agent_copy`. While they are answered, the same table lets pass what goes to
the dead server: the rules of `refuse` would end a connection before its client has the answer. To drop it
would be no better: TCP takes what its own host drops as not sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, Final

from daemon_kit.logs import get_logger
from pool_user import Network

from ppu_agent.answering import Answering, Connection, answering
from ppu_agent.configuration import PpuConfig
from ppu_agent.deaths import Departed
from ppu_agent.destinations import AddressPort, Destination
from ppu_agent.kernel import (
    COLLECT_EVERY_S,
    COPIES_GROUP,
    Flow,
    Flows,
    IsMeant,
    LocalSockets,
    PacketCopies,
)
from ppu_agent.mechanisms.base import Mechanism, StartPart, ended
from ppu_agent.plan import Front, Plan, PoolDestination, Way
from ppu_agent.rules import (
    IP,
    IS_NO_SET_UP,
    KEY_TYPE,
    NOTHING,
    PROBE_MARK,
    NftCommand,
    NftTable,
    TableCommands,
    in_networks,
    is_in,
    leased,
    match,
)
from ppu_agent.writer import NftablesError, Writer
from rserpool import Protocol

COPY_TABLE: Final = NftTable("ppu_agent_copy")
COPY_AGAIN_AFTER_S: Final = 30.0
_COPY_CHAINS: Final = {
    "to_output": ("output", -150),
    "to_prerouting": ("prerouting", -150),
    "from_input": ("input", 150),
    "from_postrouting": ("postrouting", 150),
}
"""Copies are taken where packets have the addresses that the client knows: before DNAT, and behind it."""
_PASS_CHAINS: Final = {"pass_output": ("output", -1), "pass_forward": ("forward", -1)}


@dataclass(frozen=True, slots=True)
class Copied:
    """Which TCP packets are copied: to and from these networks, at these ports of the servers.

    `left_alone` are servers among them that speak no SIP: nothing is answered for them.
    """

    networks: frozenset[Network] = frozenset()
    ports: frozenset[int] = frozenset()
    left_alone: frozenset[AddressPort] = frozenset()


def copied(plan: Plan) -> Copied:
    """The knowledge of connections with which requests that a dead server left can be answered."""
    places = list(plan.places_by(Way.COPY))
    served = {place.policy.handle: place.policy for place in places}
    fronts = [
        front.destination
        for front in plan.fronts
        if front.policy.handle in served and front.destination.protocol is Protocol.TCP
    ]
    networks = {network for policy in served.values() for network in policy.networks}
    networks.update(ip_network(front.address) for front in fronts)
    ports = frozenset(destination.port for destination in (*(place.destination for place in places), *fronts))
    all_known: list[PoolDestination | Front] = [*plan.places, *plan.fronts]
    others = {
        known.destination.endpoint
        for known in all_known
        if known.destination.protocol is Protocol.TCP
        and Way.COPY not in known.ways
        and known.destination.port in ports
        and not known.policy.repeats
        and known.policy.via_port is None
    }
    if others:  # of thousands of servers, most often none
        others -= {place.destination.endpoint for place in places} | {front.endpoint for front in fronts}
    return Copied(frozenset(networks), ports, frozenset(others))


class EndingMechanism(Mechanism):
    """Ends connections and moves flows, beside the event loop: strangers can make flows by the thousand.

    `may_be_moved` says whether connections may have another server than they ask for. `spawn` starts a task
    whose failure ends the agent. `act` has all mechanisms' commands done.
    """

    def __init__(
        self, writer: Writer, may_be_moved: Callable[[], bool], spawn: StartPart, act: Callable[[], None]
    ) -> None:
        self.copies = PacketCopies()
        self.refused_requests = 0
        """SIP requests over TCP that were answered with 503 in the place of a dead server."""
        self.connections_ended = self.flows_moved = 0
        self._writer = writer
        self._may_be_moved = may_be_moved
        self._spawn = spawn
        self._act = act
        self._tasks: list[asyncio.Task[None]] = []
        self._plan = Plan()
        self._copied = Copied()
        self._copy_problem: str | None = None
        self._copy_again_s = 0.0
        self._died: dict[Destination, Departed] = {}
        self._has_died = asyncio.Event()
        self._ending: dict[Destination, Departed] = {}
        """Those that `run` works on."""
        self._passing: Collection[AddressPort] = ()
        self._sockets = LocalSockets(writer.note, writer.is_closed)
        self._flows = Flows(writer.note, writer.is_closed)

    async def configure(self, config: PpuConfig) -> None:
        """Begin to wait for deaths."""
        if not self._tasks:
            self._tasks = [self._spawn(self.run()), self._spawn(self._collect())]

    def commands(self, plan: Plan) -> TableCommands:
        """Copy, and let pass what goes to servers whose connections are about to end."""
        self._plan = plan
        certain = {treatment.destination.endpoint for treatment in plan.treatments if treatment.is_certain}
        ending = {destination.endpoint for destination in (*self._died, *self._ending)}
        self._passing = certain & ending
        return self.copying(copied(plan), self._passing, time.monotonic())

    def copying(self, wanted: Copied, passing: Collection[AddressPort], now: float) -> TableCommands:
        """Have packets copied. If the kernel refuses that, it is tried again after 30 s."""
        self._copied = wanted
        if not self._writer.is_open:
            return NOTHING
        if not self.copies.is_open:
            if not wanted.ports or now < self._copy_again_s:
                return NOTHING
            problem = self._open(wanted)
            self._note(problem)
            if problem is not None:
                self._copy_again_s = now + COPY_AGAIN_AFTER_S
                return NOTHING
        return TableCommands(own=[*_passing_rules(passing), *_copying_rules(wanted)])

    def died(self, server: Departed) -> None:
        """End what was up with it. Connections stay until the death is certain."""
        self._died[server.destination] = server
        self._has_died.set()

    def status(self) -> dict[str, Any]:
        """Counts of connections ended, flows moved and requests answered, and the state of the copies."""
        return {
            "connections_ended_count": self.connections_ended,
            "flows_moved_count": self.flows_moved,
            "answered_503_count": self.refused_requests,
            "kernel": {"copies_problem": self.copies.problem, "copied_bytes": self.copies.kept_bytes},
        }

    async def close(self) -> None:
        """Keep no copies any more."""
        for task in self._tasks:
            await ended(task)
        self._tasks = []
        self.copies.close()

    async def run(self) -> None:
        """End what was up with each server that died, one death after the other; until cancelled."""
        while True:
            await self._has_died.wait()
            self._has_died.clear()
            self._ending, self._died = self._died, {}
            dead = self._plan.dead
            gone = [server for server in self._ending.values() if server.destination.endpoint in dead]
            endpoints = {server.destination.endpoint for server in gone}
            treated = [
                treatment.destination
                for treatment in self._plan.treatments
                if treatment.destination.endpoint in endpoints and not treatment.spares_connections
            ]
            over_tcp = [destination for destination in treated if destination.protocol is Protocol.TCP]
            if over_tcp:  # first: the rules end them when what they send passes no more
                self.connections_ended += await asyncio.to_thread(self.end_connections, over_tcp)
            others = [destination for destination in treated if destination.protocol is not Protocol.TCP]
            if others:
                await asyncio.to_thread(self.forget_begun_by, others)
            await self._move_flows_of(gone)
            self._ending = {}
            if self._passing:  # until now
                self._act()

    async def _move_flows_of(self, gone: Collection[Departed]) -> None:
        asked = [front.destination for front in self._plan.fronts]
        asked += [
            place.destination
            for place in self._plan.places
            if place.destination.protocol is not Protocol.UDP
            and place.policy.on_dead[place.destination.protocol] == "redirect"
        ]
        for protocol in dict.fromkeys(destination.protocol for destination in asked):
            servers = [
                server.destination
                for server in gone
                if protocol in self._protocols_of(server) and (server.is_certain or protocol is Protocol.UDP)
            ]
            if servers:
                of_protocol = [destination for destination in asked if destination.protocol is protocol]
                moved, ended = await asyncio.to_thread(self.move_flows, of_protocol, servers)
                self.flows_moved += moved
                self.connections_ended += ended

    def _protocols_of(self, server: Departed) -> set[Protocol]:
        """The transports at which a server that left served."""
        endpoint = server.destination.endpoint
        places = (place.destination for place in self._plan.places if place.left is not None)
        return {
            server.destination.protocol,
            *(place.protocol for place in places if place.endpoint == endpoint),
        }

    def end_connections(self, servers: Collection[Destination]) -> int:
        """End this host's TCP connections to dead servers; return how many.

        Before, the requests in them are answered with 503, as far as they are known; in connections that this
        host forwards, too. Those that conntrack sent elsewhere stay: the redirected ones, and those of the
        relay, also when it has not accepted them yet. If there are thousands this takes seconds: it is for
        a thread beside the event loop.
        """

        def find_meant(connections: Collection[tuple[AddressPort, AddressPort]]) -> IsMeant:
            elsewhere = self._flows.moved(servers, connections) if self._may_be_moved() else ()
            return lambda source, server: (source, server) not in elsewhere

        endpoints = [server.endpoint for server in servers]
        with self._answering(endpoints) as answers:
            if answers is None:
                return self._sockets.end_connections(endpoints, find_meant)
            known = answers.known
            is_meant = find_meant([(connection.client, connection.asked) for connection in known])
            meant = [connection for connection in known if is_meant(connection.client, connection.asked)]
            answers.answer_all(meant)
            ended = self._sockets.end_connections(
                endpoints,
                find_meant,
                lambda client, server: answers.answer(Connection(client, server, server)),
            )
            answers.end_of_others(meant)
            self._take_answers(answers)
            return ended

    def move_flows(self, asked: Collection[Destination], dead: Collection[Destination]) -> tuple[int, int]:
        """Have conntrack forget the flows to what was asked that went to dead servers.

        Return how many, and how many connections of this host were ended. A datagram goes to a living server
        next. A connection of another host is reset, at its next packet unless it was overheard. For a thread,
        as above.
        """
        flows = self._flows.forget(asked, dead, self._answer_moved)
        moved = {(flow.source, flow.asked.endpoint) for flow in flows if flow.asked.protocol is Protocol.TCP}
        return len(flows), self._sockets.end_connections(
            {server for _, server in moved}, lambda found: lambda source, server: (source, server) in moved
        )

    def forget_begun_by(self, dead: Collection[Destination]) -> None:
        """Have conntrack forget the flows that dead servers began. For a thread, as above.

        Conntrack takes what a client sends as the answers in such a flow, whatever the packet's zone: it
        would go to the dead server. Servers begin flows whenever they send from the port that they serve at.
        SCTP associations that a client began are forgotten alike: see `Flows.forget_begun_by()`.
        """
        self._flows.forget_begun_by(dead)

    def _answer_moved(self, flows: Collection[Flow]) -> None:
        """Answer requests in connections that went elsewhere than they asked; conntrack knows them yet."""
        moved = [
            Connection(flow.source, flow.asked.endpoint, flow.server)
            for flow in flows
            if flow.asked.protocol is Protocol.TCP
        ]
        if moved:
            with self._answering({connection.asked for connection in moved}) as answers:
                if answers is not None:
                    answers.answer_all(moved)
                    answers.end_of_others(moved)
                    self._take_answers(answers)

    def _answering(self, asked: Iterable[AddressPort]) -> AbstractContextManager[Answering | None]:
        return answering(self.copies, set(asked) - self._copied.left_alone, self._writer.is_closed)

    def _take_answers(self, answers: Answering) -> None:
        self.refused_requests += answers.answered
        if answers.problem is not None:
            self._note(answers.problem)

    async def _collect(self) -> None:
        """Keep the copies of packets that came; nobody reads them until a server dies."""
        while True:
            self.copies.collect()
            await asyncio.sleep(COLLECT_EVERY_S)

    def _open(self, wanted: Copied) -> str | None:
        """Begin to copy; return what the kernel refused.

        The rules are tried here, alone: a kernel without nft_log would refuse the whole of every transaction.
        """
        try:
            self._writer.own(COPY_TABLE.name, [*_copy_chains(), *_copying_rules(wanted)])
            self.copies.open()
            problem = self.copies.problem
        except NftablesError as refused:
            problem = f"nftables refused to copy packets (Linux 5.12): {refused}"
        if not self.copies.is_open:
            with suppress(NftablesError):
                self._writer.disown(COPY_TABLE.name)
        return problem

    def _note(self, problem: str | None) -> None:
        if problem is not None and problem != self._copy_problem:
            get_logger("kernel").warning("requests_not_known", problem=problem)
        self._copy_problem = self.copies.problem = problem


def _copy_chains() -> list[NftCommand]:
    """The sets and chains of the table, whatever is copied."""
    commands = [COPY_TABLE.set(f"passing{version}", version, ()) for version in KEY_TYPE]
    for name, (hook, priority) in (_COPY_CHAINS | _PASS_CHAINS).items():
        commands.append(COPY_TABLE.base(name, "filter", hook, priority))
    as_probes = {"mangle": {"key": {"meta": {"key": "mark"}}, "value": PROBE_MARK}}
    for name in _PASS_CHAINS:
        for version in KEY_TYPE:
            passing = is_in(version, f"passing{version}")
            commands.append(COPY_TABLE.rule(name, passing, IS_NO_SET_UP, as_probes))
    return commands


def _passing_rules(servers: Collection[AddressPort]) -> list[NftCommand]:
    """Let pass what connections send to these servers, as probes do, for a lease."""
    commands: list[NftCommand] = []
    for version in KEY_TYPE:
        own = [
            leased(Destination(address, Protocol.TCP, port))
            for address, port in servers
            if address.version == version
        ]
        commands += COPY_TABLE.filled(f"passing{version}", version, own)
    return commands


def _copying_rules(wanted: Copied) -> list[NftCommand]:
    """Have packets of TCP to and from these networks and ports copied.

    Those of this host's own servers are not: they are never treated as dead, and anybody may send to them.
    """
    commands: list[NftCommand] = [COPY_TABLE.flushed(chain) for chain in _COPY_CHAINS]
    for chain in _COPY_CHAINS:
        address, port = ("daddr", "dport") if chain.startswith("to") else ("saddr", "sport")
        for version, ip in IP.items():
            networks = in_networks(version, wanted.networks)
            if networks and wanted.ports:
                rule = [
                    match({"payload": {"protocol": ip, "field": address}}, {"set": networks}),
                    match({"payload": {"protocol": "tcp", "field": port}}, {"set": sorted(wanted.ports)}),
                    _is_not({"meta": {"key": "mark"}}, PROBE_MARK),
                    _is_not({"fib": {"result": "type", "flags": [address]}}, "local"),
                    {"log": {"group": COPIES_GROUP}},
                ]
                commands.append(COPY_TABLE.rule(chain, rule))
    return commands


def _is_not(left: NftCommand, right: object) -> NftCommand:
    return {"match": {"op": "!=", "left": left, "right": right}}
