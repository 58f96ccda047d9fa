"""One AS and all that is done for it: checks, load, registration, drain, by a file too."""

import asyncio
import functools
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from daemon_kit.durations import duration
from daemon_kit.finding import Finding
from daemon_kit.logs import get_logger

from ppe_agent.addresses import Address
from ppe_agent.checks.base import CheckState
from ppe_agent.checks.make import make_check
from ppe_agent.config_types import has_load
from ppe_agent.configuration import LIVES, ServerConfig
from ppe_agent.health import Damping, Health
from ppe_agent.load import LoadReporter
from ppe_agent.load_config import LoadConfig
from ppe_agent.load_sources import LoadSource, LoadUnknown, make_source, read_within
from ppe_agent.loop import next_moment
from ppe_agent.registration import ServerRegistration
from ppe_agent.state import KeptState
from ppe_agent.status_model import DrainStatus, ServerState, ServerStatus
from rserpool import IS_LEAVING, PoolElement, Protocol, RegistrarAddress, ServerKey, Transport

_INTERVAL_S: Final = 0.5
_CLOCK_STEPS_S: Final = 60.0
"""How often the end of a drain is compared with the wall clock, which may be set."""


def in_by_another(twin: int) -> str:
    """Say that the server stays in its pool by the element `twin`."""
    return f"another sidecar has this server in as {twin:08x}"


def drain_words(drain: DrainStatus | None) -> str:
    """Say by whom, since when, for how long and why a server is drained."""
    if drain is None:
        return "drained"
    since = "" if drain["since_s"] is None else f" {duration(drain['since_s'])} ago"
    left = "" if drain["left_s"] is None else f", for another {duration(drain['left_s'])}"
    reason = f": {drain['reason']}" if drain["reason"] else ""
    return f"drained by {drain['by'] or 'the operator'}{since}{left}{reason}"


class DrainFile:
    """Looks for the file `path`; None: there is none to look for."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.is_there = False
        self._problem: str | None = None
        self.look()

    def look(self) -> bool:
        """Look once; return whether that changed `is_there`.

        If looking is not allowed it stays as it was.
        """
        if self.path is None:
            return False
        before = self.is_there
        problem = None
        try:
            os.lstat(self.path)
            self.is_there = True
        except (FileNotFoundError, NotADirectoryError):
            self.is_there = False
        except OSError as error:
            problem = error.strerror
        if problem is not None and problem != self._problem:
            get_logger("drain").warning("drain_file_unreadable", path=str(self.path), problem=problem)
        self._problem = problem
        return self.is_there is not before

    async def pause(self) -> None:
        """Wait until it is time to look again."""
        await asyncio.sleep(_INTERVAL_S)


Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a part of the agent; should it fail, the agent ends."""

_PROTOCOLS = {"udp": Protocol.UDP, "tcp": Protocol.TCP, "sctp": Protocol.SCTP}
# The keys that a reload may change while the AS stays in its pool.
_CHANGEABLE = frozenset({"check", "damping", "load", "drain_file"})


def _next_identifier(key: ServerKey, handle: bytes, kept: KeptState) -> int:
    return kept.renumber(key.next_identifier(handle, kept.state.identifier))


