"""Reloads, one at a time: accepted at once, with progress while one runs, and its result after.

`Reloads` knows which reload is where. `ConfigurationReload` reads the files and decides whether the service
may take them over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from daemon_kit.config_file import ConfigurationErrors
from daemon_kit.control import ControlError
from daemon_kit.logs import get_logger
from pool_user import HandlespaceUsers

from rspdns.audit import audit
from rspdns.configuration import BackendConfig, differing
from rspdns.losses import PoolLoss, losses
from rspdns.status.model import ReloadStatus, Status
from rspdns.zones.loading import Progress
from rspdns.zones.zone import Zone, sharing

WAIT_S = 3.0
"""Time after which a request for a reload is answered at the latest: with the result, or that it is
running."""
MOST_NAMED = 20
"""The most zones that a line of the audit names."""
_KEPT = 16
_LET_GO_AT_ONCE = 500
Result = dict[str, Any]


@dataclass(eq=False)
class Reload:
    """One reload. `force`: also when a pool would lose its last member. Times are monotonic."""

    number: int
    force: bool
    by: str | None
    """The user or token that wants it; None: a signal."""
    began_s: float
    progress: Progress = field(default_factory=Progress)
    ended_s: float | None = None
    problem: str = ""


class Reloads:
    """Does `work` for each reload that is begun, one after the other. It may raise ControlError."""

    def __init__(
        self, work: Callable[[Reload], Awaitable[Result]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._work = work
        self._clock = clock
        self._turn = asyncio.Lock()
        self._tasks: dict[int, asyncio.Task[Result]] = {}
        self._number = 0
        self.last: Reload | None = None
        """The one that runs, or ran last."""

    def begin(self, by: str | None, *, force: bool = False) -> int:
        """Begin a reload when the one before is done; return its number. Raises ControlError."""
        if sum(not task.done() for task in self._tasks.values()) >= _KEPT:
            raise ControlError(f"{_KEPT} reloads are waiting already")
        while len(self._tasks) >= _KEPT:
            del self._tasks[next(number for number, task in self._tasks.items() if task.done())]
        self._number += 1
        reload = Reload(self._number, force, by, self._clock())
        task = asyncio.get_running_loop().create_task(self._run(reload))
        task.add_done_callback(_look_at)
        self._tasks[reload.number] = task
        return reload.number

    async def result(self, number: int, wait_s: float | None = None) -> Result | None:
        """The result of a reload; None if it is still running after `wait_s`. Raises ControlError."""
        task = self._tasks.get(number)
        if task is None:
            raise ControlError(f"there is no reload {number}; was the backend restarted?")
        await asyncio.wait((task,), timeout=wait_s)
        return task.result() if task.done() else None

    async def close(self) -> None:
        """End what is running."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def status(self, now: float) -> ReloadStatus | None:
        """The last reload as a status shows it; None when there was none."""
        last = self.last
        if last is None:
            return None
        return ReloadStatus(
            state="running" if last.ended_s is None else "refused" if last.problem else "done",
            since_s=round(now - (last.began_s if last.ended_s is None else last.ended_s), 3),
            files=last.progress.files,
            of_files=last.progress.of_files,
            records=last.progress.records,
            problem=last.problem or None,
        )

    async def _run(self, reload: Reload) -> Result:
        async with self._turn:
            self.last = reload
            reload.began_s = self._clock()
            try:
                return await self._work(reload)
            except ControlError as problem:
                reload.problem = str(problem)
                raise
            except Exception:
                get_logger("backend").exception("reload_failed")
                reload.problem = "reload failed inside the service; its log says why"
                raise ControlError(reload.problem) from None
            finally:
                reload.ended_s = self._clock()


def _zone_words(names: Collection[str]) -> str:
    return f"zones: {', '.join([*names][:MOST_NAMED]) or 'none'}"


def _look_at(task: asyncio.Task[Result]) -> None:
    """A reload that a signal began has nobody who takes its result."""
    if not task.cancelled():
        task.exception()


Read = Callable[[Callable[[Progress], None]], Awaitable[BackendConfig]]
"""Reads the configuration again, and tells how far it is."""


