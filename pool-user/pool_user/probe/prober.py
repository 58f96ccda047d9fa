"""The backend's own probes: of pools with `verify` all the time, of all others while no registrar can vouch
for them (rule 5)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

from daemon_kit.finding import Finding, Life
from daemon_kit.logs import get_logger

from pool_user.belief import Belief
from pool_user.handlespaces import HandlespaceBeliefs
from pool_user.probe.methods import listen_for_life
from pool_user.probe.probing import (
    MAX_PROBES_PER_S,
    PoolProbing,
    ProbeBook,
    ProbePlan,
    ProbeTarget,
    ReachChange,
)
from pool_user.views import Member, PoolView
from rserpool import REPORTS_THAT_REMOVE

LOOK_EVERY_S = 0.005
"""The least time between two looks at which probes are due."""
TARGETS_EVERY_S = 0.05
"""The least time between two looks at which members there are; at least ten times what a look takes."""
TARGETS_AFTER_S = 1.0
"""The most time between two such looks."""
WITNESSES_OF_PART = 8
"""The most members of each other part of a pool that are probed while no registrar vouches for one part: a
part is a handle in a handlespace."""


class ProbeSource(Protocol):
    """Says which probes are to be made beside those of members that the belief wants probed."""

    @property
    def next_due_s(self) -> float:
        """When `due()` may have some, in monotonic seconds; infinity for never."""

    def due(self, now: float) -> Iterable[Coroutine[Any, Any, None]]:
        """Return the probes to make now. Each does with its finding what is right."""


class Prober:
    """Probes members and tells the belief who is unreachable. Makes the probes of `also`, too.

    `pools` tells of each pool handle how (`set_pools()` later). `on_result` is called after the belief was
    told something new (`PoolUser.look` fits). `report(handle, member)` is called three times for who falls in
    a pool that wants it reported. `name_of(handle, member)` is what people call a member.
    """

    def __init__(
        self,
        belief: Belief | HandlespaceBeliefs,
        pools: Mapping[str, PoolProbing],
        on_result: Callable[[], None],
        *,
        report: Callable[[str, Member], None] = lambda handle, member: None,
        name_of: Callable[[str, Member], str | None] = lambda handle, member: None,
        max_per_s: float = MAX_PROBES_PER_S,
        method: Callable[[Member, ProbePlan], Awaitable[Finding]] = listen_for_life,
        also: ProbeSource | None = None,
    ) -> None:
        self._belief = belief
        self._pools = pools
        self._on_result = on_result
        self._report = report
        self._name_of = name_of
        self._method = method
        self._also = also
        self._book = ProbeBook(max_per_s=max_per_s)
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: dict[tuple[str, int], Finding] = {}
        self._is_news = False
        self._wake = asyncio.Event()

    def set_pools(self, pools: Mapping[str, PoolProbing]) -> None:
        """The zones changed."""
        self._pools = pools
        self.changed()

    def changed(self) -> None:
        """Members may have come or gone."""
        self._is_news = True
        self._wake.set()

    @property
    def problems(self) -> list[str]:
        """Problems for an administrator, in words."""
        return [
            f"no member of the pool {name} answers the probe of this name server; "
            "the members that the registrars list are shown"
            for name in self._book.blind(time.monotonic())
        ]

    async def run(self) -> None:
        """Probe what is to be probed; until cancelled."""
        targets_at_s = news_at_s = float("-inf")
        try:
            while True:
                now = time.monotonic()
                self._wake.clear()
                if now >= news_at_s and (self._is_news or now >= targets_at_s):
                    self._is_news = False
                    self._take_targets(now)
                    spent_s = time.monotonic() - now
                    targets_at_s = now + max(TARGETS_AFTER_S, 10 * spent_s)
                    news_at_s = now + max(TARGETS_EVERY_S, 10 * spent_s)
                for target in self._book.due(now):
                    self._belief.probing(target.handle, target.member, now)
                    self._begin(self._probe(target))
                due_s = min(self._book.next_due_s, news_at_s if self._is_news else targets_at_s)
                if self._also is not None:
                    for probe in self._also.due(now):
                        self._begin(probe)
                    due_s = min(due_s, self._also.next_due_s)
                await self._sleep(due_s - time.monotonic())
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, probe: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(probe)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake.set()

    async def _sleep(self, seconds: float) -> None:
        """Sleep for so long, or until something happened: an outcome can make others due at once."""
        await asyncio.sleep(LOOK_EVERY_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds - LOOK_EVERY_S)):  # wait_for() may swallow the end
                await self._wake.wait()

    def _take_targets(self, now: float) -> None:
        views = self._belief.views
        wanted = self._belief.probe_targets()
        wanted |= self._witnesses(wanted, views)
        doubted = {handle: {*views[handle].vanished, *views[handle].moving} for handle in wanted}
        targets = [
            ProbeTarget(
                handle,
                member,
                self._pools[handle].plan,
                self._pools[handle].group,
                is_suspected=member.identifier in doubted[handle].union(views[handle].suspected),
                is_vanished=member.identifier in doubted[handle],
            )
            for handle, members in wanted.items()
            if handle in self._pools
            for member in members
        ]
        self._take_changes(self._book.set_targets(targets, now))
        if len(self._failed) > len(targets):
            present = {(target.handle, target.member.identifier) for target in targets}
            self._failed = {key: finding for key, finding in self._failed.items() if key in present}

    def _witnesses(
        self, wanted: Mapping[str, object], views: Mapping[str, PoolView]
    ) -> dict[str, tuple[Member, ...]]:
        """Members of pools of which another handlespace is lost. Unless they answer, the loss of all members
        there may be a fault of this host's own network."""
        lost = {
            self._pools[handle].group
            for handle in wanted
            if handle in self._pools and views[handle].stale_since_s is not None
        }
        return {
            handle: view.members[:WITNESSES_OF_PART]
            for handle, view in views.items()
            if lost and handle not in wanted and handle in self._pools and self._pools[handle].group in lost
        }

    async def _probe(self, target: ProbeTarget) -> None:
        life, key = Life.UNKNOWN, (target.handle, target.member.identifier)
        try:
            finding = await self._method(target.member, target.plan)
            life = finding.life
            if life.is_failure:
                self._failed[key] = finding
            else:
                self._failed.pop(key, None)
            if life is Life.ALIVE:
                self._belief.probe_answered(target.handle, target.member, time.monotonic())
        finally:
            self._take_changes(self._book.result(target, life, time.monotonic()))

    def _called(self, target: ProbeTarget) -> dict[str, str]:
        """How the log names a member."""
        member, name = target.member, self._name_of(target.handle, target.member)
        words = {"identifier": f"{member.identifier:08x}", "address": f"{member.addresses[0]}"}
        return words if name is None else words | {"name": name}

    def _take_changes(self, changes: list[ReachChange]) -> None:
        for change in changes:
            target, identifier = change.target, change.target.member.identifier
            failed = self._failed.get((target.handle, identifier))
            if not change.forgotten:
                what = "member_reachable" if change.reachable else "member_unreachable"
                get_logger("probe").info(
                    what,
                    handle=target.handle,
                    **self._called(target),
                    said="" if failed is None else failed.words,
                    _source=target.handle,
                )
            now = time.monotonic()
            self._belief.probed(target.handle, target.member, change.reachable, now, failed)
            if not change.reachable and target.plan.report:
                for _ in range(REPORTS_THAT_REMOVE):
                    self._report(target.handle, target.member)
        if changes:
            self._on_result()
