"""Following a registrar as a passive peer: what it says, believes, never does; silence."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rserpool.enrp import (
    EnrpMessage,
    HandleTableRequest,
    HandleTableResponse,
    InitTakeover,
    InitTakeoverAck,
    ListRequest,
    ListResponse,
    Presence,
    TakeoverServer,
    UpdateAction,
)
from rserpool.errors import CauseCode, ErrorCause
from rserpool.follower import (
    ASK_SILENT_AFTER_S,
    CONNECT_TIMEOUT_S,
    FORGOTTEN_AFTER_S,
    GIVE_UP_SILENT_AFTER_S,
    LEAVE_AT_MOST_S,
    MAX_POOL_ELEMENTS,
    NO_ELEMENTS,
    PAGE_TIMEOUT_S,
    PRESENCE_S,
    RETRY_CEILING_S,
    RETRY_FIRST_S,
    TRANSITIONS,
    Ended,
    FollowerInput,
    FollowerState,
    Joined,
    Ownership,
    Table,
    Update,
    element_sum,
    finish,
    reply_to,
)
from rserpool.machine.base import Close, Connect, Send
from rserpool.machine.registrar_choice import backoff_s

from rserpool import enrp
from tests.rserpool.paper_enrp import (
    ENDPOINT,
    HANDLE,
    OTHER,
    OWN,
    REGISTRAR,
    TRANSPORT,
    Paper,
    page,
    pe,
    presence,
    update,
)
from tests.rserpool.strategies import any_enrp


def test_a_follower_joins_and_hears_of_everything() -> None:
    paper = Paper()
    paper.follow()
    assert paper.actions == [Connect(ENDPOINT)]
    paper.associate()
    assert [type(message).__name__ for message in paper.sent] == ["Presence", "HandleTableRequest"]
    (hello,) = paper.presences()
    assert (hello.sender, hello.checksum) == (OWN, NO_ELEMENTS)
    assert hello.server is not None
    assert hello.server.transport == TRANSPORT, "where the registrar reaches us"
    asked_s = paper.now
    paper.hear(page(pe(1), more=True))
    paper.wait(0.1)
    paper.hear(page(pe(2, OTHER)))
    assert paper.events == [
        Joined(),
        Table(REGISTRAR, {HANDLE: (pe(1), pe(2, OTHER))}, False, asked_s, paper.now),
    ]
    paper.hear(update(pe(3)))
    paper.hear(update(pe(1), UpdateAction.DELETE))
    assert paper.events[2:] == [
        Update(REGISTRAR, HANDLE, pe(3), False, paper.now),
        Update(REGISTRAR, HANDLE, pe(1), True, paper.now),
    ]


def test_a_push_that_comes_amid_a_table_is_newer_than_the_table() -> None:
    """Else the registrar's next checksum would not fit, and the whole table be asked for again."""
    paper = Paper()
    paper.follow()
    paper.associate()
    paper.hear(page(pe(1), more=True))
    paper.hear(update(pe(3)))
    paper.hear(update(pe(1), UpdateAction.DELETE))
    paper.hear(page(pe(2)))
    paper.actions.clear()
    for _ in range(10):
        paper.wait(0.5)
        paper.hear(presence(finish(element_sum(HANDLE, 2) + element_sum(HANDLE, 3))))
    assert [message for message in paper.sent if isinstance(message, HandleTableRequest)] == []


def test_a_follower_says_nothing_before_it_is_told_to_follow() -> None:
    """A starting registrar would take it for its mentor."""
    paper = Paper()
    paper.associate()
    paper.hear(presence(asks=True))
    paper.hear(update(pe(1)))
    paper.hear(page(pe(1)))
    paper.wait(10)
    assert paper.actions == []
    paper.follow()
    assert paper.sent, "the association that the registrar made serves"
    assert Connect(ENDPOINT) not in paper.actions


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (HandleTableRequest(REGISTRAR, OWN), HandleTableResponse(OWN, REGISTRAR, rejected=True)),
        (HandleTableRequest(REGISTRAR, 0, True), HandleTableResponse(OWN, REGISTRAR, rejected=True)),
        (ListRequest(REGISTRAR, OWN), ListResponse(OWN, REGISTRAR, rejected=True)),
        (InitTakeover(REGISTRAR, OWN, OTHER), InitTakeoverAck(OWN, REGISTRAR, OTHER)),
        (InitTakeover(REGISTRAR, 0x77, OTHER), InitTakeoverAck(0x77, REGISTRAR, OTHER)),
        (InitTakeover(REGISTRAR, OWN, OWN), None),
        (presence(asks=True), None),
        (update(pe(1)), None),
    ],
)
def test_a_follower_refuses_tables_and_lists_and_acknowledges_takeovers(
    request_: InitTakeover, reply: InitTakeoverAck | None
) -> None:
    """Takeovers are acknowledged by the name that was meant: that of a former life too."""
    assert reply_to(request_, OWN) == reply


