"""The records of a zone, with living pools and with pools without members."""

from collections import Counter
from dataclasses import replace
from itertools import combinations, permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_user import weights
from rserpool.policies import Priority, WeightedRandom
from rspdns import fitting
from rspdns.answers.pool_state import state_of
from rspdns.answers.records import in_order, site_nodes
from rspdns.answers.snapshot import NODATA, NXDOMAIN, Failure, Nothing

from rserpool import LeastUsed, Protocol
from tests.backend.making import (
    FIXED,
    NOW,
    TCP,
    UDP,
    ZONE,
    Believed,
    answered,
    built,
    contents,
    member,
    records,
    view,
    views,
    zone,
)

AS = f"as.{ZONE}"
OWNER = f"_sip._udp.{AS}"
DRAWS = 10_000


def target(identifier: int, label: str = "u") -> str:
    return f"{identifier:08x}.{label}.{AS}"


def test_srv_names_each_member_with_its_weight_port_and_target() -> None:
    pool = view(member(1, policy=LeastUsed(0.5), port=5061), member(0xBEEF, "10.0.0.2"))
    snapshot = answered(zone(), views(pool))
    assert contents(snapshot, OWNER, "SRV") == [
        f"0 500 5061 00000001.u.{AS}",
        f"0 1000 5060 0000beef.u.{AS}",
    ]
    assert {record.ttl for record in records(snapshot, OWNER, "SRV")} == {1}


def test_wide_weights_are_those_of_the_records_and_move_with_the_load() -> None:
    pool = zone(UDP + 'weights = "wide"\n')
    before = answered(pool, views(view(member(1, policy=LeastUsed(0.5)), member(2))))
    assert contents(before, OWNER, "SRV") == [
        f"0 32768 5060 {target(1)}",
        f"0 65535 5060 {target(2)}",
    ]
    assert {w.weight for w in before.zone_answers[ZONE].sites[0].states[0].weights.values()} == {32768, 65535}
    wavering = views(view(member(1, policy=LeastUsed(0.52)), member(2)))
    assert answered(pool, wavering, before, now=NOW + 5).nodes is before.nodes


def test_targets_have_every_address_of_their_member() -> None:
    multihomed = member(1, "10.0.0.1", "10.1.0.1", "2001:db8::1", protocol=Protocol.UDP)
    snapshot = answered(zone(), views(view(multihomed)))
    assert contents(snapshot, target(1), "A") == ["10.0.0.1", "10.1.0.1"]
    assert contents(snapshot, target(1), "AAAA") == ["2001:db8::1"]


def test_a_name_has_addresses_of_each_family_and_one_of_each_member() -> None:
    multihomed = member(1, "10.0.0.1", "10.1.0.1", "2001:db8::1")
    snapshot = answered(zone(), views(view(multihomed, member(2))))
    assert contents(snapshot, AS, "A") == ["10.0.0.1", "10.0.0.2"]
    assert contents(snapshot, AS, "AAAA") == ["2001:db8::1"]


def test_several_transports_share_a_name() -> None:
    both = answered(
        zone(UDP + "naptr_preference = 20\n" + TCP),
        views(view(member(1)), view(member(2, protocol=Protocol.TCP), handle="sip-tcp")),
    )
    assert contents(both, AS, "NAPTR") == [
        f'10 20 "s" "SIP+D2U" "" _sip._udp.{AS}',
        f'10 10 "s" "SIP+D2T" "" _sip._tcp.{AS}',
    ]
    assert contents(both, AS, "A") == ["10.0.0.1", "10.0.0.2"]
    assert contents(both, f"_sip._tcp.{AS}", "SRV") == [f"0 1000 5060 {target(2, 't')}"]


def test_naptr_lists_only_transports_with_a_live_member() -> None:
    snapshot = answered(zone(UDP + TCP), views(view(member(1)), view(handle="sip-tcp")))
    assert contents(snapshot, AS, "NAPTR") == [f'10 10 "s" "SIP+D2U" "" _sip._udp.{AS}']
    assert snapshot.lookup(f"_sip._tcp.{AS}", "SRV") == NODATA


