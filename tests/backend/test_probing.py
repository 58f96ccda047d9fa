"""Which member is probed when, and what the outcomes mean."""

from dataclasses import replace
from ipaddress import ip_address

from rserpool.parameters import Protocol
from rserpool.policies import RoundRobin
from rspdns.probing import MAX_PROBES_PER_S, MAX_UNDER_WAY, Outcome, ProbeBook, Target
from rspdns.views import Member


def target(number: int, port: int = 5060) -> Target:
    addresses = (ip_address(0x0A000000 + number),)
    return Target("pool", Member(number, 1, addresses, port, Protocol.TCP, RoundRobin(), 0.0))


def play(book: ProbeBook, outcomes: list[Outcome], one: Target, now: float = 0.0) -> list[bool | None]:
    said = []
    for outcome in outcomes:
        while not book.due([one], now):
            now += 0.1
        said.append(book.result(one, outcome, now))
    return said


def test_two_failures_in_a_row_are_a_fall_and_two_successes_a_rise() -> None:
    alive, failed = Outcome.ALIVE, Outcome.FAILED
    outcomes = [alive, failed, alive, failed, failed, failed, alive, failed, alive, alive, alive]
    expected = [None, None, None, None, False, None, None, None, None, True, None]
    assert play(ProbeBook(), outcomes, target(1)) == expected


def test_unknown_says_nothing_and_breaks_a_streak() -> None:
    failed, unknown = Outcome.FAILED, Outcome.UNKNOWN
    assert play(ProbeBook(), [failed, unknown, failed, unknown, unknown], target(1)) == [None] * 5


def test_a_target_is_probed_about_once_a_second_and_never_twice_at_once() -> None:
    book, one = ProbeBook(), target(1)
    probes, answered = 0, False
    for step in range(1000):
        now = step / 100
        if book.due([one], now):
            probes += 1
            answered = False
        elif not answered:
            book.result(one, Outcome.ALIVE, now)
            answered = True
    assert 8 <= probes <= 11


def test_thousands_make_no_storm_and_all_get_their_turn() -> None:
    book = ProbeBook()
    targets = [target(number) for number in range(500)]
    probed: set[int] = set()
    for step in range(200):
        now = step / 20
        due = book.due(targets, now)
        assert len(due) <= 10
        probed |= {one.member.identifier for one in due}
        for one in due:
            book.result(one, Outcome.ALIVE, now)
    assert len(probed) == 500
    assert MAX_PROBES_PER_S == 100


def test_unanswered_probes_are_bounded() -> None:
    book = ProbeBook()
    targets = [target(number) for number in range(500)]
    under_way = sum(len(book.due(targets, step / 20)) for step in range(400))
    assert under_way == book.under_way == MAX_UNDER_WAY


def test_who_is_no_target_any_more_is_forgotten_with_what_is_under_way() -> None:
    book, one = ProbeBook(), target(1)
    assert book.due([one], 0.0) == [one]
    assert book.due([], 0.1) == []
    assert book.under_way == 0
    assert book.result(one, Outcome.FAILED, 0.2) is None


def test_with_another_port_it_is_another_target_with_another_load_it_is_not() -> None:
    book, one = ProbeBook(), target(1)
    assert book.due([one], 0.0)
    assert book.due([target(1, port=5061)], 0.1)
    same = Target("pool", replace(target(1, port=5061).member, since_s=7.0))
    assert book.due([same], 0.2) == []
