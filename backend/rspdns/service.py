"""The backend as a running service: all parts put together.

registrars -> PoolUser -> Belief -> Publisher -> PdnsResponder -> connector -> PowerDNS
                                        `-------> Purger ------------------------^

PdnsResponder and connector run in a thread of their own (`pdns.answering`): no work on what the registrars
say delays an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from daemon_kit import notify
from daemon_kit.control import ControlCommand, ControlError, ControlServer, peer_user
from daemon_kit.errors import FatalError
from daemon_kit.finding import Finding
from daemon_kit.logs import get_logger
from pool_user import (
    BeliefChange,
    BeliefEvent,
    Departure,
    HandlespaceBeliefs,
    HandlespaceUsers,
    Intervals,
    LastKnownGood,
    Member,
    Prober,
)

from rspdns.answer_paths import AnswerPaths
from rspdns.answers.publisher import Publisher
from rspdns.answers.serial_number import SerialNumbers
from rspdns.answers.snapshot import Snapshot
from rspdns.audit import audit
from rspdns.caches import Caches
from rspdns.configuration import BackendConfig
from rspdns.event_log import EventLog
from rspdns.examiner import Examiner
from rspdns.hooks import Hooks
from rspdns.journal import Journal
from rspdns.lookups import PoolLookups
from rspdns.missing import ServerNames, is_called
from rspdns.next_change import KEYS as CHANGE_KEYS
from rspdns.next_change import NextChange
from rspdns.next_records import KEYS as RECORD_KEYS
from rspdns.overrides.keeper import CLEAR_KEYS, WISH_KEYS, Overrides
from rspdns.pdns.listening import DnsServer, dns_server
from rspdns.peers import SharedOverrides
from rspdns.readiness import not_ready
from rspdns.reloading import WAIT_S, ConfigurationReload, Read, Reloads
from rspdns.status import Status, build, dumped
from rspdns.status.model import ConnectorStatus, PoolStatus, SnapshotStatus, ZoneStatus
from rspdns.zones.zone import Pool, Zone, handles_of, probing_by_handle

if TYPE_CHECKING:
    from rspdns.admin.server import AdminServer

VERSION = version("rspdns")
_log = get_logger("backend")
LOOK_FOR_CYCLES_AFTER = 10_000
"""New objects between two searches for garbage with cycles. With Python's 700 a start with 10,000 members
takes a third longer; with 50,000 each search holds up the answers for 5 ms (`bench --only strangers`)."""
SWITCH_INTERVAL_S = 0.0001
"""How long a thread that computes may hold up the answering one (Python's default is 5 ms)."""
MOST_AUDITED = 20
"""The most zones, servers or names that one line of the audit names."""
LOGGED_AFTER_S = 0.001
"""Delay before events are logged: answers and purges go first."""


async def serve(config: BackendConfig, stop: asyncio.Event, read: Read | None = None) -> None:
    """Run the backend until `stop` is set. Raises FatalError when it can't start.

    `read` reads the configuration again, for the control command `reload`; it may raise ConfigurationErrors.
    """
    await Backend(config, read).run(stop)


class Backend:
    """One backend of one configuration."""

    def __init__(self, config: BackendConfig, read: Read | None = None) -> None:
        self.config = config
        self.started_at_s = time.monotonic()
        self.names = ServerNames(config.zones)
        self.events = EventLog(config.pdns.control, self.names.of)
        self.journal = Journal(config.state.path, config.state.history_days, self.names.of)
        self.hooks = Hooks(config.state.path, lambda: self.journal.lost, self._pools, self.pool_statuses)
        self.examiner = Examiner(self._examined, probing_by_handle(config.zones), self._found_out)
        self.belief = HandlespaceBeliefs(config.handlespaces, config.pool_rules)
        self.pool_user = HandlespaceUsers(
            config.handlespaces,
            self.belief,
            self._take_change,
            is_to_follow=config.follow == "enrp",
            intervals=Intervals(config.poll_hot_ms / 1000, config.poll_hot_for_s, config.poll_idle_s),
            timeout_ms=config.resolve_timeout_ms,
            on_events=self._happened,
        )
        self.keeper = LastKnownGood(config.state.path, config.max_stale_s)
        self.prober = Prober(
            self.belief,
            probing_by_handle(config.zones),
            self.pool_user.look,
            report=self.pool_user.report_unreachable,
            name_of=self.names.of,
            max_per_s=config.probes_per_s,
        )
        self.serials = SerialNumbers(config.state.path, time.time())
        self.caches = Caches(
            config.pdns.control,
            self.events,
            lambda: [zone.name for zone in self.config.zones],
            lambda path, names, taken_s: self.paths.secondaries.purged(path, names, taken_s),
            self.answering,
        )
        self.lookups = PoolLookups(config, self.pool_user, lambda handles: self.publisher.looked_up(handles))
        self.paths = AnswerPaths(
            config, self.serials, self.caches.purger, self.lookups, lambda: self.belief.views
        )
        self.publisher = Publisher(
            config.zones,
            self.serials,
            self.paths.apply,
            self.caches.purger,
            max_stale_s=config.max_stale_s,
            hot=self.lookups.hot,
            on_published=self.caches.published,
            is_seen_at_once=self.paths.is_kernel_answering,
        )
        self.overrides = SharedOverrides(
            Overrides(
                config.state.path,
                self.belief,
                self._pools,
                self.names.of,
                self.pool_user.look,
                sites=lambda: self.config.sites,
            )
        )
        self._reloads = Reloads(ConfigurationReload(self, read).run)
        self.admin: AdminServer | None = None
        """Live page, API and metrics; None until they are loaded."""
        self._failure: asyncio.Future[str]

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises FatalError when it can't start, or a part of it breaks."""
        self._failure = asyncio.get_running_loop().create_future()
        gc.set_threshold(LOOK_FOR_CYCLES_AFTER)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        async with contextlib.AsyncExitStack() as cleanup:
            await self._start(cleanup)
            self._follow_hangups(cleanup)
            notify.ready()
            _log.info("serving", zones=len(self.config.zones), connector=self.config.pdns.connector)
            stopping = asyncio.get_running_loop().create_task(stop.wait())
            cleanup.callback(stopping.cancel)
            await asyncio.wait((stopping, self._failure), return_when=asyncio.FIRST_COMPLETED)
            _log.info("stopping")
            if self._failure.done():
                raise FatalError(self._failure.result())
            await self.pool_user.leave()  # answers go on meanwhile

    async def _start(self, cleanup: contextlib.AsyncExitStack) -> None:
        """Start everything, the connector when there are answers, and leave its end in `cleanup`."""
        cleanup.callback(self.paths.store.close)
        self.keeper.load_into(self.belief)
        self.overrides.here.load()
        cleanup.callback(self.overrides.here.close)
        self.lookups.start()
        cleanup.callback(self.lookups.close)
        change = self.belief.evaluate(time.monotonic())
        self.keeper.changed(change.views)
        self.journal.counts.begin(change.views, time.monotonic())
        self.journal.take(change)
        self.publisher.start(change)
        cleanup.callback(self.publisher.close)
        cleanup.push_async_callback(self._reloads.close)
        control = self._control()
        await control.claim()  # another backend that runs is not disturbed
        cleanup.push_async_callback(control.close)
        self.journal.start()
        cleanup.push_async_callback(asyncio.to_thread, self.journal.close)
        await self.paths.start()
        cleanup.push_async_callback(self.paths.close)
        await control.start()  # once it says something, PowerDNS is answered, too
        self.paths.start_kernel()
        self.paths.write_names()  # when the socket is ours: another backend's table stays
        self.caches.purger.start()
        cleanup.push_async_callback(self.caches.purger.close)
        try:
            self.pool_user.start()
        except OSError as problem:
            raise FatalError(
                f"can't open an SCTP socket for the registrars {', '.join(self.config.all_registrars)}: "
                f"{problem.strerror or problem}; an IPv6 one needs IPv6 on this host"
            ) from None
        cleanup.push_async_callback(self.pool_user.close)
        self._tell_others(cleanup)
        keeping = self._watched(self.keeper.run(), "keeper")
        cleanup.push_async_callback(self._end_keeping, keeping)
        cleanup.push_async_callback(self.examiner.close)
        probing = self._watched(self.prober.run(), "prober")
        cleanup.callback(probing.cancel)
        await self._start_admin(cleanup)

    def _tell_others(self, cleanup: contextlib.AsyncExitStack) -> None:
        """Begin to tell resolvers and other name servers: they may have what a former life said last."""
        self.caches.resolvers.set(self.config.resolvers)
        cleanup.push_async_callback(self.caches.resolvers.close)
        self.paths.secondaries.start(self.config.secondaries)
        cleanup.push_async_callback(self.paths.secondaries.close)
        self.paths.publications.start(self.config.publications)
        cleanup.push_async_callback(self.paths.publications.close)

    async def _start_admin(self, cleanup: contextlib.AsyncExitStack) -> None:
        """Serve live page, API and metrics.

        They come last, and are loaded in a thread: their libraries take as long as a third of the start, and
        neither PowerDNS nor the kernel waits for that, nor another name server.
        """
        for module in ("rspdns.admin.server", "rspdns.metrics"):
            await asyncio.to_thread(importlib.import_module, module)
        from rspdns.admin.server import AdminServer
        from rspdns.metrics import BackendMetrics

        self.admin = admin = AdminServer(
            self.config.admin,
            self.config.access,
            self,
            self.events,
            BackendMetrics(
                lambda: admin.api.fresh(),
                self.events,
                lambda: admin.api.guard.refused,
                lambda: admin.api.streams.open,
                self.journal.counts,
            ),
        )
        admin.set_access(self.config.access, self.config.page_errors)
        await admin.start()
        cleanup.push_async_callback(admin.close)
        await self.hooks.start(self.config.hooks)
        cleanup.push_async_callback(self.hooks.close)
        await self.overrides.start(self.config.peers)
        cleanup.push_async_callback(self.overrides.peers.close)

    def _control(self) -> ControlServer:
        """Make the socket for commands, not yet listening."""
        return ControlServer(
            self.config.admin.socket,
            {
                "status": self._tell_status,
                "reload": ControlCommand(self._tell_reload, {"force": bool}),
                "forget": ControlCommand(self._tell_forget, {"servers": list, "pool": str, "all": bool}),
                "reloaded": ControlCommand(self._tell_reloaded, {"number": int}),
                "changes": ControlCommand(
                    NextChange(self.events, self._pools, self.pool_statuses).tell, CHANGE_KEYS
                ),
                "records": ControlCommand(self.caches.records.tell, RECORD_KEYS),
                "override": ControlCommand(self._tell_override, WISH_KEYS),
                "clear": ControlCommand(self._tell_clear, CLEAR_KEYS),
            },
        )

    def _follow_hangups(self, cleanup: contextlib.AsyncExitStack) -> None:
        """SIGHUP reads the files again, as daemons do."""
        loop = asyncio.get_running_loop()

        def begin() -> None:
            with contextlib.suppress(ControlError):  # enough wait: one of them reads what is there now
                self._reloads.begin(None)

        loop.add_signal_handler(signal.SIGHUP, begin)
        cleanup.callback(loop.remove_signal_handler, signal.SIGHUP)

    def _watched(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start work that goes on until it is cancelled: its failure ends the service instead of hiding."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        problem = task.exception()
        _log.error("part_ended", part=task.get_name(), problem=repr(problem), exc_info=problem)
        if not self._failure.done():
            self._failure.set_result(f"{task.get_name()} ended unexpectedly: {problem!r}")

    async def _end_keeping(self, keeping: asyncio.Task[None]) -> None:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        self.keeper.save_now()

    def _examined(self, handle: str, member: Member, finding: Finding) -> bool:
        is_out = self.belief.examined(handle, member, finding)
        self.pool_user.look()
        return is_out

    def _registrar_names(self) -> Callable[[str], Mapping[str, str]]:
        """The number and address of each registrar by its identifier, for each pool."""
        of_handlespace: dict[str, dict[str, str]] = {}
        for state in self.belief.registrar_states(time.monotonic()):
            if state.identifier is not None:
                of_handlespace.setdefault(state.handlespace, {})[f"{state.identifier:08x}"] = state.called
        return lambda pool: of_handlespace.get(self.belief.name_of(pool), {})

    def _happened(self, events: Sequence[BeliefEvent]) -> None:
        registrars = self._registrar_names()
        explained = [event.explained(registrars(event.handle)) for event in events]
        self.events.note(explained)
        self.examiner.happened(explained)
        asyncio.get_running_loop().call_later(LOGGED_AFTER_S, self.events.write)

    def _found_out(self, events: Sequence[BeliefEvent]) -> None:
        """A probe looked at servers that had left."""
        self.events.happened(events)
        self.journal.happened(events)

    def _take_change(self, change: BeliefChange) -> None:
        try:
            self.publisher.publish(change)
        finally:  # also when the answers of a pool can't be built
            self.journal.take(change)
            self.overrides.here.members_changed()
            self.hooks.wake()
            self.keeper.changed(change.views)
            self.prober.changed()

    async def _tell_reload(self, request: Mapping[str, Any]) -> dict[str, Any]:
        number = self._reloads.begin(await peer_user(), force=request.get("force") is True)
        return await self._tell_result(number)

    async def _tell_reloaded(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return await self._tell_result(request.get("number") or 0)

    async def _tell_result(self, number: int) -> dict[str, Any]:
        """The result of a reload, or that it was accepted and how far it is."""
        result = await self._reloads.result(number, WAIT_S)
        if result is not None:
            return result
        running = self._reloads.status(time.monotonic())
        return {"running": number, "reload": None if running is None else dumped(running)}

    async def reload(self, by: str, *, force: bool = False) -> dict[str, Any]:
        """Read zones, tokens and certificate again; with an error in any file nothing changes.

        Nor does it when a pool would lose its last member, or when there is no zone any more, unless by
        `force`. All else needs a restart. Raises ControlError."""
        number = self._reloads.begin(by, force=force)
        return await self._reloads.result(number) or {}

    def take(self, config: BackendConfig) -> tuple[Zone, ...]:
        """Serve the zones of this configuration from now on; return those that were served."""
        before = self.config.zones
        access = self.config.access if config.page_errors else config.access
        self.config = self.config.with_files(config.zones, access, config.page_errors, config)
        now = time.monotonic()
        if self.admin is not None:
            self.admin.set_access(config.access, config.page_errors)
        self.belief.set_handlespaces(self.config.handlespaces, self.config.pool_rules, now)
        self.prober.set_pools(probing_by_handle(self.config.zones))
        self.examiner.pools = probing_by_handle(self.config.zones)
        self.names.set_zones(self.config.zones)
        self.hooks.set(config.hooks)
        self.overrides.set_peers(config.peers)
        self.caches.resolvers.set(config.resolvers)
        self.paths.secondaries.set(config.secondaries)
        self.paths.publications.set(config.publications)
        self.lookups.set_zones(config.zones)
        self.paths.set_zones(config.zones)
        self.overrides.here.zones_changed()
        change = self.belief.evaluate(now)
        self.publisher.set_zones(config.zones, change)
        self.journal.take(change)
        self.keeper.changed(change.views)
        self.pool_user.set_handlespaces(self.config.handlespaces)
        _log.info("zones_read", zones=len(config.zones))
        return before

    async def _tell_forget(self, request: Mapping[str, Any]) -> dict[str, Any]:
        wanted, everybody = request.get("servers") or [], request.get("all") is True
        if not all(isinstance(word, str) for word in wanted):
            raise ControlError(
                "servers is a list of names, addresses with or without port, or PE identifiers"
            )
        if bool(wanted) == everybody:
            raise ControlError("either servers, or all = true")
        return {"forgotten": self.forget(wanted, await peer_user(), request.get("pool"))}

    def forget(self, wanted: Sequence[str], by: str, pool: object = None) -> list[str]:
        """Miss these servers no longer, or, when none is named, any that is missing; return them in words.

        `pool` is the name of SRV records, or a pool handle; None means every pool. Raises ControlError.
        """
        pools = [
            candidate.config
            for zone in self.config.zones
            for site in zone.sites
            for candidate in site.pools
            if pool is None or pool == candidate.owner or pool in candidate.config.shards
        ]
        if not pools:
            raise ControlError(f"no pool has SRV records or a handle of the name {pool!r}")
        handles = [handle for config in pools for handle in config.shards]
        views = {handle: self.belief.views[handle] for handle in handles}
        named = self.names.expected(wanted, views)
        if named:
            words = "named by `expect` in the zone's file: take it out there, then rspdns reload"
            raise ControlError(f"{', '.join(named)}: {words}")

        def is_wanted(handle: str, departure: Departure) -> bool:
            member = departure.member
            if self.names.of(handle, member) is not None:
                return False  # it is missing until it is taken out of `expect`
            return not wanted or is_called(wanted, member.server_address, member.identifier, None)

        gone = [
            f"{departure.member.addresses[0]} port {departure.member.port} of {handle}"
            for handle in dict.fromkeys(handles)
            for departure in self.belief.forget(handle, partial(is_wanted, handle))
        ]
        self.pool_user.look()
        if wanted and not gone:
            raise ControlError(f"{', '.join(wanted)}: no missing server has this address or identifier")
        audit(by, "forget", ", ".join(gone[:MOST_AUDITED]) or "nothing", before="missing", after="forgotten")
        return gone

    def _pools(self) -> list[Pool]:
        return [pool for zone in self.config.zones for site in zone.sites for pool in site.pools]

    async def _tell_override(self, request: Mapping[str, Any]) -> dict[str, Any]:
        keys = {key: value for key, value in request.items() if key != "command"}
        return await self.override(keys, await peer_user())

    async def override(self, keys: Mapping[str, Any], by: str) -> dict[str, Any]:
        """Set an override, or only tell what it would do (`SharedOverrides.set`). Raises ControlError."""
        return await self.overrides.set(keys, by)

    async def _tell_clear(self, request: Mapping[str, Any]) -> dict[str, Any]:
        named, everything = request.get("named") or [], request.get("all") is True
        if bool(named) == everything or not all(isinstance(word, str) for word in named):
            raise ControlError("either the numbers or identifiers of overrides, or all = true")
        return await self.clear(named, await peer_user(), everywhere=request.get("everywhere") is True)

    async def clear(self, named: Sequence[str], by: str, *, everywhere: bool = False) -> dict[str, Any]:
        """Clear overrides (`SharedOverrides.clear`). Raises ControlError."""
        return await self.overrides.clear(named, by, everywhere=everywhere)

    def purge(self, wanted: Collection[str], by: str) -> None:
        """Purge these names at every PowerDNS; those of the form "name$" with all below them."""
        audit(by, "purge", ", ".join([*wanted][:MOST_AUDITED]), after=f"{len(wanted)} names purged")
        self.caches.purger.purge(wanted)

    def answering(self) -> Snapshot:
        """The answers of now."""
        return self.publisher.snapshot

    def not_ready(self, zone: str) -> list[str] | None:
        """Why this name server may answer a zone wrongly now; None: it does not serve such a zone."""
        pools = [
            [pool for site in served.sites for pool in site.pools]
            for served in self.config.zones
            if served.name == zone
        ]
        if not pools:
            return None
        controls = (
            self.caches.purger.sockets
        )  # PowerDNS connects when it is asked, so no connection says nothing
        if controls and all(control.problem is not None for control in controls):
            return ["no PowerDNS answers at its control socket"]
        return not_ready(pools[0], self.belief.views, time.monotonic())

    def listed_by(self, handle: str, identifier: str) -> list[int]:
        """The numbers of the registrars that list a PE of a pool now."""
        return self.belief.listed_by(handle, int(identifier, 16))

    @property
    def state_directory(self) -> str:
        """The directory of the journal."""
        return self.config.state.path

    def handles_of(self, pool: str) -> Collection[str]:
        """The handles of the pools of this name; a handle that is not configured any more counts, too."""
        return handles_of(self._pools(), (pool,))

    def overriding(self, handle: str, address: str, port: int) -> int | None:
        """The number of the override that holds for the server of a pool at this address; None: none does."""
        return self.overrides.here.deciding(handle, (ip_address(address), port))

    async def dns_server(self) -> DnsServer:
        """The address at which the first PowerDNS answers, for people on this host."""
        controls = self.config.pdns.control
        return (await dns_server(controls[0]) if controls else None) or DnsServer()

    async def _tell_status(self, request: Mapping[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = dumped(self.status())
        return told

    def status(self) -> Status:
        """The values that `rspdns status` and the admin API show."""
        now = time.monotonic()
        built_at_s = self.publisher.built_at_s
        admin_problem = self.admin.problem if self.admin is not None else None
        problems = (
            *(self.keeper.problem, self.serials.problem, self.journal.problem),
            *(self.overrides.here.problem, admin_problem),
        )
        return Status(
            host=socket.gethostname(),
            version=VERSION,
            uptime_s=round(now - self.started_at_s, 3),
            registrars=build.registrars(self.belief.registrar_states(now), now),
            zones=self._zone_statuses(now),
            pdns=build.purging(self.caches.purger),
            connector=ConnectorStatus(
                connections=self.paths.connector.open_connections,
                queries=dict(self.paths.responder.queries),
                failures=self.paths.responder.failures,
            ),
            snapshot=SnapshotStatus(
                builds=self.publisher.builds,
                age_s=None if built_at_s is None else round(max(0.0, now - built_at_s), 3),
            ),
            reload=self._reloads.status(now),
            problems=[
                *filter(None, problems),
                *self.hooks.problems,
                *self.paths.publications.problems,
                *self.prober.problems,
            ],
            events=self.events.statuses(),
            overrides=self.overrides.here.statuses(),
            hooks=self.hooks.statuses(),
            peers=self.overrides.peers.statuses(),
            resolvers=self.caches.resolvers.statuses(),
            secondaries=self.paths.secondaries.statuses(),
            publications=self.paths.publications.statuses(),
            fastpath=build.fastpath(self.paths.fastpath),
        )

    def _zone_statuses(
        self, now: float, is_wanted: Callable[[Pool], bool] = lambda pool: True
    ) -> list[ZoneStatus]:
        return build.zones(
            self.config.zones,
            self.publisher.snapshot,
            self.belief.views,
            now,
            build.Known(self.names, self._registrar_names()),
            refused=self.belief.refused,
            is_wanted=is_wanted,
        )

    def pool_statuses(self, is_wanted: Callable[[Pool], bool]) -> list[PoolStatus]:
        """The wanted pools, as they are now."""
        statuses = self._zone_statuses(time.monotonic(), is_wanted)
        return [pool for zone in statuses for pool in zone.pools]
