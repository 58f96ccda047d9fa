"""`on_dead = { tcp = "repeat" }`, and TCP of `via`: the agent relays connections, by `ppu_agent.relay`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

from ppu_agent.configuration import PpuConfig
from ppu_agent.deaths import Departed
from ppu_agent.destinations import Address, Destination
from ppu_agent.kernel import DeadManTimer
from ppu_agent.mechanisms.base import NOTHING, Redirections, Situation
from ppu_agent.mechanisms.gateway import Spawn
from ppu_agent.mechanisms.via import ViaMechanism
from ppu_agent.relay import Relay
from ppu_agent.steering import PoolPolicy, relayed
from ppu_agent.writer import Writer
from rserpool import Protocol

STANDSTILL_S: Final = 4.0
"""Relayed connections would hang with an agent that stands still, so it is killed then, as systemd does."""


class RepeatMechanism:
    """Relays TCP connections. `spawn` starts a task whose failure ends the agent."""

    def __init__(self, via: ViaMechanism, writer: Writer, spawn: Spawn) -> None:
        self._via = via
        self._writer = writer
        self._spawn = spawn
        self._situation = Situation()
        self._relay: Relay | None = None
        self._relayed: dict[Destination, PoolPolicy] = {}
        self._dead_man: DeadManTimer | None = None
        self._living: asyncio.Task[None] | None = None
        self._counts: dict[str, int] = {}

    async def configure(self, config: PpuConfig) -> None:
        """Listen for connections. Raises FatalError."""
        is_needed = any(pool.via or pool.on_dead.tcp == "repeat" for pool in config.pools)
        if self._relay is None and is_needed:
            self._writer.open_relay()
            relay = Relay(self._choose, self._via.dial, self._is_repeated, config.relay.limits)
            await relay.start()
            self._dead_man = DeadManTimer(STANDSTILL_S)
            self._living = self._spawn(_live(self._dead_man))
            self._relay, self._counts = relay, relay.counts

    def take(self, config: PpuConfig) -> None:
        """Use these limits."""
        if self._relay is not None:
            self._relay.limits = config.relay.limits

    def commands(self, situation: Situation) -> Redirections:
        """Relay this host's connections to members, unless suspended, and those to fronts with `via`."""
        self._situation = situation
        if self._relay is None:
            return NOTHING
        self._relayed = relayed(situation.policies, situation.views, situation.departed)
        steered = (one.front for one in situation.steering.fronts if one.front.protocol is Protocol.TCP)
        fronts = {front: self._relay.port for front in steered if self._via.takes(front)}
        members = () if situation.suspended else self._relayed.keys() - fronts.keys()
        return Redirections(dict.fromkeys(members, self._relay.port), fronts)

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
        if self._living is not None:
            self._living.cancel()
            await asyncio.gather(self._living, return_exceptions=True)
            self._living = None
        if self._dead_man is not None:
            self._dead_man.close()
            self._dead_man = None

    def _choose(
        self, asked: Destination, client: Address, tried: Collection[Destination]
    ) -> Destination | None:
        """The server that gets a connection to `asked` now: that one while it lives, else a living one."""
        policy = self._relayed.get(asked)
        is_front = policy is not None and policy.front == asked.endpoint
        situation = self._situation
        if (
            not is_front
            and asked not in tried
            and (situation.suspended or asked.endpoint not in situation.dead)
        ):
            return asked
        if policy is None or (situation.suspended and not is_front):
            return None
        return situation.draw(asked, policy, client, tried)

    def _is_repeated(self, asked: Destination) -> bool:
        policy = self._relayed.get(asked)
        return policy is not None and policy.on_dead[Protocol.TCP] == "repeat"


async def _live(dead_man: DeadManTimer) -> None:
    """Show that the event loop goes on."""
    while True:
        dead_man.renew()
        await asyncio.sleep(STANDSTILL_S / 16)
