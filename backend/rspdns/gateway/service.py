"""Runs the gateway: the belief about the cell below, the elements above, control socket, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from daemon_kit import notify
from daemon_kit.addresses import ListenAddress, is_on_this_host
from daemon_kit.control import ControlServer
from daemon_kit.errors import FatalError
from daemon_kit.http_server import PageServer
from daemon_kit.logs import get_logger
from daemon_kit.run import Parts
from pool_user import Belief, BeliefChange, BeliefEvent, Intervals, PoolUser

from rserpool import (
    DeadlineTimer,
    ElementEvent,
    ElementEventKind,
    PoolElement,
    PoolElementClient,
    SctpUnavailable,
    Transport,
    fresh_identifier,
)
from rspdns.gateway.configuration import CellGatewayConfig, GatewayPoolConfig
from rspdns.gateway.offer import Offer, offer_of
from rspdns.gateway.status_model import GatewayPoolStatus, GatewayStatus

REPORT_EVERY_S: Final = 1.0
"""A load or capacity that moves is told above at most this often: all registrars there read each report."""
LOOK_EVERY_S: Final = 0.1
"""The least time between two looks at the whole pool: of 3,000 servers 1,500 a second report a load."""
LIVES: Final = 3
"""A registration lives for this number of re-registration intervals."""
_RESOLVE_TIMEOUT_MS: Final = 300
_LEAVE_MS: Final = 500
_RELIEVED_S: Final = 3.0
RETURN_AFTER_S: Final = 30.0
"""How long the gateway stays at a registrar of `last_choice` before it tries the others again."""
_FAILURES: Final = frozenset(
    {
        ElementEventKind.REGISTRAR_LOST,
        ElementEventKind.UNREACHABLE,
        ElementEventKind.UNANSWERED,
        ElementEventKind.REJECTED,
        ElementEventKind.UNOPENED,
    }
)


def intervals(config: CellGatewayConfig) -> Intervals:
    """How often the cell's registrars are asked: no question tells which pool is in use."""
    return Intervals(hot_s=0.05, hot_for_s=math.inf if config.follow == "poll" else 0.0, idle_s=10.0)


