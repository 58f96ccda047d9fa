"""`PoolUser`: the belief and the sessions with all registrars, on sockets and timers. It decides nothing.

Every registrar is asked (ASAP handle resolutions, pipelined), and followed (as a passive ENRP peer). All that
registrars tell goes to the belief and to the sessions, which are looked at once all that happened at one
moment is told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from daemon_kit.logs import get_logger

from pool_user.belief import AT_ONCE, Belief, pool_name
from pool_user.registrars.polling import REPEAT_AFTER_S, HotPools, Intervals
from pool_user.registrars.session import Action, Ask, Follow, Input
from pool_user.registrars.standing import RegistrarView
from pool_user.views import BeliefEvent, Member, PoolView
from rserpool import (
    Ended,
    FollowerEvent,
    FollowerState,
    HandlespaceFollower,
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


class PoolUser:
    """Keeps `belief` fed about the pools `handles`. `on_change` gets every pool's view whenever one changed.

    With `is_to_follow`, registrars that are settled push their changes (ENRP) and are asked only as a check;
    without it they are asked alone. A question waits `timeout_ms` for its answer. `on_events` gets what a
    person following the pools wants to read; without it, events are logged. Both callbacks are called in the
    event loop and must not raise.
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
        on_events: Callable[[Sequence[BeliefEvent]], None] | None = None,
        local_addresses: Sequence[str] = (),
    ) -> None:
        self.pools = HotPools(handles, intervals, time.monotonic())
        self._belief = belief
        self._sessions = belief.sessions
        self._sessions.plan(self.pools, intervals, is_to_follow=is_to_follow)
        self._on_change = on_change
        self._on_events = on_events or _log
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
                registrars, self._told, is_wanted=self._is_wanted, local_addresses=local_addresses
            )
        self._views: Mapping[str, PoolView] = {}
        self._questions: set[asyncio.Task[None]] = set()
        self._rounds = _Alarm(self._next_round)
        self._next_look = _Alarm(self.look)
        self._looking = self._is_closed = False

    def start(self) -> None:
        """Begin; must run in an event loop. Raise SctpUnavailable where there is no SCTP."""
        for client in self._clients:
            client.start()
        if self._follower is not None:
            self._follower.start()
        self.look()

    async def leave(self) -> None:
        """Take leave of the registrars, so that none of them waits for us after `close()`: about 2 s."""
        self._sessions.is_leaving = True
        if self._follower is not None:
            await self._follower.leave()

    async def close(self) -> None:
        """Ask nothing any more and close the associations."""
        self._is_closed = True
        for alarm in (self._next_look, self._rounds):
            alarm.set(float("inf"))
        if self._follower is not None:
            self._follower.close()
        for question in self._questions:
            question.cancel()
        await asyncio.gather(*self._questions, return_exceptions=True)
        await asyncio.gather(*(client.close() for client in self._clients))

    def note_query(self, handle: str) -> None:
        """Somebody looked the pool up: it is hot from now on. An unknown handle is ignored."""
        if self.pools.note_query(handle, time.monotonic()):
            self.ask_at_once(handle)

    def set_handles(self, handles: Sequence[str]) -> None:
        """Follow these pools from now on (`Belief.set_pools()` has them already)."""
        self.pools.set_handles(handles, time.monotonic())
        if self._follower is not None:
            self._follower.ask_for_everything()
        self.look()

    def ask_at_once(self, handle: str) -> None:
        """Ask every registrar about the pool."""
        now = time.monotonic()
        for session in self._sessions:
            session.ask_at_once(handle, now)
        self._flush()

    async def listed(self, handles: Sequence[str]) -> dict[str, list[PoolElement]]:
        """Ask every registrar about pools that are not followed (yet). Unanswered questions tell nothing."""
        up = [client for client in self._clients if client.is_up]
        found: dict[str, dict[int, PoolElement]] = {handle: {} for handle in handles}
        for handle in handles:
            answers = await asyncio.gather(
                *(client.resolve(handle.encode()) for client in up), return_exceptions=True
            )
            for answer in answers:
                if isinstance(answer, Resolution):
                    found[handle] |= {element.identifier: element for element in answer.pool_elements}
        return {handle: list(elements.values()) for handle, elements in found.items()}

    def report_unreachable(self, handle: str, member: Member) -> None:
        """Tell the member's home registrar, or all where it is not known, that nobody reaches the member."""
        for index in self._sessions.homes_of(member.home_registrar):
            self._clients[index].report_unreachable(handle.encode(), member.identifier)

    def registrar_states(self) -> tuple[RegistrarView, ...]:
        """Every registrar as it is now."""
        return self._belief.registrar_states(time.monotonic())

    def look(self) -> None:
        """Something happened: look at the belief once all that happened at this moment is told."""
        if not self._looking and not self._is_closed:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    # What registrars tell

    def _on_link(self, index: int, up: bool) -> None:
        self._belief.link(index, up, time.monotonic())
        self._next_round()
        self.look()

    async def _resolve(self, index: int, handle: str) -> None:
        client, session, asked_at_s = self._clients[index], self._sessions[index], time.monotonic()
        try:
            resolution = await client.resolve(handle.encode())
        except ResolutionTimeout:
            self._belief.unanswered(index, asked_at_s, time.monotonic())
        except RSerPoolError as problem:
            session.not_asked(handle)
            if not isinstance(problem, RegistrarUnreachable):
                get_logger("follower").warning("cannot_ask", handle=handle, problem=str(problem))
            return
        else:
            session.round_trip_ms = client.round_trip_ms
            self._belief.answered(index, resolution)
        session.done(handle, time.monotonic())
        self._flush()
        self.look()

    def _told(self, index: int, event: FollowerEvent) -> None:
        """A registrar that is followed told something by itself."""
        session = self._sessions[index]
        match event:
            case Update():
                self._belief.updated(index, event)
            case Table():
                self._belief.table(index, event)
                if session.table():
                    get_logger("follower").info("followed", registrar=session.life.address)
            case Ended(reason):
                if session.ended(reason, time.monotonic()):
                    why = f"{reason}: it is asked instead"
                    get_logger("follower").info("not_followed", registrar=session.life.address, why=why)
                self._next_round()
        self.look()

    def _is_wanted(self, handle: bytes) -> bool:
        return pool_name(handle) in self.pools.handles

    # What is done about it

    def _look(self) -> None:
        self._looking = False
        if self._is_closed:
            return
        now = time.monotonic()
        views = self._belief.views(now, AT_ONCE)
        if events := self._belief.take_events():
            self._on_events(events)
        if views is not self._views:
            self._views = views
            self._on_change(views)
        # Only now: each question waits for the SCTP daemon's turn, and the change is urgent.
        self._note_joined()
        late = self._sessions.follow_up(self._belief.questions(now), now)
        self._flush()
        repeat_at_s = now + REPEAT_AFTER_S if late else None
        times_s = (self._belief.resume_at_s, self._belief.next_deadline_s, repeat_at_s)
        self._next_look.set(min((one for one in times_s if one is not None), default=float("inf")))

    def _next_round(self) -> None:
        """Have the sessions ask what is due."""
        if not self._is_closed:
            now = time.monotonic()
            self._note_joined()
            self._belief.advance(now)
            self._sessions.advance(now)
            self._flush()

    def _note_joined(self) -> None:
        """Tell the sessions whose handle table is on its way."""
        if self._follower is not None:
            for session in self._sessions:
                if self._follower.state(session.index) is FollowerState.JOINING:
                    session.move(Input.JOINED)

    def _flush(self) -> None:
        """Do what the sessions want."""
        if self._is_closed:
            return
        for session in self._sessions:
            for action in session.take_actions():
                self._do(session.index, action)
        self._rounds.set(self._sessions.next_deadline_s)

    def _do(self, index: int, action: Action) -> None:
        match action:
            case Ask(handle):
                question = asyncio.get_running_loop().create_task(self._resolve(index, handle))
                self._questions.add(question)
                question.add_done_callback(self._questions.discard)
            case Follow() if self._follower is not None:
                self._follower.follow(index)


class _Alarm:
    """Calls `ring` at one time: the latest that was set, in monotonic seconds; infinity for never."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._at_s = float("inf")
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at_s: float) -> None:
        if at_s == self._at_s:
            return
        self._at_s = at_s
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s < float("inf"):
            delay_s = max(at_s - time.monotonic(), SHORTEST_TIMER_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._timer, self._at_s = None, float("inf")
        self._ring()


def _log(events: Sequence[BeliefEvent]) -> None:
    log = get_logger("belief")
    for event in events:
        identifier = None if event.identifier is None else f"{event.identifier:08x}"
        log.info(event.kind, handle=event.handle, identifier=identifier, why=event.words)
