"""Which packet goes which way: actions, targets and shares."""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st
from pool_user import PoolView, Weighted
from ppu_agent.configuration import PROTOCOLS, OnDeadConfig
from ppu_agent.deaths import Departed, DepartedServers, State
from ppu_agent.destinations import Destination
from ppu_agent.drawing import Target, drawn, drawn_by_source, shares, slots_by_source
from ppu_agent.mechanisms.answer import answer_rules
from ppu_agent.mechanisms.ending import Copied, copied
from ppu_agent.mechanisms.redirect import redirect_rules
from ppu_agent.mechanisms.refuse import refuse_rules
from ppu_agent.mechanisms.repeat import relayed
from ppu_agent.plan import WAYS, Front, OnDead, Plan, PoolPolicy, plan

from rserpool import Protocol
from tests.ppu_agent.making import POOL, REFUSED, all_heard, destination, member, policy, show, view

EVEN = {POOL: {number: Weighted(0, 1000) for number in range(1, 10)}}


def dead(*destinations: Destination) -> dict[Destination, Departed]:
    return {
        server: Departed(
            server, member(1), {POOL: None}, 0.0, State.DEAD, finding=REFUSED, was_heard=True, is_certain=True
        )
        for server in destinations
    }


def test_further_transports_of_a_destination_that_never_answered_as_a_member_are_left_alone() -> None:
    """Another service at the same port may live: a DNS server has UDP where nobody accepts TCP."""
    unheard = {server: replace(left, was_heard=False) for server, left in dead(destination(3)).items()}
    found = plan([policy(also=(Protocol.TCP,))], {POOL: view(1, 2)}, EVEN, unheard)
    assert [treatment.destination for treatment in found.treatments] == [destination(3)]


def test_connections_are_spared_until_the_death_is_certain_and_datagrams_are_not() -> None:
    gone = dead(destination(3))
    doubted = {server: replace(left, is_certain=False) for server, left in gone.items()}
    pools = [policy(also=(Protocol.TCP, Protocol.SCTP))]
    found = plan(pools, {POOL: view(1, 2)}, EVEN, doubted).treatments
    assert {treatment.destination.protocol: treatment.spares_connections for treatment in found} == {
        Protocol.UDP: False,
        Protocol.TCP: True,
        Protocol.SCTP: True,
    }
    assert not any(
        treatment.spares_connections for treatment in plan(pools, {POOL: view(1, 2)}, EVEN, gone).treatments
    )


def test_redirected_to_the_living_of_the_pool_by_weight() -> None:
    weights = {POOL: {1: Weighted(0, 800), 2: Weighted(0, 200)}}
    (treatment,) = plan([policy()], {POOL: view(1, 2)}, weights, dead(destination(3))).treatments
    assert (treatment.action, treatment.destination) == ("redirect", destination(3))
    assert treatment.targets == (Target(destination(1), 800), Target(destination(2), 200))


def test_spares_and_lower_priorities_get_nothing_while_better_ones_live() -> None:
    weights = {POOL: {1: Weighted(1, 800), 2: Weighted(0, 200), 4: Weighted(0, 1, standby=True)}}
    (treatment,) = plan([policy()], {POOL: view(1, 2, 4)}, weights, dead(destination(3))).treatments
    assert [target.destination for target in treatment.targets] == [destination(2)]


def test_each_transport_has_its_own_action() -> None:
    found = plan([policy(also=(Protocol.TCP,))], {POOL: view(1, 2)}, EVEN, dead(destination(3)))
    assert [(treatment.destination, treatment.action) for treatment in found.treatments] == [
        (destination(3, Protocol.TCP), "refuse"),
        (destination(3), "redirect"),
    ]


def test_refused_where_no_living_member_has_an_address_of_that_version() -> None:
    (treatment,) = plan([policy()], {POOL: view(1, 2)}, EVEN, dead(destination(3, version=6))).treatments
    assert treatment.action == "refuse"


def test_pool_without_living_members_or_vouching_registrar_loses_nobody() -> None:
    for of in (view(), view(1, 2, stale_since_s=1.0), view(1, 2, known=False)):
        assert plan([policy()], {POOL: of}, EVEN, dead(destination(3))).treatments == ()


def test_address_that_another_pool_lists_is_never_touched() -> None:
    other = replace(view(handle="sip-tcp"), members=(member(3, Protocol.TCP),))
    views = {POOL: view(1, 2), "sip-tcp": other}
    assert plan([policy()], views, EVEN, dead(destination(3))).treatments == ()


def fronts(pool: PoolPolicy, last: PoolView, before: Sequence[Front] = ()) -> tuple[Front, ...]:
    return plan([pool], {POOL: last}, EVEN, {}, (), Plan(fronts=tuple(before))).fronts


