"""The backend as a running service: all parts put together.

registrars -> Follower -> Belief -> Publisher -> Responder -> UnixConnector -> PowerDNS
                                        `-------> Purger ------------------------^
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from daemon_kit import notify
from daemon_kit.config_file import ConfigurationErrors
from daemon_kit.control import ControlError, ControlServer
from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger
from rserpool.sctp import SctpUnavailable

from rspdns import status
from rspdns.belief import Belief, BeliefEvent, PoolRules
from rspdns.configuration import BackendConfig
from rspdns.connector_unix import UnixConnector, unix_path
from rspdns.dnssec_store import DnssecStore
from rspdns.follower import Follower
from rspdns.last_known_good_keeper import LastKnownGood
from rspdns.pool_names import PoolNames
from rspdns.probe import Prober
from rspdns.probe_plans import probing_by_handle
from rspdns.publisher import Publisher
from rspdns.purge import Purger
from rspdns.responder import Responder
from rspdns.serial_number import SerialNumbers
from rspdns.views import PoolView

EVENTS_KEPT = 200


async def serve(
    config: BackendConfig, stop: asyncio.Event, reload: Callable[[], BackendConfig] | None = None
) -> None:
    """Run the backend until `stop` is set. Raises FatalError when it can't start.

    `reload` reads the configuration again, for the control command of this name; it may raise
    ConfigurationErrors.
    """
    await Backend(config, reload).run(stop)


class Backend:
    """One backend of one configuration."""

    def __init__(self, config: BackendConfig, reload: Callable[[], BackendConfig] | None = None) -> None:
        path = unix_path(config.pdns.connector)
        if path is None:
            raise FatalError(f"pdns.connector {config.pdns.connector!r}: only unix:/path is supported so far")
        self.config = config
        self.started_at_s = time.monotonic()
        self.events: deque[tuple[float, BeliefEvent]] = deque(maxlen=EVENTS_KEPT)
        self.belief = Belief(config.registrars, _rules(config))
        self.follower = Follower(config, self.belief, self._views_changed, on_events=self._happened)
        self.keeper = LastKnownGood(config.state.path, config.max_stale_s)
        self.prober = Prober(
            self.belief,
            probing_by_handle(config.zones),
            self.follower.look,
            report=self.follower.report_unreachable,
            max_per_s=config.probes_per_s,
        )
        self.serials = SerialNumbers(config.state.path, time.time())
        self.purger = Purger(config.pdns.control)
        self.store = DnssecStore(config.state.path, self._signing_changed)
        self.responder = Responder(self._looked_up, self.store)
        self.connector = UnixConnector(path, self.responder.conversation)
        self.publisher = Publisher(
            config.zones,
            self.serials,
            self.responder.swap,
            self.purger,
            max_stale_s=config.max_stale_s,
            hot=self._hot,
        )
        self._names = PoolNames(config.zones)
        self._reload = reload
        self._control = ControlServer(
            config.admin.socket, {"status": self._status, "reload": self._take_zones}
        )
        self._log = get_logger("backend")
        self._failure: asyncio.Future[str]

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises FatalError when it can't start, or a part of it breaks."""
        self._failure = asyncio.get_running_loop().create_future()
        async with contextlib.AsyncExitStack() as cleanup:
            await self._start(cleanup)
            notify.ready()
            self._log.info("serving", zones=len(self.config.zones), connector=self.config.pdns.connector)
            stopping = asyncio.get_running_loop().create_task(stop.wait())
            cleanup.callback(stopping.cancel)
            await asyncio.wait((stopping, self._failure), return_when=asyncio.FIRST_COMPLETED)
            self._log.info("stopping")
            if self._failure.done():
                raise FatalError(self._failure.result())

    async def _start(self, cleanup: contextlib.AsyncExitStack) -> None:
        """Start everything, the connector when there are answers, and leave its end in `cleanup`."""
        cleanup.callback(self.store.close)
        self.keeper.load_into(self.belief)
        self.publisher.start(self.belief.views(time.monotonic()))
        cleanup.callback(self.publisher.close)
        await self._control.start()
        cleanup.push_async_callback(self._control.close)
        await self.connector.start()
        cleanup.push_async_callback(self.connector.close)
        self.purger.start()
        cleanup.push_async_callback(self.purger.close)
        try:
            self.follower.start()
        except SctpUnavailable as problem:
            raise FatalError(str(problem)) from None
        except OSError as problem:
            raise FatalError(
                f"can't open an SCTP socket for the registrars {', '.join(self.config.registrars)}: "
                f"{problem.strerror or problem}; an IPv6 one needs IPv6 on this host"
            ) from None
        cleanup.push_async_callback(self.follower.close)
        keeping = self._watched(self.keeper.run(), "keeper")
        cleanup.push_async_callback(self._end_keeping, keeping)
        probing = self._watched(self.prober.run(), "prober")
        cleanup.callback(probing.cancel)

    def _watched(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start work that goes on until it is cancelled: its failure ends the service instead of hiding."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        problem = task.exception()
        self._log.error("part_ended", part=task.get_name(), problem=repr(problem), exc_info=problem)
        if not self._failure.done():
            self._failure.set_result(f"{task.get_name()} ended unexpectedly: {problem!r}")

    async def _end_keeping(self, keeping: asyncio.Task[None]) -> None:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        self.keeper.save_now()

    def _views_changed(self, views: Mapping[str, PoolView]) -> None:
        self.publisher.publish(views)
        self.keeper.changed(views)
        self.prober.changed()

    def _looked_up(self, name: str) -> None:
        for handle in self._names.handles(name):
            self.follower.note_query(handle)

    def _signing_changed(self, zone: str) -> None:
        self.purger.purge({f"{zone}$"})  # PowerDNS keeps keys and metadata for 30 and 60 s

    def _hot(self) -> frozenset[str]:
        return frozenset(self.follower.pools.hot(time.monotonic()))

    def _happened(self, events: Sequence[BeliefEvent]) -> None:
        log = get_logger("belief")
        for event in events:
            self.events.append((time.time(), event))
            whom = {"handle": event.handle, "identifier": status.hexadecimal(event.identifier)}
            log.info(event.kind, **(whom if event.handle else {}), why=event.words)

    async def _take_zones(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Read the zones again; with an error in any file nothing changes. The rest needs a restart."""
        if self._reload is None:
            raise ControlError("this backend was started without files to read again")
        try:
            config = await asyncio.to_thread(self._reload)
        except ConfigurationErrors as errors:
            raise ControlError(f"nothing was changed:\n{errors}") from None
        self.config = self.config.with_zones(config.zones)
        now = time.monotonic()
        self.belief.set_pools(_rules(self.config), now)
        self.prober.set_pools(probing_by_handle(self.config.zones))
        self._names = PoolNames(config.zones)
        self.publisher.set_zones(config.zones, self.belief.views(now))
        self.follower.set_handles(list(self.config.accept_by_handle))
        self._log.info("zones_read", zones=len(config.zones))
        return {"zones": [zone.name for zone in config.zones]}

    async def _status(self, request: Mapping[str, Any]) -> dict[str, Any]:
        now = time.monotonic()
        return {
            "uptime_s": round(now - self.started_at_s, 3),
            "registrars": status.registrars(self.follower.registrar_states(), now),
            "zones": status.zones(self.config.zones, self.publisher.snapshot, self.belief.views(now), now),
            "pdns": status.purging(self.purger),
            "connector": {
                "connections": len(self.connector.connections),
                "queries": dict(self.responder.queries),
                "failures": self.responder.failures,
            },
            "problems": [
                *(problem for problem in (self.keeper.problem, self.serials.problem) if problem),
                *self.prober.problems,
            ],
            "events": status.events(self.events),
        }


def _rules(config: BackendConfig) -> dict[str, PoolRules]:
    verified = config.verified_handles
    return {
        handle: PoolRules(accept, handle in verified) for handle, accept in config.accept_by_handle.items()
    }
