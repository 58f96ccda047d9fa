"""The client's sidecar as a whole: registrars -> belief -> deaths -> steering -> nftables.

Everything runs in one event loop. If it stalls, nothing is renewed, and the kernel forgets within the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from daemon_kit import notify
from daemon_kit.addresses import ListenAddress, is_on_this_host
from daemon_kit.control import ControlCommand, ControlError, ControlServer
from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger
from daemon_kit.run import Parts, Reloading, check_fixed
from pool_user import (
    Belief,
    BeliefEvent,
    Intervals,
    LastKnownGood,
    Member,
    PoolUser,
    PoolView,
    Prober,
    Weighted,
    weights,
)

from ppu_agent.configuration import PpuConfig, load_configuration
from ppu_agent.deaths import REMEMBERED_S, Departed
from ppu_agent.destinations import Address, Destination
from ppu_agent.explanation import explain, parse_endpoint
from ppu_agent.kernel import COLLECT_EVERY_S
from ppu_agent.mechanisms import (
    GatewayMechanism,
    Mechanism,
    PaceMechanism,
    RepeatMechanism,
    Situation,
    ViaMechanism,
)
from ppu_agent.questions import ServerQuestions
from ppu_agent.responder import Responder
from ppu_agent.ruleset import RENEW_EVERY_S, needs_responder
from ppu_agent.status import describe
from ppu_agent.status_model import PpuStatus
from ppu_agent.steering import (
    LivingTargets,
    Steering,
    copied,
    plan,
    steer,
)
from ppu_agent.writer import Writer
from rserpool import Protocol, SctpUnavailable

_FIXED: Final = ("registrars", "follow", "control", "state", "gateway", "metrics")
"""The keys that can't change while the agent runs."""
_WITHOUT_MEMORY: Final = "An agent that is started again would know nothing of servers that were dead before"
INTERVALS: Final = Intervals(hot_s=0.05, hot_for_s=math.inf, idle_s=10.0)
"""No question tells which pool is in use: all stay hot."""
_RESOLVE_TIMEOUT_MS = 300