class ReloadedService(Protocol):
    """The part of the backend that a reload concerns."""

    config: BackendConfig
    pool_user: HandlespaceUsers

    def status(self) -> Status:
        """The values of `rspdns status`."""

    def take(self, config: BackendConfig) -> tuple[Zone, ...]:
        """Serve the zones of this configuration from now on; return those that were served."""


class ConfigurationReload:
    """Reads the configuration of `service` again by `read`, and refuses one that nobody can mean."""

    def __init__(self, service: ReloadedService, read: Read | None) -> None:
        self._service = service
        self._read = read
        self._log = get_logger("backend")

    async def run(self, reload: Reload) -> Result:
        """Read the files again, and have the service serve them. Raises ControlError: nothing changed."""
        if self._read is None:
            raise ControlError("this backend was started without files to read again")

        def on_progress(progress: Progress) -> None:
            reload.progress = progress

        try:
            config = await self._read(on_progress)
        except ConfigurationErrors as errors:
            self._log.error("not_reloaded", problems=str(errors).splitlines())
            raise ControlError(f"nothing was changed:\n{errors}") from None
        if bool(config.named_handlespaces) != bool(self._service.config.named_handlespaces):
            words = "nothing was changed: from registrars to [[handlespace]], or back, takes a restart"
            self._log.error("not_reloaded", problems=[words])
            raise ControlError(words)
        if not reload.force:
            self._refuse_missing(config, by_signal=reload.by is None)
        going = await self._losses(config)
        if any(loss.is_refused for loss in going) and not reload.force:
            problems = [loss.words for loss in going]
            self._log.error("not_reloaded", problems=problems)
            lines = "\n".join(problems)
            words = "nothing was changed, since a pool would lose its last member; --force does it anyway"
            raise ControlError(f"{words}:\n{lines}")
        before = {zone.name: zone for zone in self._service.config.zones}
        zones = [_zone_words(before), _zone_words([zone.name for zone in config.zones])]
        config = await asyncio.to_thread(_sharing, config, before)
        del before
        await _let_go(self._service.take(config))
        audit(reload.by or "a signal", "reload", "the configuration", before=zones[0], after=zones[1])
        for loss in going:
            self._log.warning("members_go", why=loss.words)
        return {
            "zones": [zone.name for zone in config.zones],
            "going": [loss.words for loss in going],
            "needs_restart": differing(self._service.config, config),
        }

    def _refuse_missing(self, config: BackendConfig, *, by_signal: bool) -> None:
        """Refuse a configuration without zones that are served. Raises ControlError.

        The command `reload` may take some of them out, since whoever gives it reads its answer. A signal has
        no answer: a file may be missing by a slip, or for a moment. An administrator never means to take
        out all.
        """
        serving = self._service.config
        served = {zone.name for zone in serving.zones}
        missing = sorted(served - {zone.name for zone in config.zones})
        if not missing or (config.zones and not by_signal):
            return
        if config.zones:
            words = (
                f"the files of {', '.join(missing)} are missing; rspdns reload takes a zone out on purpose"
            )
        else:
            words = f"there is no zone any more in {serving.zones_dir}; rspdns reload --force takes out all"
        self._log.error("not_reloaded", problems=[words])
        raise ControlError(f"nothing was changed: {words}")

    async def _losses(self, config: BackendConfig) -> list[PoolLoss]:
        """The members that the pools would lose by this configuration."""
        served = self._service.status().zones
        lost = losses(served, config.zones)
        known = self._service.config.accept_by_handle
        unknown = [handle for handle in config.accept_by_handle if handle not in known]
        if unknown and any(loss.is_refused for loss in lost):
            lost = losses(served, config.zones, await self._service.pool_user.listed(unknown))
        return lost


def _sharing(config: BackendConfig, before: Mapping[str, Zone]) -> BackendConfig:
    """The configuration with what its zones have in common with those of before."""
    zones = (sharing(zone, before[zone.name]) if zone.name in before else zone for zone in config.zones)
    return config.with_files(tuple(zones), config.access)


async def _let_go(zones: tuple[Zone, ...]) -> None:
    """Free what zones that are not served any more hold, a little at a time: 100,000 records at once would
    hold up every thread."""
    parts = [
        part
        for zone in zones
        for part in (*zone.fixed.values(), *zone.static.records.values(), *zone.static.lines)
    ]
    del zones
    while parts:
        del parts[-_LET_GO_AT_ONCE:]
        await asyncio.sleep(0)
