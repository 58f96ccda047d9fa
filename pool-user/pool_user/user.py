"""`PoolUser`: a `PoolUserMachine` on sockets and timers. It decides nothing.

Every registrar is asked (ASAP handle resolutions, pipelined), and followed (as a passive ENRP peer). All that
registrars tell goes to the machine, which is looked at once all that happened at one moment is told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from daemon_kit.logs import get_logger

from pool_user.belief import Belief
from pool_user.machine import PoolUserMachine, merged
from pool_user.registrars.polling import Intervals
from pool_user.registrars.session import Action, Ask, Follow, RegistrarSession
from pool_user.views import BeliefEvent, Member, PoolView
from rserpool import (
    DeadlineTimer,
    FollowerEvent,
    HandlespaceFollower,
    PoolElement,
    RegistrarAddress,
    RegistrarClient,
    RegistrarUnreachable,
    Resolution,
    ResolutionTimeout,
    RSerPoolError,
)

SHORTEST_TIMER_S = 0.001


class PoolUser:
    """Keeps `belief` fed about the pools `handles`. `on_change` gets every pool's view whenever one changed.

    With `is_to_follow`, registrars that are settled push their changes (ENRP) and are asked only as a check;
    without it they are asked alone. A question waits `timeout_ms` for its answer. `on_events` gets what a
    person following the pools wants to read. Both callbacks are called in the event loop and must not raise.
    """

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        handles: Iterable[str],
        belief: Belief,
        on_change: Callable[[Mapping[str, PoolView]], None],
        *,
        is_to_follow: bool,
        intervals: Intervals,
        timeout_ms: int,
        on_events: Callable[[Sequence[BeliefEvent]], None],
        local_addresses: Sequence[str] = (),
    ) -> None:
        self.machine = PoolUserMachine(
            handles, belief, intervals, time.monotonic(), is_to_follow=is_to_follow
        )
        self._on_change = on_change
        self._on_events = on_events
        self._clients = [
            RegistrarClient(
                address,
                timeout_ms=timeout_ms,
                local_addresses=local_addresses,
                on_link=partial(self._on_link, index),
            )
            for index, address in enumerate(registrars)
        ]
        self._follower: HandlespaceFollower | None = None
        if is_to_follow:
            self._follower = HandlespaceFollower(
                registrars, self._told, is_wanted=self.machine.is_wanted, local_addresses=local_addresses
            )
        self._views: Mapping[str, PoolView] = {}
        self._questions: set[asyncio.Task[None]] = set()
        self._rounds: DeadlineTimer | None = None
        self._looks: DeadlineTimer | None = None
        self._is_looking = self._is_closed = False

    def start(self) -> None:
        """Begin; must run in an event loop. Raise SctpUnavailable where there is no SCTP."""
        self._rounds, self._looks = DeadlineTimer(self._next_round), DeadlineTimer(self.look)
        for client in self._clients:
            client.start()
        if self._follower is not None:
            self._follower.start()
        self.look()

    async def leave(self) -> None:
        """Take leave of the registrars, so that none of them waits for us after `close()`: about 2 s."""
        self.machine.sessions.is_leaving = True
        if self._follower is not None:
            await self._follower.leave()

    async def close(self) -> None:
        """Ask nothing any more and close the associations."""
        self._is_closed = True
        for timer in (self._looks, self._rounds):
            if timer is not None:
                timer.set(None)
        if self._follower is not None:
            self._follower.close()
        for question in self._questions:
            question.cancel()
        await asyncio.gather(*self._questions, return_exceptions=True)
        await asyncio.gather(*(client.close() for client in self._clients))

    def note_query(self, handle: str) -> None:
        """Somebody looked the pool up: it is hot from now on. An unknown handle is ignored."""
        if self.machine.note_query(handle, time.monotonic()):
            self._flush()

    def set_handles(self, handles: Sequence[str]) -> None:
        """Follow these pools from now on (`Belief.set_pools()` has them already)."""
        self.machine.pools.set_handles(handles, time.monotonic())
        if self._follower is not None:
            self._follower.ask_for_everything()
        self.look()

    async def listed(self, handles: Sequence[str]) -> dict[str, list[PoolElement]]:
        """Ask every registrar about pools that are not followed (yet). Unanswered questions tell nothing."""
        up = [client for client in self._clients if client.is_up]
        found = {}
        for handle in handles:
            questions = (client.resolve(handle.encode()) for client in up)
            answers = await asyncio.gather(*questions, return_exceptions=True)
            found[handle] = merged(one for one in answers if isinstance(one, Resolution))
        return found

    def report_unreachable(self, handle: str, member: Member) -> None:
        """Tell the member's home registrar, or all where it is not known, that nobody reaches the member."""
        for index in self.machine.sessions.homes_of(member.home_registrar):
            self._clients[index].report_unreachable(handle.encode(), member.identifier)

    def look(self) -> None:
        """Something happened: look at the belief once all that happened at this moment is told."""
        if not self._is_looking and not self._is_closed:
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self._look)

    # Reports of registrars

    def _on_link(self, index: int, up: bool) -> None:
        self.machine.link(index, up, time.monotonic())
        self.look()

    async def _resolve(self, index: int, handle: str) -> None:
        client, asked_at_s = self._clients[index], time.monotonic()
        try:
            answer = await client.resolve(handle.encode())
        except ResolutionTimeout:
            self.machine.unanswered(index, handle, asked_at_s, time.monotonic())
        except RSerPoolError as problem:
            self.machine.not_asked(index, handle)
            if not isinstance(problem, RegistrarUnreachable):
                get_logger("follower").warning("cannot_ask", handle=handle, problem=str(problem))
            return
        else:
            self.machine.answered(index, answer, client.round_trip_ms, time.monotonic())
        self._flush()
        self.look()

    def _told(self, index: int, event: FollowerEvent) -> None:
        if self.machine.told(index, event, time.monotonic()):
            _log_following(self.machine.sessions[index])
        self.look()

    # Work that follows

    def _look(self) -> None:
        self._is_looking = False
        if self._is_closed:
            return
        now = time.monotonic()
        views = self.machine.look(now)
        if events := self.machine.belief.take_events():
            self._on_events(events)
        if views is not self._views:
            self._views = views
            self._on_change(views)
        self.machine.follow_up(now)
        self._flush()

    def _next_round(self) -> None:
        self.machine.advance(time.monotonic())
        self._flush()

    def _flush(self) -> None:
        """Do what the machine wants, and come back when it says."""
        if self._is_closed or self._rounds is None or self._looks is None:
            return
        for index, action in self.machine.take_actions():
            self._do(index, action)
        self._rounds.set(_not_before(SHORTEST_TIMER_S, self.machine.next_round_s))
        self._looks.set(_not_before(SHORTEST_TIMER_S, self.machine.next_look_s))

    def _do(self, index: int, action: Action) -> None:
        match action:
            case Ask(handle):
                question = asyncio.get_running_loop().create_task(self._resolve(index, handle))
                self._questions.add(question)
                question.add_done_callback(self._questions.discard)
            case Follow() if self._follower is not None:
                self._follower.follow(index)


def _not_before(delay_s: float, deadline_s: float | None) -> float | None:
    """The deadline, but not sooner than in `delay_s`: what stays due must not keep everything else out."""
    return None if deadline_s is None else max(deadline_s, time.monotonic() + delay_s)


def _log_following(session: RegistrarSession) -> None:
    log, registrar = get_logger("follower"), session.life.address
    if session.is_followed:
        log.info("followed", registrar=registrar)
    else:
        log.info("not_followed", registrar=registrar, why=f"{session.problem}: it is asked instead")
