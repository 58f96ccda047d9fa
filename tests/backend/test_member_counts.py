"""How often each server came and went, and how long it was down."""

from pool_user import BeliefChange, Cause, Code, Departure, Member, PoolChange, PoolView
from rspdns import member_counts
from rspdns.member_counts import MemberCounts

from tests.backend.making import member

HANDLE = "sip-udp"
POOL = PoolView(HANDLE)


def joined(*members: Member) -> BeliefChange:
    return BeliefChange({HANDLE: PoolChange(POOL, POOL, joined=members)}, {})


def left(
    server: Member, now: float, code: Code = Code.REMOVED, planned_s: float | None = None
) -> BeliefChange:
    departure = Departure(server, now, Cause(code, planned_s=planned_s))
    return BeliefChange({HANDLE: PoolChange(POOL, POOL, left=(departure,))}, {})


def counted(counts: MemberCounts, now: float, number: int = 1) -> tuple[int, float]:
    return counts.of(HANDLE, member(number).server_address, now)


def test_time_down_counts_while_it_lasts_and_after() -> None:
    counts = MemberCounts()
    assert counted(counts, 5) == (0, 0)
    counts.take(joined(member(1)), 10)
    counts.take(left(member(1), 20), 20)
    assert counted(counts, 23) == (2, 3)
    counts.take(joined(member(1)), 25)
    assert counted(counts, 99) == (3, 5)
    assert counted(counts, 99, 2) == (0, 0)


def test_planned_time_is_no_time_down() -> None:
    counts = MemberCounts()
    counts.take(left(member(1), 10, Code.OVERRIDDEN), 10)
    assert counted(counts, 99) == (1, 0)
    counts.take(joined(member(1)), 100)
    counts.take(left(member(1), 110, Code.DRAINED, planned_s=60), 110)
    assert counted(counts, 169) == (3, 0)
    assert counted(counts, 172) == (3, 2)
    counts.take(joined(member(1)), 180)
    assert counted(counts, 999) == (4, 10)


def test_a_server_that_registers_anew_in_the_same_moment_was_not_down() -> None:
    counts = MemberCounts()
    old = Departure(member(1), 10, Cause(Code.REMOVED))
    counts.take(BeliefChange({HANDLE: PoolChange(POOL, POOL, (member(1),), (old,))}, {}), 10)
    assert counted(counts, 50) == (2, 0)


def test_strangers_fill_no_memory() -> None:
    counts = MemberCounts()
    for number in range(1, member_counts.MOST_SERVERS + 100):
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        counts.take(left(member(number, address), number), number)
    assert len(counts._changes) == len(counts._down_from_s) == member_counts.MOST_SERVERS


def test_server_that_was_out_before_the_start_is_down_from_the_start() -> None:
    counts = MemberCounts()
    gone = Departure(member(1), -100, Cause(Code.REMOVED))
    drained = Departure(member(2), -100, Cause(Code.DRAINED, planned_s=110))
    kept_out = Departure(member(3), -100, Cause(Code.OVERRIDDEN))
    counts.begin({HANDLE: PoolView(HANDLE, departures=(gone, drained, kept_out))}, 0)
    assert [counted(counts, 15, number) for number in (1, 2, 3)] == [(0, 15), (0, 5), (0, 0)]
    counts.take(joined(member(1)), 20)
    assert counted(counts, 99) == (1, 20)
