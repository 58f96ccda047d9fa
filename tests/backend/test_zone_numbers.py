"""Each zone has a number of its own, and keeps it."""

from rspdns.answers.snapshot import ZoneNumbers, zone_id

PLUMLESS, BUCKEROO = "plumless", "buckeroo"
"""Their checksums are the same."""


def test_zones_of_the_same_checksum_have_two_numbers() -> None:
    assert zone_id(PLUMLESS) == zone_id(BUCKEROO)
    numbers = ZoneNumbers().following([PLUMLESS, BUCKEROO])
    assert {numbers.zone(numbers.of(PLUMLESS)), numbers.zone(numbers.of(BUCKEROO))} == {PLUMLESS, BUCKEROO}


def test_a_zone_keeps_its_number_whatever_comes_and_goes() -> None:
    one = ZoneNumbers().following([PLUMLESS])
    two = one.following([BUCKEROO, "example.org", PLUMLESS])
    assert two.of(PLUMLESS) == one.of(PLUMLESS)
    three = two.following([BUCKEROO])
    assert three.of(BUCKEROO) == two.of(BUCKEROO)
    assert three.of(PLUMLESS) == -1
    assert three.zone(one.of(PLUMLESS)) is None
    assert three.following([BUCKEROO]) is three


def test_what_is_no_number_is_of_no_zone() -> None:
    numbers = ZoneNumbers().following([PLUMLESS])
    assert numbers.zone("1") is None
    assert numbers.zone(None) is None
    assert numbers.zone(-1) is None
