"""Runs the agent: configuration and reloads, what is remembered over a restart, control socket, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from daemon_kit import notify
from daemon_kit.addresses import ListenAddress
from daemon_kit.control import ControlCommand, ControlError, ControlServer
from daemon_kit.errors import FatalError
from daemon_kit.http_server import PageServer
from daemon_kit.logs import get_logger
from daemon_kit.run import Parts, Reloading, check_fixed
from pool_user import LastKnownGood, PoolView

from ppu_agent.agent import PpuAgent
from ppu_agent.configuration import PpuConfig, load_configuration
from ppu_agent.deaths import REMEMBERED_S
from ppu_agent.explanation import parse_endpoint
from ppu_agent.mechanisms.base import ended
from ppu_agent.rules import RENEW_EVERY_S
from ppu_agent.status_model import PpuStatus
from rserpool import SctpUnavailable

_FIXED: Final = ("registrars", "handlespaces", "follow", "control", "state", "gateway", "metrics")
"""The keys that can't change while the agent runs."""
_WITHOUT_MEMORY: Final = "An agent that is started again would know nothing of servers that were dead before"


class PpuService:
    """The service; needs a running event loop. Raises FatalError when it can't begin.

    `path` is the file that `config` came from and that SIGHUP has read again; None: there are no reloads.
    """

    def __init__(self, config: PpuConfig, path: Path | None = None) -> None:
        self._config = config
        self._path = path
        self._parts = Parts()
        self.agent = PpuAgent(config, self._parts)
        self._keeper = LastKnownGood(config.state.path, REMEMBERED_S, without_it=_WITHOUT_MEMORY)
        self._remembered: Mapping[str, PoolView] = {}
        self._started_at_s = time.monotonic()
        self._log = get_logger("agent")
        self._metrics: PageServer | None = None
        self._reloading = Reloading(self._reload, self._log)
        self._control = ControlServer(
            config.control.path,
            {
                "status": self._status,
                "explain": ControlCommand(self._explain, {"endpoint": str}),
                "suspend": self._suspend,
                "resume": self._resume,
            },
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then take every rule back."""
        agent = self.agent
        agent.writer.open(is_alone=True)
        async with contextlib.AsyncExitStack() as cleanup:
            cleanup.push_async_callback(agent.close)
            await agent.begin(self._config)
            self._keeper.load_into(agent.questions)
            agent.deaths.restrict(self._config.accept_by_handle, self._config.ports_by_handle)
            await self._control.start()
            cleanup.push_async_callback(self._control.close)
            await self._start_metrics(cleanup)
            try:
                agent.pool_user.start()
            except SctpUnavailable as problem:
                raise FatalError(str(problem)) from None
            cleanup.push_async_callback(agent.pool_user.close)
            own = (self._keep(), self._keeper.run(), self._reloading.run(), notify.feed_watchdog(stop))
            for part in (*agent.parts(), *own):
                cleanup.push_async_callback(ended, self._parts.start(part))
            cleanup.enter_context(self._reloading.at_hangup())
            notify.ready()
            self._log.info("started", pools=list(self._config.handles))
            stopping = asyncio.create_task(stop.wait())
            cleanup.push_async_callback(ended, stopping)
            await asyncio.wait((stopping, self._parts.failed), return_when=asyncio.FIRST_COMPLETED)
            await agent.close()
            if self._parts.failed.done():
                self._parts.failed.result()
            self._remember()
            await asyncio.to_thread(self._keeper.save_now)
            self._log.info("stopped")
            await agent.pool_user.leave()

    async def _start_metrics(self, cleanup: contextlib.AsyncExitStack) -> None:
        if self._config.metrics is None:
            return
        from ppu_agent.metrics import make_server

        self._metrics = make_server(ListenAddress.parse(self._config.metrics.listen), self.status)
        await self._metrics.start()
        cleanup.push_async_callback(self._metrics.close)

    # Memory

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            self._remember()

    def _remember(self) -> None:
        """Have kept what the next agent must know: servers that are dead by then are in no list."""
        remembered = self.agent.questions.remembered(time.monotonic())
        if remembered != self._remembered:
            self._remembered = remembered
            self._keeper.changed(remembered)

    # Reload

    async def _reload(self) -> dict[str, Any]:
        """Take the configuration file over, whole or not at all. Raises what is wrong with it."""
        if self._path is None:
            return {}
        config = load_configuration(self._path)
        check_fixed(self._config, config, _FIXED)
        await self.agent.configure(config)
        self._config = config
        self.agent.take(config)
        self.agent.set_pools(config)
        return {"pools": list(config.handles)}

    # Commands

    def status(self) -> PpuStatus:
        """The answer of `status`."""
        own = {
            "uptime_s": round(time.monotonic() - self._started_at_s, 3),
            "state_problem": self._keeper.problem,
            "reload_problem": self._reloading.problem,
            "metrics_problem": self._metrics.problem if self._metrics is not None else None,
        }
        return cast(PpuStatus, own | self.agent.status())

    async def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        return dict(self.status())

    async def _explain(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            address, port = parse_endpoint(str(request.get("endpoint") or ""))
        except ValueError as problem:
            raise ControlError(str(problem)) from None
        return self.agent.explained(address, port)

    async def _suspend(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        self.agent.set_suspended(True)
        return {"suspended": True}

    async def _resume(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        self.agent.set_suspended(False)
        return {"suspended": False}
