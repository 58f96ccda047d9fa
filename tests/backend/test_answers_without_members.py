"""Empty pools, unknown pools, and views that are too old: SERVFAIL, NODATA and NXDOMAIN."""

import pytest
from rserpool.parameters import Protocol
from rspdns.answers.snapshot import NODATA, NXDOMAIN, Failure, Nothing

from tests.backend.making import (
    FIXED,
    NOW,
    TCP,
    UDP,
    ZONE,
    answered,
    contents,
    member,
    records,
    view,
    views,
    zone,
)

AS = f"as.{ZONE}"
OWNER = f"_sip._udp.{AS}"
TARGET = f"00000001.u.{AS}"
LIVE = [(OWNER, "SRV"), (AS, "A"), (AS, "AAAA"), (AS, "NAPTR"), (AS, "ANY"), (OWNER, "ANY")]
FALLBACK = FIXED + "_sip._udp.as SRV 0 1 5060 reserve\nas A 10.0.9.9\nreserve A 10.0.9.9\n"


def when_empty(kind: str) -> str:
    return UDP + f'when_empty = "{kind}"\n'


@pytest.mark.parametrize(("name", "qtype"), [*LIVE, (TARGET, "A"), (f"*.u.{AS}", "ANY")])
def test_a_pool_never_seen_is_a_failure_never_an_empty_answer(name: str, qtype: str) -> None:
    for of_pools in ({}, views(view(handle="other"))):
        outcome = answered(zone(), of_pools).lookup(name, qtype)
        assert isinstance(outcome, Failure)
        assert "sip-udp" in outcome.reason


def test_the_rest_of_the_zone_is_served_without_any_view() -> None:
    snapshot = answered(zone(), {})
    assert contents(snapshot, f"ns1.{ZONE}", "A") == ["10.0.1.1"]
    assert [record.type for record in records(snapshot, ZONE, "ANY")] == ["SOA", "NS"]
    assert snapshot.lookup(f"other.{ZONE}", "A") == NXDOMAIN
    assert snapshot.lookup(f"other.{AS}", "A") == NXDOMAIN


def test_an_unknown_pool_at_the_apex_still_has_its_soa() -> None:
    snapshot = answered(zone(UDP.replace('"as"', '"@"')), {})
    assert records(snapshot, ZONE, "SOA")
    assert records(snapshot, ZONE, "NS")
    assert isinstance(snapshot.lookup(ZONE, "A"), Failure)


def test_an_unknown_pool_hides_no_types_that_pools_do_not_give() -> None:
    snapshot = answered(zone(fixed=FIXED + 'as TXT "x"\n'), {})
    assert contents(snapshot, AS, "TXT") == ['"x"']
    assert snapshot.lookup(AS, "NS") == NODATA
    assert snapshot.lookup(OWNER, "NS") == NODATA


def test_one_unknown_pool_does_not_spoil_the_others_of_its_name() -> None:
    snapshot = answered(zone(UDP + TCP), views(view(member(1))))
    assert contents(snapshot, AS, "A") == ["10.0.0.1"]
    assert contents(snapshot, AS, "NAPTR") == [f'10 10 "s" "SIP+D2U" "" {OWNER}']
    assert isinstance(snapshot.lookup(f"_sip._tcp.{AS}", "SRV"), Failure)


def test_last_good_shows_who_was_in() -> None:
    snapshot = answered(zone(), views(view(recent=(member(1),))))
    assert contents(snapshot, OWNER, "SRV") == [f"0 1000 5060 {TARGET}"]
    assert contents(snapshot, TARGET, "A") == ["10.0.0.1"]
    assert contents(snapshot, AS, "A") == ["10.0.0.1"]
    assert contents(snapshot, AS, "NAPTR")


def test_last_good_of_one_pool_has_no_part_in_the_name_while_another_lives() -> None:
    tcp = view(handle="sip-tcp", recent=(member(2, protocol=Protocol.TCP),))
    snapshot = answered(zone(UDP + TCP), views(view(member(1)), tcp))
    assert contents(snapshot, AS, "A") == ["10.0.0.1"]
    assert len(contents(snapshot, AS, "NAPTR")) == 1
    assert contents(snapshot, f"_sip._tcp.{AS}", "SRV") == [f"0 1000 5060 00000002.t.{AS}"]


@pytest.mark.parametrize("kind", ["last-good", "nodata"])
def test_empty_names_exist(kind: str) -> None:
    """NODATA: with NXDOMAIN a resolver would deny whatever is below, too (RFC 8020)."""
    snapshot = answered(zone(when_empty(kind)), views(view()))
    for name, qtype in LIVE:
        assert snapshot.lookup(name, qtype) == NODATA
    assert snapshot.lookup(TARGET, "A") == NXDOMAIN


