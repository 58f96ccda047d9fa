"""`on_dead = { tcp = "repeat" }`, and TCP of `via`: the agent relays connections, by `ppu_agent.relay`.

The kernel removes the table `ppu_agent_relay` with the process, since nobody else could take its connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final

from daemon_kit.errors import FatalError

from ppu_agent.configuration import PpuConfig
from ppu_agent.deaths import Departed
from ppu_agent.destinations import Address, Destination
from ppu_agent.kernel import DeadManTimer
from ppu_agent.mechanisms.base import Mechanism, StartPart, ended
from ppu_agent.mechanisms.via import ViaMechanism
from ppu_agent.plan import Front, Plan, PoolPolicy, Way
from ppu_agent.relay import TcpRelay
from ppu_agent.rules import (
    IS_LOCAL,
    IS_PROBE,
    KEY_TYPE,
    NOTHING,
    OWN_INTO_ZONE,
    NftCommand,
    NftTable,
    TableCommands,
    is_in,
    is_transport,
    leased,
    to_front,
)
from ppu_agent.writer import NftablesError, Writer
from rserpool import Protocol

RELAY_TABLE: Final = NftTable("ppu_agent_relay")
STANDSTILL_S: Final = 4.0
"""Relayed connections would hang with an agent that stands still, so it is killed then, as systemd does."""


class RepeatMechanism(Mechanism):
    """Relays TCP connections. `spawn` starts a task whose failure ends the agent."""

    def __init__(self, via: ViaMechanism, writer: Writer, spawn: StartPart) -> None:
        self._via = via
        self._writer = writer
        self._spawn = spawn
        self._plan = Plan()
        self._relay: TcpRelay | None = None
        self._relayed: dict[Destination, PoolPolicy] = {}
        self._dead_man: DeadManTimer | None = None
        self._living: asyncio.Task[None] | None = None
        self._counts: dict[str, int] = {}

    @property
    def is_open(self) -> bool:
        """Whether connections may be relayed."""
        return self._relay is not None

    async def configure(self, config: PpuConfig) -> None:
        """Listen for connections. Raises FatalError."""
        is_needed = any(pool.via or pool.on_dead.tcp == "repeat" for pool in config.pools)
        if self._relay is None and is_needed:
            open_relay(self._writer)
            relay = TcpRelay(self._choose, self._via.dial, self._is_repeated, config.relay.limits)
            await relay.start()
            self._dead_man = DeadManTimer(STANDSTILL_S)
            self._living = self._spawn(_live(self._dead_man))
            self._relay, self._counts = relay, relay.counts

    def take(self, config: PpuConfig) -> None:
        """Use these limits."""
        if self._relay is not None:
            self._relay.limits = config.relay.limits

    def commands(self, plan: Plan) -> TableCommands:
        """TcpRelay this host's connections to members, unless suspended, and those to fronts with `via`."""
        if self._relay is None:
            return NOTHING
        now = relayed(plan)
        if not plan.is_last:
            self._plan, self._relayed = plan, now
        fronts = plan.fronts_by(Way.EMBED, Protocol.TCP)
        members = () if plan.is_suspended else now.keys() - {front.destination for front in fronts}
        return TableCommands(own=relay_rules(members, self._relay.port, fronts))

    def died(self, server: Departed) -> None:
        """Its connections go on elsewhere, or end, when its death is certain."""
        if self._relay is not None and server.is_certain:
            self._relay.died(server.destination)

    def status(self) -> dict[str, Any]:
        """How many connections were relayed, and requests repeated."""
        return {f"{name}_count": self._counts.get(name, 0) for name in ("relayed", "repeated")}

    async def close(self) -> None:
        """Give servers a moment to answer, and end every connection; new ones come no more by then."""
        relay, self._relay = self._relay, None
        if relay is not None:
            await relay.leave()
        await ended(self._living)
        self._living = None
        if self._dead_man is not None:
            self._dead_man.close()
            self._dead_man = None

    def _choose(
        self, asked: Destination, client: Address, tried: Collection[Destination]
    ) -> Destination | None:
        """The server that gets a connection to `asked` now: that one while it lives, else a living one."""
        policy, plan = self._relayed.get(asked), self._plan
        is_front = policy is not None and policy.front == asked.endpoint
        if not is_front and asked not in tried and (plan.is_suspended or asked.endpoint not in plan.dead):
            return asked
        if policy is None or (plan.is_suspended and not is_front):
            return None
        return plan.draw(asked, policy, client, tried)

    def _is_repeated(self, asked: Destination) -> bool:
        policy = self._relayed.get(asked)
        return policy is not None and policy.repeats


def relayed(plan: Plan) -> dict[Destination, PoolPolicy]:
    """The TCP destinations whose connections the agent relays; the first pool of the configuration decides.

    A member that left belongs to them: a client may still ask for it.
    """
    fronts = (*plan.fronts_by(Way.EMBED, Protocol.TCP), *plan.fronts_by(Way.RELAY, Protocol.TCP))
    found = {front.destination: front.policy for front in fronts}
    for place in plan.places_by(Way.RELAY):
        found.setdefault(place.destination, place.policy)
    return found


def open_relay(writer: Writer) -> None:
    """Make the table of relayed connections. Raises FatalError."""
    sets = [RELAY_TABLE.set(f"relayed{version}", version, ()) for version in KEY_TYPE]
    chains = [
        RELAY_TABLE.base("relay", "nat", "output", -102),
        RELAY_TABLE.base("fronts_output", "nat", "output", -103),
        RELAY_TABLE.base("fronts_prerouting", "nat", "prerouting", -103),
        RELAY_TABLE.base("zone_output", "filter", "output", -300),
        RELAY_TABLE.rule("zone_output", OWN_INTO_ZONE),
    ]
    try:
        writer.own(RELAY_TABLE.name, [*sets, *chains])
    except NftablesError as problem:
        raise FatalError(
            f"connections can't be relayed (on_dead tcp = 'repeat', Linux 5.12): {problem}"
        ) from None


def relay_rules(members: Iterable[Destination], port: int, fronts: Iterable[Front] = ()) -> list[NftCommand]:
    """Have this host's connections to these members go to the relay at `port`, for a lease.

    Those to `fronts` are relayed for other hosts as well.
    """
    wanted = list(members)
    here = {"redirect": {"port": port}}
    commands = [RELAY_TABLE.flushed(chain) for chain in ("relay", "fronts_output", "fronts_prerouting")]
    if wanted:
        commands += [RELAY_TABLE.rule("relay", of, {"return": None}) for of in (IS_PROBE, IS_LOCAL)]
    for version in KEY_TYPE:
        elements = [leased(member) for member in wanted if member.address.version == version]
        commands += RELAY_TABLE.filled(f"relayed{version}", version, elements)
        if elements:
            is_relayed = is_in(version, f"relayed{version}")
            commands.append(RELAY_TABLE.rule("relay", is_relayed, is_transport(Protocol.TCP), here))
    for front in fronts:
        commands += to_front(RELAY_TABLE, "fronts", front, here)
    return commands


async def _live(dead_man: DeadManTimer) -> None:
    """Show that the event loop goes on."""
    while True:
        dead_man.renew()
        await asyncio.sleep(STANDSTILL_S / 16)
