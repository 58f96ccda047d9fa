"""`redirect` of `on_dead`: what is sent to a dead server goes to a living member.

TCP and SCTP are redirected outside the conntrack zone of datagrams, since a connection must stay with its
server: also when the first one is back, another one dies, or the agent ends. Only set-ups get a server.
Packets that still go to a dead one belong to connections that were up before: over TCP they are reset
(`mechanisms/refuse.py`). Over SCTP, where conntrack takes only INIT and HEARTBEAT for the first packet of a
flow, a HEARTBEAT gets a server, too: that one aborts the association. Until the death is certain
(`Treatment.is_certain`) all this passes: only what sets up a connection is treated.

A NAT chain (`established`) stays for connections that were redirected, by a front, too: without any, the
kernel translates nothing. While the agent runs, `ppu_agent_claim` has the same chain: `nft flush ruleset`
spares the tables of others, and translation must not pause until the agent has put its rules again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ppu_agent.configuration import PpuConfig
from ppu_agent.destinations import Address
from ppu_agent.kernel import Flows
from ppu_agent.mechanisms.base import Mechanism, ZoneOfFlows
from ppu_agent.plan import Plan, Treatment, Way
from ppu_agent.rules import (
    IP,
    IS_MOVED,
    IS_SCTP_SET_UP,
    IS_SET_UP,
    MAIN,
    TABLE,
    Expressions,
    NftCommand,
    NftTable,
    TableCommands,
    drawn_by_weight,
    is_transport,
    sending_on,
)
from ppu_agent.writer import CLAIM_TABLE, Writer
from rserpool import Protocol

KEEPING_CHAIN: Final = "established"


class RedirectMechanism(Mechanism):
    """Redirects. `is_ours` says of which addresses and ports connections may have been redirected."""

    def __init__(
        self, writer: Writer, is_ours: Callable[[Address, int], bool] = lambda address, port: True
    ) -> None:
        self.keeps_connections = False
        """Whether connections that were redirected may be up."""
        self._writer = writer
        self._is_ours = is_ours
        self._is_begun = False
        self._is_in_claim = False
        self._zone = ZoneOfFlows()
        self._flows = Flows(writer.note, writer.is_closed)

    async def configure(self, config: PpuConfig) -> None:
        """Find the connections that an agent before redirected."""
        self.begin()

    def begin(self) -> None:
        """The same, once."""
        if not self._is_begun:
            self._is_begun = True
            self.keeps_connections = (TABLE, KEEPING_CHAIN) in self._writer.chains()
            self.find_connections()

    def commands(self, plan: Plan) -> TableCommands:
        """Redirect, and keep the connections that were redirected."""
        self.keeps_connections = self.keeps_connections or plan.moves_connections
        keeping = keeping_chain(MAIN) if self.keeps_connections else []
        return TableCommands([*keeping, *redirect_rules(plan, self._zone.of(plan))], self._in_claim())

    def find_connections(self) -> None:
        """Find out whether connections that were redirected are still up. It may take a second."""
        if self.keeps_connections:
            self.keeps_connections = self._flows.has_moved_connection(self._is_ours)

    async def close(self) -> None:
        """Keep nothing for connections that have ended."""
        await asyncio.to_thread(self.find_connections)

    def _in_claim(self) -> list[NftCommand]:
        table = NftTable(CLAIM_TABLE)
        if not self._writer.is_claimed or not (self.keeps_connections or self._is_in_claim):
            return []
        self._is_in_claim = self.keeps_connections
        add, keep = keeping_chain(table)
        chain = {"delete": {"chain": table.inside | {"name": KEEPING_CHAIN}}}
        return [add, table.flushed(KEEPING_CHAIN), keep if self.keeps_connections else chain]


def keeping_chain(table: NftTable) -> list[NftCommand]:
    """NAT and conntrack, for the connections that they know already. The rule asks for conntrack's work."""
    return [
        table.base(KEEPING_CHAIN, "nat", "output", -104),
        table.rule(KEEPING_CHAIN, IS_MOVED, {"accept": None}),
    ]


def redirect_rules(plan: Plan, zone: int) -> list[NftCommand]:
    """The chains and sets of what is redirected."""
    return sending_on("redirect", plan.treated(Way.REDIRECT), zone, _to_targets)


def _to_targets(treatment: Treatment) -> Expressions:
    destination = treatment.destination
    which = [is_transport(destination.protocol)]
    if destination.protocol is Protocol.TCP:
        which.append(IS_SET_UP)
    elif destination.protocol is Protocol.SCTP and treatment.spares_connections:
        which.append(IS_SCTP_SET_UP)
    target = drawn_by_weight(treatment.targets)
    return [*which, {"dnat": {"family": IP[destination.address.version], "addr": target}}]