def test_naptr_services_are_made_from_the_service_or_named() -> None:
    pools = "".join(
        UDP.replace("sip-udp", f"h{number}").replace('"u"', f'"l{number}"').replace("_sip._udp", service)
        for number, service in enumerate(["_sips._tcp", "_sip._sctp", "_diameter._tcp", "_xmpp-client._tcp"])
    )
    pools = pools.replace(
        'service = "_diameter._tcp"', 'service = "_diameter._tcp"\nnaptr_service = "aaa+D2T"'
    )
    protocols = [Protocol.TCP, Protocol.SCTP, Protocol.TCP, Protocol.TCP]
    live = [view(member(n, protocol=protocol), handle=f"h{n}") for n, protocol in enumerate(protocols)]
    snapshot = answered(zone(pools), views(*live))
    services = [content.split('"')[3] for content in contents(snapshot, AS, "NAPTR")]
    assert services == ["SIPS+D2T", "SIP+D2S", "aaa+D2T"]


def test_a_member_of_another_transport_is_not_shown() -> None:
    snapshot = answered(zone(), views(view(member(1), member(2, protocol=Protocol.TCP))))
    assert len(records(snapshot, OWNER, "SRV")) == 1
    assert snapshot.lookup(target(2), "A") == NXDOMAIN


def test_a_pool_at_the_apex_stands_beside_soa_and_ns() -> None:
    snapshot = answered(zone(UDP.replace('"as"', '"@"')), views(view(member(1))))
    assert contents(snapshot, f"_sip._udp.{ZONE}", "SRV") == [f"0 1000 5060 00000001.u.{ZONE}"]
    assert contents(snapshot, ZONE, "A") == ["10.0.0.1"]
    assert [record.type for record in records(snapshot, ZONE, "ANY")] == ["SOA", "A", "NAPTR", "NS"]


def test_at_most_max_answers_and_all_of_them_in_time() -> None:
    pool = view(*(member(number) for number in range(1, 13)))
    shown = set()
    for seed in range(60):
        answer = contents(answered(zone(), views(pool), seed=seed), OWNER, "SRV")
        assert len(answer) == 7  # 8 and their addresses would not fit
        shown |= set(answer)
    assert len(shown) == 12


ALL = UDP + 'answers = "all"\nslow_start_s = 0\n'


def test_whole_pool_is_answered_in_the_order_of_its_identifiers_whatever_the_loads() -> None:
    own, snapshot = zone(ALL), None
    for step, loads in enumerate(([0.0] * 40, [n / 40 for n in range(40)], [0.97] * 39 + [0.0])):
        pool = view(*(member(n, policy=LeastUsed(loads[n - 1])) for n in range(40, 0, -1)))
        snapshot = answered(own, views(pool), snapshot, now=NOW + 5 * step, seed=step)
        services = [content.split()[3] for content in contents(snapshot, OWNER, "SRV")]
        assert services == [target(n) for n in range(1, 41)]
        assert set(contents(snapshot, AS, "A")) == {f"10.0.0.{n}" for n in range(1, 41)}
        assert snapshot.zone_answers[ZONE].sites[0].redraw is None


def test_whole_pool_is_not_drawn_again_after_the_ttl() -> None:
    pool = views(view(*(member(n) for n in range(1, 41))))
    before = answered(zone(ALL), pool)
    assert before.rebuild_at_s == float("inf")


def test_whole_pools_at_one_name_have_all_their_addresses() -> None:
    udp = view(*(member(n) for n in range(1, 31)))
    tcp = view(*(member(n, protocol=Protocol.TCP) for n in range(21, 61)), handle="sip-tcp")
    snapshot = answered(zone(ALL + TCP), views(udp, tcp))
    assert set(contents(snapshot, AS, "A")) == {f"10.0.0.{n}" for n in range(1, 61)}
    assert len(contents(snapshot, f"_sip._tcp.{AS}", "SRV")) == 7


def test_servers_of_a_worse_priority_or_weight_0_are_in_no_address_answer_of_a_whole_pool() -> None:
    spare = view(member(1, policy=Priority(2)), member(2, policy=Priority(1)))
    assert contents(answered(zone(ALL), views(spare)), AS, "A") == ["10.0.0.1"]
    standby = view(member(1, policy=WeightedRandom(5)), member(2, policy=WeightedRandom(0)))
    assert contents(answered(zone(ALL), views(standby)), AS, "A") == ["10.0.0.1"]


def test_pool_that_exceeds_a_dns_message_is_drawn_from() -> None:
    pool = view(*(member(n, f"10.0.{n // 250}.{n % 250 + 1}") for n in range(1, 1501)))
    shown = [set(contents(answered(zone(ALL), views(pool), seed=seed), OWNER, "SRV")) for seed in (1, 2)]
    sizes = [fitting.srv_size(target(1), 1, 0) + fitting.beyond_pointers("00000001", 1)] * 1500
    assert len(shown[0]) == len(shown[1]) == fitting.how_many(OWNER, sizes, fitting.LIMIT_TCP) == 884
    assert shown[0] != shown[1]


