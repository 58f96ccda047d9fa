"""Handle resolutions: pipelined, timed out, and never misdated."""

import itertools

import pytest
from rserpool.errors import CauseCode, ErrorCause, RegistrarUnreachable, ResolutionTimeout
from rserpool.user import LinkInput, LinkState, RegistrarClientMachine, Resolution

from rserpool import asap
from rserpool import user as pool_user
from tests.rserpool.paper_registrars import ELEMENT, HANDLE, HOME, NOT_FOUND, JoinedUser


def resolution(handle: bytes = HANDLE) -> asap.HandleResolutionResponse:
    return asap.HandleResolutionResponse(handle, ELEMENT.policy, (ELEMENT,))


@pytest.fixture
def joined() -> JoinedUser:
    return JoinedUser().start()


def test_finds_the_members_with_the_time_of_the_question(joined: JoinedUser) -> None:
    joined.registrar.pools[HANDLE] = {ELEMENT.identifier: ELEMENT}
    joined.registrar.frozen = True
    asked_at_s = joined.now
    number = joined.ask()
    joined.run(0.02)
    joined.receive(*joined.registrar.thaw())
    answer = joined.answers[number]
    assert isinstance(answer, Resolution)
    assert answer.found
    assert [element.identifier for element in answer.pool_elements] == [ELEMENT.identifier]
    assert answer.policy == answer.pool_elements[0].policy
    assert answer.asked_at_s == asked_at_s
    assert answer.answered_at_s == pytest.approx(asked_at_s + 0.02)
    assert joined.user.round_trip_s == pytest.approx(0.02)


