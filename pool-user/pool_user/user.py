"""`PoolUser`: the belief and the sessions with all registrars, on sockets and timers. It decides nothing.

Every registrar is asked (ASAP handle resolutions, pipelined), and followed (as a passive ENRP peer). Each
word of a registrar goes to the belief or its session. Once all words of a moment were given, `_look` tells
what changed, and then has the sessions ask what a change calls for. Registrars are named by their index.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from daemon_kit.logs import get_logger

from pool_user.belief import Belief, pool_handle, pool_name
from pool_user.fairness import MEMBERS_AT_ONCE, Fairness
from pool_user.registrars.polling import REPEAT_AFTER_S, HotPools, Intervals
from pool_user.registrars.session import Action, Ask, Follow, RegistrarSession, SessionInput
from pool_user.views import BeliefChange, BeliefEvent, Member
from rserpool import (
    DeadlineTimer,
    Ended,
    FollowerEvent,
    HandlespaceFollower,
    Joined,
    PoolElement,
    RegistrarAddress,
    RegistrarClient,
    RegistrarUnreachable,
    Resolution,
    ResolutionTimeout,
    RSerPoolError,
    Table,
    Update,
)

SHORTEST_TIMER_S = 0.001
_News = TypeVar("_News")


class PoolUser:
    """Keeps `belief` fed about its pools `handles`. `on_change` gets each change of the belief.

    With `is_to_follow`, registrars that are settled push their changes (ENRP) and are asked only as a check;
    without it they are asked alone. A question waits `timeout_ms` for its answer. `on_events` gets what a
    person following the pools wants to read. Both are called in the event loop; their exceptions are logged.
    """

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        handles: Iterable[str],
        belief: Belief,
        on_change: Callable[[BeliefChange], None],
        *,
        is_to_follow: bool,
        intervals: Intervals,
        timeout_ms: int,
        on_events: Callable[[Sequence[BeliefEvent]], None],
        local_addresses: Sequence[str] = (),
    ) -> None:
        self.pools = HotPools(handles, intervals, time.monotonic())
        self.belief = belief
        self.sessions = belief.sessions
        self.sessions.plan(self.pools, intervals, is_to_follow=is_to_follow)
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
                registrars,
                self._on_follower_event,
                is_wanted=self._is_wanted,
                local_addresses=local_addresses,
            )
        self._fairness = Fairness(MEMBERS_AT_ONCE)
        self._rounds: DeadlineTimer | None = None
        self._looks: DeadlineTimer | None = None
        self._next_look_s: float | None = None
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
        self.sessions.is_leaving = True
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
        await asyncio.gather(*(client.close() for client in self._clients))

    def note_query(self, handle: str) -> None:
        """Somebody looked the pool up: it is hot from now on. An unknown handle is ignored."""
        now = time.monotonic()
        if self.pools.note_query(handle, now):
            for session in self.sessions:
                session.ask_at_once(handle, now)
            self._flush()

    def set_handles(self, handles: Sequence[str]) -> None:
        """Follow these pools from now on (`Belief.set_pools()` has them already)."""
        self.pools.set_handles(handles, time.monotonic())
        if self._follower is not None:
            self._follower.ask_for_everything()
        self.look()

    async def listed(self, handles: Sequence[str]) -> dict[str, list[PoolElement]]:
        """Ask every registrar about pools that are not followed (yet). Unanswered questions tell nothing."""
        up = [client for client in self._clients if client.is_up]
        listed = {}
        for handle in handles:
            questions = (client.resolve(self._wire(handle)) for client in up)
            answers = await asyncio.gather(*questions, return_exceptions=True)
            listed[handle] = merged(answer for answer in answers if isinstance(answer, Resolution))
        return listed

    def report_unreachable(self, handle: str, member: Member) -> None:
        """Tell the member's home registrar, or all where it is not known, that nobody reaches the member."""
        for index in self.sessions.homes_of(member.home_registrar):
            self._clients[index].report_unreachable(self._wire(handle), member.identifier)

    def look(self) -> None:
        """Something happened: look at the belief once all that happened at this moment is told."""
        if not self._is_looking and not self._is_closed:
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self._look)

    # Reports of registrars

    def _on_link(self, index: int, up: bool) -> None:
        now = time.monotonic()
        self.belief.link(index, up, now)
        self._advance(now)
        self.look()

    def _ask(self, index: int, handle: str) -> None:
        answered = partial(self._answered, index, handle, time.monotonic())
        try:
            self._clients[index].ask(self._wire(handle), answered)
        except RSerPoolError as problem:
            self._not_asked(index, handle, problem)

    def _answered(
        self, index: int, handle: str, asked_at_s: float, answer: Resolution | RSerPoolError
    ) -> None:
        session, now = self.sessions[index], time.monotonic()
        if isinstance(answer, Resolution):
            session.round_trip_ms = self._clients[index].round_trip_ms
            self.belief.answered(index, answer)
        elif isinstance(answer, ResolutionTimeout):
            self.belief.unanswered(index, asked_at_s, now)
        else:
            self._not_asked(index, handle, answer)
            return
        session.done(handle, now)
        self.look()

    def _not_asked(self, index: int, handle: str, problem: RSerPoolError) -> None:
        self.sessions[index].not_asked(handle)
        if not isinstance(problem, RegistrarUnreachable):
            get_logger("follower").warning("cannot_ask", handle=handle, problem=str(problem))

    def _on_follower_event(self, index: int, event: FollowerEvent) -> None:
        session = self.sessions[index]
        match event:
            case Update():
                self.belief.updated(index, event)
            case Joined():
                session.move(SessionInput.JOINED)
            case Table():
                self.belief.table(index, event)
                if session.table():
                    _log_following(session)
            case Ended(reason):
                now = time.monotonic()
                if session.ended(reason, now):
                    _log_following(session)
                self._advance(now)
        self.look()

    def _is_wanted(self, handle: bytes) -> bool:
        return pool_name(handle, self.belief.handlespace) in self.pools.handles

    def _wire(self, handle: str) -> bytes:
        return pool_handle(handle, self.belief.handlespace)

    # Work that follows

    def _look(self) -> None:
        self._is_looking = False
        if self._is_closed:
            return
        now = time.monotonic()
        chosen, resume_at_s = self._fairness.choose(self.belief.due(now))
        with self._fairness.work(chosen):
            change = self.belief.evaluate(now, [handle for handle, _ in chosen])
        if events := self.belief.take_events():
            _tell(self._on_events, events)
        if change.pools:
            _tell(self._on_change, change)
        # Only now, since each question waits for the SCTP daemon's turn, and the change is urgent.
        is_late = self.sessions.follow_up(self.belief.questions(), now)
        times_s = (
            resume_at_s,
            self.belief.next_deadline_s,
            now + REPEAT_AFTER_S if is_late else None,
        )
        self._next_look_s = min((time_s for time_s in times_s if time_s is not None), default=None)
        self._flush()

    def _next_round(self) -> None:
        self._advance(time.monotonic())
        self._flush()

    def _advance(self, now: float) -> None:
        self.belief.advance(now)
        self.sessions.advance(now)

    def _flush(self) -> None:
        """Do what the sessions want, and come back when they say."""
        if self._is_closed or self._rounds is None or self._looks is None:
            return
        for session in self.sessions:
            for action in session.take_actions():
                self._do(session.index, action)
        round_s = self.sessions.next_deadline_s
        self._rounds.set(_not_before(SHORTEST_TIMER_S, round_s if math.isfinite(round_s) else None))
        self._looks.set(_not_before(SHORTEST_TIMER_S, self._next_look_s))

    def _do(self, index: int, action: Action) -> None:
        match action:
            case Ask(handle):
                self._ask(index, handle)
            case Follow() if self._follower is not None:
                self._follower.follow(index)


def _tell(listener: Callable[[_News], None], news: _News) -> None:
    """Call the listener. An exception of it keeps nothing from the other listener and the timers."""
    try:
        listener(news)
    except Exception:
        get_logger("follower").exception("listener_failed")


def _not_before(delay_s: float, deadline_s: float | None) -> float | None:
    """The deadline, but not sooner than in `delay_s`: what stays due must not keep everything else out."""
    return None if deadline_s is None else max(deadline_s, time.monotonic() + delay_s)


def merged(answers: Iterable[Resolution]) -> list[PoolElement]:
    """Return the PEs that registrars list of one pool, each PE once: as the last of these answers has it."""
    return list(
        {element.identifier: element for answer in answers for element in answer.pool_elements}.values()
    )


def _log_following(session: RegistrarSession) -> None:
    log, registrar = get_logger("follower"), session.life.address
    if session.is_followed:
        log.info("followed", registrar=registrar)
    else:
        log.info("not_followed", registrar=registrar, why=f"{session.problem}: it is asked instead")