def test_a_small_pool_is_shown_whole() -> None:
    pool = view(*(member(number) for number in range(1, 5)))
    for seed in range(5):
        assert len(contents(answered(zone(), views(pool), seed=seed), OWNER, "SRV")) == 4


def test_two_are_shown_when_two_live_however_many_addresses_they_have() -> None:
    wide = [member(n, *(f"10.{n}.0.{host}" for host in range(1, 33))) for n in (1, 2, 3)]
    snapshot = answered(zone(), views(view(*wide)))
    shown = contents(snapshot, OWNER, "SRV")
    sizes = [fitting.srv_size(target(n), len(contents(snapshot, target(n), "A")), 0) for n in (1, 2)]
    assert len(shown) == fitting.how_many(OWNER, sizes) == 2
    assert contents(snapshot, target(1), "A")[:2] == ["10.1.0.1", "10.1.0.2"]


def test_addresses_are_drawn_by_weight_and_not_more_than_max_addresses() -> None:
    pool = view(
        member(1, policy=LeastUsed(0.0)), member(2, policy=LeastUsed(0.9)), member(3, policy=LeastUsed(0.9))
    )
    seen = [tuple(contents(answered(zone(), views(pool), seed=seed), AS, "A")) for seed in range(200)]
    assert {len(addresses) for addresses in seen} == {2}
    assert sum("10.0.0.1" in addresses for addresses in seen) > 180
    assert {address for addresses in seen for address in addresses} == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}


def test_addresses_are_drawn_by_weight_without_replacement() -> None:
    weights = {"10.0.0.1": 500, "10.0.0.2": 250, "10.0.0.3": 250}
    loads = {1: 0.5, 2: 0.75, 3: 0.75}
    (site,) = zone().sites
    pool = view(*(member(n, policy=LeastUsed(load)) for n, load in loads.items()))
    state = state_of(site.pools[0], Believed().to(views(pool)), None, NOW, 3600, 1)
    draw, seen = Random(43), Counter[tuple[str, ...]]()
    for _ in range(DRAWS):
        nodes, drawn = site_nodes(site, [state], 1, draw)
        assert drawn
        seen[tuple(record.content for record in nodes[AS].records if record.type == "A")] += 1
    total = sum(weights.values())
    expected = {
        pair: DRAWS
        * sum(weights[a] / total * weights[b] / (total - weights[a]) for a, b in permutations(pair))
        for pair in combinations(weights, 2)
    }
    assert sum((seen[pair] - many) ** 2 / many for pair, many in expected.items()) < 13.82  # 2 degrees, 0.1 %
    assert seen.keys() == expected.keys()


def test_a_share_is_exact_over_many_answers_that_show_a_part_of_the_pool() -> None:
    """Clients draw by RFC 2782 among those that an answer of 8 shows, in a pool of 20."""
    members = {number: member(number) for number in range(1, 21)}
    members[1] = replace(members[1], share=0.05)
    weighted = weights.with_shares(members, weights.weigh(members, {}, NOW, 0.0))
    draw, chosen = Random(47), Counter[int]()
    for _ in range(2 * DRAWS):
        shown = in_order(weighted, draw)[:8]
        chosen.update(draw.choices(shown, [weighted[key].weight for key in shown]))
    assert abs(chosen[1] / (2 * DRAWS) - 0.05) < 0.005


def test_addresses_are_drawn_anew_after_each_ttl() -> None:
    pool, own, draw, snapshot = views(view(*(member(n) for n in (1, 2, 3)))), zone(), Random(43), None
    seen = set()
    for second in range(50):
        snapshot = built([own], pool, snapshot, NOW + second, 1, draw).after
        early = built([own], pool, snapshot, NOW + second + 0.9, 1, draw).after
        assert early.nodes is snapshot.nodes, "not before the TTL is over"
        seen.add(tuple(contents(snapshot, AS, "A")))
    assert len(seen) == 3


