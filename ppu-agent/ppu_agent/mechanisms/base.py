"""The methods of a mechanism."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from ppu_agent.configuration import PpuConfig
from ppu_agent.deaths import Departed
from ppu_agent.destinations import Destination
from ppu_agent.plan import Plan
from ppu_agent.rules import NOTHING, TableCommands

StartPart = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a task whose failure ends the agent."""
ZONES: Final = range(0x7200, 0xB200)
"""Conntrack zones of redirected flows, one after the other."""


class Mechanism:
    """One mechanism. It takes nothing of this host before a configuration asks for it.

    The methods here do nothing: a mechanism that is rules of nftables only needs `commands` alone.
    """

    async def configure(self, config: PpuConfig) -> None:
        """Have what the configuration needs; what an earlier one needed stays. Raises FatalError.

        Nothing that is there already changes: a mechanism after this one may refuse the configuration.
        """

    def take(self, config: PpuConfig) -> None:
        """Decide by this configuration from now on: each mechanism has what it needs."""

    def commands(self, plan: Plan) -> TableCommands:
        """Do what is right now, and say what nftables has to do; at each change, and once a second."""
        return NOTHING

    def died(self, server: Departed) -> None:
        """A server died: the next commands are without it. Called again when its death is certain."""

    def status(self) -> Mapping[str, Any]:
        """Its keys of the agent's status. Numbers of several mechanisms are added up."""
        return {}

    async def close(self) -> None:
        """Give everything back; safe to repeat, and without `configure`."""


class ZoneOfFlows:
    """The conntrack zone of redirected flows: another one after each death, so that each flow is drawn anew.

    A flow may have been sent on to the server that died now. Each agent begins at another zone, so that it
    does not find the flows of the agent before it: they may lead to a server that died meanwhile.
    """

    def __init__(self) -> None:
        self._number = random.randrange(len(ZONES))  # noqa: S311 - chance, not a secret
        self._dead: frozenset[Destination] = frozenset()

    def of(self, plan: Plan) -> int:
        """The zone for this plan."""
        dead = frozenset(treatment.destination for treatment in plan.treatments)
        if dead - self._dead:
            self._number += 1
        self._dead = dead
        return ZONES[self._number % len(ZONES)]


async def ended(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task, and wait until it has ended."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
