"""When the follower asks whether a registrar lives, and gives it up: in time, at its own deadlines alone."""

from collections.abc import Callable

import pytest
from rserpool.enrp import EnrpMessage, HandleTableRequest, Presence
from rserpool.errors import Cause, CauseCode
from rserpool.machine.base import Connect, Send, Tell
from rserpool.machine.follower import (
    ASK_SILENT_AFTER_S,
    CONNECT_TIMEOUT_S,
    FORGOTTEN_AFTER_S,
    GIVE_UP_SILENT_AFTER_S,
    LEAVE_AT_MOST_S,
    PAGE_TIMEOUT_S,
    PRESENCE_S,
    RETRY_CEILING_S,
    RETRY_FIRST_S,
    Ended,
    State,
)
from rserpool.machine.registrar_choice import backoff_s

from rserpool import enrp
from tests.rserpool.paper_enrp import OTHER, OWN, REGISTRAR, Paper, page, pe, presence, update

EARLY_S = 1e-6


class Timed(Paper):
    """Wakes the machine only when it wants to be woken, and notes when it said what."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[float, EnrpMessage | str]] = []
        self.wakes = 0

    def do(self) -> None:
        for action in self.machine.take_actions():
            self.actions.append(action)
            if isinstance(action, Send):
                self.said.append((self.now, action.message))
            elif isinstance(action, Tell) and isinstance(action.event, Ended):
                self.said.append((self.now, action.event.reason))
            elif isinstance(action, Connect):
                self.said.append((self.now, "connect"))

    def run(self, seconds: float) -> None:
        """Let time pass, from deadline to deadline. A moment before each of them nothing must happen."""
        end_s = self.now + seconds
        while (deadline_s := self.machine.next_deadline_s) is not None and deadline_s <= end_s:
            assert deadline_s >= self.now
            before, state = len(self.said), self.state()
            if deadline_s - EARLY_S > self.now:
                self.now = deadline_s - EARLY_S
                self.machine.advance(self.now)
                self.do()
            assert (len(self.said), self.state()) == (before, state), "it acts before its deadline"
            self.now = deadline_s
            self.machine.advance(self.now)
            self.do()
            self.wakes += 1
            assert self.wakes < 1000, "it asks to be woken without end"
        self.now = end_s

    def times(self, fits: Callable[[EnrpMessage | str], bool]) -> list[float]:
        return [at_s for at_s, what in self.said if fits(what)]

    def asked(self) -> list[float]:
        """When it asked whether the registrar lives."""
        return self.times(lambda what: isinstance(what, Presence) and what.reply_required)

    def ended(self) -> list[float]:
        return self.times(lambda what: isinstance(what, str) and what != "connect")

    def whole_tables(self) -> list[float]:
        return self.times(lambda what: isinstance(what, HandleTableRequest) and not what.own_children_only)


@pytest.fixture
def joined() -> Timed:
    timed = Timed()
    timed.join()
    timed.said.clear()
    return timed


def fitting(timed: Timed) -> Presence:
    """A presence whose checksum fits what is known."""
    return presence(timed.ownership.checksum(REGISTRAR))


def fitting_question(timed: Timed) -> Presence:
    return presence(timed.ownership.checksum(REGISTRAR), asks=True)


def test_silence_is_asked_after_at_its_time_and_given_up_at_its_time(joined: Timed) -> None:
    heard_s = joined.now
    joined.run(20)
    assert joined.asked() == [heard_s + ASK_SILENT_AFTER_S]
    assert joined.ended() == [heard_s + GIVE_UP_SILENT_AFTER_S]
    assert joined.machine.problem == "silent for 6 s"


@pytest.mark.parametrize(
    "message",
    [fitting, fitting_question, update(pe(1)), page(), enrp.TakeoverServer(REGISTRAR, OWN, OTHER)],
    ids=["presence", "asking presence", "update", "table", "takeover"],
)
def test_whatever_it_says_breaks_its_silence(
    joined: Timed, message: EnrpMessage | Callable[[Timed], EnrpMessage]
) -> None:
    message = message(joined) if callable(message) else message
    joined.run(ASK_SILENT_AFTER_S - 0.1)
    joined.hear(message)
    heard_s = joined.now
    joined.run(ASK_SILENT_AFTER_S - EARLY_S)
    assert joined.asked() == []
    joined.run(GIVE_UP_SILENT_AFTER_S - ASK_SILENT_AFTER_S - 0.1)
    assert joined.asked() == [heard_s + ASK_SILENT_AFTER_S]
    joined.hear(message)
    answered_s = joined.now
    joined.run(GIVE_UP_SILENT_AFTER_S - 0.01)
    assert joined.ended() == []
    assert joined.asked()[1:] == [answered_s + ASK_SILENT_AFTER_S], "each silence is asked after once"
    joined.run(1)
    assert joined.ended() == [answered_s + GIVE_UP_SILENT_AFTER_S]


def test_an_error_breaks_no_silence(joined: Timed) -> None:
    heard_s = joined.now
    joined.run(3)
    joined.hear(enrp.EnrpError(REGISTRAR, OWN, (Cause(CauseCode.UNKNOWN_POOL_HANDLE),)))
    joined.run(20)
    assert joined.asked() == [heard_s + ASK_SILENT_AFTER_S]


def test_who_slept_through_the_silence_asks_before_it_gives_up(joined: Timed) -> None:
    joined.now += 10
    joined.machine.advance(joined.now)
    joined.do()
    assert joined.state() is State.FOLLOWING
    assert joined.asked() == [joined.now]
    joined.machine.advance(joined.now)
    joined.do()
    assert joined.ended() == [joined.now]


def test_a_follower_is_silent_for_no_longer_than_registrars_bear(joined: Timed) -> None:
    began_s = joined.now
    for _ in range(10):
        joined.run(1)
        joined.hear(fitting(joined))
    told = joined.times(lambda what: isinstance(what, Presence))
    assert told == pytest.approx([began_s + PRESENCE_S * number for number in range(1, len(told) + 1)])
    assert len(told) == int(10 / PRESENCE_S)
    assert joined.whole_tables() == []


@pytest.mark.parametrize(("away_s", "asks"), [(FORGOTTEN_AFTER_S - 0.01, 0), (FORGOTTEN_AFTER_S, 1)])
def test_a_long_absence_of_its_own_makes_a_follower_ask_for_everything(
    joined: Timed, away_s: float, asks: int
) -> None:
    joined.now += away_s
    joined.machine.advance(joined.now)
    joined.do()
    assert len(joined.times(lambda what: isinstance(what, Presence))) == 1
    assert len(joined.whole_tables()) == asks


def test_each_page_of_a_table_may_take_its_time_and_no_more() -> None:
    timed = Timed()
    timed.follow()
    timed.associate()
    for number in range(5):
        timed.run(PAGE_TIMEOUT_S - 0.1)
        timed.hear(page(pe(number), more=True))
    asked_s = timed.now
    timed.run(PAGE_TIMEOUT_S + 1)
    assert timed.ended() == [asked_s + PAGE_TIMEOUT_S]
    assert timed.machine.problem == "it does not give its handle table"


def test_a_registrar_that_answers_no_connection_is_tried_ever_more_seldom() -> None:
    timed = Timed()
    began_s = timed.now
    expected_s = began_s
    for failures in range(1, 10):
        timed.follow()
        timed.run(max(0.0, (timed.machine.next_deadline_s or 0) - timed.now) + CONNECT_TIMEOUT_S + 1)
        assert timed.times(lambda what: what == "connect")[-1] == pytest.approx(expected_s)
        assert timed.ended()[-1] == pytest.approx(expected_s + CONNECT_TIMEOUT_S)
        pause_s = backoff_s(failures, RETRY_FIRST_S, RETRY_CEILING_S)
        expected_s = max(timed.now, expected_s + CONNECT_TIMEOUT_S + pause_s)
    assert timed.machine.problem == "it does not answer"
    assert timed.state() is State.IDLE
    assert timed.machine.next_deadline_s is None


def test_a_table_ends_the_growth_of_the_pauses() -> None:
    timed = Timed()
    for _ in range(4):
        timed.follow()
        timed.run(60)
    timed.join()
    timed.lose()
    timed.follow()
    assert timed.machine.next_deadline_s == timed.now + RETRY_FIRST_S


def test_leaving_lasts_until_the_registrar_has_forgotten_it(joined: Timed) -> None:
    joined.run(0.5)
    told_s = joined.now - 0.5  # its last presence, with the table
    joined.machine.leave(joined.now)
    joined.run(0.7)
    joined.hear(presence(asks=True))
    asked_s = joined.now
    # The registrar waits as long again as it has waited before it asked, and a quarter.
    ends_s = asked_s + 0.1 + 1.25 * (asked_s - told_s)
    assert joined.machine.next_deadline_s == pytest.approx(ends_s)
    joined.run(0.1)
    joined.hear(presence(asks=True))
    assert joined.machine.next_deadline_s == pytest.approx(ends_s), "asked again it stays no longer"
    joined.run(5)
    assert joined.state() is State.LEFT


def test_leaving_lasts_no_longer_than_this_when_nobody_asks(joined: Timed) -> None:
    joined.machine.leave(joined.now)
    left_s = joined.now
    joined.hear(presence())
    assert joined.machine.next_deadline_s == left_s + LEAVE_AT_MOST_S
    joined.run(LEAVE_AT_MOST_S - EARLY_S)
    assert joined.state() is State.LEAVING
    joined.run(1)
    assert joined.state() is State.LEFT


def test_everything_that_is_asked_for_twice_is_asked_for_after_the_table_that_comes(joined: Timed) -> None:
    joined.machine.ask_for_everything(joined.now)
    joined.machine.ask_for_everything(joined.now)
    joined.do()
    assert len(joined.whole_tables()) == 1
    joined.hear(page(pe(1)))
    assert len(joined.whole_tables()) == 2
    joined.hear(page(pe(1)))
    assert len(joined.whole_tables()) == 2


def test_a_registrar_that_is_not_followed_is_asked_for_nothing() -> None:
    timed = Timed()
    timed.machine.ask_for_everything(timed.now)
    timed.do()
    assert timed.said == []


def test_a_failure_of_another_association_or_of_no_attempt_changes_nothing(joined: Timed) -> None:
    joined.machine.lost(99, joined.now)
    joined.machine.connect_failed(joined.now, "refused")
    joined.do()
    assert joined.state() is State.FOLLOWING
    assert joined.ended() == []


def test_while_it_leaves_it_asks_for_nothing_and_only_questions_count(joined: Timed) -> None:
    joined.machine.leave(joined.now)
    left_s = joined.now
    joined.machine.ask_for_everything(joined.now)
    joined.do()
    joined.run(1)
    for message in (update(pe(7)), page(pe(1)), fitting(joined)):
        joined.hear(message)
    assert joined.said == []
    assert joined.machine.next_deadline_s == left_s + LEAVE_AT_MOST_S