def test_answers_are_drawn_anew_when_a_member_leaves_that_they_show() -> None:
    few = [member(n) for n in range(1, 21)]
    own, draw, snapshot, seen = zone(), Random(47), None, set()
    for _ in range(60):
        snapshot = built([own], views(view(*few)), snapshot, NOW, 1, draw).after
        shown = contents(snapshot, AS, "A")
        seen.add(tuple(shown))
        left = next(shown_member for shown_member in few if str(shown_member.addresses[0]) == shown[0])
        fewer = [shown_member for shown_member in few if shown_member is not left]
        snapshot = built([own], views(view(*fewer)), snapshot, NOW, 1, draw).after
        assert shown[0] not in contents(snapshot, AS, "A")
    assert len(seen) > 15


def test_members_that_an_answer_does_not_show_come_and_go_without_a_purge_of_it() -> None:
    """Somebody registers hundreds a second in the same pool: their names change, the answer does not."""
    few, own, draw = [member(n) for n in range(1, 21)], zone(), Random(48)
    first = built([own], views(view(*few)), None, NOW, 1, draw).after
    shown = {line.rpartition(" ")[2] for line in contents(first, OWNER, "SRV")}
    addresses = set(contents(first, AS, "A"))
    unshown = [
        other
        for other in few
        if not any(f"{other.identifier:08x}" in target for target in shown)
        and str(other.addresses[0]) not in addresses
    ]
    snapshot = first
    for turn in range(9):
        now = NOW + turn / 10
        strangers = [member(100 + 10 * turn + n, since_s=now) for n in range(10)]
        rest = [shown_member for shown_member in few if shown_member is not unshown[turn % len(unshown)]]
        change = built([own], views(view(*rest, *strangers)), snapshot, now, 1, draw)
        snapshot = change.after
        assert {OWNER, AS}.isdisjoint(change.names())
    drawn = built([own], views(view(*rest, *strangers)), snapshot, NOW + 1.1, 1, draw).after
    assert contents(drawn, OWNER, "SRV") != contents(first, OWNER, "SRV"), (
        "newcomers wait for a second at most"
    )


def test_addresses_are_of_the_best_tier_only() -> None:
    pool = view(member(1, policy=Priority(10)), member(2, policy=Priority(5)))
    snapshot = answered(zone(), views(pool))
    assert contents(snapshot, AS, "A") == ["10.0.0.1"]
    assert [content.split()[0] for content in contents(snapshot, OWNER, "SRV")] == ["0", "1"]


def test_a_server_in_two_pools_is_one_address() -> None:
    udp, tcp = member(1), member(9, "10.0.0.1", protocol=Protocol.TCP)
    snapshot = answered(zone(UDP + TCP), views(view(udp), view(tcp, handle="sip-tcp")))
    assert contents(snapshot, AS, "A") == ["10.0.0.1"]


def test_a_standby_is_known_but_not_shown_until_it_is_alone() -> None:
    standby, at_work = member(1, policy=WeightedRandom(0)), member(2, policy=WeightedRandom(5))
    both = answered(zone(), views(view(standby, at_work)))
    assert contents(both, OWNER, "SRV") == [f"0 5 5060 {target(2)}"]
    assert contents(both, AS, "A") == ["10.0.0.2"]
    alone = answered(zone(), views(view(standby)), both)
    assert contents(alone, OWNER, "SRV") == [f"0 1 5060 {target(1)}"]


def test_shards_make_one_pool() -> None:
    sharded = zone(UDP.replace('handle = "sip-udp"', 'handles = ["sip-udp", "sip-udp-2"]'))
    snapshot = answered(sharded, views(view(member(1)), view(member(1, "10.0.0.9"), handle="sip-udp-2")))
    assert contents(snapshot, OWNER, "SRV") == [f"0 1000 5060 {target(1)}", f"0 1000 5060 00000001-2.u.{AS}"]
    assert contents(snapshot, f"00000001-2.u.{AS}", "A") == ["10.0.0.9"]


def test_soa_is_clamped_to_the_negative_ttl_and_carries_the_serial() -> None:
    by_default = answered(zone(), views(view(member(1))), serial=4711)
    (soa,) = records(by_default, ZONE, "SOA")
    assert soa.content.split() == [
        f"ns1.{ZONE}.",
        f"hostmaster.{ZONE}.",
        "4711",
        "7200",
        "900",
        "1209600",
        "1",
    ]
    assert soa.ttl == 1
    (soa,) = records(answered(zone(head="negative_ttl = 60"), {}), ZONE, "SOA")
    assert (soa.ttl, soa.content.split()[-1]) == (60, "60")
    (soa,) = records(answered(zone(head="ttl = 900"), {}), ZONE, "SOA")
    assert (soa.ttl, soa.content.split()[-1]) == (900, "300")


