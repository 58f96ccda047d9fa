"""The treatment should a member die: for `ppu-agent check`. It asks registrars and changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from daemon_kit.addresses import is_on_this_host
from daemon_kit.finding import Finding, Life
from daemon_kit.sip import SIP_PORT
from pool_user import (
    BeliefChange,
    HandlespaceBeliefs,
    HandlespaceUsers,
    Intervals,
    PoolView,
    Weighted,
    weights,
)

from ppu_agent.configuration import PpuConfig
from ppu_agent.deaths import Departed, State
from ppu_agent.destinations import Address, Destination
from ppu_agent.gateway import guarded
from ppu_agent.gateway import lines as lines_of_gateway
from ppu_agent.mechanisms.answer import answer_rules
from ppu_agent.mechanisms.base import ZONES
from ppu_agent.mechanisms.redirect import redirect_rules
from ppu_agent.mechanisms.refuse import refuse_rules
from ppu_agent.plan import Plan, plan
from ppu_agent.rules import NftCommand, replacing
from rserpool import Protocol

ASK_FOR_S = 3.0
"""The time that registrars are given to answer."""
ASSUMED = Finding(Life.REFUSED, "assumed by check")
NAMED = 8
"""The most servers that are named as those that would take a dead one's packets; of more, how many."""
_EXAMPLE_RESPONDER_PORT = 65535


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The plan should the member at `destination` die; `commands` is the nftables transaction of that."""

    destination: Destination
    plan: Plan

    @property
    def commands(self) -> list[NftCommand]:
        """The nftables transaction."""
        zone = ZONES[0]
        rules = redirect_rules(self.plan, zone) + refuse_rules(self.plan, zone)
        return replacing(rules + answer_rules(self.plan, zone, _EXAMPLE_RESPONDER_PORT))


def rehearse(
    config: PpuConfig,
    views: Mapping[str, PoolView],
    is_own: Callable[[Address], bool] = is_on_this_host,
) -> Iterator[Rehearsal]:
    """Yield what would be done, for the death of each member of each pool alone.

    `is_own` says which addresses are this host's, which no rule touches.
    """
    policies = [pool.policy for pool in config.pools]
    whole = {name: PoolView(name, view.members, known=view.known) for name, view in views.items()}
    shares = {name: _shares(view) for name, view in whole.items()}
    for handle, view in whole.items():
        for member in view.members:
            rest = replace(view, members=tuple(other for other in view.members if other is not member))
            left, shares_left = {**whole, handle: rest}, {**shares, handle: _shares(rest)}
            for address in member.addresses:
                destination = Destination(address, member.protocol, member.port)
                left_dead = Departed(
                    destination,
                    member,
                    {handle: None},
                    0.0,
                    State.DEAD,
                    finding=ASSUMED,
                    was_heard=True,
                    is_certain=True,
                )
                now = plan(policies, left, shares_left, {destination: left_dead}, is_own=is_own)
                yield Rehearsal(destination, replace(now, fronts=()))


def _shares(view: PoolView) -> Mapping[int, Weighted]:
    return weights.weigh({member.identifier: member for member in view.members}, {}, 0.0)


async def ask(config: PpuConfig) -> Mapping[str, PoolView]:
    """Ask the registrars who is in the pools, for 3 s at most. Raises SctpUnavailable."""
    belief = HandlespaceBeliefs(config.handlespaces, config.pool_rules)
    settled = asyncio.Event()

    def look(change: BeliefChange) -> None:
        if all(view.known for view in change.views.values()):
            settled.set()

    pool_user = HandlespaceUsers(
        config.handlespaces,
        belief,
        look,
        is_to_follow=False,
        intervals=Intervals(0.05, 60.0, 10.0),
        timeout_ms=300,
        on_events=lambda events: None,
    )
    pool_user.start()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASK_FOR_S):
                await settled.wait()
        return belief.views
    finally:
        await pool_user.close()


def lines(config: PpuConfig, views: Mapping[str, PoolView]) -> Iterator[str]:
    """The rehearsal as lines."""
    rehearsals = list(rehearse(config, views))
    for handle, view in views.items():
        if not view.known:
            yield f"{handle}: no registrar told within {ASK_FOR_S:g} s who is in this pool"
        elif not view.members:
            yield f"{handle}: nobody is in this pool now"
    for rehearsal in rehearsals:
        if not rehearsal.plan.treatments:
            why = "the last of its pool, or in another"
            if is_on_this_host(rehearsal.destination.address):
                why = "an address of this host is never touched"
            yield f"should {rehearsal.destination} die: nothing is done: {why}"
        for treatment in rehearsal.plan.treatments:
            named = [
                f"{target.destination.where} (weight {target.weight})" for target in treatment.targets[:NAMED]
            ]
            more = f" and {rest} more" if (rest := len(treatment.targets) - NAMED) > 0 else ""
            to = f" to {', '.join(named)}{more}" if named else ""
            what = f"{treatment.action} {treatment.destination}{to}"
            yield f"should {rehearsal.destination} die: {what}"
    yield from _repeats_for_others(config, views)
    yield from gateway_lines(config, views)


def _repeats_for_others(config: PpuConfig, views: Mapping[str, PoolView]) -> Iterator[str]:
    """The pools whose connections are relayed for SIP's sake, though their servers may not speak it."""
    for pool in config.pools:
        policy = pool.policy
        members = views.get(pool.pool, PoolView(pool.pool)).members
        over_tcp = itertools.chain.from_iterable(map(policy.destinations, members))
        others = [
            server.where
            for server in over_tcp
            if server.protocol is Protocol.TCP and not policy.speaks_sip(server.port)
        ]
        if others and policy.on_dead[Protocol.TCP] == "repeat":
            yield (
                f'{pool.pool}: on_dead tcp = "repeat" is for SIP, and {others[0]} is not at port '
                f"{SIP_PORT}: "
                "set sip = true if it speaks SIP, else take refuse"
            )


def gateway_lines(config: PpuConfig, views: Mapping[str, PoolView]) -> Iterator[str]:
    """The set-ups that would be guarded, and the lacks of this host for that; nothing without `[gateway]`."""
    if config.gateway is not None:
        policies = [pool.policy for pool in config.pools]
        yield from lines_of_gateway(config.gateway.interfaces, guarded(plan(policies, views, {}, {})))
