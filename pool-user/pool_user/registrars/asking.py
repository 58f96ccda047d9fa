"""The questions to one registrar: rounds about its sentinel and its due pools, and questions in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol as Interface

from daemon_kit.logs import get_logger

from pool_user.registrars.polling import HotPools, Intervals, Round
from rserpool import (
    RegistrarAddress,
    RegistrarClient,
    RegistrarUnreachable,
    Resolution,
    ResolutionTimeout,
    RSerPoolError,
    sentinel_handle,
)

SENTINEL_FIRST_S, SENTINEL_AWAITED_S = 0.25, 1.0
"""So long a registrar that is to be followed is asked about its sentinel alone, and so long at most while one
of the registrars has not answered that yet: none is settled before."""


class Asker(Interface):
    """Who asks; `place` is that of the registrar."""

    @property
    def pools(self) -> HotPools: ...  # noqa: D102
    def link(self, place: int, up: bool) -> None: ...  # noqa: D102
    def answered(self, place: int, handle: str, resolution: Resolution) -> None: ...  # noqa: D102
    def unanswered(self, place: int, asked_at_s: float) -> None: ...  # noqa: D102
    def is_silent(self, place: int) -> bool: ...  # noqa: D102
    def is_about_to_tell(self, place: int) -> bool: ...  # noqa: D102
    @property
    def follows(self) -> bool: ...  # noqa: D102
    @property
    def awaits_sentinels(self) -> bool: ...  # noqa: D102


class Asking:
    """The questions to one registrar; `asker` is told what comes of them."""

    def __init__(
        self,
        asker: Asker,
        place: int,
        address: RegistrarAddress,
        timeout_ms: int,
        local_addresses: Sequence[str],
        intervals: Intervals,
    ) -> None:
        self.place = place
        self.client = RegistrarClient(
            address,
            timeout_ms=timeout_ms,
            local_addresses=local_addresses,
            on_link=self._on_link,
        )
        self._asker = asker
        self._sentinel = sentinel_handle(place + 1)
        self._round = Round(self._sentinel, intervals)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._link_s = float("-inf")
        self.awaits_sentinel = False
        """Whether it is connected, and has not told yet who its sentinel is."""
        self.is_followed = False

    def start(self) -> None:
        """Begin; rounds begin with the association."""
        self.client.start()

    def follow(self, is_followed: bool) -> None:
        """It pushes changes from now on, or does not any more: then it is asked often, at once."""
        self.is_followed = is_followed
        if not is_followed and self.client.is_up:
            self._stop_rounds()
            self._next_round()

    async def close(self) -> None:
        """Ask nothing any more and close the association."""
        self._stop_rounds()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()

    def ask_at_once(self, handle: str) -> bool:
        """Return False when the last question just went out: the next has to wait a moment."""
        now = time.monotonic()
        if not self.client.is_up:
            return True
        if self._round.may_ask(handle, now):
            self._round.asked(handle, now)
            self._ask(handle)
            return True
        return self._round.is_unanswered(handle)

    def _on_link(self, up: bool) -> None:
        self._asker.link(self.place, up)
        self._stop_rounds()
        self._round.forget()
        self._link_s, self.awaits_sentinel = time.monotonic(), up
        if up:
            self._next_round()

    def _stop_rounds(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next_round(self) -> None:
        now = time.monotonic()
        round_trip_ms = self.client.round_trip_ms
        round_trip_s = None if round_trip_ms is None else round_trip_ms / 1000
        # What a whole table is about to tell is not asked for one by one, which would only delay the table.
        pools, followed = self._asker.pools, self.is_followed or self._asker.is_about_to_tell(self.place)
        interval_s = self._round.interval_s(len(pools.hot(now)), round_trip_s, followed=followed)
        # Of one that is to be followed its sentinel is asked first, alone: once it is settled it tells all.
        first_s = SENTINEL_AWAITED_S if self._asker.awaits_sentinels else SENTINEL_FIRST_S
        is_first = self._asker.follows and now < self._link_s + first_s
        sentinel_only = self._asker.is_silent(self.place) or is_first
        for handle in self._round.due(pools, interval_s, sentinel_only, now, followed=followed):
            self._ask(handle)
        self._timer = asyncio.get_running_loop().call_later(interval_s, self._next_round)

    def _ask(self, handle: str) -> None:
        task = asyncio.get_running_loop().create_task(self._resolve(handle))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resolve(self, handle: str) -> None:
        asked_at_s = time.monotonic()
        again = False
        try:
            resolution = await self.client.resolve(handle.encode())
        except ResolutionTimeout:
            again = self._round.done(handle)
            self._asker.unanswered(self.place, asked_at_s)
        except RegistrarUnreachable:
            self._round.done(handle)
        except RSerPoolError as problem:
            self._round.done(handle)
            get_logger("follower").warning("cannot_ask", handle=handle, problem=str(problem))
        except asyncio.CancelledError:
            self._round.done(handle)
            raise
        else:
            again = self._round.done(handle)
            self.awaits_sentinel = self.awaits_sentinel and handle != self._sentinel
            self._asker.answered(self.place, handle, resolution)
        if again:
            self.ask_at_once(handle)