class PpuAgent:
    """One agent; needs a running event loop. Raises FatalError when it can't begin.

    `path` is the file that `config` came from and that SIGHUP has read again; None: there are no reloads.
    """

    def __init__(self, config: PpuConfig, path: Path | None = None) -> None:
        self.config = config
        self._path = path
        self._cleanup = contextlib.AsyncExitStack()
        self.started_at_s = time.monotonic()
        self.suspended = False
        self.questions = ServerQuestions(self._conclude)
        self.deaths = self.questions.deaths
        self.keeper = LastKnownGood(config.state.path, REMEMBERED_S, without_it=_WITHOUT_MEMORY)
        self._remembered: Mapping[str, PoolView] = {}
        self.belief = Belief(config.registrars, config.pool_rules)
        self.steering = Steering()
        self.writer = Writer(self._is_ours)
        self.responder: Responder | None = None
        self.pool_user = PoolUser(
            config.registrar_addresses,
            config.handles,
            self.belief,
            self._views_changed,
            is_to_follow=config.follow == "enrp",
            intervals=INTERVALS,
            timeout_ms=_RESOLVE_TIMEOUT_MS,
            on_events=self._happened,
        )
        self.prober = Prober(self.belief, config.probing, self.pool_user.look)
        self.counts = {"died": 0, "returned": 0, "connections_ended": 0, "flows_moved": 0}
        self._weights: dict[str, dict[int, Weighted]] = {}
        self._views: Mapping[str, PoolView] = {}
        self._were_dead: Mapping[Destination, Departed] = {}
        self._were_certain: frozenset[Destination] = frozenset()
        self._died: dict[Destination, None] = {}
        """Those whose connections and flows are to be ended."""
        self._has_died = asyncio.Event()
        self._parts = Parts()
        self._gateway = GatewayMechanism(self._parts.start)
        via = ViaMechanism()
        repeat = RepeatMechanism(via, self.writer, self._parts.start)
        self._mechanisms: Sequence[Mechanism] = (PaceMechanism(), self._gateway, via, repeat)
        """One may need those before it."""
        self._take(config)
        self._is_stopping = False
        self._log = get_logger("agent")
        self._reloading = Reloading(self._reload, self._log)
        self._control = ControlServer(
            config.control.path,
            {
                "status": self._tell_status,
                "explain": ControlCommand(self._tell_explain, {"endpoint": str}),
                "suspend": self._suspend,
                "resume": self._resume,
            },
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then take every rule back."""
        async with self._cleanup as cleanup:
            self.writer.open(is_kept=any(policy.front for policy in self._policies), is_alone=True)
            cleanup.callback(self.writer.close)
            cleanup.push_async_callback(self._close_mechanisms)
            await self._start_parts(self.config)
            self.keeper.load_into(self)
            self.deaths.restrict(self.config.accept_by_handle, self.config.ports_by_handle)
            await self._control.start()
            cleanup.push_async_callback(self._control.close)
            await self._start_metrics(cleanup)
            try:
                self.pool_user.start()
            except SctpUnavailable as problem:
                raise FatalError(str(problem)) from None
            cleanup.push_async_callback(self.pool_user.close)
            for part in (
                self.prober.run(),
                self.questions.run(),
                self._renew(),
                self._end_what_was_up(),
                self.keeper.run(),
                self._collect_copies(),
                self._reloading.run(),
                notify.feed_watchdog(stop),
            ):
                cleanup.push_async_callback(_end, self._parts.start(part))
            cleanup.enter_context(self._reloading.at_hangup())
            notify.ready()
            self._log.info("started", pools=list(self.config.handles))
            stopping = asyncio.create_task(stop.wait())
            cleanup.push_async_callback(_end, stopping)
            await asyncio.wait((stopping, self._parts.failed), return_when=asyncio.FIRST_COMPLETED)
            self.writer.remove()
            await asyncio.to_thread(self.writer.find_connections)
            self.writer.remove()
            await self._close_mechanisms()
            if self._parts.failed.done():
                self._parts.failed.result()
            self._remember()
            await asyncio.to_thread(self.keeper.save_now)
            self._log.info("stopped")
            await self.pool_user.leave()

    def _take(self, config: PpuConfig) -> None:
        """Decide by this configuration from now on."""
        self.config = config
        self._policies = [pool.policy for pool in config.pools]
        self.questions.by_pool = {pool.handle: pool.question for pool in config.pools}
        for mechanism in self._mechanisms:
            mechanism.take(config)

    async def _start_parts(self, config: PpuConfig) -> None:
        """Start what this configuration needs beside nftables; it stays. Raises FatalError."""
        if self.responder is None:
            responder = Responder()
            responder.start()
            self._cleanup.callback(responder.close)
            self.responder = responder
        for mechanism in self._mechanisms:
            await mechanism.configure(config)

    async def _close_mechanisms(self) -> None:
        """Redirect nothing to this program any more, and end what it relays; safe to repeat."""
        self._is_stopping = True
        self.writer.relay((), 0)
        for mechanism in reversed(self._mechanisms):
            await mechanism.close()

    async def _start_metrics(self, cleanup: contextlib.AsyncExitStack) -> None:
        if self.config.metrics is None:
            return
        from ppu_agent.metrics import make_server

        server = make_server(ListenAddress.parse(self.config.metrics.listen), self._describe)
        await server.start()
        cleanup.push_async_callback(server.close)

    # Events

    def _happened(self, events: Sequence[BeliefEvent]) -> None:
        log = get_logger("belief")
        for event in events:
            told = event.explained({}, self.prober.failed(event.handle, event.identifier or 0))
            name = None if told.identifier is None else f"{told.identifier:08x}"
            log.info(told.kind, handle=told.handle, identifier=name, why=told.words, cause=told.cause.code)

    def _views_changed(self, views: Mapping[str, PoolView]) -> None:
        self._views = views
        now = time.monotonic()
        self.questions.follow(views, now)
        self._conclude(now)
        self.prober.changed()
        self.questions.wake()

    def _conclude(self, now: float) -> None:
        """Steer by what is known now, and leave the servers that died since the last time.

        Connections to them end later, when their death is certain.
        """
        before, dead = self._were_dead, self.deaths.dead()
        certain = frozenset(destination for destination, one in dead.items() if one.is_certain)
        ending, self._were_certain = certain - self._were_certain, certain
        self._were_dead = dead
        died = [destination for destination in dead if destination not in before]
        back = [destination for destination in before if destination not in dead]
        for destination in died:
            self._log.info("dead", destination=str(destination), why=dead[destination].words)
        for destination in back:
            self._log.info("dead_no_more", destination=str(destination))
        self.counts["died"] += len(died)
        self.counts["returned"] += len(back)
        if not self.suspended and self.writer.copies.is_open:
            self.writer.let_pass(
                [
                    Destination(address, Protocol.TCP, port)
                    for address, port in dict.fromkeys(one.endpoint for one in ending)
                    if not is_on_this_host(address)
                ]
            )
        self._steer(now)
        for destination in ending:
            self._log.info("connections_end", destination=str(destination), why=dead[destination].words)
        for destination in dict.fromkeys((*died, *ending)):
            for mechanism in self._mechanisms:
                mechanism.died(dead[destination])
        if died or ending:
            self._died.update(dict.fromkeys((*died, *ending)))
            self._has_died.set()

    def _steer(self, now: float) -> None:
        """Have the kernel do what is right now."""
        for handle, view in self._views.items():
            members = {member.identifier: member for member in view.members}
            self._weights[handle] = weights.weigh(members, self._weights.get(handle, {}), now)
        dead = {} if self.suspended else self.deaths.dead()
        own = {one for one in {server.address for server in dead} if is_on_this_host(one)}
        dead = {server: departed for server, departed in dead.items() if server.address not in own}
        fronts = steer(self._policies, self._views, self._weights, self.deaths.dead(), self.steering.fronts)
        self.steering = replace(plan(self._policies, self._views, self._weights, dead), fronts=fronts)
        if self.responder is not None:
            self.responder.is_guarded = False
        self.writer.write(self.steering, self.responder.port if self.responder is not None else None)
        if self.responder is not None:
            self.responder.is_guarded = needs_responder(self.steering) and self.writer.problem is None
        self._redirect()
        self.writer.copy(
            copied(self._policies, self.config.accept_by_handle, self._views, self.deaths.departed), now
        )

    def _redirect(self) -> None:
        """Have every mechanism do what is right now, and nftables lead to this program what they take."""
        situation = Situation(
            self._policies,
            self._views,
            self.steering,
            self.deaths.departed,
            frozenset(one.endpoint for one in self.deaths.dead()),
            LivingTargets(self._views, self._weights),
            self.suspended,
        )
        wanted = [] if self._is_stopping else [one.commands(situation) for one in self._mechanisms]
        members = {server: port for one in wanted for server, port in one.members.items()}
        fronts = {front: port for one in wanted for front, port in one.fronts.items()}
        clients = {one.front: one.clients for one in self.steering.fronts if one.clients is not None}
        self.writer.relay(members, next(iter(members.values()), 0), fronts, clients)

    # Repeated work

    async def _end_what_was_up(self) -> None:
        """End connections and move flows to servers that died; those to the drained, or redirected, stay.

        In a thread: strangers can make flows by the thousand, and the lease must be renewed meanwhile.
        """
        while True:
            await self._has_died.wait()
            self._has_died.clear()
            died, self._died = self._died, {}
            dead = self.deaths.dead()
            gone = [dead[destination] for destination in died if destination in dead]
            endpoints = {one.destination.endpoint for one in gone}
            treated = [
                one.destination
                for one in self.steering.treatments
                if one.destination.endpoint in endpoints and not one.spares_connections
            ]
            over_tcp = [one for one in treated if one.protocol is Protocol.TCP]
            if over_tcp:  # first: the rules end them when what they send passes no more
                ended = await asyncio.to_thread(self.writer.end_connections, over_tcp)
                self.counts["connections_ended"] += ended
            others = [one for one in treated if one.protocol is not Protocol.TCP]
            if others:
                await asyncio.to_thread(self.writer.forget_begun_by, others)
            for protocol, asked in self._moved_from().items():
                servers = [
                    one.destination
                    for one in gone
                    if protocol in self._protocols_of(one) and (one.is_certain or protocol is Protocol.UDP)
                ]
                if servers:
                    moved, ended = await asyncio.to_thread(self.writer.move_flows, asked, servers)
                    self.counts["flows_moved"] += moved
                    self.counts["connections_ended"] += ended
            if not self._died:  # those that died meanwhile are answered in the next turn
                self.writer.stop_passing()

    async def _collect_copies(self) -> None:
        """Keep the copies of packets that came; nobody reads them until a server dies."""
        while True:
            self.writer.copies.collect()
            await asyncio.sleep(COLLECT_EVERY_S)

    def _moved_from(self) -> dict[Protocol, list[Destination]]:
        """The destinations that flows may have asked for that were sent elsewhere: fronts, and servers that
        were dead once."""
        asked: dict[Protocol, list[Destination]] = {}
        for front in (steered.front for steered in self.steering.fronts):
            asked.setdefault(front.protocol, []).append(front)
        for policy in self._policies:
            for protocol in (Protocol.TCP, Protocol.SCTP):
                if policy.on_dead[protocol] == "redirect":
                    left = (one.member for one in self.deaths.departed if policy.handle in one.pools)
                    members = self._views.get(policy.handle, PoolView(policy.handle)).members
                    every = itertools.chain.from_iterable(map(policy.destinations, (*members, *left)))
                    asked.setdefault(protocol, []).extend(one for one in every if one.protocol is protocol)
        return asked

    def _is_ours(self, address: Address, port: int) -> bool:
        """Whether the agent may have sent on what was to go there."""
        fronts = [policy.front for policy in self._policies]
        networks = itertools.chain.from_iterable(self.config.accept_by_handle.values())
        return (address, port) in fronts or any(address in network for network in networks)

    def _protocols_of(self, departed: Departed) -> set[Protocol]:
        """The transports at which a member served."""
        left = [one for one in self._policies if one.handle in departed.pools]
        return {departed.destination.protocol, *(also for policy in left for also in policy.also)}

    async def _renew(self) -> None:
        """Renew the lease, and follow weights that change by time alone."""
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            now = time.monotonic()
            self.questions.follow(self.belief.views(now), now)
            self._conclude(now)
            self._remember()

    def remember(
        self,
        handle: str,
        members: tuple[Member, ...],
        recent: tuple[Member, ...],
        stale_since_s: float,
        now: float,
    ) -> None:
        """Take over what an agent before knew of a pool, as `Deaths.remembered()` gave it."""
        self.questions.remember(handle, members, recent, stale_since_s, now)

    def _remember(self) -> None:
        """Have kept what the next agent must know: servers that are dead by then are in no list."""
        now = time.monotonic()
        now_known = self.deaths.remembered(
            lambda handle, destination: self.questions.has_answered(handle, destination, now)
        )
        if now_known != self._remembered:
            self._remembered = now_known
            self.keeper.changed(now_known)

    # Reload

    async def _reload(self) -> dict[str, Any]:
        """Take the configuration file over, whole or not at all. Raises what is wrong with it."""
        if self._path is None:
            return {}
        config = load_configuration(self._path)
        check_fixed(self.config, config, _FIXED)
        await self._start_parts(config)
        now = time.monotonic()
        self._take(config)
        self.belief.set_pools(config.pool_rules, now)
        self.deaths.restrict(config.accept_by_handle, config.ports_by_handle)
        self._weights = {handle: one for handle, one in self._weights.items() if handle in config.handles}
        self.prober.set_pools(config.probing)
        self.pool_user.set_handles(config.handles)
        self._views_changed(self.belief.views(now))
        return {"pools": list(config.handles)}

    # Commands

    async def _tell_status(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        return dict(self._describe())

    def _describe(self) -> PpuStatus:
        now = time.monotonic()
        believed = describe(
            now,
            self.belief.registrar_states(now),
            self.belief.views(now),
            self.deaths.departed,
            self.steering,
        )
        own = {
            "uptime_s": round(now - self.started_at_s, 3),
            "suspended": self.suspended,
            "state_problem": self.keeper.problem,
            "reload_problem": self._reloading.problem,
            **believed,
            "kernel": {
                "problem": self.writer.problem,
                "write_count": self.writer.writes,
                "copies_problem": self.writer.copies.problem,
                "copied_bytes": self.writer.copies.kept_bytes,
            },
            "answered_503_count": self.writer.refused_requests
            + (self.responder.answered if self.responder is not None else 0),
            "died_count": self.counts["died"],
            "returned_count": self.counts["returned"],
            "connections_ended_count": self.counts["connections_ended"],
            "flows_moved_count": self.counts["flows_moved"],
        }
        of_mechanisms = [mechanism.status() for mechanism in self._mechanisms]
        return cast(PpuStatus, dict(itertools.chain(own.items(), *(one.items() for one in of_mechanisms))))

    async def _tell_explain(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            address, port = parse_endpoint(str(request.get("endpoint") or ""))
        except ValueError as problem:
            raise ControlError(str(problem)) from None
        found = explain(
            address,
            port,
            self._views,
            self.deaths,
            self.steering,
            suspended=self.suspended,
            is_own=is_on_this_host(address),
            policies=self._policies,
        )
        return self._gateway.explained(found, address, port)

    async def _suspend(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        return self._set_suspended(True)

    async def _resume(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        return self._set_suspended(False)

    def _set_suspended(self, suspended: bool) -> dict[str, Any]:
        if suspended != self.suspended:
            self.suspended = suspended
            self._log.info("suspended" if suspended else "resumed")
            self._steer(time.monotonic())
            if not suspended:  # what died meanwhile has connections and flows yet
                self._died.update(dict.fromkeys(self.deaths.dead()))
                self._has_died.set()
        return {"suspended": self.suspended}


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
