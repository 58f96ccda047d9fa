"""`steer`: one address stands for a pool, and the kernel sends each new flow to it to a living member.

The rules have no lease: clients know no other address, so they outlive the agent.
"""

from __future__ import annotations

import itertools

from ppu_agent.drawing import SOURCE_SEED, SOURCE_SLOTS, slots_by_source
from ppu_agent.mechanisms.base import Mechanism
from ppu_agent.plan import Front, Plan
from ppu_agent.rules import (
    IP,
    IS_PROBE,
    MAIN,
    NftCommand,
    TableCommands,
    drawn_by_weight,
    is_transport,
    mapped,
    to_front,
)


class FrontMechanism(Mechanism):
    """Steers."""

    def commands(self, plan: Plan) -> TableCommands:
        """Steer to the living."""
        return TableCommands(front_rules(plan))


def front_rules(plan: Plan) -> list[NftCommand]:
    """The chains of fronts."""
    commands: list[NftCommand] = []
    for hook in ("output", "prerouting") if plan.fronts else ():
        commands.append(MAIN.base(f"steer_{hook}", "nat", hook, -101))
        commands.append(MAIN.rule(f"steer_{hook}", IS_PROBE, {"return": None}))
    for number, front in enumerate(plan.fronts):
        chain, destination = f"front_{number}", front.destination
        target = _by_source(front) if front.policy.by_source else drawn_by_weight(front.targets)
        to_target = {"dnat": {"family": IP[destination.address.version], "addr": target}}
        commands.append(MAIN.chain(chain))
        commands.append(MAIN.rule(chain, is_transport(destination.protocol), to_target))
        commands += to_front(MAIN, "steer", front, {"goto": {"target": chain}})
    return commands


def _by_source(front: Front) -> NftCommand:
    """A living member by the client's address: the same one while it lives, at every agent."""
    source = {"payload": {"protocol": IP[front.destination.address.version], "field": "saddr"}}
    draw = {"jhash": {"mod": SOURCE_SLOTS, "seed": SOURCE_SEED, "expr": source}}
    slots = []
    numbered = enumerate(slots_by_source(front.targets))
    for server, group in itertools.groupby(numbered, key=lambda slot: slot[1]):
        numbers = [number for number, _ in group]
        slots.append((numbers[0], numbers[-1], server))
    return mapped(draw, slots)