def test_presence_goes_on_and_is_given_when_asked_for() -> None:
    paper = Paper()
    paper.join()
    for _ in range(100):
        paper.wait(0.1)
        paper.hear(presence(paper.ownership.checksum(REGISTRAR)))
    assert 12 <= len(paper.presences()) <= 15
    assert {message.receiver for message in paper.presences()} == {REGISTRAR}
    paper.actions.clear()
    paper.hear(presence(asks=True))
    assert len(paper.presences()) == 1


def test_a_silent_registrar_is_asked_and_then_given_up() -> None:
    paper = Paper()
    paper.join()
    paper.wait(4)
    assert [message.reply_required for message in paper.presences()].count(True) == 1
    paper.wait(3)
    assert paper.state() is FollowerState.IDLE
    assert paper.events == [Ended("silent for 6 s")]
    assert Close(1) in paper.actions


def test_an_empty_table_is_none() -> None:
    paper = Paper()
    paper.follow()
    paper.associate()
    paper.hear(page())
    assert paper.state() is FollowerState.IDLE
    assert paper.events == [Joined(), Ended("its handle table is empty")]


@pytest.mark.parametrize(
    "trouble",
    [
        lambda paper: paper.lose(),
        lambda paper: paper.hear(page(rejected=True)),
        lambda paper: paper.hear(presence(sender=OTHER)),
        lambda paper: paper.wait(2.1),
    ],
)
def test_a_following_that_fails_is_tried_again_after_a_growing_pause(
    trouble: Callable[[Paper], None],
) -> None:
    paper = Paper()
    pauses = []
    for _ in range(8):
        paper.follow()
        started_s = paper.now
        while Connect(ENDPOINT) not in paper.actions:
            paper.wait(0.05)
        pauses.append(paper.now - started_s)
        paper.associate()
        paper.hear(presence())
        trouble(paper)
        assert paper.state() is FollowerState.IDLE
        assert paper.machine.problem
        paper.actions.clear()
        paper.follow()
        assert paper.state() is FollowerState.WAITING
    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert 20 < pauses[-1] <= 30.1


def test_a_presence_that_does_not_fit_makes_it_ask_again_for_what_the_registrar_owns() -> None:
    paper = Paper()
    paper.join(pe(1), pe(2, OTHER))
    right = finish(element_sum(HANDLE, 1) + element_sum(HANDLE, 7))
    paper.hear(presence(right))
    assert paper.requests() == [], "the other side may have been quicker than a third"
    paper.wait(1)
    paper.hear(presence(right))
    (request,) = paper.requests()
    assert request.own_children_only
    paper.hear(page(pe(1), pe(7)))
    (table,) = paper.events
    assert isinstance(table, Table)
    assert table.own_children_only
    paper.actions.clear()
    for _ in range(5):
        paper.wait(1)
        paper.hear(presence(right))
    assert paper.requests() == []


def test_a_checksum_that_never_fits_does_not_make_it_ask_all_the_time() -> None:
    paper = Paper()
    paper.join()
    for _ in range(120):
        paper.wait(1)
        paper.hear(presence(1))
        if paper.requests() and isinstance(paper.sent[-1], HandleTableRequest):
            paper.hear(page(pe(1)))
    assert 3 <= len(paper.requests()) <= 12


def test_after_a_pause_of_its_own_it_asks_for_everything() -> None:
    paper = Paper()
    paper.join()
    paper.wait(2.5, step_s=2.5)
    assert [request.own_children_only for request in paper.requests()] == [False]


