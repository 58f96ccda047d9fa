"""The session with one registrar, and when registrars are followed: the first handle table is taken alone."""

import pytest
from pool_user.registrars.polling import HotPools, Intervals
from pool_user.registrars.session import (
    ASK_FOLLOWED_AFTER_S,
    FIRST_CONNECTED_S,
    FIRST_TABLE_S,
    SENTINEL_FIRST_S,
    TRANSITIONS,
    Ask,
    Follow,
    RegistrarSession,
    RegistrarSessions,
    SessionInput,
    SessionState,
)
from pool_user.registrars.standing import Standing

from tests.pool_user.belief_support import POOL, R2, R3, Play

START_S = 10.0
ASKED, HELD, CALLED = SessionState.ASKED, SessionState.HELD, SessionState.CALLED
TELLING, FOLLOWED = SessionState.TELLING, SessionState.FOLLOWED
INTERVALS = Intervals(0.05, 60.0, 10.0)
ADDRESSES = ("10.9.0.1", "10.9.0.2", "10.9.0.3")


class Scene:
    """Three registrars, all settled at START_S."""

    def __init__(self) -> None:
        pools = HotPools((POOL,), INTERVALS, START_S)
        self.sessions = RegistrarSessions(ADDRESSES, lambda event: None)
        self.sessions.plan(pools, INTERVALS, is_to_follow=True)
        for session in self.sessions:
            session.link(True, START_S)
            session.standing = Standing.SETTLED

    def look(self, later_s: float) -> list[SessionState]:
        self.sessions.follow_settled(START_S + later_s)
        return [session.state for session in self.sessions]


def test_the_others_wait_for_the_first_handle_table() -> None:
    scene = Scene()
    assert scene.look(0.0) == [CALLED, HELD, HELD]
    assert [session.take_actions() for session in scene.sessions] == [[Follow()], [], []]
    scene.sessions[0].move(SessionInput.JOINED)
    assert scene.look(1.0) == [TELLING, HELD, HELD]
    assert all(session.is_about_to_tell for session in scene.sessions), (
        "they are not asked one by one meanwhile"
    )
    scene.sessions[0].table()
    assert scene.look(1.5) == [FOLLOWED, CALLED, CALLED]
    assert not any(session.is_about_to_tell for session in scene.sessions)


@pytest.mark.parametrize(("state", "at_most_s"), [(CALLED, FIRST_CONNECTED_S), (TELLING, FIRST_TABLE_S)])
def test_the_others_do_not_wait_for_the_first_handle_table_for_long(
    state: SessionState, at_most_s: float
) -> None:
    scene = Scene()
    scene.look(0.0)
    if state is TELLING:
        scene.sessions[0].move(SessionInput.JOINED)
    assert scene.look(at_most_s - 0.01) == [state, HELD, HELD]
    assert scene.look(at_most_s) == [state, CALLED, CALLED]


def test_the_others_do_not_wait_for_a_registrar_that_failed() -> None:
    scene = Scene()
    scene.look(0.0)
    scene.sessions[0].ended("no answer, or refused", START_S)
    assert scene.look(0.01) == [CALLED] * 3


def test_a_registrar_that_is_not_settled_any_more_does_not_wait() -> None:
    scene = Scene()
    scene.look(0.0)
    scene.sessions[1].standing = Standing.WAKING
    assert scene.look(0.01) == [CALLED, ASKED, HELD]


def test_registrars_that_are_only_asked_are_never_followed() -> None:
    pools = HotPools((POOL,), INTERVALS, START_S)
    sessions = RegistrarSessions(ADDRESSES, lambda event: None)
    sessions.plan(pools, INTERVALS, is_to_follow=False)
    for session in sessions:
        session.standing = Standing.SETTLED
    sessions.follow_settled(START_S)
    assert [session.state for session in sessions] == [ASKED] * 3


def single_session(*, is_to_follow: bool = False) -> RegistrarSession:
    session = RegistrarSession(0, ADDRESSES[0])
    session.plan(HotPools((POOL,), INTERVALS, START_S), INTERVALS, is_to_follow=is_to_follow)
    session.standing = Standing.SETTLED
    return session


def asked(session: RegistrarSession, now: float) -> list[str]:
    session.advance(now, awaits_sentinels=False)
    return [action.handle for action in session.take_actions() if isinstance(action, Ask)]


def test_rounds_begin_and_end_with_the_association() -> None:
    session = single_session()
    assert session.next_deadline_s == float("inf")
    session.link(True, START_S)
    assert asked(session, START_S) == ["rspdns-sentinel-1", POOL]
    assert session.next_deadline_s == START_S + INTERVALS.hot_s
    session.link(False, START_S + 0.01)
    assert session.next_deadline_s == float("inf")
    assert session.ask_at_once(POOL, START_S + 0.02)
    assert session.take_actions() == [], "nobody is there to be asked"


def test_a_silent_registrar_is_asked_about_its_sentinel_alone() -> None:
    session = single_session()
    session.standing = Standing.SILENT
    session.link(True, START_S)
    assert asked(session, START_S) == ["rspdns-sentinel-1"]


def test_a_registrar_that_is_to_be_followed_is_asked_about_its_sentinel_first() -> None:
    session = single_session(is_to_follow=True)
    session.link(True, START_S)
    assert asked(session, START_S) == ["rspdns-sentinel-1"]
    session.done("rspdns-sentinel-1", START_S + 0.01)
    session.sentinels("rspdns-sentinel-1", (), START_S + 0.01)
    assert not session.awaits_sentinel
    assert POOL in asked(session, START_S + SENTINEL_FIRST_S + 0.01)


def test_a_followed_registrar_is_asked_about_a_change_later_and_at_once_when_that_ends() -> None:
    session = single_session()
    session.link(True, START_S)
    for handle in asked(session, START_S):
        session.done(handle, START_S + 0.01)
    session.follow()
    assert session.table()
    assert not session.table(), "a second table is no news"
    asked(session, START_S + INTERVALS.hot_s)
    session.ask_after_change(POOL, START_S + 0.1)
    assert asked(session, START_S + 0.1) == []
    assert session.next_deadline_s == START_S + 0.1 + ASK_FOLLOWED_AFTER_S
    assert asked(session, START_S + 0.1 + ASK_FOLLOWED_AFTER_S) == [POOL]
    assert session.ended("silent for 6 s", START_S + 0.2)
    assert (session.state, session.problem) == (ASKED, "silent for 6 s")
    assert session.next_deadline_s == START_S + 0.2


def test_a_question_wanted_again_meanwhile_is_asked_when_the_first_is_answered() -> None:
    session = single_session()
    session.link(True, START_S)
    asked(session, START_S)
    assert session.ask_at_once(POOL, START_S + 0.01), "one is under way"
    assert session.take_actions() == []
    session.done(POOL, START_S + 0.02)
    assert session.take_actions() == [Ask(POOL)]


@pytest.mark.parametrize("state", SessionState)
@pytest.mark.parametrize("what", SessionInput)
def test_an_input_that_the_session_table_does_not_hold_changes_nothing(
    state: SessionState, what: SessionInput
) -> None:
    session = single_session()
    session.state = state
    target = TRANSITIONS[state].get(what)
    assert session.move(what) is (target is not None)
    assert session.state is (target or state)


def test_an_unreachable_member_is_reported_to_its_home_and_to_all_where_that_is_not_known() -> None:
    play = Play()
    play.settle(0, 1)
    assert play.belief.sessions.homes_of(R2) == [1]
    assert play.belief.sessions.homes_of(R3) == [0, 1], "the third is not connected"
