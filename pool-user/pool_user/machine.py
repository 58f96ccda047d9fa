"""`PoolUserMachine`: what is made of all that registrars tell, and what they are asked. No sockets, no clock.

It has the belief and the sessions with all registrars. Each input takes `now`, monotonic, in s. After inputs
`look` gives the pools' views; once these are used, `follow_up` has the sessions ask what a change calls for.
`take_actions` says what is to be done; `next_round_s` and `next_look_s` say when to come back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from pool_user.belief import AT_ONCE, Belief, pool_name
from pool_user.registrars.polling import REPEAT_AFTER_S, HotPools, Intervals
from pool_user.registrars.session import Action, Input
from pool_user.views import PoolView
from rserpool import Ended, FollowerEvent, Joined, PoolElement, Resolution, Table, Update


class PoolUserMachine:
    """The decisions of a `PoolUser` about the pools `handles`. Registrars are named by their index."""

    def __init__(
        self, handles: Iterable[str], belief: Belief, intervals: Intervals, now: float, *, is_to_follow: bool
    ) -> None:
        self.pools = HotPools(handles, intervals, now)
        self.belief = belief
        self.sessions = belief.sessions
        self.sessions.plan(self.pools, intervals, is_to_follow=is_to_follow)
        self.next_look_s: float | None = None
        """When `look` is to be called again, should nothing be told before; None: not before."""

    # Reports

    def link(self, index: int, up: bool, now: float) -> None:
        """The association with a registrar came up or was lost."""
        self.belief.link(index, up, now)
        self.advance(now)

    def answered(self, index: int, answer: Resolution, round_trip_ms: float | None, now: float) -> None:
        """A registrar answered a question."""
        self.sessions[index].round_trip_ms = round_trip_ms
        self.belief.answered(index, answer)
        self.sessions[index].done(pool_name(answer.handle), now)

    def unanswered(self, index: int, handle: str, asked_at_s: float, now: float) -> None:
        """A question of `asked_at_s` was given up."""
        self.belief.unanswered(index, asked_at_s, now)
        self.sessions[index].done(handle, now)

    def not_asked(self, index: int, handle: str) -> None:
        """A question could not be asked, or its association was lost."""
        self.sessions[index].not_asked(handle)

    def told(self, index: int, event: FollowerEvent, now: float) -> bool:
        """A registrar that is followed told something by itself. Return whether it is followed only now, or
        no longer for a reason that is news."""
        session = self.sessions[index]
        match event:
            case Update():
                self.belief.updated(index, event)
            case Joined():
                session.move(Input.JOINED)
            case Table():
                self.belief.table(index, event)
                return session.table()
            case Ended(reason):
                is_news = session.ended(reason, now)
                self.advance(now)
                return is_news
        return False

    def note_query(self, handle: str, now: float) -> bool:
        """Somebody looked the pool up: it is hot from now on. An unknown handle is ignored.

        Return whether that makes it be asked about.
        """
        if not self.pools.note_query(handle, now):
            return False
        self.ask_at_once(handle, now)
        return True

    def ask_at_once(self, handle: str, now: float) -> None:
        """Have every registrar asked about the pool."""
        for session in self.sessions:
            session.ask_at_once(handle, now)

    def is_wanted(self, handle: bytes) -> bool:
        """Whether the pool is one of those that are followed."""
        return pool_name(handle) in self.pools.handles

    # Results

    def look(self, now: float) -> Mapping[str, PoolView]:
        """Return every pool's view: the mapping of before when none has changed."""
        return self.belief.views(now, AT_ONCE)

    def follow_up(self, now: float) -> None:
        """The views of `look` are used: ask and follow what they call for, and say when to look again.

        Only then, since each question waits for the SCTP daemon's turn, and the change is urgent.
        """
        is_late = self.sessions.follow_up(self.belief.questions(now), now)
        times_s = (
            self.belief.resume_at_s,
            self.belief.next_deadline_s,
            now + REPEAT_AFTER_S if is_late else None,
        )
        self.next_look_s = min((one for one in times_s if one is not None), default=None)

    def advance(self, now: float) -> None:
        """Have the sessions ask what is due."""
        self.belief.advance(now)
        self.sessions.advance(now)

    @property
    def next_round_s(self) -> float | None:
        """When `advance` has something to do; None: not before something else happens."""
        deadline_s = self.sessions.next_deadline_s
        return deadline_s if math.isfinite(deadline_s) else None

    def take_actions(self) -> Iterator[tuple[int, Action]]:
        """Give, and forget, what is to be done, with the registrar to do it at."""
        for session in self.sessions:
            for action in session.take_actions():
                yield session.index, action


def merged(answers: Iterable[Resolution]) -> list[PoolElement]:
    """Return the PEs that registrars list of one pool, each PE once: as the last of these answers has it."""
    return list({element.identifier: element for one in answers for element in one.pool_elements}.values())