def test_after_a_pause_amid_a_table_it_is_no_stranger_when_it_asks_for_the_next_page() -> None:
    """A registrar that has forgotten it would refuse the page. The messages that the registrar pushed
    meanwhile never came."""
    paper = Paper()
    paper.follow()
    paper.associate()
    paper.actions.clear()
    paper.now += 3.0
    paper.hear(page(pe(1), more=True))
    assert [type(message).__name__ for message in paper.sent] == ["Presence", "HandleTableRequest"]
    paper.hear(page(pe(2)))
    assert [event.pools for event in paper.events if isinstance(event, Table)] == [{HANDLE: (pe(1), pe(2))}]
    assert len(paper.requests()) == 2, "everything once more"


def test_the_rest_of_a_table_that_broke_off_is_thrown_away() -> None:
    """A registrar goes on where it was when the same peer asks again."""
    paper = Paper()
    paper.follow()
    paper.associate()
    paper.hear(page(pe(1), more=True))
    paper.lose()
    paper.follow()
    paper.wait(1)
    paper.associate()
    paper.actions.clear()
    paper.hear(page(pe(2)))
    assert paper.events == []
    assert len(paper.requests()) == 1
    paper.hear(page(pe(1), pe(2)))
    (table,) = paper.events
    assert isinstance(table, Table)
    assert table.pools == {HANDLE: (pe(1), pe(2))}


def test_a_table_without_an_end_is_given_up() -> None:
    paper = Paper()
    paper.follow()
    paper.associate()
    many = page(*(pe(number) for number in range(500)), more=True)
    for _ in range(300):
        paper.machine.received(many, paper.now)
        paper.do()
    assert paper.state() is FollowerState.IDLE
    assert isinstance(paper.events[-1], Ended)


@pytest.mark.parametrize("each", [0, 1])
def test_a_table_of_pages_that_hold_next_to_nothing_is_given_up_soon(each: int) -> None:
    paper = Paper()
    paper.follow()
    paper.associate()
    for number in range(200):
        paper.hear(page(*([pe(number)] * each), more=True))
    assert paper.state() is FollowerState.IDLE
    assert "no end" in paper.machine.problem
    assert len(paper.requests()) < 100


def test_a_registrar_that_floods_is_followed_no_more_and_a_large_registrar_is() -> None:
    busy, flooding = Paper(), Paper()
    for paper in (busy, flooding):
        paper.follow()
        paper.associate()
        paper.hear(page(pe(1)))
        assert paper.state() is FollowerState.FOLLOWING
    told = page(*(pe(number) for number in range(500)))
    for _ in range(60):
        for paper, pages in ((busy, 15), (flooding, 40)):
            paper.now += 1.0
            for _ in range(pages):
                paper.machine.received(presence(), paper.now)
                paper.machine.received(told, paper.now)
            paper.machine.advance(paper.now)
            paper.do()
    assert busy.state() is FollowerState.FOLLOWING
    assert flooding.state() is not FollowerState.FOLLOWING
    assert "10,000 pool elements a second" in flooding.machine.problem


@pytest.mark.parametrize("target", [REGISTRAR, OTHER, 0x77777777])
def test_takeovers_are_counted_as_the_elements_they_move(target: int) -> None:
    """A registrar may take over all elements, and not again and again; nor is any message free."""
    busy, flooding = Paper(), Paper()
    for paper, takeovers in ((busy, 300), (flooding, 250_000 if target != REGISTRAR else 600)):
        paper.follow()
        paper.associate()
        paper.hear(page(*(pe(number, target) for number in range(500))))
        for _ in range(takeovers):
            paper.machine.received(TakeoverServer(REGISTRAR, OWN, target), paper.now)
        paper.do()
    assert busy.state() is FollowerState.FOLLOWING
    assert flooding.state() is FollowerState.IDLE
    assert "10,000 pool elements a second" in flooding.machine.problem


def test_a_table_of_one_huge_pool_is_cut_off() -> None:
    paper = Paper()
    paper.follow()
    paper.associate()
    for first in range(0, 30_000, 500):
        paper.hear(page(*(pe(first + number) for number in range(500)), more=first < 29_500))
    (table,) = (event for event in paper.events if isinstance(event, Table))
    assert len(table.pools[HANDLE]) == MAX_POOL_ELEMENTS


def test_leaving_it_goes_on_serving_until_it_is_forgotten() -> None:
    paper = Paper()
    paper.join()
    paper.machine.leave(paper.now)
    paper.wait(0.3)
    paper.hear(presence(asks=True))
    assert paper.state() is FollowerState.LEAVING
    paper.wait(1.2)
    assert paper.state() is FollowerState.LEFT
    assert paper.sent == []