class UpperElement:
    """The element above that stands for one pool of the cell."""

    def __init__(self, config: CellGatewayConfig, pool: GatewayPoolConfig) -> None:
        self.pool = pool
        self.identifier = fresh_identifier()
        self.withheld: str | None = "the cell's registrars have not been asked yet"
        self.problem: str | None = None
        self.reports = 0
        self.offer: Offer | None = None
        """The offer that is registered above, or tried to be."""
        self._config = config
        self._client: PoolElementClient | None = None
        self._is_in = asyncio.Event()
        self._told_at_s = -math.inf
        self._leaving: set[asyncio.Task[Any]] = set()
        self._returning: asyncio.TimerHandle | None = None
        self._log = get_logger("gateway").bind(upper_handle=pool.upper)

    def take(self, found: Offer | str, now: float) -> float | None:
        """Have above what the cell has now. Return when to call again, if it is too early to tell."""
        if isinstance(found, str):
            self._withhold(found)
            return None
        if self.offer is not None and not found.is_news(self.offer):
            return None
        if self.offer is not None and (found.protocol, found.port) == (self.offer.protocol, self.offer.port):
            if now < self._told_at_s + REPORT_EVERY_S:
                return self._told_at_s + REPORT_EVERY_S
            self.reports += 1
            if self._client is not None:
                self._client.update_policy(found.policy)
        else:
            self._offer(found)
        self.offer, self._told_at_s = found, now
        return None

    def status(self, members: int) -> GatewayPoolStatus:
        """The element and its pool, whose number of members is given."""
        client, offer = self._client, self.offer
        registrar = client.registrar if client is not None else None
        return {
            "handles": list(self.pool.shards),
            "upper_handle": self.pool.upper,
            "members": members,
            "capacity": None if offer is None else offer.capacity,
            "load": None if offer is None else round(offer.load, 4),
            "withheld": self.withheld,
            "identifier": f"{self.identifier:08x}",
            "registered": client is not None and client.is_registered,
            "registrar": None if registrar is None else str(registrar),
            "problem": self.problem,
            "reports": self.reports,
        }

    async def close(self) -> None:
        """Leave the pool above, and wait for the registrar's word on it, but not for long."""
        self._withhold("the gateway ends")
        await asyncio.gather(*self._leaving)

    def _offer(self, offer: Offer) -> None:
        """Register an element; one before, at another port, leaves when this one is in."""
        config, former = self._config, self._client
        self.identifier = fresh_identifier()
        transport = Transport(offer.protocol, offer.port, (config.address,))
        life_ms = LIVES * config.reregistration_ms
        self._client = PoolElementClient(
            config.upper_addresses,
            self.pool.upper.encode(),
            PoolElement(self.identifier, 0, life_ms, transport, offer.policy),
            local_addresses=[str(config.address)],
            reregistration_ms=config.reregistration_ms,
            last_choice=config.last_addresses,
            on_event=self._happened,
        )
        self.withheld, self._is_in = None, asyncio.Event()
        self._client.want(True)
        if former is not None:
            self._end(_relieve(former, self._is_in))
        self._log.info("offered", members=offer.members, load=round(offer.load, 3), port=offer.port)

    def _withhold(self, why: str) -> None:
        if self.withheld != why:
            self._log.info("withheld", why=why)
        self.withheld, self.offer, self.problem = why, None, None
        client, self._client = self._client, None
        if client is not None:
            self._end(_leave(client))

    def _end(self, leaving: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(leaving)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _happened(self, event: ElementEvent) -> None:
        if event.kind in _FAILURES:
            self.problem = f"{event.registrar or 'no registrar'}: {event.detail or event.kind.value}"
            self._log.warning("not_registered", problem=self.problem)
        elif event.kind is ElementEventKind.REGISTERED:
            self.problem = None
            self._is_in.set()
            self._log.info("registered_above", registrar=str(event.registrar))
            self._return_later()

    def _return_later(self) -> None:
        """Leave a registrar of the last choice in a while, counted from the latest registration."""
        if self._returning is not None:
            self._returning.cancel()
        self._returning = asyncio.get_running_loop().call_later(RETURN_AFTER_S, self._return)

    def _return(self) -> None:
        self._returning = None
        if self._client is not None and self._client.registrar in self._config.last_addresses:
            self._client.leave_registrar("it is the last choice")


async def _relieve(former: PoolElementClient, is_in: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_RELIEVED_S):
            await is_in.wait()
    await _leave(former)


async def _leave(client: PoolElementClient) -> None:
    await client.deregister(_LEAVE_MS)
    await client.close()


class CellGateway:
    """The service; needs a running event loop. Raises FatalError when it can't begin."""

    def __init__(self, config: CellGatewayConfig) -> None:
        self._config = config
        self._parts = Parts()
        self._belief = Belief(config.registrars, config.pool_rules)
        self._pool_user = PoolUser(
            config.registrar_addresses,
            tuple(config.pool_rules),
            self._belief,
            self._changed,
            is_to_follow=config.follow == "enrp",
            intervals=intervals(config),
            timeout_ms=_RESOLVE_TIMEOUT_MS,
            on_events=self._happened,
        )
        self._elements = [UpperElement(config, pool) for pool in config.pools]
        self._handles = frozenset(config.pool_rules)
        self._looks = DeadlineTimer(self._look)
        self._looked_at_s = -math.inf
        self._is_stopping = False
        self._started_at_s = time.monotonic()
        self._log = get_logger("gateway")
        self._metrics: PageServer | None = None
        self._control = ControlServer(config.control.path, {"status": self._status})

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then leave every pool above."""
        if not is_on_this_host(self._config.address):
            raise FatalError(f"address: {self._config.address} is no address of this host")
        async with contextlib.AsyncExitStack() as cleanup:
            await self._control.start()
            cleanup.push_async_callback(self._control.close)
            if self._config.metrics is not None:
                from rspdns.gateway.metrics import make_server

                self._metrics = make_server(ListenAddress.parse(self._config.metrics.listen), self.status)
                await self._metrics.start()
                cleanup.push_async_callback(self._metrics.close)
            try:
                self._pool_user.start()
            except SctpUnavailable as problem:
                raise FatalError(str(problem)) from None
            cleanup.push_async_callback(self._pool_user.close)
            cleanup.push_async_callback(self._leave)
            cleanup.callback(self._parts.start(notify.feed_watchdog(stop)).cancel)
            notify.ready()
            self._log.info("started", pools=[pool.upper for pool in self._config.pools])
            stopping = asyncio.create_task(stop.wait())
            cleanup.callback(stopping.cancel)
            await asyncio.wait((stopping, self._parts.failed), return_when=asyncio.FIRST_COMPLETED)
            await self._leave()
            if self._parts.failed.done():
                self._parts.failed.result()
            self._log.info("stopped")
            await self._pool_user.leave()

    async def _leave(self) -> None:
        self._is_stopping = True
        self._looks.set(None)
        await asyncio.gather(*(element.close() for element in self._elements))

    # From the belief to the elements

    def _changed(self, change: BeliefChange) -> None:
        del change
        due_s = self._looked_at_s + LOOK_EVERY_S
        if time.monotonic() < due_s:
            self._looks.set(due_s)
        else:
            self._look()

    def _happened(self, events: Sequence[BeliefEvent]) -> None:
        log = get_logger("belief")
        for event in events:
            identifier = None if event.identifier is None else f"{event.identifier:08x}"
            log.info(event.kind, handle=event.handle, identifier=identifier, why=event.words)

    def _look(self) -> None:
        """Have each element above follow its pool."""
        if self._is_stopping:
            return
        now, views, due_s = time.monotonic(), self._belief.views, math.inf
        self._looked_at_s = now
        for element in self._elements:
            found = offer_of([views[handle] for handle in element.pool.shards], element.offer)
            due_s = min(due_s, element.take(found, now) or math.inf)
        self._looks.set(due_s if due_s < math.inf else None)

    # For the operator

    def status(self) -> GatewayStatus:
        """The answer of `status`."""
        now, views = time.monotonic(), self._belief.views
        return {
            "uptime_s": round(now - self._started_at_s, 3),
            "address": str(self._config.address),
            "registrars": [
                {"address": state.address, "standing": state.standing.value, "follow": state.follow}
                for state in self._belief.registrar_states(now)
            ],
            "pool": [
                element.status(
                    0
                    if element.offer is None
                    else sum(len(views[handle].members) for handle in element.pool.shards)
                )
                for element in self._elements
            ],
            "metrics_problem": self._metrics.problem if self._metrics is not None else None,
        }

    async def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        return dict(self.status())


def lines(status: GatewayStatus) -> list[str]:
    """The status for people."""
    found = [f"no metrics: {status['metrics_problem']}"] if status["metrics_problem"] is not None else []
    found += [
        f"registrar {each['address']} of the cell: {each['standing']}, followed by {each['follow']}"
        for each in status["registrars"]
    ]
    for pool in status["pool"]:
        name = f"pool {', '.join(pool['handles'])} -> {pool['upper_handle']} above"
        if pool["withheld"] is not None:
            found.append(f"{name}: withheld: {pool['withheld']}")
            continue
        home = f"registered at {pool['registrar']}" if pool["registered"] else "not registered"
        problem = f" ({pool['problem']})" if pool["problem"] is not None else ""
        found.append(
            f"{name}: {pool['members']} servers, capacity {pool['capacity']:g}, load {pool['load']:.0%}, "
            f"as {pool['identifier']}, {home}{problem}"
        )
    return found
