"""Snapshots follow one another: what is shared, what counts as changed, when the serial moves."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_user import Member, PoolView
from rspdns.answers.change import difference
from rspdns.answers.snapshot import NXDOMAIN, Failure, Found, Snapshot
from rspdns.rrset import Node

from rserpool import LeastUsed
from tests.backend.making import (
    FIXED,
    NOW,
    UDP,
    ZONE,
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
TARGETS = [f"{number:08x}.u.{AS}" for number in range(10)]
OTHER = UDP.replace("sip-udp", "other").replace('"as"', '"other"')


def test_a_member_that_leaves_changes_srv_addresses_and_its_target() -> None:
    own = zone()
    before = answered(own, views(view(member(1), member(2))))
    two = answered(own, views(view(member(1))), before, serial=2)
    assert difference(before, two).names() == {OWNER, AS, TARGETS[2]}
    assert difference(two, before).names() == {OWNER, AS, TARGETS[2]}


def test_a_target_that_moves_changes_the_srv_name_too() -> None:
    """PowerDNS puts the targets' addresses into the SRV answer."""
    own = zone()
    before = answered(own, views(view(member(1), member(2), member(3))))
    two = answered(own, views(view(member(1), member(2), member(3, "10.9.9.9"))), before, serial=2)
    assert {OWNER, TARGETS[3]} <= difference(before, two).names() <= {OWNER, TARGETS[3], AS}


def test_a_weight_changes_srv_alone() -> None:
    own = zone()
    before = answered(own, views(view(member(1), member(2))))
    two = answered(own, views(view(member(1), member(2, policy=LeastUsed(0.5)))), before, NOW + 5, serial=2)
    assert difference(before, two).names() == {OWNER}


def test_the_last_member_takes_naptr_along_and_the_first_brings_it() -> None:
    own = zone()
    full, empty = answered(own, views(view(member(1)))), answered(own, views(view()))
    assert difference(full, empty).names() == difference(empty, full).names() == {OWNER, AS, TARGETS[1]}


def test_failing_names_are_changed_names() -> None:
    own = zone()
    unknown, known = answered(own, {}), answered(own, views(view(member(1))))
    assert {OWNER, AS, TARGETS[1]} <= difference(unknown, known).names()


def test_zones_that_come_and_go_change_all_their_names() -> None:
    own, other = zone(), zone(name="example.org")
    alone, both = answered(own, views(view(member(1)))), answered([own, other], views(view(member(1))))
    expected = {"example.org", "ns1.example.org", "as.example.org", "_sip._udp.as.example.org"}
    assert expected <= difference(alone, both).names() == difference(both, alone).names()
    assert not any(name.endswith("example.net") for name in difference(alone, both).names())
    assert difference(Snapshot(), alone).names() >= {ZONE, OWNER, AS, TARGETS[1]}


def test_names_of_an_edited_zone_file_change_with_the_services_that_name_them() -> None:
    service = f"_ldap._tcp.{ZONE}"
    before = FIXED + "_ldap._tcp SRV 1 1 389 ldap\nldap A 10.0.1.5\ngone A 10.0.1.6\nstays A 10.0.1.7\n"
    after = before.replace("10.0.1.5", "10.0.1.9").replace("gone", "come")
    seen = views(view(member(1)))
    first = answered(zone(fixed=before), seen)
    second = answered(zone(fixed=after), seen, first, serial=2)
    edited = {service, f"ldap.{ZONE}", f"gone.{ZONE}", f"come.{ZONE}"}
    assert difference(first, second).names() == difference(second, first).names() == edited


def test_nothing_changed_nothing_is_new() -> None:
    own = zone()
    before = answered(own, views(view(member(1))))
    two = answered(own, views(view(member(1))), before, NOW + 1, serial=2)
    assert difference(before, two).names() == set()
    assert two.nodes is before.nodes
    assert two.zones()[0].serial == 1


def test_change_in_the_same_mapping_of_views_is_seen() -> None:
    own, seen = zone(), dict(views(view(member(1), member(2))))
    before = answered(own, seen)
    seen |= views(view(member(1)))
    two = answered(own, seen, before, serial=2)
    assert OWNER in difference(before, two).names()
    assert len(contents(two, OWNER, "SRV")) == 1


def test_change_of_weights_alone_is_told_from_all_others() -> None:
    own = zone()
    loaded = replace(member(2), policy=LeastUsed(0.5))
    before = answered(own, views(view(member(1), member(2))))

    def reweighed(*members: Member, later: Snapshot = before) -> set[str]:
        after = answered(own, views(view(*members)), later, NOW + 2, 2)
        change = difference(later, after)
        assert change.reweighed() <= change.names()
        return change.reweighed()

    assert OWNER in reweighed(member(1), loaded)
    assert reweighed(member(1)) == set()
    assert reweighed(member(1), loaded, member(3)) == set()
    assert reweighed(member(1), member(2, "10.7.7.7")) == set()
    overloaded = replace(member(2), policy=LeastUsed(0.99))
    assert reweighed(member(1), overloaded) == set(), "its priority is another one"


