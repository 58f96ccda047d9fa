"""Looks once at each server that left its pool: what it finds tells a drained server from a dead one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from daemon_kit.finding import Finding, Life
from pool_user import (
    BeliefEvent,
    Cause,
    Code,
    Member,
    PoolProbing,
    ProbePlan,
    listen_for_life,
)

AT_ONCE = 20
"""Servers looked at at the same time; when more leave together, the others are not looked at."""


class Examiner:
    """Probes servers that left as `pools` says; `examined` takes the finding, and `on_event` the event of it.

    `examined` returns False if the server is in again.
    """

    def __init__(
        self,
        examined: Callable[[str, Member, Finding], bool],
        pools: Mapping[str, PoolProbing],
        on_event: Callable[[Sequence[BeliefEvent]], None],
        *,
        method: Callable[[Member, ProbePlan], Awaitable[Finding]] = listen_for_life,
    ) -> None:
        self.pools = pools
        """How the members of each pool handle are probed; may be set anew."""
        self._examined = examined
        self._on_event = on_event
        self._method = method
        self._tasks: set[asyncio.Task[None]] = set()

    def happened(self, events: Sequence[BeliefEvent]) -> None:
        """Look at those that left; what the probe or `accept` itself took out has been explained."""
        for event in events:
            code = event.cause.code
            is_explained = code.is_unreached or code.is_refusal or code.is_planned or code is Code.WITHDRAWN
            if event.kind != "left" or event.member is None or is_explained or len(self._tasks) >= AT_ONCE:
                continue
            probing = self.pools.get(event.handle)
            if probing is not None:
                task = asyncio.get_running_loop().create_task(
                    self._look_at(event.handle, event.member, probing.plan)
                )
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Look at nobody any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look_at(self, handle: str, member: Member, plan: ProbePlan) -> None:
        finding = await self._method(member, plan)
        if self._examined(handle, member, finding) and finding.life is not Life.UNKNOWN:
            now, cause = time.monotonic(), Cause(Code.EXAMINED, finding=finding)
            self._on_event([BeliefEvent(now, "examined", handle, member.identifier, cause, member)])
