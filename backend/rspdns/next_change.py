"""The control command `changes`: it answers once a pool changes, with the changes and the pool's state."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from daemon_kit.control import ControlError

from rspdns.event_log import EventLog, Logged
from rspdns.status.model import PoolStatus, dumped
from rspdns.zones.zone import Pool

KEYS = {"pool": str, "life": str, "after": int, "wait_s": float}
"""The pool by the name of its SRV records or by a handle; `life` and `after` as in the last answer."""
ALL_POOLS = "*"
"""In place of a pool: the answer has the changes of all pools and `owners`, and no `pool`."""
WAIT_S = 10.0
"""The longest time after which an answer without changes comes."""
MOST_WAITING = 8
"""The most clients that wait: the socket has places for status and reload, too."""
CHANGING = frozenset({"joined", "left"})
"""The kinds of events that change who is in."""


class NextChange:
    """Answers the command. `pools` are those that are served, `statuses` gives the wanted ones as of now."""

    def __init__(
        self,
        log: EventLog,
        pools: Callable[[], Sequence[Pool]],
        statuses: Callable[[Callable[[Pool], bool]], Sequence[PoolStatus]],
    ) -> None:
        self._log = log
        self._pools = pools
        self._statuses = statuses
        self._waiting = 0
        self._life = secrets.token_hex(8)
        """Names this life of the backend: numbers of events begin anew with each."""

    async def tell(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the changes after `after`, and the pool: at once if there are any, or in another life.

        `missed` is true when changes are not kept any more. Raises ControlError.
        """
        wanted, after = request.get("pool") or "", request.get("after")
        handles = None if wanted == ALL_POOLS else self._pool(wanted).config.shards
        missed: bool | None = None
        if after is None or request.get("life") != self._life:
            missed, after = after is not None, self._log.last_number
        elif not self._changes(after, handles):
            await self._wait(after, handles, min(request.get("wait_s") or 0.0, WAIT_S))
        changes = [logged.status() for logged in self._changes(after, handles)]
        if missed is None:
            missed = after < self._log.first_number - 1
        answer = {
            "life": self._life,
            "number": self._log.last_number,
            "missed": missed,
            "host": socket.gethostname(),
            "changes": [dumped(change) for change in changes],
        }
        if wanted == ALL_POOLS:
            return {**answer, "owners": [pool.owner for pool in self._pools()]}
        owner = self._pool(wanted).owner  # the zones may be others now
        (status,) = self._statuses(lambda pool: pool.owner == owner)
        return {**answer, "pool": dumped(status)}

    def _changes(self, after: int, handles: Sequence[str] | None) -> list[Logged]:
        return [
            logged
            for logged in self._log.since(after)
            if logged.event.kind in CHANGING and (handles is None or logged.event.handle in handles)
        ]

    async def _wait(self, after: int, handles: Sequence[str] | None, wait_s: float) -> None:
        """Wait until an event of these handles comes; None: of any."""
        if self._waiting >= MOST_WAITING:
            raise ControlError(f"{MOST_WAITING} clients wait for changes already")
        self._waiting += 1
        try:
            with self._log.listening() as listener:
                async with asyncio.timeout(wait_s):
                    while not listener.lost and not self._changes(after, handles):
                        await listener.next()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1

    def _pool(self, wanted: str) -> Pool:
        pools = [pool for pool in self._pools() if wanted == pool.owner or wanted in pool.config.shards]
        if not pools:
            raise ControlError(f"no pool has SRV records or a handle of the name {wanted!r}")
        if len(pools) > 1:
            owners = ", ".join(pool.owner for pool in pools)
            raise ControlError(f"{wanted!r} is the handle of several pools: name one of {owners}")
        return pools[0]
