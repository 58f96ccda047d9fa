"""`[gateway]`: connection set-up through this host is guarded, by `ppu_agent.gateway`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ppu_agent.configuration import PpuConfig
from ppu_agent.deaths import Departed
from ppu_agent.destinations import Address
from ppu_agent.gateway import Gateway, guarded
from ppu_agent.mechanisms.base import NOTHING, Redirections, Situation

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class GatewayMechanism:
    """Runs ppu-guard. `spawn` starts a task whose failure ends the agent."""

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._gateway: Gateway | None = None
        self._running: asyncio.Task[None] | None = None

    async def configure(self, config: PpuConfig) -> None:
        """Start ppu-guard. Raises FatalError."""
        if self._gateway is None and config.gateway is not None:
            gateway = config.gateway.make()
            await gateway.start()
            self._running = self._spawn(gateway.run())
            self._gateway = gateway

    def take(self, config: PpuConfig) -> None:
        """The gateway's keys can't change while the agent runs."""

    def commands(self, situation: Situation) -> Redirections:
        """Guard set-up to members, fronts, and members that left."""
        if self._gateway is not None:
            found = guarded(
                situation.policies, situation.views, situation.steering.fronts, situation.departed
            )
            self._gateway.set(frozenset() if situation.suspended else found)
        return NOTHING

    def died(self, server: Departed) -> None:
        """A server that died is guarded while it is remembered."""

    def explained(self, explanation: dict[str, Any], address: Address, port: int) -> dict[str, Any]:
        """An explanation, with what happens here to connection set-up to that address and port."""
        return explanation if self._gateway is None else self._gateway.explained(explanation, address, port)

    def status(self) -> dict[str, Any]:
        """The counters of ppu-guard, and the state of its interfaces."""
        return {"gateway": None if self._gateway is None else self._gateway.describe()}

    async def close(self) -> None:
        """End ppu-guard."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None