def test_places_of_pools_that_did_not_change_are_kept() -> None:
    """A hundred pools with a hundred members took 0.1 s of the event loop, each second and at each change."""
    first, second = policy(also=(Protocol.TCP,)), policy("second")
    views = {POOL: view(1, 2), "second": view(3, handle="second")}
    now = plan([first, second], views, EVEN, {})
    later = plan([first, second], views | {"second": view(4, handle="second")}, EVEN, {}, (), now)
    assert [str(place.destination) for place in later.places[4:]] == ["udp 10.0.0.4:5060"]
    assert all(place is old for place, old in zip(later.places[:4], now.places[:4], strict=True))
    also = plan([replace(first, also=()), second], views, EVEN, {}, (), now)
    assert [str(place.destination) for place in also.places[:2]] == ["udp 10.0.0.1:5060", "udp 10.0.0.2:5060"]


def test_new_flows_to_a_front_go_to_the_living_and_the_last_ones_are_kept() -> None:
    fronting = replace(policy(also=(Protocol.TCP,)), front=(ip_address("10.9.9.9"), 5060))
    found = fronts(fronting, view(1, 2))
    assert [
        (str(front.destination), [target.destination.where for target in front.targets]) for front in found
    ] == [(f"{transport} 10.9.9.9:5060", ["10.0.0.1:5060", "10.0.0.2:5060"]) for transport in ("tcp", "udp")]
    assert fronts(fronting, view(), found) == found, "an empty pool keeps whom it had"
    assert fronts(fronting, view(known=False)) == ()
    assert fronts(policy(), view(1, 2), found) == (), "fronts go with the configuration"
    (over_udp,) = fronts(replace(fronting, also=()), view(1, 2), found)
    assert over_udp.targets == found[1].targets, "and with its transports"
    left_alone = replace(fronting, clients=())
    assert [front.policy for front in fronts(left_alone, view(), found)] == [left_alone] * 2


def test_nothing_is_steered_at_the_address_and_port_of_a_member() -> None:
    assert fronts(replace(policy(), front=destination(1).endpoint), view(1, 2)) == ()
    other_port = replace(policy(), front=(destination(1).address, 5061))
    (found,) = fronts(other_port, view(1, 2))
    assert len(found.targets) == 2


def test_client_moves_only_when_its_server_goes() -> None:
    three = [Target(destination(number), 1000 * number) for number in (1, 2, 3)]
    before, after = slots_by_source(three), slots_by_source(three[:2])
    assert all(
        server == other for server, other in zip(before, after, strict=True) if server != destination(3)
    )
    assert before == slots_by_source(three[::-1]), "every agent comes to the same"
    shares_found = [before.count(destination(number)) for number in (1, 2, 3)]
    assert shares_found == sorted(shares_found)
    assert shares_found[2] > 256 / 3


def test_each_action_that_the_configuration_takes_has_ways() -> None:
    for name, field in OnDeadConfig.model_fields.items():
        for action in get_args(field.annotation):
            assert WAYS[action, PROTOCOLS[name]]


def rules_of(now: Plan) -> list[dict[str, Any]]:
    commands = [*redirect_rules(now, 7), *refuse_rules(now, 8), *answer_rules(now, 9, 7000)]
    return [command["add"] for command in commands]


def test_nothing_to_do_leaves_no_rule() -> None:
    assert rules_of(Plan()) == []


def test_every_element_has_the_lease_and_every_hook_lets_the_probe_through() -> None:
    actions: tuple[OnDead, ...] = ("redirect", "refuse")
    for action in actions:
        commands = rules_of(plan([policy(udp=action)], {POOL: view(1, 2)}, EVEN, dead(destination(3))))
        elements = [
            element[0] if isinstance(element, list) else element
            for command in commands
            for kind in ("set", "map")
            for element in command.get(kind, {}).get("elem", [])
        ]
        assert elements
        assert all(element["elem"]["timeout"] == 3 for element in elements)
        hooks = [command["chain"]["name"] for command in commands if "hook" in command.get("chain", {})]
        marks = [command["rule"]["chain"] for command in commands if "'mark'" in str(command.get("rule"))]
        assert set(marks) == {name for name in hooks if name != "answers"}


def sets_of(now: Plan) -> dict[str, set[str]]:
    """The sets and maps of the rules, by the transport of the dead server that is in them."""
    found: dict[str, set[str]] = {}
    for kind, command in ((kind, command) for command in rules_of(now) for kind in ("set", "map")):
        for element in command.get(kind, {}).get("elem", []):
            server = element[0] if isinstance(element, list) else element
            protocol = server["elem"]["val"]["concat"][1]
            found.setdefault(protocol, set()).add(command[kind]["name"].rpartition("_")[0] or "refused")
    return found


def test_refused_datagrams_of_sip_are_answered_first_and_associations_are_aborted() -> None:
    pools = [policy(udp="refuse", also=(Protocol.TCP, Protocol.SCTP))]
    now = plan(pools, {POOL: view(1, 2)}, EVEN, dead(destination(3)))
    assert sets_of(now) == {"udp": {"answer", "refused"}, "tcp": {"refused"}, "sctp": {"abort"}}


