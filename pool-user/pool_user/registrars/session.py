"""The session with one registrar: is it connected, does it push changes, what is it asked. Sans-IO.

A session takes what happens, with `now` (monotonic seconds, never decreasing), and gives actions: questions
to ask, and to follow the registrar as a passive ENRP peer. The I/O is the follower's, how far the registrar
is believed is the belief's (`Standing`), when to ask about which pool is `polling`'s.

A registrar is followed from the moment in which the belief takes it for settled: one that is starting must
not hear of us first (`rserpool.machine.follower` says why). `RegistrarSessions` decides what concerns
several:

- The first handle table is taken from one registrar alone: those of the others tell little more, and side by
  side all come late.
- Of a registrar that is to be followed its sentinel is asked first, alone: once it is settled it tells all.
- A change found at one registrar makes the others be asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pool_user.belief import Question, Standing
from pool_user.registrars.polling import HotPools, Intervals, Round
from rserpool import sentinel_handle

SENTINEL_FIRST_S, SENTINEL_AWAITED_S = 0.25, 1.0
"""So long a registrar that is to be followed is asked about its sentinel alone, and so long at most while one
of the registrars has not answered that yet: none is settled before."""
FIRST_CONNECTED_S, FIRST_TABLE_S = 0.25, 2.0
"""The other registrars wait so long for the association with the first one, and so long for its handle table,
at most."""
ASK_FOLLOWED_AFTER_S = 0.02
"""After a change, those who push changes themselves are asked about it so much later."""
MOST_ASKED_AT_ONCE = 100
"""Pools that change with one handle table and are asked about at once; the rest is left to the rounds."""


class SessionState(Enum):
    """How far a registrar pushes changes."""

    ASKED = "asked"
    """It pushes nothing: it is asked often."""
    HELD = "held"
    """It is settled, and waits until the first handle table is here."""
    CALLED = "called"
    """It is to be followed: an association is being set up, or waits for its time."""
    TELLING = "telling"
    """Its handle table is on its way."""
    FOLLOWED = "followed"
    """Its table is here, and it pushes every change."""


class Input(Enum):
    """What moves a session from one state to another."""

    HOLD = "hold"
    RELEASE = "release"
    """It does not wait any more, but is not to be followed either: it is not settled."""
    FOLLOW = "follow"
    JOINED = "joined"
    """The association is there, the handle table asked for."""
    TABLE = "table"
    ENDED = "ended"


TRANSITIONS: Mapping[SessionState, Mapping[Input, SessionState]] = {
    SessionState.ASKED: {Input.HOLD: SessionState.HELD, Input.FOLLOW: SessionState.CALLED},
    SessionState.HELD: {Input.RELEASE: SessionState.ASKED, Input.FOLLOW: SessionState.CALLED},
    SessionState.CALLED: {
        Input.JOINED: SessionState.TELLING,
        Input.TABLE: SessionState.FOLLOWED,
        Input.ENDED: SessionState.ASKED,
    },
    SessionState.TELLING: {Input.TABLE: SessionState.FOLLOWED, Input.ENDED: SessionState.ASKED},
    SessionState.FOLLOWED: {Input.ENDED: SessionState.ASKED},
}
"""What is not in here changes nothing."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the registrar about a pool; `answered`, `unanswered` or `not_asked` is told about each question."""

    handle: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow the registrar from now on; what comes of it is told by `joined`, `table` and `ended`."""


Action = Ask | Follow


class RegistrarSession:
    """The session with the registrar at `index`, counted from 0."""

    def __init__(self, index: int, pools: HotPools, intervals: Intervals, *, is_to_follow: bool) -> None:
        self.index = index
        self.state = SessionState.ASKED
        self.problem = ""
        """Why it is not followed; empty while it is, and before it was to be."""
        self.is_up = False
        """Whether there is an association for questions."""
        self.standing = Standing.DOWN
        """What the belief takes it for; set by the owner."""
        self.round_trip_s: float | None = None
        """From question to answer; set by the owner."""
        self.awaits_sentinel = False
        """Whether it is connected, and has not told yet who its sentinel is."""
        self._pools = pools
        self._is_to_follow = is_to_follow
        self._sentinel = sentinel_handle(index + 1)
        self._round = Round(self._sentinel, intervals)
        self._round_at_s = float("inf")
        self._link_s = float("-inf")
        self._later: deque[tuple[float, str]] = deque()
        """Questions for later, in the order of their times."""
        self._actions: list[Action] = []

    @property
    def is_followed(self) -> bool:
        """Whether it pushes changes."""
        return self.state is SessionState.FOLLOWED

    @property
    def is_about_to_tell(self) -> bool:
        """Whether its handle table is on its way, or will be after the first one: what that tells is not
        asked for one by one, which would only delay it."""
        return self.state in (SessionState.TELLING, SessionState.HELD)

    @property
    def next_deadline_s(self) -> float:
        """When `advance` has something to do; infinity: not before something else happens."""
        return min(self._round_at_s, self._later[0][0] if self._later else float("inf"))

    def take_actions(self) -> list[Action]:
        """Return what is to be done, in order, and forget it."""
        actions, self._actions = self._actions, []
        return actions

    # What happens to the association for questions

    def link(self, up: bool, now: float) -> None:
        """It came up or was lost. Rounds of questions begin and end with it."""
        self.is_up = self.awaits_sentinel = up
        self._link_s = now
        self._round.forget()
        self._round_at_s = now if up else float("inf")

    def answered(self, handle: str, now: float) -> None:
        """A question was answered."""
        self.awaits_sentinel = self.awaits_sentinel and handle != self._sentinel
        self._done(handle, now)

    def unanswered(self, handle: str, now: float) -> None:
        """A question was given up."""
        self._done(handle, now)

    def not_asked(self, handle: str) -> None:
        """A question could not be asked, or its association was lost."""
        self._round.done(handle)

    def _done(self, handle: str, now: float) -> None:
        if self._round.done(handle):
            self.ask_at_once(handle, now)

    # What happens to the following

    def move(self, what: Input) -> bool:
        """Return whether that changes anything."""
        target = TRANSITIONS[self.state].get(what)
        if target is None:
            return False
        self.state = target
        return True

    def follow(self) -> None:
        """Follow it from now on."""
        if self.move(Input.FOLLOW):
            self._actions.append(Follow())

    def table(self) -> bool:
        """Its handle table is here. Return whether it is followed only now."""
        self.problem = ""
        return self.move(Input.TABLE)

    def ended(self, reason: str, now: float) -> bool:
        """It is not followed any more, or could not be: it is asked often, at once if it was followed. Return
        whether that, or the reason, is news."""
        was_followed, is_news = self.is_followed, reason != self.problem
        self.problem = reason
        self.move(Input.ENDED)
        if was_followed and self.is_up:
            self._round_at_s = now
        return is_news

    # What it is asked

    def ask_at_once(self, handle: str, now: float) -> bool:
        """Return False when the last question just went out: the next has to wait a moment."""
        if not self.is_up:
            return True
        if self._round.may_ask(handle, now):
            self._round.asked(handle, now)
            self._actions.append(Ask(handle))
            return True
        return self._round.is_unanswered(handle)

    def ask_after_change(self, handle: str, now: float) -> None:
        """Ask about a pool in which something changed at another registrar.

        One that is followed tells it by itself: it is asked only to be sure, when PowerDNS has asked for the
        answers that were purged. One whose handle table is on its way is asked only what the belief waits
        for.
        """
        if self.is_followed:
            self._later.append((now + ASK_FOLLOWED_AFTER_S, handle))
        elif not self.is_about_to_tell:
            self.ask_at_once(handle, now)

    def advance(self, now: float, *, awaits_sentinels: bool) -> None:
        """Ask what is due. `awaits_sentinels`: one of the registrars has not told its sentinel yet."""
        while self._later and self._later[0][0] <= now:
            self.ask_at_once(self._later.popleft()[1], now)
        if now >= self._round_at_s:
            self._next_round(now, SENTINEL_AWAITED_S if awaits_sentinels else SENTINEL_FIRST_S)

    def _next_round(self, now: float, first_s: float) -> None:
        followed = self.is_followed or self.is_about_to_tell
        interval_s = self._round.interval_s(len(self._pools.hot(now)), self.round_trip_s, followed=followed)
        is_first = self._is_to_follow and now < self._link_s + first_s
        sentinel_only = self.standing is Standing.SILENT or is_first
        due = self._round.due(self._pools, interval_s, sentinel_only, now, followed=followed)
        self._actions += map(Ask, due)
        self._round_at_s = now + interval_s


class RegistrarSessions:
    """The sessions with all registrars, by index.

    `is_to_follow`: those that are settled are followed, not only asked.
    """

    def __init__(self, count: int, pools: HotPools, intervals: Intervals, *, is_to_follow: bool) -> None:
        self._sessions = [
            RegistrarSession(index, pools, intervals, is_to_follow=is_to_follow) for index in range(count)
        ]
        self._is_to_follow = is_to_follow
        self._first: tuple[RegistrarSession, float] | None = None
        """The registrar that is followed first, and since when."""

    def __getitem__(self, index: int) -> RegistrarSession:
        return self._sessions[index]

    def __iter__(self) -> Iterator[RegistrarSession]:
        return iter(self._sessions)

    @property
    def next_deadline_s(self) -> float:
        """When `advance` has something to do; infinity: not before something else happens."""
        return min((session.next_deadline_s for session in self._sessions), default=float("inf"))

    def advance(self, now: float) -> None:
        """Ask what is due."""
        awaits_sentinels = any(session.awaits_sentinel for session in self._sessions)
        for session in self._sessions:
            session.advance(now, awaits_sentinels=awaits_sentinels)

    def follow_settled(self, now: float) -> None:
        """Follow every registrar that is settled, the first of all alone at first."""
        if not self._is_to_follow:
            return
        idle = [one for one in self._sessions if one.state in (SessionState.ASKED, SessionState.HELD)]
        settled = [session for session in idle if session.standing is Standing.SETTLED]
        if self._first is None and settled:
            self._first = settled.pop(0), now
            self._first[0].follow()
        is_first_alone = self._is_first_alone(now)
        for session in idle:
            if session not in settled:
                session.move(Input.RELEASE)
            elif is_first_alone:
                session.move(Input.HOLD)
            else:
                session.follow()

    def _is_first_alone(self, now: float) -> bool:
        """Whether the first handle table of all is on its way."""
        if self._first is None:
            return False
        session, since_s = self._first
        match session.state:
            case SessionState.TELLING:
                return now < since_s + FIRST_TABLE_S
            case SessionState.CALLED:
                return now < since_s + FIRST_CONNECTED_S
        return False

    def ask_others(self, handle: str, index: int, now: float) -> None:
        """Something changed in a pool at the registrar with this index: ask the others about it."""
        for session in self._sessions:
            if session.index != index:
                session.ask_after_change(handle, now)

    def ask_awaited(self, questions: Sequence[Question], now: float) -> bool:
        """Ask what the belief waits for. Return True when a question has to wait a moment, since the last one
        just went out."""
        wanted: Iterable[Question] = questions
        if len(questions) > MOST_ASKED_AT_ONCE:  # a handle table tells sooner
            wanted = [one for one in questions if not self._sessions[one.registrar].is_about_to_tell]
        late = False
        for question in wanted:
            late |= not self._sessions[question.registrar].ask_at_once(question.handle, now)
        return late