def test_nodata_and_servfail_do_not_show_who_was_in() -> None:
    empty = views(view(recent=(member(1),)))
    assert answered(zone(when_empty("nodata")), empty).lookup(OWNER, "SRV") == NODATA
    for name, qtype in LIVE:
        assert isinstance(answered(zone(when_empty("servfail")), empty).lookup(name, qtype), Failure)


def test_static_records_stand_in_for_an_empty_pool_and_no_longer_than_live_ones() -> None:
    own = zone(when_empty("static"), FALLBACK)
    empty = answered(own, views(view()))
    (srv,) = records(empty, OWNER, "SRV")
    assert (srv.content, srv.ttl) == (f"0 1 5060 reserve.{ZONE}", 1)
    assert [(record.content, record.ttl) for record in records(empty, AS, "A")] == [("10.0.9.9", 1)]
    assert contents(empty, AS, "NAPTR")
    live = answered(own, views(view(member(1))), empty)
    assert contents(live, OWNER, "SRV") == [f"0 1000 5060 {TARGET}"]
    assert contents(live, AS, "A") == ["10.0.0.1"]


def test_stale_members_are_shown_until_they_are_too_old() -> None:
    own, stale = zone(), views(view(member(1), stale_since_s=NOW - 3599))
    snapshot = answered(own, stale)
    assert contents(snapshot, OWNER, "SRV")
    assert snapshot.rebuild_at_s == NOW + 1
    late = answered(own, stale, snapshot, NOW + 1)
    for name, qtype in [*LIVE, (TARGET, "A")]:
        assert isinstance(late.lookup(name, qtype), Failure)


def test_empty_non_terminals_and_names_that_do_not_exist() -> None:
    snapshot = answered(zone(fixed=FIXED + "a.b.c A 10.0.0.1\n"), views(view(member(1))))
    for name in (f"b.c.{ZONE}", f"c.{ZONE}", f"_udp.{AS}", f"u.{AS}"):
        assert snapshot.lookup(name, "ANY") == NODATA, name
    for name in (f"x.b.c.{ZONE}", f"x.{ZONE}", f"x.u.{AS}", f"_tcp.{AS}", "org", "x.org", ""):
        assert snapshot.lookup(name, "ANY") == Nothing(exists=False), name
    assert snapshot.lookup(OWNER, "A") == NODATA


@pytest.mark.parametrize("kind", ["last-good", "nodata", "static", "servfail"])
@pytest.mark.parametrize("second", ["never told", "too stale"])
def test_an_empty_shard_says_nothing_about_one_that_nobody_tells_of(kind: str, second: str) -> None:
    pools = when_empty(kind).replace('handle = "sip-udp"', 'handles = ["a", "b"]')
    of_pools = views(view(handle="a"))
    if second == "too stale":
        of_pools |= views(view(handle="b", stale_since_s=NOW - 10_000))
    snapshot = answered(zone(pools, FALLBACK if kind == "static" else FIXED), of_pools)
    for name, qtype in ((OWNER, "SRV"), (AS, "A")):
        assert isinstance(snapshot.lookup(name, qtype), Failure)


@pytest.mark.parametrize("kind", ["last-good", "static", "nodata", "servfail"])
def test_a_pool_is_not_emptied_by_the_probe(kind: str) -> None:
    unreachable = (member(1), member(2))
    for recent in ((), (member(3),)):
        of_pools = views(view(unreachable=unreachable, recent=recent))
        snapshot = answered(zone(when_empty(kind), FALLBACK if kind == "static" else FIXED), of_pools)
        assert len(contents(snapshot, OWNER, "SRV")) == 2, "all of them, whatever when_empty says"
    beside = views(view(member(3), unreachable=unreachable))
    snapshot = answered(zone(when_empty(kind), FALLBACK if kind == "static" else FIXED), beside)
    assert [one.split()[-1] for one in contents(snapshot, OWNER, "SRV")] == [f"00000003.u.{AS}"]


def test_a_pool_nobody_reaches_leaves_the_name_to_one_that_answers() -> None:
    of_pools = views(view(unreachable=(member(1),)), view(member(2, protocol=Protocol.TCP), handle="sip-tcp"))
    snapshot = answered(zone(UDP + TCP), of_pools)
    assert contents(snapshot, AS, "A") == ["10.0.0.2"]
    assert len(contents(snapshot, AS, "NAPTR")) == 1
    assert len(contents(snapshot, OWNER, "SRV")) == 1
