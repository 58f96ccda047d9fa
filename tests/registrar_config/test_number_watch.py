"""A number that two registrars were given is noticed, a sentinel of a former life is none."""

from registrar_config.sentinel import SHORTEST_S, NumberWatch


def test_a_sentinel_that_stays_is_told_once() -> None:
    watch = NumberWatch(6.0)
    found = [(now, watch.look(now, {7})) for now in range(100)]
    assert [one for one in found if one[1] is not None] == [(SHORTEST_S, 7)]


def test_sentinels_of_former_lives_go() -> None:
    watch = NumberWatch(6.0)
    assert not any(watch.look(now, {now // 10}) for now in range(10, 200))
    assert not any(watch.look(now, {7} if now % 29 else set()) for now in range(200, 400))


def test_where_registrations_live_long_so_do_former_ones() -> None:
    watch = NumberWatch(30.0)
    assert [now for now in range(100) if watch.look(now, {7})] == [60]
