"""The methods of a mechanism, and the situation that every mechanism decides by."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pool_user import PoolView

from ppu_agent.configuration import PpuConfig
from ppu_agent.deaths import Departed
from ppu_agent.destinations import Address, Destination, Endpoint
from ppu_agent.steering import LivingTargets, PoolPolicy, Steering, drawn, drawn_by_source


@dataclass(frozen=True, slots=True)
class Situation:
    """The knowledge and the wishes of the agent at one moment."""

    policies: Sequence[PoolPolicy] = ()
    views: Mapping[str, PoolView] = field(default_factory=dict)
    steering: Steering = field(default_factory=Steering)
    departed: Collection[Departed] = ()
    """The servers that left their pools and are remembered."""
    dead: frozenset[Endpoint] = frozenset()
    """Those of them that are dead, by whatever transport they were registered."""
    targets: LivingTargets = field(default_factory=lambda: LivingTargets({}, {}))
    suspended: bool = False

    def draw(
        self, asked: Destination, policy: PoolPolicy, client: Address, tried: Collection[Destination] = ()
    ) -> Destination | None:
        """A living member of the pool for what `client` sends to `asked`; None: none is left."""
        left = [
            one
            for one in self.targets.for_(asked, policy)
            if one.destination not in tried and one.destination.endpoint not in self.dead
        ]
        if policy.by_source and policy.front == asked.endpoint:
            return drawn_by_source(left, client)
        return drawn(left, random.random())  # noqa: S311 - chance, not a secret


@dataclass(frozen=True, slots=True)
class Redirections:
    """The destinations whose packets nftables has to lead to a port of this program."""

    members: Mapping[Destination, int] = field(default_factory=dict)
    """This host's TCP connections to these servers; the port is the same for all."""
    fronts: Mapping[Destination, int] = field(default_factory=dict)
    """Packets to these fronts, from this host and others."""


NOTHING = Redirections()


class Mechanism(Protocol):
    """One mechanism. It takes nothing of this host before a configuration asks for it."""

    async def configure(self, config: PpuConfig) -> None:
        """Have what the configuration needs; what an earlier one needed stays. Raises FatalError.

        Nothing that is there already changes: a mechanism after this one may refuse the configuration.
        """

    def take(self, config: PpuConfig) -> None:
        """Decide by this configuration from now on: each mechanism has what it needs."""

    def commands(self, situation: Situation) -> Redirections:
        """Do what is right now, and say what nftables has to do; at each change, and once a second."""

    def died(self, server: Departed) -> None:
        """A server died, after the commands of that moment; again when its death is certain."""

    def status(self) -> Mapping[str, Any]:
        """Its keys of the agent's status."""

    async def close(self) -> None:
        """Give everything back; safe to repeat, and without `configure`."""
