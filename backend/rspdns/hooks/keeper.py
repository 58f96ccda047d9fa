"""Keeps the hooks: their tasks, and the file that says how far each was told."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from daemon_kit.files import open_regular, replace_file
from daemon_kit.logs import get_logger
from pydantic import BaseModel, ValidationError

from rspdns.hooks.configuration import HookConfig
from rspdns.hooks.delivery import Hook, HookView
from rspdns.hooks.message import HookEvent, HookMessage, message
from rspdns.status.model import HookStatus, PoolStatus
from rspdns.zones.zone import Pool, handles_of

if TYPE_CHECKING:
    from aiohttp import ClientSession

FILE = "hooks.json"
_MOST_BYTES = 64 * 1024
SAVE_S = 1.0
"""The least time between two writes of the file: after SIGKILL so much is delivered again."""


class KeptCursors(BaseModel):
    """The contents of the file: a name of the journal, and by hook the last row that was told."""

    tag: str
    cursors: dict[str, int]


class Hooks:
    """All hooks. `pools` gives the pools that are served, `statuses` how the wanted ones are now, `unwritten`
    how many changes the journal could not write."""

    def __init__(
        self,
        directory: str | Path,
        unwritten: Callable[[], int],
        pools: Callable[[], Sequence[Pool]],
        statuses: Callable[[Callable[[Pool], bool]], Sequence[PoolStatus]],
    ) -> None:
        self._directory = Path(directory)
        self._unwritten = unwritten
        self._pools = pools
        self._statuses = statuses
        self._hooks: dict[str, tuple[Hook, asyncio.Task[None]]] = {}
        self._cursors: dict[str, int] = {}
        self._tag = secrets.token_hex(4)
        self._problem: str | None = None
        """Why the file can't be written."""
        self._session: ClientSession | None = None
        self._saving: asyncio.Task[None] | None = None
        self._log = get_logger("hooks")

    async def start(self, configs: Sequence[HookConfig]) -> None:
        """Begin to deliver."""
        await asyncio.to_thread(self._load)
        from aiohttp import ClientSession, DummyCookieJar, TCPConnector

        from rspdns.hooks.resolver import DaemonResolver

        self._session = ClientSession(
            connector=TCPConnector(resolver=DaemonResolver()),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
        )
        self.set(configs)

    def set(self, configs: Sequence[HookConfig]) -> None:
        """Let these be the hooks from now on; those that stay as they are go on."""
        if self._session is None:
            return  # it begins with the configuration of then
        for name, (hook, task) in list(self._hooks.items()):
            if hook.config not in configs:
                task.cancel()
                del self._hooks[name]
                self._remember(hook)
        for config in configs:
            if config.name not in self._hooks:
                hook = Hook(config, self._view(), self._cursors.get(config.name))
                task = asyncio.get_running_loop().create_task(hook.run(self._session))
                self._hooks[config.name] = hook, task

    def wake(self) -> None:
        """The members changed."""
        for hook, _ in self._hooks.values():
            hook.wake()

    @property
    def problems(self) -> list[str]:
        """The problems for the status."""
        failing = [f"hook {hook.name}: {hook.problem}" for hook in self.statuses() if hook.problem]
        return [*([self._problem] if self._problem else []), *failing]

    def statuses(self) -> list[HookStatus]:
        """Every hook for the status."""
        return [hook.status() for hook, _ in self._hooks.values()]

    async def close(self) -> None:
        """End the deliveries, and keep how far they are."""
        tasks = [task for _, task in self._hooks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._saving is not None:
            self._saving.cancel()
        if self._hooks:
            await asyncio.to_thread(self._save)
        if self._session is not None:
            await self._session.close()

    def _view(self) -> HookView:
        return HookView(
            str(self._directory),
            lambda: self._tag,
            self._message,
            lambda wanted: handles_of(self._pools(), wanted),
            self._unwritten,
            self._kept,
            self._anew,
        )

    def _message(self, events: Sequence[HookEvent], lost: int) -> HookMessage:
        handles = {event.handle for event in events}
        pools = self._statuses(lambda pool: not handles.isdisjoint(pool.config.shards))
        return message(socket.gethostname(), lost, events, pools, time.time())

    def _anew(self) -> None:
        self._tag = secrets.token_hex(4)

    def _remember(self, hook: Hook) -> None:
        if hook.cursor is not None:
            self._cursors[hook.config.name] = hook.cursor

    def _kept(self) -> None:
        """Write the file soon."""
        if self._saving is None or self._saving.done():
            self._saving = asyncio.get_running_loop().create_task(self._save_soon())

    async def _save_soon(self) -> None:
        await asyncio.sleep(SAVE_S)
        await asyncio.to_thread(self._save)

    def _save(self) -> None:
        for hook, _ in list(self._hooks.values()):
            self._remember(hook)
        kept = KeptCursors(tag=self._tag, cursors=dict(self._cursors))
        try:
            replace_file(self._directory / FILE, kept.model_dump_json().encode())
        except OSError as problem:
            words = f"{self._directory / FILE}: can't be written: {problem.strerror or problem}"
            if self._problem is None:
                self._log.warning("hooks_not_kept", problem=words)
            self._problem = words
        else:
            self._problem = None

    def _load(self) -> None:
        """Read the file; without it, or if it is damaged, hooks begin with what comes from now on."""
        path = self._directory / FILE
        try:
            with open_regular(path) as file:
                kept = KeptCursors.model_validate_json(file.read(_MOST_BYTES))
        except FileNotFoundError:
            return
        except (OSError, ValidationError) as problem:
            self._log.warning("hooks_unreadable", file=str(path), problem=type(problem).__name__)
            return
        self._tag, self._cursors = kept.tag, kept.cursors
