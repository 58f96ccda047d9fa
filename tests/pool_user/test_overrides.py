"""Overrides: who is in, who is out, and which part of the calls each gets."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_user import Code, Member, NamedServers, OverrideAction, PoolOverride, weights
from pool_user.weights import Weighted

from rserpool import LeastUsed, PoolElement, PoolKey, Protocol
from tests.pool_user.belief_support import POOL, R1, R2, RULES, Play, pe, push, settled

DRAWS = 20_000
SECOND = NamedServers(places=frozenset({(ip_address("10.0.0.2"), 5060)}))


def override(action: OverrideAction, servers: NamedServers = SECOND) -> PoolOverride:
    return PoolOverride(7, action, servers, "by alice: new kernel", None)


def overridden(play: Play, *overrides: PoolOverride) -> None:
    play.belief.set_overrides({POOL: overrides})


def test_down_takes_a_member_out_and_says_why() -> None:
    play = settled()
    overridden(play, override(OverrideAction.DOWN))
    change = play.evaluate().pools[POOL]
    assert [member.identifier for member in change.after.members] == [1]
    (departure,) = change.left
    assert (departure.member.identifier, departure.cause.code) == (2, Code.OVERRIDDEN)
    assert departure.cause.words == "taken out by override 7: by alice: new kernel"
    assert [(out.identifier, out.cause.code) for out in change.after.out] == [(2, Code.OVERRIDDEN)]


def test_member_is_in_again_when_its_override_ends_and_starts_slowly() -> None:
    play = settled()
    overridden(play, override(OverrideAction.DOWN))
    play.wait(50)
    assert play.members() == [1]
    overridden(play)
    assert play.members() == [1, 2]
    assert play.view().members[1].since_s == play.now
    assert play.view().departures == ()


def test_server_that_died_under_its_override_is_no_longer_planned_when_it_ends() -> None:
    play = settled()
    overridden(play, override(OverrideAction.DOWN))
    play.evaluate()
    for index in range(3):
        play.answer(index, pe(1, R1))
    (departure,) = play.view().departures
    assert departure.cause.code.is_planned
    overridden(play)
    assert play.members() == [1]
    (departure,) = play.view().departures
    assert departure.cause.code is Code.GONE


def test_server_stays_out_under_a_new_identifier() -> None:
    play = settled()
    overridden(play, override(OverrideAction.DOWN))
    push(play, 1, pe(3, R2, "10.0.0.2"))
    assert play.members() == [1]


def test_last_member_that_is_taken_out_is_no_substitute() -> None:
    play = settled()
    overridden(play, override(OverrideAction.DOWN, NamedServers(networks=(ip_network("10.0.0.0/8"),))))
    view = play.view()
    assert (view.members, view.recent, view.unreachable) == ((), (), ())


def test_up_keeps_a_member_in_that_all_registrars_lost() -> None:
    play = settled()
    overridden(play, override(OverrideAction.UP))
    for index in range(3):
        play.answer(index, pe(1, R1))
    assert play.members() == [1, 2]
    assert play.view().members[1].stale
    play.wait(100)
    assert play.members() == [1, 2]
    overridden(play)
    assert play.members() == [1]


def test_up_brings_in_a_server_that_had_left_before() -> None:
    play = settled()
    for index in range(3):
        play.answer(index, pe(1, R1))
    assert play.members() == [1]
    overridden(play, override(OverrideAction.UP))
    assert play.members() == [1, 2]
    push(play, 1, pe(3, R2, "10.0.0.2"))
    play.answer(0, pe(1, R1))
    assert len(play.members()) == 2, "a server has one place"


def test_up_brings_in_nobody_outside_accept() -> None:
    play = settled()
    push(play, 0, pe(9, R1, "192.0.2.9"))
    overridden(play, override(OverrideAction.UP, NamedServers(glob="*")))
    assert play.members() == [1, 2]


def test_first_override_decides() -> None:
    play = settled()
    overridden(
        play, override(OverrideAction.UP), override(OverrideAction.DOWN, NamedServers(glob="10.0.0.*"))
    )
    assert play.members() == [2]


@pytest.mark.parametrize(
    ("servers", "place", "named"),
    [
        (NamedServers(glob="10.1.*"), ("10.1.2.3", 5060), True),
        (NamedServers(glob="*:5061"), ("10.1.2.3", 5060), False),
        (NamedServers(glob="[2001:db8::1]:*"), ("2001:db8::1", 5060), False),
        (NamedServers(networks=(ip_network("10.1.0.0/16"),)), ("10.1.2.3", 1), True),
        (NamedServers(networks=(ip_network("10.1.0.0/16"),)), ("2001:db8::1", 1), False),
        (SECOND, ("10.0.0.2", 5061), False),
    ],
)
def test_servers_are_named_by_place_network_or_glob(
    servers: NamedServers, place: tuple[str, int], named: bool
) -> None:
    assert servers.has((ip_address(place[0]), place[1])) is named


# Shares


def members_of(*loads: float, **shares: float) -> dict[str, Member]:
    named = {}
    for number, load in enumerate(loads, 1):
        key = f"m{number}"
        address = (ip_address(f"10.0.0.{number}"),)
        made = Member(number, R1, address, 5060, Protocol.UDP, LeastUsed(load), 0.0)
        named[key] = replace(made, share=shares.get(key))
    return named


def test_drained_member_is_shown_only_when_nothing_else_lives() -> None:
    members = members_of(0.1, 0.2, 0.3, m1=0.0, m2=0.25)
    weighted = weights.with_shares(members, weights.weigh(members, {}, 1000.0, 0))
    assert {key for key, each in weighted.items() if each.standby} == {"m1"}
    assert weights.shares(weighted) == pytest.approx({"m1": 0.0, "m2": 0.25, "m3": 0.75}, abs=1e-4)
    alone = {"m1": members["m1"]}
    assert weights.shares(weights.with_shares(alone, weights.weigh(alone, {}, 1000.0, 0))) == {"m1": 1.0}


def drawn(weighted: dict[str, Weighted]) -> Counter[str]:
    """Draws as RFC 2782 has clients do."""
    chance = random.Random(20261126)
    first = min(each.priority for each in weighted.values())
    keys = [key for key, each in weighted.items() if each.priority == first]
    chosen: Counter[str] = Counter()
    for _ in range(DRAWS):
        chance.shuffle(keys)
        point, total = chance.randint(0, sum(weighted[key].weight for key in keys)), 0
        for key in keys:
            total += weighted[key].weight
            if total >= point:
                chosen[key] += 1
                break
    return chosen


def weighed(
    members: Mapping[str, Member], before: Mapping[str, Weighted] | None = None, *, wide: bool = False
) -> dict[str, Weighted]:
    due = None if before is None else ()
    return weights.with_shares(members, weights.weigh(members, before or {}, 1000.0, 0, due, wide))


@pytest.mark.parametrize("loads", [(0.0, 0.0, 0.0, 0.0), (0.1, 0.5, 0.9, 0.3)])
def test_share_of_5_percent_of_four_members_is_5_percent_of_the_draws(loads: tuple[float, ...]) -> None:
    found = drawn(weighed(members_of(*loads, m2=0.05)))
    assert abs(found["m2"] / DRAWS - 0.05) < 0.005
    free = {"m1": 1 - loads[0], "m3": 1 - loads[2], "m4": 1 - loads[3]}
    for key, part in free.items():
        assert abs(found[key] / DRAWS - 0.95 * part / sum(free.values())) < 0.015


def test_shares_of_a_priority_are_divided_within_it() -> None:
    members = members_of(0.0, 0.0, 0.0, m1=0.1)
    members["m3"] = replace(members["m3"], policy=LeastUsed(0.97))
    given = weights.shares(weighed(members))
    assert given == pytest.approx({"m1": 0.1, "m2": 0.9, "m3": 0.0}, abs=1e-4)


@given(
    st.lists(st.tuples(st.floats(0, 0.9), st.none() | st.floats(0.01, 0.9)), min_size=1, max_size=8),
    st.booleans(),
)
def test_shares_fit_into_srv_weights_and_are_the_same_however_often(
    wanted: list[tuple[float, float | None]], wide: bool
) -> None:
    shares = {f"m{number}": share for number, (_, share) in enumerate(wanted, 1) if share is not None}
    members = members_of(*(load for load, _ in wanted), **shares)
    first = weighed(members, wide=wide)
    assert all(1 <= each.weight <= weights.MAX_WEIGHT for each in first.values())
    assert weighed(members, first, wide=wide) == first
    if sum(shares.values()) < 0.95 and len(shares) < len(members):
        given = weights.shares(first)
        assert all(abs(given[key] - share) < 0.005 for key, share in shares.items())


@pytest.mark.parametrize("first", ["place", "network", "glob"])
def test_first_override_that_names_a_server_decides(first: str) -> None:
    named = {
        "place": SECOND,
        "network": NamedServers(networks=(ip_network("10.0.0.0/30"),)),
        "glob": NamedServers(glob="10.0.0.2:*"),
    }
    play = settled()
    ups = [override(OverrideAction.UP, servers) for name, servers in named.items() if name != first]
    overridden(play, override(OverrideAction.DOWN, named[first]), *ups)
    assert 2 not in play.members()
    overridden(play, *ups, override(OverrideAction.DOWN, named[first]))
    assert 2 in play.members()


def test_a_thousand_overrides_of_single_servers_are_not_all_compared_with_each_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = Counter[str]()
    has = NamedServers.has

    def counted(named: NamedServers, place: tuple[IPv4Address | IPv6Address, int]) -> bool:
        compared["has"] += 1
        return has(named, place)

    monkeypatch.setattr(NamedServers, "has", counted)
    play = settled()
    places = [(ip_address(f"10.9.{number // 250}.{number % 250}"), 1) for number in range(1000)]
    others = [NamedServers(places=frozenset({place})) for place in places]
    overridden(play, *(override(OverrideAction.DOWN, servers) for servers in (*others, SECOND)))
    assert play.members() == [1]
    assert compared["has"] == 0


def test_up_holds_a_member_of_a_keyed_pool_in_that_is_gone() -> None:
    key = PoolKey(bytes(32))
    play = Play()
    play.belief.set_pools({POOL: replace(RULES, keys=(key,))}, play.now)
    play.settle(0, 1, 2)

    def keyed(number: int) -> PoolElement:
        element = pe(number, R1)
        server = key.server_key(Protocol.UDP, element.user_transport.addresses[0], 5060)
        return replace(element, identifier=server.identifier(POOL.encode(), 1))

    for index in range(3):
        play.answer(index, keyed(1), keyed(2))
    overridden(play, override(OverrideAction.UP))
    for index in range(3):
        play.answer(index, keyed(1))
    play.wait(60)
    assert {str(member.addresses[0]) for member in play.view().members} == {"10.0.0.1", "10.0.0.2"}
    overridden(play)
    assert {str(member.addresses[0]) for member in play.view().members} == {"10.0.0.1"}
