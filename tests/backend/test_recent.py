"""What PowerDNS may remember otherwise: bounded, and forgotten in time."""

import pytest
from rspdns import recent
from rspdns.recent import LINGER_S, RecentChanges

from tests.backend.making import UDP, ZONE, answered, member, view, views, zone

OWN = zone(UDP)
EMPTY, FULL = (answered(OWN, views(view(*(member(one) for one in who)))) for who in ((), range(1, 31)))


def target(number: int) -> str:
    return f"{number:08x}.u.as.{ZONE}"


def test_names_that_left_are_told_until_their_time_is_over() -> None:
    changes = RecentChanges()
    changes.note(FULL, EMPTY, [ZONE], 0.0)
    assert changes.departed(ZONE, LINGER_S) == {target(number) for number in range(1, 31)}
    assert changes.exists(target(1), LINGER_S)
    assert changes.departed(ZONE, LINGER_S + 0.1) == {target(1)}
    assert changes.departed("example", LINGER_S + 0.1) == frozenset()
    assert changes.departed(ZONE, 2 * LINGER_S + 0.1) == frozenset()
    assert not changes.exists(target(1), 2 * LINGER_S + 0.1)


def test_unsigned_zones_are_not_its_concern() -> None:
    changes = RecentChanges()
    changes.note(FULL, EMPTY, [], 0.0)
    changes.note(FULL, EMPTY, ["example"], 0.0)
    assert changes.departed(ZONE, 0.0) == frozenset()


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST_NAMES", 10)
    changes = RecentChanges()
    for _ in range(3):
        changes.note(FULL, EMPTY, [ZONE], 0.0)
        assert len(changes.departed(ZONE, 0.0)) == 10
        changes.note(EMPTY, FULL, [ZONE], 0.0)
        assert 0 < sum(bool(changes.came(target(number), 0.5)) for number in range(1, 31)) <= 10