def test_leaving_ends_without_a_word_of_the_registrar_too() -> None:
    paper = Paper()
    paper.join()
    paper.machine.leave(paper.now)
    paper.wait(13)
    assert paper.state() is FollowerState.LEFT


def test_elements_that_are_taken_over_change_their_owner() -> None:
    paper = Paper()
    paper.join(pe(1))
    paper.hear(update(pe(2, OTHER)))
    paper.hear(TakeoverServer(REGISTRAR, OWN, OTHER))
    assert paper.ownership.checksum(OTHER) == NO_ELEMENTS
    assert paper.ownership.checksum(REGISTRAR) == finish(element_sum(HANDLE, 1) + element_sum(HANDLE, 2))


@pytest.mark.parametrize("state", FollowerState)
@pytest.mark.parametrize("what", FollowerInput)
def test_the_table_leads_somewhere_or_nowhere(state: FollowerState, what: FollowerInput) -> None:
    assert TRANSITIONS[state].get(what, state) in FollowerState
    if what is FollowerInput.CLOSE and state is not FollowerState.LEFT:
        assert TRANSITIONS[state][what] is FollowerState.LEFT


@given(st.lists(st.one_of(any_enrp, st.floats(0, 3)), max_size=40), st.booleans())
def test_follower_is_passive_under_any_messages(story: list[object], leaves: bool) -> None:
    """It never starts a takeover, never gives a table, never changes anybody's handlespace."""
    paper = Paper()
    paper.follow()
    paper.associate()
    for step in story:
        if isinstance(step, float):
            paper.wait(step, step_s=0.5)
        else:
            paper.machine.received(step, paper.now)  # type: ignore[arg-type]
            paper.do()
    if leaves:
        paper.machine.leave(paper.now)
        paper.wait(15, step_s=0.5)
        assert paper.state() is not FollowerState.LEAVING
    assert {type(message).__name__ for message in paper.sent} <= {"Presence", "HandleTableRequest"}


def test_checksums_are_those_of_the_internet() -> None:
    ownership = Ownership()
    assert ownership.checksum(REGISTRAR) == 0xFFFF
    ownership.add(b"abc", 0x00010002, REGISTRAR)
    assert ownership.checksum(REGISTRAR) == ~(0x6162 + 0x6300 + 1 + 2) & 0xFFFF
    ownership.add(b"abc", 0x00010002, OTHER)
    assert (ownership.checksum(REGISTRAR), len(ownership)) == (0xFFFF, 1)
    ownership.replace(OTHER, {(b"x", 1)}, but={(b"abc", 0x00010002)})
    assert len(ownership) == 2
    ownership.remove(b"abc", 0x00010002)
    ownership.remove(b"x", 1)
    assert (ownership.checksum(OTHER), len(ownership)) == (0xFFFF, 0)


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
            elif isinstance(action, Ended):
                self.said.append((self.now, action.reason))
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
def test_any_message_of_the_registrar_ends_its_silence(
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
    joined.hear(enrp.EnrpError(REGISTRAR, OWN, (ErrorCause(CauseCode.UNKNOWN_POOL_HANDLE),)))
    joined.run(20)
    assert joined.asked() == [heard_s + ASK_SILENT_AFTER_S]


def test_a_follower_that_slept_through_the_silence_asks_before_it_gives_up(joined: Timed) -> None:
    joined.now += 10
    joined.machine.advance(joined.now)
    joined.do()
    assert joined.state() is FollowerState.FOLLOWING
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
    assert timed.state() is FollowerState.IDLE
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
    assert joined.state() is FollowerState.LEFT


def test_leaving_lasts_no_longer_than_this_when_nobody_asks(joined: Timed) -> None:
    joined.machine.leave(joined.now)
    left_s = joined.now
    joined.hear(presence())
    assert joined.machine.next_deadline_s == left_s + LEAVE_AT_MOST_S
    joined.run(LEAVE_AT_MOST_S - EARLY_S)
    assert joined.state() is FollowerState.LEAVING
    joined.run(1)
    assert joined.state() is FollowerState.LEFT


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
    assert joined.state() is FollowerState.FOLLOWING
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
