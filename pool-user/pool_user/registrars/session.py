"""The session with one registrar: connected or not, how far believed, followed or asked, and what. Sans-IO.

A session takes what happens, with `now` (monotonic seconds, never decreasing), and gives actions: questions
to ask, and to follow the registrar as a passive ENRP peer. The I/O is `pool_user.user`'s. How a registrar's
standing comes about is told in `standing`, when it is asked about which pool in `polling`.

A registrar is followed from the moment in which it is settled: one that is starting must not hear of us first
(`rserpool.follower` says why). `RegistrarSessions` decides what concerns several:

- No two registrars have the same identifier. `SettledRegistrars` says whose word counts.

- The first handle table is taken from one registrar alone: those of the others tell little more, and side by
  side all come late.
- Of a registrar that is to be followed its sentinel is asked first, alone: once it is settled it tells all.
- A change found at one registrar makes the others be asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pool_user.cause import Cause, Code
from pool_user.registrars.polling import HotPools, Intervals, Round
from pool_user.registrars.standing import (
    RegistrarLife,
    RegistrarView,
    SettledRegistrars,
    Standing,
    identify_all,
    settled_registrars,
)
from pool_user.views import BeliefEvent
from rserpool import PoolElement, sentinel_handle

SENTINEL_FIRST_S, SENTINEL_AWAITED_S = 0.25, 1.0
"""How long a registrar that is to be followed is asked about its sentinel alone; and how long at most while
another registrar has not answered that yet. None is settled before."""
FIRST_CONNECTED_S, FIRST_TABLE_S = 0.25, 2.0
"""How long the other registrars wait, at most, for the association with the first one, and for its handle
table."""
ASKED_FOR_S = 10.0
"""How long a registrar that answers, but is not settled any more, still has a word when a crowd leaves."""
ASK_FOLLOWED_AFTER_S = 0.02
"""How much later than the others a registrar that pushes its changes is asked about a change."""
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


class SessionInput(Enum):
    """The inputs that move a session from one state to another."""

    HOLD = "hold"
    RELEASE = "release"
    """It does not wait any more, but is not to be followed either: it is not settled."""
    FOLLOW = "follow"
    JOINED = "joined"
    """The association is there, the handle table asked for."""
    TABLE = "table"
    ENDED = "ended"


TRANSITIONS: Mapping[SessionState, Mapping[SessionInput, SessionState]] = {
    SessionState.ASKED: {SessionInput.HOLD: SessionState.HELD, SessionInput.FOLLOW: SessionState.CALLED},
    SessionState.HELD: {SessionInput.RELEASE: SessionState.ASKED, SessionInput.FOLLOW: SessionState.CALLED},
    SessionState.CALLED: {
        SessionInput.JOINED: SessionState.TELLING,
        SessionInput.TABLE: SessionState.FOLLOWED,
        SessionInput.ENDED: SessionState.ASKED,
    },
    SessionState.TELLING: {SessionInput.TABLE: SessionState.FOLLOWED, SessionInput.ENDED: SessionState.ASKED},
    SessionState.FOLLOWED: {SessionInput.ENDED: SessionState.ASKED},
}
"""An input that is not in here changes nothing."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the registrar about a pool; `done` or `not_asked` is told about each question."""

    handle: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow the registrar from now on; what comes of it is told by `joined`, `table` and `ended`."""


Action = Ask | Follow


@dataclass(frozen=True, slots=True)
class RegistrarQuestion:
    """An answer the belief waits for: it should be asked at once."""

    index: int
    """The index of the registrar that is to answer."""
    handle: str


class RegistrarSession:
    """The session with the registrar at `address`, whose index in the configuration, from 0, is `index`.

    `on_news` is called when its standing may have become another one.
    """

    def __init__(self, index: int, address: str, on_news: Callable[[], None] = lambda: None) -> None:
        self.index = index
        self.life = RegistrarLife(index + 1, address)
        self.standing = Standing.DOWN
        self.identifier: int | None = None
        self.settled_s = float("-inf")
        """When it ceased to be settled."""
        self.standing_since_s: float | None = None
        """Standing and identifier are those of the last `RegistrarSessions.update()`."""
        self.state = SessionState.ASKED
        self.problem = ""
        """Why it is not followed; empty while it is, and before it was to be."""
        self.round_trip_ms: float | None = None
        """From question to answer; set by the owner."""
        self.awaits_sentinel = False
        """Whether it is connected, and has not told yet who its sentinel is."""
        self._on_news = on_news
        self._sentinel = sentinel_handle(index + 1)
        self._link_s = self._round_at_s = float("inf")
        self._later: deque[tuple[float, str]] = deque()
        """Questions for later, in the order of their times."""
        self._actions: list[Action] = []
        self.plan(HotPools(), Intervals(), is_to_follow=False)

    def plan(self, pools: HotPools, intervals: Intervals, *, is_to_follow: bool) -> None:
        """Ask about these pools from now on; `is_to_follow`: only until it is settled and followed."""
        self._pools = pools
        self._round = Round(self._sentinel, intervals)
        self._is_to_follow = is_to_follow

    @property
    def is_up(self) -> bool:
        """Whether there is an association for questions."""
        return self.life.link_up

    @property
    def view(self) -> RegistrarView:
        """All that people want to know of it."""
        return RegistrarView(
            self.life.number,
            self.life.address,
            self.standing,
            self.identifier,
            self.standing_since_s,
            round_trip_ms=self.round_trip_ms,
            problem=self.life.problem,
            doubt=self.life.doubt,
            follow="enrp" if self.is_followed else "poll",
            follow_problem=self.problem,
        )

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

    # Answers of the registrar, and its silence

    def link(self, up: bool, now: float) -> None:
        """The association for questions came up or was lost. Rounds of questions begin and end with it."""
        self.life.link(up, now)
        self._on_news()
        self.awaits_sentinel = up
        self._link_s = now
        self._round.forget()
        self._round_at_s = now if up else float("inf")

    def answered(self, now: float) -> None:
        """It answered something."""
        if self.life.answered(now):
            self._on_news()

    def unanswered(self, asked_at_s: float) -> None:
        """A question of `asked_at_s` was given up; by and by that makes it silent."""
        self.life.unanswered(asked_at_s)
        self._on_news()

    def sentinels(self, handle: str, elements: Sequence[PoolElement], now: float) -> bool:
        """It answered who is in a pool of sentinels; that of another tells nothing. Return whether its own
        pool holds now, and did not before, what should not be there."""
        if handle != self._sentinel:
            return False
        self.awaits_sentinel = False
        before = self.life.problem
        self.life.sentinels(elements, now)
        self._on_news()
        return bool(self.life.problem and not before)

    def take_standing(self, now: float) -> bool:
        """Have the standing of `now`. Return whether it, or the identifier, is another one than before."""
        standing = self.life.standing(now)
        if (standing, self.life.identifier) == (self.standing, self.identifier):
            return False
        if self.standing is Standing.SETTLED:
            self.settled_s = now
        self.standing, self.identifier, self.standing_since_s = standing, self.life.identifier, now
        return True

    def done(self, handle: str, now: float) -> None:
        """A question was answered, or given up."""
        if self._round.done(handle):
            self.ask_at_once(handle, now)

    def not_asked(self, handle: str) -> None:
        """A question could not be asked, or its association was lost."""
        self._round.done(handle)

    # State of the following

    def move(self, what: SessionInput) -> bool:
        """Return whether that changes anything."""
        target = TRANSITIONS[self.state].get(what)
        if target is None:
            return False
        self.state = target
        return True

    def follow(self) -> None:
        """Follow it from now on."""
        if self.move(SessionInput.FOLLOW):
            self._actions.append(Follow())

    def table(self) -> bool:
        """Its handle table is here. Return whether it is followed only now."""
        self.problem = ""
        return self.move(SessionInput.TABLE)

    def ended(self, reason: str, now: float) -> bool:
        """It is not followed any more, or could not be: it is asked often, at once if it was followed. Return
        whether that, or the reason, is news."""
        was_followed, is_news = self.is_followed, reason != self.problem
        self.problem = reason
        self.move(SessionInput.ENDED)
        if was_followed and self.is_up:
            self._round_at_s = now
        return is_news

    # Questions to the registrar

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

        A followed registrar tells it by itself: it is asked only to be sure, when PowerDNS has asked for
        the answers that were purged. One whose handle table is on its way is asked only what the belief
        waits for.
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
        trip_s = None if self.round_trip_ms is None else self.round_trip_ms / 1000
        interval_s = self._round.interval_s(len(self._pools.hot(now)), trip_s, followed=followed)
        is_first = self._is_to_follow and now < self._link_s + first_s
        sentinel_only = self.standing is Standing.SILENT or is_first
        due = self._round.due(self._pools, interval_s, sentinel_only, now, followed=followed)
        self._actions += map(Ask, due)
        self._round_at_s = now + interval_s


class RegistrarSessions:
    """The sessions with the registrars at these `addresses`, by index.

    `update()` brings their standings up to a time, and makes `settled_registrars` anew when one has changed.
    `tell` takes what happened.
    """

    def __init__(self, addresses: Sequence[str], tell: Callable[[BeliefEvent], None]) -> None:
        self.settled_registrars = SettledRegistrars()
        self.is_leaving = False
        """Whether nobody is to be followed any more."""
        self._sessions = [
            RegistrarSession(index, address, self._unsettle) for index, address in enumerate(addresses)
        ]
        self._tell = tell
        self._steady_until_s = float("-inf")
        """Until when no standing changes, unless something is told."""
        self._is_to_follow = False
        self._first: tuple[RegistrarSession, float] | None = None
        """The registrar that is followed first, and since when."""
        self._changed: dict[tuple[str, int], None] = {}
        """Pools in which something changed at the registrar with this index: the others are to be asked."""

    def plan(self, pools: HotPools, intervals: Intervals, *, is_to_follow: bool) -> None:
        """Ask about these pools from now on. `is_to_follow`: the settled registrars are followed, not only
        asked."""
        self._is_to_follow = is_to_follow
        for session in self._sessions:
            session.plan(pools, intervals, is_to_follow=is_to_follow)

    def __getitem__(self, index: int) -> RegistrarSession:
        return self._sessions[index]

    def __iter__(self) -> Iterator[RegistrarSession]:
        return iter(self._sessions)

    # How far they are believed

    def update(self, now: float) -> list[int] | None:
        """Bring the standings up to `now`. Return which registrars are settled anew, or under another
        identifier; None when no standing changed."""
        if now < self._steady_until_s:
            return None
        lives = [session.life for session in self._sessions]
        identify_all(lives, now)
        self._steady_until_s = min(life.steady_until_s(now) for life in lives)
        changed = [session for session in self._sessions if session.take_standing(now)]
        if not changed:
            return None
        for session in changed:
            identifier = f", identifier {session.identifier:08x}" if session.identifier is not None else ""
            self._tell_of(session, "registrar", now, Code.STANDING, session.standing.value + identifier)
        self.settled_registrars = settled_registrars(
            [(session.standing, session.identifier) for session in self._sessions],
            now,
            [session.index for session in self._sessions if now < session.settled_s + ASKED_FOR_S],
        )
        return [session.index for session in changed if session.standing is Standing.SETTLED]

    def sentinels(self, index: int, handle: str, elements: Sequence[PoolElement], now: float) -> None:
        """A registrar answered who is in a pool of sentinels."""
        session = self._sessions[index]
        if session.sentinels(handle, elements, now):
            self._tell_of(session, "misplaced", now, Code.MISPLACED, session.life.problem)

    def standing_deadline_s(self, now: float) -> float | None:
        """When time alone may change a standing."""
        times = (session.life.next_deadline_s(now) for session in self._sessions)
        return min((time_s for time_s in times if time_s is not None), default=None)

    def homes_of(self, identifier: int) -> list[int]:
        """The connected registrar with this identifier; all that are connected where it is not known."""
        up = [session for session in self._sessions if session.is_up]
        home = [session.index for session in up if session.identifier == identifier]
        return home or [session.index for session in up]

    def _unsettle(self) -> None:
        self._steady_until_s = float("-inf")

    def _tell_of(self, session: RegistrarSession, kind: str, now: float, code: Code, detail: str) -> None:
        number = session.life.number
        cause = Cause(code, registrar=f"{number} ({session.life.address})", detail=detail)
        self._tell(BeliefEvent(now, kind, "", number, cause))

    # Questions to all registrars

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
        if not self._is_to_follow or self.is_leaving:
            return
        not_followed = (SessionState.ASKED, SessionState.HELD)
        idle = [session for session in self._sessions if session.state in not_followed]
        settled = [session for session in idle if session.standing is Standing.SETTLED]
        if self._first is None and settled:
            self._first = settled.pop(0), now
            self._first[0].follow()
        is_first_alone = self._is_first_alone(now)
        for session in idle:
            if session not in settled:
                session.move(SessionInput.RELEASE)
            elif is_first_alone:
                session.move(SessionInput.HOLD)
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

    def note_changed(self, index: int, handles: Sequence[str]) -> None:
        """Something changed in these pools at a registrar: the others are asked with `follow_up`."""
        self._changed |= dict.fromkeys((handle, index) for handle in handles[:MOST_ASKED_AT_ONCE])

    def follow_up(self, questions: Sequence[RegistrarQuestion], now: float) -> bool:
        """The views went out: ask about what changed, follow who is settled, ask what the belief waits for.

        Return True when a question has to wait a moment, since the last one just went out.
        """
        self._ask_others(now)
        self.follow_settled(now)
        return self._ask_awaited(questions, now)

    def _ask_others(self, now: float) -> None:
        changed, self._changed = self._changed, {}
        for handle, index in changed:
            for session in self._sessions:
                if session.index != index:
                    session.ask_after_change(handle, now)

    def _ask_awaited(self, questions: Sequence[RegistrarQuestion], now: float) -> bool:
        wanted: Iterable[RegistrarQuestion] = questions
        if len(questions) > MOST_ASKED_AT_ONCE:  # a handle table tells sooner
            wanted = [
                question for question in questions if not self._sessions[question.index].is_about_to_tell
            ]
        late = False
        for question in wanted:
            late |= not self._sessions[question.index].ask_at_once(question.handle, now)
        return late
