"""The client's sidecar: registrars -> view -> departed -> probe -> plan -> mechanisms.

Everything runs in one event loop. If it stalls, nothing is renewed, and the kernel forgets within the lease.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from daemon_kit.addresses import is_on_this_host
from daemon_kit.logs import get_logger
from daemon_kit.run import Parts
from pool_user import (
    BeliefChange,
    BeliefEvent,
    HandlespaceBeliefs,
    HandlespaceUsers,
    Intervals,
    PoolView,
    Prober,
    Weighted,
    weights,
)

from ppu_agent.configuration import PpuConfig
from ppu_agent.deaths import Departed
from ppu_agent.destinations import Address, Destination
from ppu_agent.explanation import explain
from ppu_agent.mechanisms import (
    AnswerMechanism,
    EndingMechanism,
    FrontMechanism,
    GatewayMechanism,
    Mechanism,
    PaceMechanism,
    RedirectMechanism,
    RefuseMechanism,
    RepeatMechanism,
    ViaMechanism,
)
from ppu_agent.plan import Plan, PoolPolicy, plan
from ppu_agent.questions import ServerQuestions
from ppu_agent.rules import RENEW_EVERY_S
from ppu_agent.status import describe
from ppu_agent.writer import Writer, unusable

INTERVALS: Final = Intervals(hot_s=0.05, hot_for_s=math.inf, idle_s=10.0)
"""No question tells which pool is in use: all stay hot."""
_RESOLVE_TIMEOUT_MS = 300


class PpuAgent:
    """One agent; needs a running event loop. `parts` are the tasks whose failure ends it."""

    def __init__(self, config: PpuConfig, parts: Parts) -> None:
        self.belief = HandlespaceBeliefs(config.handlespaces, config.pool_rules)
        self.pool_user = HandlespaceUsers(
            config.handlespaces,
            self.belief,
            self.take_change,
            is_to_follow=config.follow == "enrp",
            intervals=INTERVALS,
            timeout_ms=_RESOLVE_TIMEOUT_MS,
            on_events=self._happened,
        )
        self.questions = ServerQuestions(self.conclude)
        self.prober = Prober(self.belief, config.probing, self.pool_user.look, also=self.questions)
        self.deaths = self.questions.deaths
        self.plan = Plan()
        self.writer = Writer()
        self.suspended = False
        self._counts = {"died_count": 0, "returned_count": 0}
        self._views: Mapping[str, PoolView] = self.belief.views
        self._weights: dict[str, dict[int, Weighted]] = {}
        self._were_dead: Mapping[Destination, Departed] = {}
        self._were_certain: frozenset[Destination] = frozenset()
        self._is_stopping = False
        self._log = get_logger("agent")
        redirect = RedirectMechanism(self.writer, self._is_ours)
        via = ViaMechanism(self.writer)
        repeat = RepeatMechanism(via, self.writer, parts.start)
        self._gateway = GatewayMechanism(parts.start)
        self.mechanisms: Sequence[Mechanism] = (
            redirect,
            RefuseMechanism(),
            AnswerMechanism(self.writer),
            FrontMechanism(),
            EndingMechanism(
                self.writer,
                lambda: redirect.keeps_connections or repeat.is_open,
                parts.start,
                self._act,
            ),
            PaceMechanism(),
            self._gateway,
            via,
            repeat,
        )
        """A mechanism may need those before it."""
        self._policies: Sequence[PoolPolicy] = ()
        self.take(config)

    async def begin(self, config: PpuConfig) -> None:
        """Have what the configuration needs; rules of an agent before are removed, but for its fronts, which
        serve until there is news. `writer` is open. Raises FatalError."""
        self.writer.is_kept = any(policy.front for policy in self._policies)
        await self.configure(config)
        self._act()
        if self.writer.problem is not None:
            raise unusable(self.writer.problem)

    async def configure(self, config: PpuConfig) -> None:
        """Have what this configuration needs beside nftables; it stays. Raises FatalError."""
        for mechanism in self.mechanisms:
            await mechanism.configure(config)

    def take(self, config: PpuConfig) -> None:
        """Decide by this configuration from now on: every mechanism has what it needs."""
        self._policies = [pool.policy for pool in config.pools]
        self.questions.by_pool = {pool.pool: pool.question for pool in config.pools}
        self.deaths.beside = {policy.handle: policy.beside for policy in self._policies}
        for mechanism in self.mechanisms:
            mechanism.take(config)
        self._weights = {handle: each for handle, each in self._weights.items() if handle in config.handles}

    def set_pools(self, config: PpuConfig) -> None:
        """Follow the pools of this configuration from now on."""
        now = time.monotonic()
        self.belief.set_handlespaces(config.handlespaces, config.pool_rules, now)
        self.deaths.restrict(config.accept_by_handle, config.ports_by_handle)
        self.prober.set_pools(config.probing)
        self.pool_user.set_handlespaces(config.handlespaces)
        self.take_change(self.belief.evaluate(now))

    def parts(self) -> Iterable[Coroutine[Any, Any, None]]:
        """The tasks that run while the agent does."""
        return self.prober.run(), self._renew()

    async def close(self) -> None:
        """Take every rule back, and end what the mechanisms have; safe to repeat."""
        self._is_stopping, self.writer.is_kept = True, False
        self._act()
        for mechanism in reversed(self.mechanisms):
            await mechanism.close()
        self._act()
        self.writer.close()
        await self.questions.close()

    # View

    def _happened(self, events: Sequence[BeliefEvent]) -> None:
        log = get_logger("belief")
        for event in events:
            explained = event.explained({})
            name = None if explained.identifier is None else f"{explained.identifier:08x}"
            cause = explained.cause.code
            log.info(
                explained.kind, handle=explained.handle, identifier=name, why=explained.words, cause=cause
            )

    def take_change(self, change: BeliefChange) -> None:
        """Take the belief's change."""
        self._views = change.views
        now = time.monotonic()
        self.questions.take(change, now)
        self.conclude(now)
        self.prober.changed()

    async def _renew(self) -> None:
        """Renew the lease, and follow weights that change by time alone."""
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            now = time.monotonic()
            self.deaths.advance(now)
            self.conclude(now)

    # Departed, plan, mechanisms

    def conclude(self, now: float) -> None:
        """Act by what is known now, and leave the servers that died since the last time.

        Connections to them end later, when their death is certain.
        """
        before, dead = self._were_dead, self.deaths.dead()
        certain = frozenset(destination for destination, server in dead.items() if server.is_certain)
        ending, self._were_certain = certain - self._were_certain, certain
        self._were_dead = dead
        died = [destination for destination in dead if destination not in before]
        back = [destination for destination in before if destination not in dead]
        for destination in died:
            self._log.info("dead", destination=str(destination), why=dead[destination].words)
        for destination in ending:
            self._log.info("connections_end", destination=str(destination), why=dead[destination].words)
        for destination in back:
            self._log.info("dead_no_more", destination=str(destination))
        self._counts["died_count"] += len(died)
        self._counts["returned_count"] += len(back)
        self._steer(now, [dead[destination] for destination in dict.fromkeys((*died, *ending))])

    def _steer(self, now: float, died: Iterable[Departed] = ()) -> None:
        """Plan, and have the mechanisms do it, without these servers from now on."""
        for parts in {tuple(sorted(policy.parts)) for policy in self._policies}:
            views = {handle: self._views[handle] for handle in parts if handle in self._views}
            members = {(name, each.identifier): each for name, view in views.items() for each in view.members}
            known = {name: self._weights.get(name, {}) for name in views}
            before = {(name, number): each for name in known for number, each in known[name].items()}
            self._weights |= {name: {} for name in views}
            for (name, identifier), weighted in weights.weigh(members, before, now).items():
                self._weights[name][identifier] = weighted
        self.plan = plan(
            self._policies,
            self._views,
            self._weights,
            self.deaths.dead(),
            self.deaths.departed,
            self.plan,
            is_own=is_on_this_host,
            is_suspended=self.suspended,
        )
        for server, mechanism in itertools.product(died, self.mechanisms):
            mechanism.died(server)
        self._act()

    def _act(self) -> None:
        """Have every mechanism do what is right now; what they want of nftables is one transaction."""
        now = Plan(is_last=True) if self._is_stopping else self.plan
        parts = [mechanism.commands(now) for mechanism in self.mechanisms]
        self.writer.write(parts, is_idle=not now.treatments and not now.fronts)

    def _is_ours(self, address: Address, port: int) -> bool:
        """Whether the agent may have sent on what was to go there."""
        return any(
            (address, port) == policy.front or any(address in network for network in policy.networks)
            for policy in self._policies
        )

    # For the operator

    def set_suspended(self, suspended: bool) -> None:
        """Leave packets to dead servers alone, or end that."""
        if suspended != self.suspended:
            self.suspended = suspended
            self._log.info("suspended" if suspended else "resumed")
            # what died meanwhile has connections and flows yet
            self._steer(time.monotonic(), () if suspended else self.deaths.dead().values())

    def status(self) -> dict[str, Any]:
        """The belief and the treatments, and what every mechanism says of itself."""
        now = time.monotonic()
        registrars, views = self.belief.registrar_states(now), self.belief.views
        found: dict[str, Any] = {
            "suspended": self.suspended,
            **describe(now, registrars, views, self.deaths.departed, self.plan),
            **self._counts,
            "kernel": {"problem": self.writer.problem, "write_count": self.writer.writes},
        }
        for mechanism in self.mechanisms:
            for name, value in mechanism.status().items():
                before = found.get(name)
                if isinstance(before, int):
                    found[name] = before + value
                else:
                    found[name] = before | value if isinstance(before, dict) else value
        return found

    def explained(self, address: Address, port: int) -> dict[str, Any]:
        """Why a packet to this address and port is treated as it is."""
        is_own = is_on_this_host(address)
        found = explain(address, port, self._views, self.deaths, self.plan, self._policies, is_own=is_own)
        return self._gateway.explained(found, address, port)
