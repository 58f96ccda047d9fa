"""When the sentinel comes and goes, and how a second registrar of the same number is noticed."""

from itertools import count

from registrar_config.sentinel import (
    SHORTEST_S,
    Enter,
    Leave,
    NumberWatch,
    SentinelInput,
    SentinelLife,
    SentinelState,
)


def new_life(*, is_ready: bool = True) -> SentinelLife:
    numbers = count(1)
    return SentinelLife(4.0, lambda: next(numbers), is_ready=is_ready)


def test_a_sentinel_enters_only_after_two_intervals_without_a_break() -> None:
    life = new_life()
    assert life.change(SentinelInput.UP, 10.0) is None
    assert life.next_deadline_s == 14.0
    assert life.advance(13.9) is None
    assert life.advance(14.0) == Enter(1)
    assert life.state is SentinelState.IN
    assert life.advance(15.0) is None


def test_a_break_while_settling_starts_the_wait_anew() -> None:
    life = new_life()
    life.change(SentinelInput.UP, 10.0)
    assert life.change(SentinelInput.DOWN, 13.0) is None
    assert (life.next_deadline_s, life.advance(14.0)) == (None, None)
    life.change(SentinelInput.UP, 13.5)
    assert life.advance(17.4) is None
    assert life.advance(17.5) == Enter(1)


def test_each_life_of_the_registrar_has_an_identifier_of_its_own() -> None:
    life = new_life()
    life.change(SentinelInput.UP, 0.0)
    assert life.advance(4.0) == Enter(1)
    assert life.change(SentinelInput.DOWN, 5.0) == Leave()
    assert life.change(SentinelInput.DOWN, 5.1) is None
    life.change(SentinelInput.UP, 6.0)
    assert life.advance(10.0) == Enter(2)


def test_a_repeated_report_changes_nothing() -> None:
    life = new_life()
    life.change(SentinelInput.UP, 0.0)
    life.change(SentinelInput.UP, 3.0)
    assert life.advance(4.0) == Enter(1)
    assert life.change(SentinelInput.UP, 5.0) is None
    assert life.state is SentinelState.IN


def test_a_registrar_that_still_looks_for_its_peers_is_waited_for() -> None:
    life = new_life(is_ready=False)
    life.change(SentinelInput.STARTED, 0.0)
    life.change(SentinelInput.UP, 0.1)
    assert (life.next_deadline_s, life.advance(4.5)) == (None, None)
    life.change(SentinelInput.READY, 5.0)
    assert life.advance(5.0) == Enter(1)


def test_a_restarted_registrar_must_be_ready_again() -> None:
    life = new_life(is_ready=False)
    for change, at_s in ((SentinelInput.STARTED, 0.0), (SentinelInput.UP, 0.1), (SentinelInput.READY, 0.5)):
        life.change(change, at_s)
    assert life.advance(4.1) == Enter(1)
    for change, at_s in ((SentinelInput.DOWN, 6.0), (SentinelInput.STARTED, 6.1), (SentinelInput.UP, 6.2)):
        life.change(change, at_s)
    assert life.advance(20.0) is None
    life.change(SentinelInput.READY, 20.0)
    assert life.advance(20.0) == Enter(2)


def test_a_sentinel_that_stays_is_told_once() -> None:
    watch = NumberWatch(6.0)
    found = [(now, watch.look(now, {7})) for now in range(100)]
    assert [step for step in found if step[1] is not None] == [(SHORTEST_S, 7)]


def test_sentinels_of_former_lives_go() -> None:
    watch = NumberWatch(6.0)
    assert not any(watch.look(now, {now // 10}) for now in range(10, 200))
    assert not any(watch.look(now, {7} if now % 29 else set()) for now in range(200, 400))


def test_where_registrations_live_long_so_do_former_registrations() -> None:
    watch = NumberWatch(30.0)
    assert [now for now in range(100) if watch.look(now, {7})] == [60]