class ServerKeeper:
    """Keeps one AS in its pool while it is healthy and not drained."""

    def __init__(
        self,
        config: ServerConfig,
        addresses: Sequence[Address],
        registered: Sequence[Address],
        registrars: Sequence[RegistrarAddress],
        reregistration_ms: int,
        kept: KeptState,
        spawn: Spawn,
    ) -> None:
        self.config = config
        self._addresses = tuple(addresses)
        self._registered = tuple(registered)
        self._kept = kept
        self._spawn = spawn
        self._watching: list[asyncio.Task[None]] = []
        self._log = get_logger("as").bind(name=config.name)
        self._is_stopping = False
        self._timers: list[asyncio.TimerHandle] = []
        """When time alone may let it in: the end of a hold, and of a drain."""
        self._load_was_read = False
        self._set_up(CheckState.UNKNOWN)
        handle, protocol = config.handle.encode(), _PROTOCOLS[config.transport]
        key = None if config.key is None else config.key.of(protocol, self._registered, config.port)
        new_identifier: Callable[[], int] | None = kept.renumber
        if key is not None:
            new_identifier = functools.partial(_next_identifier, key, handle, kept)
        elif config.remote:
            new_identifier = None  # the identifier of a remote server is its address
        self.registration = ServerRegistration(
            registrars,
            handle,
            PoolElement(
                identifier=int(self._addresses[0]) if config.remote else kept.state.identifier,
                home_registrar=0,
                life_ms=LIVES * reregistration_ms,
                user_transport=Transport(protocol, config.port, self._registered),
                policy=config.policy_with(self._load.reported),
            ),
            reregistration_ms=reregistration_ms,
            name=config.name,
            new_identifier=new_identifier,
            server_key=key,
        )
        if config.remote or not kept.state.is_fresh:
            self.registration.doubt()

    def start(self) -> None:
        """Run the checks and the load source; needs a running event loop."""
        self._watching = [
            self._spawn(check.run(functools.partial(self._on_outcome, position)))
            for position, check in enumerate(self._checks)
        ]
        if self._drain_file.path is not None:
            self._watching.append(self._spawn(self._watch_drain_file(self._drain_file)))
        if self._source is not None:
            self._watching.append(self._spawn(self._watch_load(self._source)))

    def can_become(
        self, config: ServerConfig, addresses: Sequence[Address], registered: Sequence[Address]
    ) -> bool:
        """Tell whether `reconfigure()` can do it: what is registered stays the same."""
        changed = {
            key for key in ServerConfig.model_fields if getattr(config, key) != getattr(self.config, key)
        }
        is_same = (tuple(addresses), tuple(registered)) == (self._addresses, self._registered)
        return changed <= _CHANGEABLE and is_same

    def reconfigure(self, config: ServerConfig) -> None:
        """Go on with other checks, load source or drain file.

        An AS that was well is, until the new checks say otherwise; one that was held stays held. The last
        load counts until the new source gave one.
        """
        if config == self.config:
            return
        self.config = config
        for task in self._watching:
            task.cancel()
        health, load = self._health, self._load
        self._set_up(CheckState.UP if health.is_well else CheckState.UNKNOWN, load)
        self._health.go_on_from(health, time.monotonic())
        if self._load.reported != load.reported:  # source "none" from now on: nobody else tells that it is 0
            self.registration.update_policy(config.policy_with(self._load.reported))
        self.start()
        self._decide()

    def heed_drain(self, by: str) -> None:
        """Take the AS out of its pool while it serves on, or let it in again, as its state says now. `by` is
        the user who wants that."""
        self._decide()
        drain = self._kept.state.drain
        if drain is None:
            self._log.info("undrained", by=by)
        else:
            self._log.info("drained", by=by, reason=drain.reason or None, until_s=drain.until_s)

    @property
    def is_drained(self) -> bool:
        """Tell whether the operator or the drain file keeps it out."""
        return self._kept.state.drained or self._drain_file.is_there

    async def leave(self) -> None:
        """Leave the pool for good; returns when it is done."""
        self._is_stopping = True
        self._decide()
        await self.registration.until_out()
        await self.registration.until_farewell_seen()

    async def close(self) -> None:
        """End everything, without a word to the registrar unless `leave()` was called before."""
        for timer in self._timers:
            timer.cancel()
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await self.registration.close()

    def describe(self, listed_by: list[str]) -> ServerStatus:
        """Return this AS for people and programs; `listed_by` are the registrars that list it."""
        state, reason = self._state_and_reason()
        registrar = self.registration.registrar
        home = self.registration.home_registrar
        upkeep = self.registration.upkeep
        counts = upkeep.counts
        return {
            "name": self.config.name,
            "handle": self.config.pool,
            "identifier": f"{self.registration.element.identifier:08x}",
            "transport": self.config.transport,
            "address": [str(address) for address in self._addresses],
            "port": self.config.port,
            "remote": self.config.remote,
            "registered_as": [str(address) for address in self._registered],
            "policy": self.config.policy,
            "state": state,
            "reason": reason,
            "drained": self.is_drained,
            "drain": self._drain_status(),
            "registrar": str(registrar) if registrar else None,
            "home_registrar": f"{home:08x}" if home is not None else None,
            "missing_count": counts.missing,
            "moved_count": counts.moved,
            "rejected_count": counts.rejected,
            "collision_count": counts.collisions,
            "twin": None if upkeep.twin is None else f"{upkeep.twin:08x}",
            "taken_by": upkeep.taken_by,
            "fall_count": self._health.fall_count,
            "load": round(self._load.reported, 4) if has_load(self.config.policy) else None,
            "load_source": None if self._source is None else self._load_config.source,
            "load_read": self._load.read,
            "load_problem": self._load.problem,
            "state_problem": self._kept.problem,
            "check": self._health.describe(time.monotonic()),
            "listed_by": listed_by,
        }

    def _drain_status(self) -> DrainStatus | None:
        drain, wall_s = self._kept.state.drain, time.time()
        if drain is None:
            return None
        since_s = None if drain.since_s is None else round(max(0.0, wall_s - drain.since_s), 3)
        left_s = drain.left_s(wall_s)
        return {
            "by": drain.by,
            "reason": drain.reason,
            "since_s": since_s,
            "left_s": None if left_s is None else round(left_s, 3),
        }

    def _state_and_reason(self) -> tuple[ServerState, str]:
        """Say in one word and in a few why the AS is in its pool or not."""
        now = time.monotonic()
        twin = self.registration.upkeep.twin
        if self.registration.state in IS_LEAVING:
            return "leaving", "drained" if self.is_drained else self._health.reason(now)
        if self.is_drained and twin is not None:
            return "drained", f"drained, but {in_by_another(twin)}: drain it there, too"
        if self._kept.state.drained:
            return "drained", f"{drain_words(self._drain_status())}; undrain lets it in again"
        if self._drain_file.is_there:
            return "drained", f"drained by the file {self._drain_file.path}; remove it to let it in again"
        if not self._health.is_up(now):
            state: ServerState = "down" if self._health.is_down else "unknown"
            return "held" if self._health.is_well else state, self._health.reason(now)
        if self.registration.is_registered:
            if twin is not None:
                return "in", f"registered twice: {in_by_another(twin)}"
            return "in", self._health.reason(now)
        if not self._load_was_read:
            return "joining", f"waiting for the first load ({self._load_config.source})"
        return "joining", self.registration.upkeep.problem or "registering"

    def _set_up(self, state: CheckState, load: LoadReporter | None = None) -> None:
        """Make what `self.config` describes; the checks begin in `state`, the load as it was in `load`."""
        config, first = self.config, self._addresses[0]
        self._checks = [make_check(check, first, config.port, config.transport) for check in config.check]
        damping = Damping(config.damping.falls, config.damping.window_s, config.damping.well_for_s)
        timings = [check.timing for check in config.check]
        self._health = Health(
            [(check.kind, check.target, timing) for check, timing in zip(self._checks, timings, strict=True)],
            damping,
            state=state,
        )
        self._load_config = config.load or LoadConfig()
        self._load = LoadReporter(self._load_config)
        self._source: LoadSource | None = None
        if has_load(config.policy):
            self._source = make_source(self._load_config, first, config.port, config.transport)
            if load is not None and self._source is not None:
                self._load.go_on_from(load)
        # Once it was, it stays so: to wait for a new source would take a live server out of its pool.
        self._load_was_read = self._load_was_read or self._source is None
        self._drain_file = DrainFile(config.drain_file)

    def _decide(self) -> None:
        """Join or leave, as everything known now says."""
        now = time.monotonic()
        left_s = self._drain_left_s()
        is_up = self._health.is_up(now) and self._load_was_read
        # A remote server's identifier is its address: a second element, to say that, is none of its own.
        if self.is_drained and not self._is_stopping and not self.config.remote:
            self.registration.drain(left_s)
        else:
            self.registration.want(is_up and not self.is_drained and not self._is_stopping)
        for timer in self._timers:
            timer.cancel()
        loop = asyncio.get_running_loop()
        times_s = (self._health.held_for_s(now), min(left_s or 0.0, _CLOCK_STEPS_S))
        self._timers = [loop.call_later(time_s + 0.001, self._decide) for time_s in times_s if time_s]

    def _drain_left_s(self) -> float | None:
        """How long the operator's drain lasts from now on; None: there is none, or it has no end. A drain
        whose time is over ends here."""
        drain = self._kept.state.drain
        left_s = None if drain is None else drain.left_s(time.time())
        if left_s == 0:
            self._kept.set_drain(None)
            self._kept.write_soon()
            self._log.info("drain_over")
            return None
        return left_s

    def _on_outcome(self, position: int, finding: Finding) -> bool:
        was_well = self._health.is_well
        changed = self._health.report(position, finding, time.monotonic())
        check = self._health.checks[position]
        if changed:
            self._decide()  # first of all: milliseconds count here
            self._log.info(
                f"check_{check.machine.state.value}", check=check.kind, of=check.target, saw=finding.words
            )
            now = time.monotonic()
            if not was_well and self._health.held_for_s(now):
                self._log.warning("held_back", reason=self._health.reason(now))
        if self._health.new_warning(position):
            self._log.warning("check_warns", check=check.kind, of=check.target, saw=finding.words)
        return check.machine.try_soon

    async def _watch_drain_file(self, drain_file: DrainFile) -> None:
        while True:
            if drain_file.look():
                self._log.info("drain_file", path=str(drain_file.path), drained=drain_file.is_there)
                self._decide()
            await drain_file.pause()

    async def _watch_load(self, source: LoadSource) -> None:
        try:
            while True:
                due = await self._read_load(source)
                if due is not None:
                    self.registration.update_policy(self.config.policy_with(due))
                if not self._load_was_read:
                    self._load_was_read = True
                    self._decide()
                await next_moment(self._load_config.every_ms / 1000)
        finally:
            await source.close()

    async def _read_load(self, source: LoadSource) -> float | None:
        """Read the load; return it when it is worth an update."""
        known_before, problem_before = self._load.is_known, self._load.problem
        try:
            patience_ms = self._load_config.timeout_ms if self._load_config.is_asked else None
            load = await read_within(source, patience_ms)
            self._load.sample(load, time.monotonic())
        except LoadUnknown as problem:
            self._load.unknown(str(problem), time.monotonic())
            if problem_before is None:
                self._log.warning("load_source_failed", problem=str(problem))
            if known_before and not self._load.is_known:
                self._log.warning("load_unknown", taken=self._load_config.when_unknown)
        return self._load.due(time.monotonic())