def test_asks_for_all_128_items(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    joined.ask()
    assert joined.registrar.unread == [asap.HandleResolution(HANDLE, 128)]


def test_a_message_of_another_association_answers_no_question(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    number = joined.ask()
    joined.user.received(joined.association + 1, resolution(), joined.now)
    joined.settle()
    assert number not in joined.answers
    assert joined.user.heard_at_s is None
    joined.receive(*joined.registrar.thaw())
    assert isinstance(joined.answers[number], Resolution)


def test_an_answered_question_does_not_time_out_later(joined: JoinedUser) -> None:
    joined.registrar.pools[HANDLE] = {ELEMENT.identifier: ELEMENT}
    number = joined.ask()
    joined.run(10)
    assert isinstance(joined.answers[number], Resolution)
    assert len(joined.connects) == 1


def test_no_such_pool_finds_nobody_whatever_else_the_answer_holds(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    number = joined.ask()
    joined.receive(asap.HandleResolutionResponse(HANDLE, ELEMENT.policy, (ELEMENT,), error=(NOT_FOUND,)))
    answer = joined.answers[number]
    assert isinstance(answer, Resolution)
    assert (answer.found, answer.policy, answer.pool_elements) == (False, None, ())


def test_nothing_is_reported_without_an_association() -> None:
    unconnected = RegistrarClientMachine(HOME)
    unconnected.report_unreachable(HANDLE, ELEMENT.identifier)
    assert unconnected.take_actions() == []


def test_no_such_pool_is_an_answer(joined: JoinedUser) -> None:
    answer = joined.answers[joined.ask()]
    assert isinstance(answer, Resolution)
    assert not answer.found
    assert answer.pool_elements == ()


def test_a_refusal_for_another_reason_is_not_absence(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    number = joined.ask()
    joined.receive(asap.HandleResolutionResponse(HANDLE, error=(ErrorCause(CauseCode.LACK_OF_RESOURCES),)))
    answer = joined.answers[number]
    assert isinstance(answer, ResolutionTimeout)
    assert "out of resources" in str(answer)


def test_many_questions_at_once_each_get_their_answer(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    numbers = {}
    for i in range(20):
        numbers[joined.ask(b"pool-%d" % (i % 4))] = b"pool-%d" % (i % 4)
    joined.receive(*joined.registrar.thaw())
    got = {
        number: answer.handle for number, answer in joined.answers.items() if isinstance(answer, Resolution)
    }
    assert got == numbers


def test_a_question_times_out(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    number = joined.ask()
    joined.run(0.29)
    assert number not in joined.answers
    joined.run(0.02)
    assert isinstance(joined.answers[number], ResolutionTimeout)


def test_a_late_reply_never_answers_a_newer_question(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    old = joined.ask()
    joined.run(0.4)
    assert isinstance(joined.answers[old], ResolutionTimeout)
    new = joined.ask()
    joined.receive(resolution())
    assert new not in joined.answers, "the reply to the old question was taken for the new one's"
    joined.receive(asap.HandleResolutionResponse(HANDLE, error=(NOT_FOUND,)))
    answer = joined.answers[new]
    assert isinstance(answer, Resolution)
    assert not answer.found
    assert answer.asked_at_s == pytest.approx(100.4)
    assert isinstance(joined.answers[old], ResolutionTimeout)


def test_asked_at_is_never_after_the_true_question_even_when_a_reply_is_missing(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    true_asked_at_s: list[float] = []
    numbers = []
    for _ in range(6):
        true_asked_at_s.append(joined.now)
        numbers.append(joined.ask())
        joined.run(0.1)
    # The reply to the first question never comes. Those to the others do, in order.
    for asked_at_s in true_asked_at_s[1:]:
        before = set(joined.answers)
        joined.receive(resolution())
        for number in set(joined.answers) - before:
            answer = joined.answers[number]
            assert isinstance(answer, Resolution)
            assert answer.asked_at_s <= asked_at_s


def test_a_missing_reply_is_overcome_by_a_new_association(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    joined.ask()
    joined.registrar.unread.clear()
    joined.registrar.frozen = False
    joined.run(pool_user.RESET_AFTER_S + 0.2)
    assert len(joined.connects) == 2
    assert isinstance(joined.answers[joined.ask()], Resolution)


def test_duplicate_and_foreign_replies_are_ignored(joined: JoinedUser) -> None:
    answer = joined.answers[joined.ask()]
    joined.receive(resolution(), resolution(b"never-asked"), asap.ServerAnnounce(1))
    assert joined.answers == {1: answer}


def test_losing_the_registrar_fails_what_is_unanswered_at_once(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    number = joined.ask()
    joined.lose()
    joined.settle()
    assert isinstance(joined.answers[number], RegistrarUnreachable)
    with pytest.raises(RegistrarUnreachable):
        joined.ask()


def test_a_reply_does_not_outlive_its_association(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    joined.ask()
    joined.lose()
    joined.run(0.2)
    new = joined.ask()
    joined.receive(resolution())
    answer = joined.answers[new]
    assert isinstance(answer, Resolution)
    assert answer.asked_at_s == pytest.approx(100.2)


def test_connects_again_with_growing_pauses_up_to_a_second() -> None:
    joined = JoinedUser()
    joined.registrar.dead = True
    joined.run(10)
    pauses = [later - earlier for earlier, later in itertools.pairwise(joined.connects)]
    assert pauses[:4] == [pytest.approx(each) for each in (0.1, 0.2, 0.4, 0.8)]
    assert pauses[4:] == [pytest.approx(1.0)] * len(pauses[4:])
    joined.registrar.dead = False
    joined.run(1)
    assert joined.user.state is LinkState.UP
    joined.lose()
    joined.run(0.11)
    assert joined.user.state is LinkState.UP, "a success starts the pauses anew"


def test_tells_when_the_association_comes_and_goes_and_why(joined: JoinedUser) -> None:
    assert joined.links == [True]
    assert joined.user.problem is None
    joined.user.lost(99, joined.now)
    joined.settle()
    assert joined.links == [True], "another association is none of its business"
    joined.user.lost(joined.association, joined.now, "the association broke")
    joined.settle()
    assert joined.links == [True, False]
    with pytest.raises(RegistrarUnreachable, match="the association broke"):
        joined.ask()


def test_gives_up_a_connection_that_hangs() -> None:
    joined = JoinedUser()
    joined.hangs = True
    joined.run(pool_user.CONNECT_TIMEOUT_S + 0.15)
    assert len(joined.connects) == 2
    assert len(joined.disconnects) == 1


def test_too_many_unanswered_questions_are_refused(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    for _ in range(pool_user.MAX_UNANSWERED):
        joined.ask()
    with pytest.raises(RegistrarUnreachable, match="unanswered"):
        joined.ask()


def test_reports_an_unreachable_element(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    joined.user.report_unreachable(HANDLE, 0xA001)
    joined.settle()
    assert joined.registrar.unread == [asap.EndpointUnreachable(HANDLE, 0xA001)]


def test_closed_is_closed(joined: JoinedUser) -> None:
    joined.registrar.frozen = True
    number = joined.ask()
    joined.user.close()
    joined.settle()
    assert isinstance(joined.answers[number], RegistrarUnreachable)
    assert joined.disconnects == [joined.now]
    joined.user.close()
    joined.user.associated(1, HOME, joined.now)
    joined.lose()
    joined.receive(resolution())
    joined.run(10)
    assert joined.user.state is LinkState.CLOSED
    assert joined.connects == [100.0]


def in_state(state: LinkState) -> RegistrarClientMachine:
    user = RegistrarClientMachine(HOME)
    if state is LinkState.CLOSED:
        user.close()
    elif state is not LinkState.DOWN:
        user.advance(0.0)
        if state is LinkState.UP:
            user.associated(1, HOME, 0.0)
    user.take_actions()
    assert user.state is state
    return user


@pytest.mark.parametrize("what", LinkInput)
@pytest.mark.parametrize("state", LinkState)
def test_the_table_holds(state: LinkState, what: LinkInput) -> None:
    """Every input in every state: either the table's transition, or nothing happens at all."""
    user = in_state(state)
    if what is LinkInput.CONNECT:
        user.advance(0.0)
    else:
        {
            LinkInput.ASSOCIATED: lambda: user.associated(1, HOME, 0.0),
            LinkInput.LOST: lambda: user.lost(1, 0.0),
            LinkInput.CLOSE: user.close,
        }[what]()
    expected = pool_user.TRANSITIONS[state].get(what)
    assert user.state is (expected or state)
    if expected is None:
        assert user.take_actions() == []


def test_a_link_that_never_was_up_is_not_told_to_be_down() -> None:
    joined = JoinedUser()
    joined.registrar.dead = True
    joined.start()
    joined.run(3)
    assert len(joined.connects) > 2
    assert joined.links == []
