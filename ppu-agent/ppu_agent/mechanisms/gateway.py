"""`[gateway]`: connection set-up through this host is guarded, by `ppu_agent.gateway`."""

from __future__ import annotations

import asyncio
from typing import Any

from ppu_agent.configuration import PpuConfig
from ppu_agent.destinations import Address
from ppu_agent.gateway import Gateway, guarded
from ppu_agent.mechanisms.base import Mechanism, StartPart, ended
from ppu_agent.plan import Plan
from ppu_agent.rules import NOTHING, TableCommands


class GatewayMechanism(Mechanism):
    """Runs ppu-guard. `spawn` starts a task whose failure ends the agent."""

    def __init__(self, spawn: StartPart) -> None:
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

    def commands(self, plan: Plan) -> TableCommands:
        """Guard set-up to members, fronts, and members that left."""
        if self._gateway is not None:
            self._gateway.set(frozenset() if plan.is_suspended else guarded(plan))
        return NOTHING

    def explained(self, explanation: dict[str, Any], address: Address, port: int) -> dict[str, Any]:
        """An explanation, with what happens here to connection set-up to that address and port."""
        return explanation if self._gateway is None else self._gateway.explained(explanation, address, port)

    def status(self) -> dict[str, Any]:
        """The counters of ppu-guard, and the state of its interfaces."""
        return {"gateway": None if self._gateway is None else self._gateway.describe()}

    async def close(self) -> None:
        """End ppu-guard."""
        await ended(self._running)
        self._running = None
