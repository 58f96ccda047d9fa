"""The numbers of many zones: none is answered for by another's."""

from random import Random
from types import MappingProxyType

from rspdns.answers.change import difference
from rspdns.answers.snapshot import Snapshot, ZoneAnswers, ZoneNumbers, zone_id
from rspdns.dnssec.nsec import Chain
from rspdns.pdns.domain_ids import MOST_COMPARED, DomainIds
from rspdns.rrset import Node, OtherData, Record, SoaData

from rserpool import LeastUsed
from tests.backend.making import FIXED, UDP, ZONE, answered, member, view, views
from tests.backend.making import zone as made_zone

CROWD = [f"z{number}.example.net" for number in range(4000)]
"""Some of so many are next to each other, wherever their checksums put them."""
SIGNED = CROWD[::2]
NUMBERS = ZoneNumbers().following(CROWD)


def at(turn: int) -> Snapshot:
    """All zones; the name in each is another at every turn."""
    zones = {}
    for zone in CROWD:
        node = Node((Record(f"{turn}.{zone}", "TXT", OtherData("TXT", "here"), 60),))
        soa = Record(zone, "SOA", SoaData("ns1", "hostmaster", 1, 7200, 900, 1209600, 300), 60)
        zones[zone] = ZoneAnswers(
            zone, turn, soa, MappingProxyType({f"{turn}.{zone}": node, zone: Node()}), ()
        )
    return Snapshot(zones, numbers=NUMBERS)


def test_many_zones_have_their_own_numbers_for_each_content() -> None:
    ids, turns = DomainIds(), [at(turn) for turn in range(4)]
    ids.note(difference(Snapshot(), turns[0]), SIGNED, now=0)
    asked: list[tuple[str, int, int]] = []
    for turn in range(3):
        asked += ((zone, turn, ids.of(zone)) for zone in SIGNED)
        assert sorted(ids.note(difference(turns[turn], turns[turn + 1]), SIGNED, now=0)) == sorted(SIGNED)
    for zone, turn, number in asked:
        past = ids.past(number, now=1)
        assert past is not None, zone
        assert f"{turn}.{zone}" in past.nodes[zone]
        assert ids.zone(number, turns[3], now=1) is turns[turn].zone_answers[zone]
        assert ids.zone(number, turns[3], now=9) is turns[3].zone_answers[zone]
    for zone in CROWD:
        assert ids.past(zone_id(zone), now=1) is None, "by this number PowerDNS asks for the SOA"
    assert {ids.of(zone) - zone_id(zone) for zone in CROWD[1::2]} == {0}, "unsigned"


def test_numbers_after_a_restart_are_of_the_same_zones() -> None:
    """PowerDNS goes on with those of the former life until it learns of the new ones."""
    former, now, turns = DomainIds(), DomainIds(), [at(turn) for turn in range(3)]
    for ids, turn in ((former, 0), (now, 1)):
        ids.note(difference(Snapshot(), turns[turn]), SIGNED if turn else SIGNED[::-1], now=0)
    now.note(difference(turns[1], turns[2]), SIGNED, now=0)
    for zone in SIGNED:
        found = now.zone(former.of(zone), turns[2], now=1)
        assert found is not None
        assert found.name == zone


ASKED = ("", "a", "as", "_sip._udp.as", "00000002.u.as", "00000003.u.as", "zz")


def test_the_names_of_a_number_are_those_of_its_time() -> None:
    """Changes of a zone don't matter: the names around any are those of the last answers that had this
    number."""
    draw, ids, old = Random(1), DomainIds(), Snapshot()
    expected: dict[int, Chain] = {}
    for turn in range(400):
        who = draw.sample(range(1, 5), draw.randrange(5))
        members = [
            member(
                number,
                f"10.0.0.{number}",
                *draw.choice([[], ["2001:db8::1"]]),
                policy=LeastUsed(draw.random()),
            )
            for number in who
        ]
        known = draw.random() < 0.8
        new = answered(made_zone(UDP), views(view(*members)) if known else {}, old, serial=turn)
        if draw.random() < 0.05:
            new = Snapshot()
        signed = [ZONE] if draw.random() < 0.9 else []
        ids.note(difference(old, new), signed, now := turn / 10)
        old = new
        if not signed or not new.zone_answers:
            continue
        current = ids.of(ZONE)
        expected.pop(current, None)
        expected[current] = Chain(new.zone_answers[ZONE])
        for number, chain in [*expected.items()][-10:]:
            if number == current or ids.past(number, now) is not None:
                found = ids.zone(number, new, now)
                assert found is not None
                around = Chain(found).around
                assert [around(name) for name in ASKED] == [chain.around(name) for name in ASKED], turn
    assert len(expected) > 100


def test_a_large_zone_that_was_read_anew_is_not_compared_name_by_name() -> None:
    """That is done between two answers; of 100,000 names it takes a second."""
    for names, moved in ((10, []), (MOST_COMPARED, [ZONE])):
        ids, text = DomainIds(), f"$GENERATE 1-{names} h$ A 10.0.0.1\n"
        first, again = (answered(made_zone(UDP, FIXED + text), views(view(member(1)))) for _ in range(2))
        ids.note(difference(Snapshot(), first), [ZONE], now=0)
        before = ids.of(ZONE)
        assert ids.note(difference(first, again), [ZONE], now=0) == moved
        assert (ids.of(ZONE) != before) == bool(moved)
        assert ids.past(before, now=1) is None or moved