def test_a_change_that_no_answer_shows_does_not_move_the_serial() -> None:
    own = zone()
    before = answered(own, views(view(member(1, policy=LeastUsed(0.50)))))
    two = answered(own, views(view(member(1, policy=LeastUsed(0.51)))), before, NOW + 5, serial=2)
    assert two.zones()[0].serial == 1
    assert difference(before, two).names() == set()


def test_unchanged_pools_and_zones_are_shared() -> None:
    own, other = zone(UDP + OTHER), zone(name="example.org")
    others = view(member(7), handle="other")
    before = answered([own, other], views(view(member(1)), others))
    two = answered([own, other], views(view(member(2)), others), before, serial=2)
    changed, shared = two.zone_answers[ZONE].sites
    assert shared is before.zone_answers[ZONE].sites[1]
    assert changed is not before.zone_answers[ZONE].sites[0]
    # "example.org" has the same pool in it, so both zones moved; without it, one stays.
    third = zone(OTHER, name="example.com")
    before = answered([own, third], views(view(member(1)), others))
    two = answered([own, third], views(view(member(2)), others), before, serial=2)
    assert [(answers.name, answers.serial) for answers in two.zones()] == [("example.com", 1), (ZONE, 2)]


def test_weights_move_once_a_second_at_most_members_at_once() -> None:
    own = zone()
    snapshot = answered(own, views(view(member(1), member(2))), now=NOW)
    busy = views(view(member(1), member(2, policy=LeastUsed(0.5))))
    soon = answered(own, busy, snapshot, NOW + 0.3, serial=2)
    assert contents(soon, OWNER, "SRV") == contents(snapshot, OWNER, "SRV")
    assert soon.rebuild_at_s == NOW + 1
    later = answered(own, busy, soon, NOW + 1, serial=3)
    assert contents(later, OWNER, "SRV")[1].startswith("0 500 ")
    gone = answered(own, views(view(member(1))), snapshot, NOW + 0.3, serial=2)
    assert len(contents(gone, OWNER, "SRV")) == 1


def test_addresses_that_were_drawn_are_drawn_again_after_the_ttl() -> None:
    own = zone(head="ttl = 3")
    pool = views(view(*(member(number) for number in range(1, 6))))
    snapshot = answered(own, pool)
    assert snapshot.rebuild_at_s == NOW + 3
    assert answered(own, pool, snapshot, NOW + 2.9, seed=2).nodes is snapshot.nodes
    seen = {tuple(contents(answered(own, pool, snapshot, NOW + 3, seed=seed), AS, "A")) for seed in range(30)}
    assert len(seen) > 3


def test_addresses_that_nobody_asks_for_are_not_drawn_again() -> None:
    own = [zone(UDP + OTHER)]
    members = tuple(member(number) for number in range(1, 6))
    pools = views(view(*members), view(*members, handle="other"))
    first = answered(own, pools)
    later = built(own, pools, first, NOW + 60, 2, random.Random(2), asked_for=frozenset({"other"})).after
    assert contents(later, AS, "A") == contents(first, AS, "A")
    assert contents(later, f"other.{ZONE}", "A") != contents(first, f"other.{ZONE}", "A")
    assert later.rebuild_at_s == NOW + 61
    idle = built(own, pools, first, NOW + 60, 2, random.Random(2), asked_for=frozenset()).after
    assert idle.nodes is first.nodes
    assert idle.rebuild_at_s == float("inf")


def test_reloaded_zones_keep_the_weights_of_before() -> None:
    before = answered(zone(), views(view(member(1, policy=LeastUsed(0.50)))))
    two = answered(zone(), views(view(member(1, policy=LeastUsed(0.53)))), before, NOW + 5, serial=2)
    assert contents(two, OWNER, "SRV") == contents(before, OWNER, "SRV")


def test_a_zone_inside_another_keeps_its_own_names() -> None:
    outer = zone(OTHER, FIXED + "ims NS ns1.ims\nns1.ims A 10.7.7.7\n", name="example.net")
    inner = zone()
    snapshot = answered([inner, outer], views(view(member(1)), view(member(2), handle="other")))
    assert records(snapshot, ZONE, "SOA")[0].name == ZONE
    assert contents(snapshot, f"ns1.{ZONE}", "A") == ["10.0.1.1"]
    assert contents(snapshot, "ns1.example.net", "A") == ["10.0.1.1"]