def test_redirected_connections_that_were_up_before_are_refused() -> None:
    redirecting = replace(policy(also=(Protocol.TCP,)), on_dead=dict.fromkeys(Protocol, "redirect"))
    now = plan([redirecting], {POOL: view(1, 2)}, EVEN, dead(destination(3)))
    assert sets_of(now) == {"udp": {"redirect"}, "tcp": {"redirect", "refused"}}


@given(st.lists(st.integers(1, 65535), min_size=1, max_size=40))
def test_shares_divide_a_thousand_by_weight_and_leave_nobody_out(weights: list[int]) -> None:
    targets = [Target(destination(1, port=1000 + number), weight) for number, weight in enumerate(weights)]
    found = shares(targets)
    assert [first for first, _, _ in found] == [0, *(last + 1 for _, last, _ in found[:-1])]
    assert found[-1][1] == 999
    for (first, last, _), weight in zip(found, weights, strict=True):
        assert last >= first
        due = 1000 * weight / sum(weights)
        assert abs(last - first + 1 - due) <= len(weights) + 1


def test_relayed_are_members_departed_ones_and_the_front_of_pools_that_repeat() -> None:
    repeating = replace(policy(also=(Protocol.TCP,)), on_dead={**policy().on_dead, Protocol.TCP: "repeat"})
    deaths = DepartedServers(all_heard)
    show(deaths, {POOL: view(1, 2)}, 0.0)
    show(deaths, {POOL: view(1)}, 1.0)
    both = {destination(1, Protocol.TCP), destination(2, Protocol.TCP)}
    left = deaths.departed
    assert relayed(plan([policy()], {POOL: view(1)}, EVEN, {}, left)) == {}
    assert relayed(plan([repeating], {POOL: view(1)}, EVEN, {}, left)).keys() == both
    front = replace(repeating, front=destination(9).endpoint)
    assert destination(9, Protocol.TCP) in relayed(plan([front], {POOL: view(1)}, EVEN, {}))


def test_relayed_connections_are_drawn_by_weight_or_by_the_clients_address() -> None:
    targets = [Target(destination(number, Protocol.TCP), weight) for number, weight in ((1, 1), (2, 3))]
    drawn_servers = [drawn(targets, chance / 100) for chance in range(100)]
    assert [drawn_servers.count(target.destination) for target in targets] == [25, 75]
    assert drawn([], 0.5) is None
    clients = [ip_address(f"10.1.{number // 250}.{number % 250}") for number in range(1000)]
    chosen = [drawn_by_source(targets, client) for client in clients]
    assert 180 < chosen.count(targets[0].destination) < 320
    assert {drawn_by_source(targets[1:], client) for client in clients} == {targets[1].destination}
    assert drawn_by_source([], clients[0]) is None


def test_client_has_the_same_server_by_every_transport() -> None:
    by_udp, by_tcp = (
        [Target(destination(number, protocol), number) for number in range(1, 10)]
        for protocol in (Protocol.UDP, Protocol.TCP)
    )
    endpoints = [[server.endpoint for server in slots_by_source(targets)] for targets in (by_udp, by_tcp)]
    assert endpoints[0] == endpoints[1]


NETWORK = ip_network("10.0.0.0/24")


def copied_of(*pools: PoolPolicy, **views: PoolView) -> Copied:
    return copied(plan(pools, {POOL: view(1)} | views, EVEN, {}))


def test_copied_is_sip_over_tcp_of_pools_whose_connections_are_not_relayed() -> None:
    over_tcp = policy(also=(Protocol.TCP,))
    over_tcp = replace(over_tcp, front=(ip_address("10.9.9.9"), 5080), networks=(NETWORK,))
    found = copied_of(over_tcp)
    assert found.networks == {NETWORK, ip_network("10.9.9.9/32")}
    assert found.ports == {5060, 5080}
    nothing = (
        replace(policy(), networks=(NETWORK,)),
        replace(over_tcp, on_dead={**over_tcp.on_dead, Protocol.TCP: "repeat"}),
        replace(over_tcp, via_port=4630),
        replace(over_tcp, is_sip=False),
    )
    for pool in nothing:
        assert copied_of(pool) == Copied()
    other = {POOL: replace(view(), members=(member(1, port=5070),))}
    assert copied_of(over_tcp, **other) == Copied()
    assert copied_of(replace(over_tcp, is_sip=True), **other).ports == {5070, 5080}


def test_servers_that_speak_no_sip_are_left_alone_where_others_are_copied_at_their_port() -> None:
    over_tcp = replace(policy(also=(Protocol.TCP,)), networks=(NETWORK,))
    silent = replace(over_tcp, handle="others", is_sip=False)
    found = copied_of(over_tcp, silent, others=view(1, 2))
    assert found.left_alone == {(ip_address("10.0.0.2"), 5060)}
    assert found.networks == {NETWORK}
    assert found.ports == {5060}