def test_fixed_records_stand_beside_live_records() -> None:
    fixed = f"""{FIXED}
as            TXT    "hello"
_sip._udp.as  TXT    "there"
as       7200 NAPTR  50 50 "u" "E2U+sip" "" .
*.w           A      10.0.9.9
"""
    snapshot = answered(zone(fixed=fixed), views(view(member(1))))
    assert contents(snapshot, AS, "TXT") == ['"hello"']
    assert contents(snapshot, OWNER, "TXT") == ['"there"']
    assert [(r.ttl, r.content.split()[3]) for r in records(snapshot, AS, "NAPTR")] == [
        (1, '"SIP+D2U"'),
        (1, '"E2U+sip"'),
    ]
    assert contents(snapshot, f"*.w.{ZONE}", "A") == ["10.0.9.9"]
    assert contents(snapshot, f"ns1.{ZONE}", "A") == ["10.0.1.1"]


def test_a_newcomers_weight_grows_by_itself() -> None:
    own, pool = zone(), views(view(member(1), member(2, since_s=NOW)))
    snapshot = answered(own, pool)
    weights = []
    while snapshot.rebuild_at_s < NOW + 60:
        weights.append(int(contents(snapshot, OWNER, "SRV")[1].split()[1]))
        snapshot = answered(own, pool, snapshot, snapshot.rebuild_at_s)
    assert weights == [200, 280, 360, 440, 520, 600, 680, 760, 840, 920]
    assert contents(snapshot, OWNER, "SRV")[1] == f"0 1000 5060 {target(2)}"


def test_when_all_come_at_once_nothing_is_built_again() -> None:
    """As a backend sees it that starts."""
    first = answered(
        zone(), views(view(*(member(identifier, since_s=NOW + identifier / 10) for identifier in (1, 2))))
    )
    assert first.rebuild_at_s == float("inf")
    assert [content.split()[1] for content in contents(first, OWNER, "SRV")] == ["1000"] * 2


one_member = st.tuples(
    st.integers(1, 3),
    st.lists(st.sampled_from(("10.0.0.1", "10.0.0.2", "2001:db8::1")), min_size=1, max_size=3, unique=True),
    st.sampled_from((5060, 5061)),
)
pools_seen = st.lists(one_member, max_size=3, unique_by=lambda seen: seen[0])


steps = st.tuples(
    st.sampled_from(("sip-udp", "sip-tcp")), st.none() | pools_seen, st.sampled_from((0.0, 1.1))
)


@given(st.lists(steps, max_size=10), st.none() | st.just(frozenset({"sip-udp"})))
def test_nodes_shared_with_the_snapshot_before_equal_those_built_anew(
    changes: list[tuple[str, list[tuple[int, list[str], int]] | None, float]],
    asked_for: frozenset[str] | None,
) -> None:
    """None: nobody tells of the pool. Chance has no part in A records: at most two of a kind."""
    own, snapshot, told, now = zone(f"{UDP}max_addresses = 8\n{TCP}max_addresses = 8\n"), None, views(), NOW
    for handle, of_pool, pause_s in changes:
        now += pause_s
        told = {name: seen for name, seen in told.items() if name != handle}
        if of_pool is not None:
            protocol = Protocol.UDP if handle == "sip-udp" else Protocol.TCP
            members = [
                member(identifier, *found, port=port, protocol=protocol)
                for identifier, found, port in of_pool
            ]
            told |= views(view(*sorted(members, key=lambda known: known.identifier), handle=handle))
        snapshot = built([own], told, snapshot, now, 1, Random(1), asked_for=asked_for).after
        assert snapshot.nodes == built([own], told, None, now, 1, Random(1)).after.nodes


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


def test_an_unknown_pool_does_not_spoil_the_other_pools_of_its_name() -> None:
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


def test_static_records_stand_in_for_an_empty_pool_no_longer_than_live_records() -> None:
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
    assert [content.split()[-1] for content in contents(snapshot, OWNER, "SRV")] == [f"00000003.u.{AS}"]


def test_a_pool_nobody_reaches_leaves_the_name_to_one_that_answers() -> None:
    of_pools = views(view(unreachable=(member(1),)), view(member(2, protocol=Protocol.TCP), handle="sip-tcp"))
    snapshot = answered(zone(UDP + TCP), of_pools)
    assert contents(snapshot, AS, "A") == ["10.0.0.2"]
    assert len(contents(snapshot, AS, "NAPTR")) == 1
    assert len(contents(snapshot, OWNER, "SRV")) == 1
