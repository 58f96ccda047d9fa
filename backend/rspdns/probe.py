"""While no registrar can vouch for a pool, the backend probes its members itself (rule 5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection

from daemon_kit.logs import get_logger

from rspdns.belief import Belief
from rspdns.probe_methods import probe
from rspdns.probing import Outcome, ProbeBook, Target
from rspdns.views import Member

LOOK_EVERY_S = 0.05
LOOK_IDLE_S = 0.25


class Prober:
    """Probes the members of stale pools and tells the belief who is unreachable.

    `sip_handles` are the pools whose UDP members answer SIP OPTIONS; other UDP members cannot be probed
    and stay. `on_result` is called after the belief was told something new (`Follower.look` fits).
    """

    def __init__(
        self,
        belief: Belief,
        sip_handles: Collection[str],
        on_result: Callable[[], None],
        *,
        method: Callable[[Member, bool], Awaitable[Outcome]] = probe,
    ) -> None:
        self.sip_handles = sip_handles
        self._belief = belief
        self._on_result = on_result
        self._method = method
        self._book = ProbeBook()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Probe what is to be probed; until cancelled."""
        try:
            while True:
                now = time.monotonic()
                pools = self._belief.probe_targets(now)
                targets = [Target(handle, member) for handle, members in pools.items() for member in members]
                for target in self._book.due(targets, now):
                    task = asyncio.create_task(self._probe(target))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                spent_s = time.monotonic() - now
                await asyncio.sleep(max(LOOK_EVERY_S, 10 * spent_s) if targets else LOOK_IDLE_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _probe(self, target: Target) -> None:
        outcome = Outcome.UNKNOWN
        try:
            outcome = await self._method(target.member, target.handle in self.sip_handles)
        finally:
            reachable = self._book.result(target, outcome, time.monotonic())
            if reachable is not None:
                get_logger("probe").info(
                    "member_reachable" if reachable else "member_unreachable",
                    handle=target.handle,
                    identifier=f"{target.member.identifier:08x}",
                )
                self._belief.probed(target.handle, target.member.identifier, reachable, time.monotonic())
                self._on_result()
