"""Keeps the resolvers: a task for each, so that one that hangs delays no other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence

from daemon_kit.errors import reason_of
from daemon_kit.logs import get_logger

from rspdns.resolvers.configuration import ResolverConfig
from rspdns.resolvers.flush_queue import JOIN_S, WEIGHTS_S, FlushQueue
from rspdns.status.model import ResolverStatus

TIMEOUT_S = 2.0
"""How long one flush may take."""


class ToldResolver:
    """One resolver, and what it is to forget."""

    def __init__(self, config: ResolverConfig, zones: Callable[[], Collection[str]]) -> None:
        self.config = config
        self._queue = FlushQueue(zones)
        self._news = asyncio.Event()
        self._status = ResolverStatus(config.name, config.type, config.address, 0, 0, 0, 0, None)
        self._log = get_logger("resolvers")

    def changed(self, names: Collection[str], within_s: float = JOIN_S) -> None:
        """Have it forget these names."""
        self._queue.add(names, time.monotonic(), within_s)
        self._news.set()

    def status(self) -> ResolverStatus:
        """The resolver for the status."""
        self._status.waiting = len(self._queue)
        return self._status

    async def run(self) -> None:
        """Tell it until this is cancelled."""
        while True:
            await self._wait()
            names = self._queue.take(time.monotonic())
            if not names:
                continue
            problem = await self._problem_of(names)
            if problem is None:
                self._queue.done(time.monotonic())
                self._worked(len(names))
            else:
                self._queue.failed(time.monotonic())
                self._failed(problem)

    async def _wait(self) -> None:
        due_s = self._queue.next_due_s
        timeout_s = None if due_s is None else due_s - time.monotonic()
        if timeout_s is not None and timeout_s <= 0:
            return
        self._news.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return

    async def _problem_of(self, names: Sequence[str]) -> str | None:
        """Tell it to forget the names; return what was wrong."""
        from rspdns.resolvers.telling import TELL, FlushError

        try:
            async with asyncio.timeout(TIMEOUT_S):
                await TELL[self.config.type](self.config, names)
        except TimeoutError:
            return f"not done within {TIMEOUT_S:g} s"
        except (FlushError, ValueError) as problem:
            return str(problem)
        except OSError as problem:
            return reason_of(problem)
        except Exception as problem:
            self._log.error("resolver_fault", resolver=self.config.name, exc_info=True)
            return f"a fault of the backend: {problem!r}"
        return None

    def _worked(self, names: int) -> None:
        self._status.flushes += 1
        self._status.names += names
        if self._status.problem is not None:
            self._log.info("resolver_works_again", resolver=self.config.name)
        self._status.problem = None

    def _failed(self, problem: str) -> None:
        self._status.failed += 1
        if problem != self._status.problem:
            self._log.warning("resolver_failed", resolver=self.config.name, problem=problem)
        self._status.problem = problem


class Resolvers:
    """All resolvers. `zones` gives the names of the zones that are served."""

    def __init__(self, zones: Callable[[], Collection[str]]) -> None:
        self._zones = zones
        self._resolvers: dict[str, tuple[ToldResolver, asyncio.Task[None]]] = {}

    def set(self, configs: Sequence[ResolverConfig]) -> None:
        """Let these be the resolvers from now on; those that stay as they are go on. A new one forgets all
        zones: it may have learned answers of before."""
        for name, (resolver, task) in list(self._resolvers.items()):
            if resolver.config not in configs:
                task.cancel()
                del self._resolvers[name]
        for config in configs:
            if config.name not in self._resolvers:
                resolver = ToldResolver(config, self._zones)
                resolver.changed([f"{zone}$" for zone in self._zones()])
                self._resolvers[config.name] = resolver, asyncio.create_task(resolver.run())

    @property
    def is_any(self) -> bool:
        """Whether there is a resolver."""
        return bool(self._resolvers)

    def changed(self, names: Collection[str]) -> None:
        """The answers to these names changed, or a PowerDNS forgot them just now."""
        for resolver, _ in self._resolvers.values():
            resolver.changed(names)

    def reweighed(self, names: Collection[str]) -> None:
        """The answers to these names changed by weights alone."""
        for resolver, _ in self._resolvers.values():
            resolver.changed(names, WEIGHTS_S)

    def statuses(self) -> list[ResolverStatus]:
        """Every resolver for the status."""
        return [resolver.status() for resolver, _ in self._resolvers.values()]

    async def close(self) -> None:
        """Stop; what waits is left undone."""
        tasks = [task for _, task in self._resolvers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