def test_the_zone_that_is_asked_answers_also_about_names_that_another_one_has() -> None:
    delegation = f"ims NS ns1.ims\nims DS 1 13 2 {'00' * 32}\nns1.ims A 10.7.7.7\n"
    outer, inner = zone(OTHER, FIXED + delegation, name="example.net"), zone()
    snapshot = answered([inner, outer], views(view(member(1)), view(member(2), handle="other")))

    def contents_at(name: str, zone_asked: str, qtype: str = "ANY") -> list[tuple[str, str]]:
        outcome = snapshot.lookup(name, qtype, zone_asked)
        return (
            [(record.type, record.content) for record in outcome.records]
            if isinstance(outcome, Found)
            else []
        )

    assert [kind for kind, _ in contents_at(ZONE, "example.net")] == ["NS", "DS"]
    assert [kind for kind, _ in contents_at(ZONE, ZONE)] == ["SOA", "NS"]
    assert contents_at(f"ns1.{ZONE}", "example.net") == [("A", "10.7.7.7")]
    assert contents_at(f"ns1.{ZONE}", ZONE) == [("A", "10.0.1.1")]
    assert snapshot.lookup(OWNER, "SRV", "example.net") == NXDOMAIN
    assert snapshot.lookup("_sip._udp.other.example.net", "SRV", ZONE) == NXDOMAIN
    assert contents_at("_sip._udp.other.example.net", "example.net")


def test_a_change_of_one_zone_leaves_the_others_as_they_are() -> None:
    outer, inner = zone(OTHER, name="example.net"), zone()
    before = answered([inner, outer], views(view(member(1)), view(member(2), handle="other")))
    two = answered([inner, outer], views(view(member(3)), view(member(2), handle="other")), before, serial=2)
    assert two.nodes["example.net"].keys() == before.nodes["example.net"].keys()
    assert two.nodes[ZONE] == dict(two.zone_answers[ZONE].nodes())


def test_a_zone_transfer_has_every_record_once_soa_first() -> None:
    snapshot = answered(zone(UDP.replace('"as"', '"@"')), views(view(member(1))))
    listed = snapshot.zone_records(ZONE)
    assert listed[0].type == "SOA"
    assert len(set(listed)) == len(listed)
    assert {record.type for record in listed} == {"SOA", "NS", "A", "SRV", "NAPTR"}
    assert snapshot.zone_records("example.org") == ()


pool_members = st.sets(st.integers(1, 9), max_size=6)
steps = st.lists(st.tuples(pool_members, pool_members, st.booleans()), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(steps, st.integers(0, 3))
@pytest.mark.parametrize("name", ["as", "@"])
def test_a_patched_snapshot_is_what_a_fresh_one_would_be(
    name: str, history: list[tuple[set[int], set[int], bool]], seed: int
) -> None:
    own = zone((UDP + OTHER + "max_addresses = 16\n").replace('"as"', f'"{name}"'))
    snapshot, now = Snapshot(), NOW
    draw = random.Random(seed)
    for first, two, known in history:
        seen = views(
            view(*map(member, sorted(first))),
            view(*(member(n, f"10.1.0.{n}") for n in sorted(two)), handle="other"),
        )
        if not known:
            del seen["other"]
        now += draw.choice([0.1, 5.0])
        before, snapshot = snapshot, answered(own, seen, snapshot, now, serial=int(now * 10))
        fresh = answered(own, seen, None, now, serial=snapshot.zones()[0].serial)
        assert snapshot.nodes[ZONE].keys() == fresh.nodes[ZONE].keys()
        assert dict(snapshot.zone_answers[ZONE].nodes()) == dict(snapshot.nodes[ZONE])
        assert contents_of(snapshot, "other") == contents_of(fresh, "other")
        differing = {
            n
            for n in before.nodes.get(ZONE, {}).keys() | snapshot.nodes[ZONE].keys()
            if shown(before, n) != shown(snapshot, n)
        }
        assert differing <= difference(before, snapshot).names()


def contents_of(snapshot: Snapshot, name: str) -> object:
    return snapshot.lookup(f"{name}.{ZONE}", "A"), snapshot.lookup(f"_sip._udp.{name}.{ZONE}", "SRV")


def shown(snapshot: Snapshot, name: str) -> object:
    node = snapshot.nodes.get(ZONE, {}).get(name)
    return node and ([record for record in node.records if record.type != "SOA"], node.failure)


class _Counted(dict[str, Node]):
    """Counts how often a name is looked for in the table."""

    looked = 0

    def get(self, *arguments: Any) -> Any:
        self.looked += 1
        return super().get(*arguments)


@pytest.mark.parametrize("views_now", [{}, views(view(member(1)))], ids=["unknown", "known"])
def test_a_deep_name_costs_no_more_than_a_shallow_name(views_now: Mapping[str, PoolView]) -> None:
    snapshot = answered(zone(), views_now)
    counts = []
    for labels in (1, 10, 100):
        nodes = _Counted(snapshot.nodes[ZONE])
        name = ".".join(["x"] * labels + [ZONE])
        assert replace(snapshot, nodes={ZONE: nodes}).lookup(name, "A") == NXDOMAIN
        counts.append(nodes.looked)
    assert counts[2] == counts[1] < 10
    below_unknown = ".".join(["x"] * 100 + [f"u.as.{ZONE}"])
    assert isinstance(snapshot.lookup(below_unknown, "A"), Failure) == (not views_now)
