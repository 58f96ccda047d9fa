"""Zone transfers hold whole pools, and have a serial of their own content."""

from rspdns.answers.change import difference
from rspdns.answers.snapshot import Snapshot

from rserpool import LeastUsed, Protocol
from tests.backend.making import NOW, UDP, ZONE, answered, member, view, views, zone

TWENTY = [member(number, policy=LeastUsed(number / 40)) for number in range(1, 21)]


def kinds(snapshot: Snapshot) -> list[tuple[str, str, str]]:
    listed = snapshot.zone_answers[ZONE].transferred_records()
    return [(record.name, record.type, record.content) for record in listed]


def test_transfer_holds_whole_pools_and_draws_nothing() -> None:
    first, second = (answered(zone(UDP), views(view(*TWENTY)), seed=seed) for seed in (1, 2))
    assert kinds(first) == kinds(second)
    assert sum(kind == "SRV" for _, kind, _ in kinds(first)) == 20
    assert sum(kind == "A" and name == f"as.{ZONE}" for name, kind, _ in kinds(first)) == 20
    assert sum(record.type == "SRV" for record in first.zone_records(ZONE)) <= 8
    assert kinds(first)[0][1] == "SOA"
    assert len(set(kinds(first))) == len(kinds(first))


def test_transfer_has_addresses_of_members_with_room_alone() -> None:
    busy = [member(1), member(2), *(member(number, policy=LeastUsed(1.0)) for number in range(3, 13))]
    listed = kinds(answered(zone(UDP), views(view(*busy))))
    assert {content for name, kind, content in listed if (name, kind) == (f"as.{ZONE}", "A")} == {
        "10.0.0.1",
        "10.0.0.2",
    }
    assert sum(kind == "SRV" for _, kind, _ in listed) == 12


def test_weight_of_a_member_that_no_answer_shows_moves_the_serial() -> None:
    pools, busy = zone(UDP, head="ttl = 5"), [*TWENTY[:-1], member(20, policy=LeastUsed(0.9))]
    for seed in range(50):
        before = answered(pools, views(view(*TWENTY)), seed=seed)
        after = answered(pools, views(view(*busy)), before, now=NOW + 2, serial=2, seed=seed)
        if before.zone_records(ZONE)[1:] == after.zone_records(ZONE)[1:]:
            break
    else:
        raise AssertionError("the member was shown in every draw")
    assert kinds(before)[1:] != kinds(after)[1:]
    assert (before.zone_answers[ZONE].serial, after.zone_answers[ZONE].serial) == (1, 2)
    assert difference(before, after).names() == set(), "nothing else is purged"


def test_transfer_holds_https_records_of_all_members() -> None:
    web = UDP.replace("_sip._udp", "_https._tcp") + 'svcb = { alpn = ["h2"] }\n'
    members = (member(number, protocol=Protocol.TCP, port=443) for number in range(1, 21))
    made = answered(zone(web), views(view(*members)))
    of_transfer = [content.split() for _, kind, content in kinds(made) if kind == "HTTPS"]
    assert len(of_transfer) == 21
    assert of_transfer[-1][:2] == ["2", "."]
    assert sum(record.type == "HTTPS" for record in made.zone_records(ZONE)) < 10
