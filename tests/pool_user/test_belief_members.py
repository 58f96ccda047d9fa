"""Rule 2: when a member is in, and when it is out; who moves never blinks; `accept`."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from pool_user.belief import PoolRules
from pool_user.belief.admission import accepted, why_refused
from pool_user.belief.rules import MOVED_AFTER_S

from rserpool import LeastUsed, PoolElement, Protocol, Table, Transport, Update
from tests.pool_user.belief_support import POOL, R1, R2, R3, RULES, Play, pe, push, settled

UNKNOWN = 0xEE


# In


def test_in_when_its_home_lists_it() -> None:
    play = Play()
    play.settle(0, 1, 2)
    play.answer(1)
    play.answer(2)
    play.answer(0, pe(1, R1))
    assert play.members() == [1]


def test_third_party_admits_nobody_and_the_home_is_asked() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(0)
    assert play.answer(1, pe(1, R1)), "the others are to be asked"
    assert play.members() == []
    assert play.asked() == {(0, POOL)}
    play.answer(0, pe(1, R1))
    assert play.members() == [1]
    assert play.asked() == set()


def test_ghosts_that_no_home_listed_are_never_shown() -> None:
    """A settled registrar tells of ever new elements whose home is another one."""
    play = settled()
    for number in range(50):
        ghost = pe(1000 + number, R1, f"10.0.1.{number}")
        assert push(play, 2, ghost)
        assert play.members() == [1, 2]
        assert (0, POOL) in play.asked()
        if number % 5 == 0:
            play.answer(0, pe(1, R1), pe(2, R2))
        assert play.members() == [1, 2]


def test_ghosts_fill_no_crowd() -> None:
    """Elements shown before their home was asked are not held back with the members as a crowd."""
    play = Play()
    play.settle(0, 1)
    play.answer(1, *(pe(number, R1) for number in range(1, 9)))
    assert play.members() == list(range(1, 9)), "its home has not told of the pool yet"
    play.answer(0, pe(9, R1))
    assert play.members() == [9]


def test_the_load_shown_is_what_its_home_says() -> None:
    play = settled()
    play.answer(0, pe(1, R1, policy=LeastUsed(0.5)), pe(2, R2))
    play.answer(2, pe(1, R1, policy=LeastUsed(0.1)), pe(2, R2))
    assert play.view().members[0].policy == LeastUsed(0.5)


# Out: known home


def test_out_at_once_when_its_settled_home_answers_without_it() -> None:
    play = settled()
    play.answer(0, pe(2, R2))
    assert play.members() == [2]
    assert play.out() == {1: "removed by its home registrar"}


def test_a_union_never_keeps_the_dead() -> None:
    play = settled()
    play.answer(0, pe(2, R2))
    for _ in range(20):
        play.wait(1)
        play.answer(1, pe(1, R1), pe(2, R2))
        play.answer(2, pe(1, R1), pe(2, R2))
        assert play.members() == [2]
        play.answer(0, pe(2, R2))
        assert play.members() == [2]


def test_an_answer_to_a_question_asked_before_it_was_seen_removes_nobody() -> None:
    play = Play()
    play.settle(0, 1)
    asked_s = play.now
    play.answer(1, pe(1, R1))
    play.answer(0, asked_s=asked_s)
    assert play.members() == [1]
    assert play.asked() == {(0, POOL)}
    play.answer(0)
    assert play.members() == []


def test_an_answer_overtaken_by_a_later_one_is_ignored() -> None:
    play = settled()
    asked_s = play.now
    play.wait(0.01)
    play.answer(0, pe(1, R1), pe(2, R2))
    assert not play.answer(0, asked_s=asked_s)
    assert play.members() == [1, 2]


def test_an_answer_of_another_settled_registrar_than_its_home_removes_nobody() -> None:
    play = settled()
    play.answer(1, pe(2, R2))
    play.answer(2, pe(2, R2))
    assert play.members() == [1, 2]


def test_gone_everywhere_but_not_yet_told_by_its_home_stays_until_the_home_answers() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(1, pe(1, R1))
    play.answer(1)
    assert play.members() == [1]
    assert play.asked() == {(0, POOL)}
    play.answer(0)
    assert play.members() == []


def test_the_dead_do_not_come_back_when_their_home_falls_silent() -> None:
    play = settled()
    play.answer(0, pe(2, R2))
    play.silence(0)
    play.answer(1, pe(1, R1), pe(2, R2))
    play.answer(2, pe(1, R1), pe(2, R2))
    assert play.members() == [2]


def test_the_dead_do_not_blink_when_their_home_wakes() -> None:
    play = settled()
    play.answer(0, pe(2, R2))
    play.silence(0)
    play.sentinel(0, (0x51, R1))
    play.answer(0, pe(2, R2))
    play.wait(1.1)
    assert play.standings()[0] == "settled"
    assert play.members() == [2]


def test_a_removed_element_that_its_home_lists_again_is_in_at_once() -> None:
    play = settled()
    play.answer(0, pe(2, R2))
    play.answer(0, pe(1, R1), pe(2, R2))
    assert play.members() == [1, 2]


def test_a_removed_element_that_another_registrar_lists_anew_waits_for_its_home() -> None:
    play = settled()
    play.answer(0, pe(2, R2))
    play.answer(1, pe(2, R2))
    assert play.members() == [2]
    play.answer(1, pe(1, R1), pe(2, R2))
    assert play.members() == [2]
    assert play.asked() == {(0, POOL)}
    play.answer(0, pe(1, R1), pe(2, R2))
    assert play.members() == [1, 2]


# Out: home silent, unknown or not settled


def test_home_unknown_in_while_any_settled_registrar_lists_it() -> None:
    play = Play()
    play.settle(0, 1, 2)
    for index in (0, 1, 2):
        play.answer(index, pe(1, UNKNOWN))
    play.answer(0)
    play.answer(2, pe(1, UNKNOWN))
    play.answer(1)
    assert play.members() == [1]
    play.answer(2)
    assert play.members() == [1], "the first was asked before it was last seen"
    assert play.asked() == {(0, POOL)}
    play.answer(0)
    assert play.members() == []
    assert play.out() == {1: "its home registrar is lost or unknown, and no settled registrar lists it"}


def test_home_silent_in_while_any_settled_registrar_lists_it() -> None:
    play = settled()
    play.silence(0)
    play.answer(1, pe(2, R2))
    assert play.members() == [1, 2]
    play.answer(2, pe(2, R2))
    play.answer(1, pe(2, R2))
    assert play.members() == [2]


def test_home_and_member_die_together() -> None:
    play = settled()
    play.down(0)
    play.answer(1, pe(1, R1), pe(2, R2))
    play.answer(2, pe(1, R1), pe(2, R2))
    assert play.members() == [1, 2]
    play.answer(1, pe(1, R3), pe(2, R2))
    play.answer(2, pe(1, R3), pe(2, R2))
    assert play.members() == [1, 2], "taken over by the third, which now finds out"
    play.answer(2, pe(2, R2))
    assert play.members() == [2]


def test_registered_at_a_registrar_that_died_before_anybody_else_was_asked() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(1)
    play.answer(0, pe(1, R1))
    play.down(0)
    assert play.members() == [1]
    assert play.asked() == {(1, POOL)}
    play.answer(1, pe(1, R1))
    assert play.members() == [1]


def test_with_its_home_gone_and_nobody_listing_it_a_member_is_out() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(1)
    play.answer(0, pe(1, R1))
    play.down(0)
    play.answer(1)
    assert play.members() == []


def test_denials_of_others_from_before_the_home_fell_silent_do_not_count() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(0, pe(1, R1))
    play.answer(1)
    play.down(0)
    assert play.members() == [1], "the news may have been on its way to the other"
    assert play.asked() == {(1, POOL)}
    play.answer(1, pe(1, R1))
    assert play.members() == [1]


def test_a_silent_registrars_word_does_not_outweigh_that_of_settled_registrars() -> None:
    play = settled()
    play.silence(2)
    play.answer(0, pe(2, R2))
    assert play.members() == [2]


def test_a_waking_registrar_does_not_bring_back_whom_the_others_dropped() -> None:
    play = settled()
    play.silence(0)
    for _ in range(2):
        for index in (1, 2):
            play.answer(index, pe(2, R2))
    assert play.members() == [2]
    play.sentinel(0, (0x51, R1))
    play.answer(0, pe(1, R1), pe(2, R2))
    assert play.standings()[0] == "waking"
    assert play.members() == [2]
    play.answer(0, pe(2, R2))
    play.wait(1.1)
    assert play.members() == [2]


def test_a_waking_registrar_that_is_right_is_believed_once_it_is_settled() -> None:
    play = settled()
    play.silence(0)
    for _ in range(2):
        for index in (1, 2):
            play.answer(index, pe(2, R2))
    play.sentinel(0, (0x51, R1))
    play.answer(0, pe(1, R1), pe(2, R2))
    play.wait(1.1)
    assert play.members() == [1, 2]


def test_a_waking_registrar_is_believed_about_a_member_whose_home_nobody_knows() -> None:
    play = Play()
    play.settle(0, 1)
    for index in (0, 1):
        play.answer(index, pe(1, UNKNOWN))
    play.silence(0)
    play.answer(1)
    assert play.members() == []
    play.sentinel(0, (0x51, R1))
    play.answer(0, pe(1, UNKNOWN))
    assert play.members() == []
    play.wait(1.1)
    assert play.members() == [1]


def test_a_waking_registrar_is_not_believed_for_absence() -> None:
    play = settled()
    play.silence(0)
    play.sentinel(0, (0x51, R1))
    play.answer(0)
    assert play.members() == [1, 2]


def test_a_stranger_is_out_with_a_reason_and_told_once() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(1, R1), pe(2, R1, address="192.0.2.7"))
    assert play.members() == [1]
    assert play.out() == {2: "refused: not in the pool's accept networks: 192.0.2.7"}
    for _ in range(3):
        play.wait(1)
        play.answer(0, pe(1, R1), pe(2, R1, address="192.0.2.7", port=5061))
    refused = [event for event in play.belief.take_events() if event.kind == "refused"]
    assert [event.identifier for event in refused] == [2]


def test_a_pool_of_strangers_is_empty_and_known() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(2, R1, address="192.0.2.7"))
    assert play.members() == []
    assert play.view().known


def test_a_crowd_that_moves_out_of_the_networks_leaves_unless_its_old_places_answer() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(1, R1), pe(2, R1))
    play.answer(0, pe(1, R1, address="192.0.2.1"), pe(2, R1, address="192.0.2.2"))
    assert play.members() == [1, 2]
    play.begin_probes()
    play.wait(MOVED_AFTER_S)
    assert play.members() == []


def test_of_a_multihomed_member_only_the_invited_addresses_are_shown() -> None:
    play = Play()
    play.settle(0)
    addresses = tuple(ip_address(text) for text in ("192.0.2.1", "10.0.0.1", "10.0.0.1", "fd00::1"))
    element = replace(pe(1, R1), user_transport=Transport(Protocol.SCTP, 5060, addresses))
    play.answer(0, element)
    assert play.view().members[0].addresses == (ip_address("10.0.0.1"),)


def test_port_0_is_refused() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(1, R1, port=0))
    assert play.members() == []
    assert play.out() == {1: "refused: its port is 0"}


def test_element_at_a_port_that_is_not_one_of_the_pools_is_refused() -> None:
    play = played(PoolRules(RULES.accept, ports=frozenset({5060})))
    play.answer(0, pe(1, R1), pe(2, R1, port=53))
    assert play.members() == [1]
    assert play.out() == {2: "refused: port 53 is not one of the pool's ports"}
    play.belief.set_pools({POOL: PoolRules(RULES.accept, ports=frozenset({53}))}, play.now)
    assert play.members() == [2]


def test_new_networks_count_at_once() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(1, R1), pe(2, R1, address="192.0.2.7"))
    play.belief.set_pools({POOL: PoolRules((ip_network("192.0.2.0/24"),))}, play.now)
    assert play.members() == [2]


@pytest.mark.parametrize(
    ("address", "networks", "expected"),
    [
        ("10.1.2.3", ["10.1.0.0/16"], True),
        ("10.2.2.3", ["10.1.0.0/16"], False),
        ("10.2.2.3", ["10.1.0.0/16", "10.2.2.3/32"], True),
        ("fd00::1", ["10.1.0.0/16", "fd00::/8"], True),
        ("fd00::1", ["0.0.0.0/0"], False),
        ("::ffff:10.1.2.3", ["10.1.0.0/16"], False),
    ],
)
def test_an_address_is_accepted_in_one_of_the_networks_alone(
    address: str, networks: list[str], expected: bool
) -> None:
    assert bool(accepted([ip_address(address)], [ip_network(text) for text in networks])) is expected


def test_an_element_without_an_address_is_refused() -> None:
    cause = why_refused(Transport(Protocol.UDP, 5060, ()), [ip_network("0.0.0.0/0")])
    assert cause is not None
    assert cause.words == "refused: not in the pool's accept networks: none"


def test_a_move_seen_in_any_order_never_blinks() -> None:
    before, after = pe(1, R1), pe(1, R3)
    for first, second, third in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        play = Play()
        play.settle(0, 1, 2)
        for index in (0, 1, 2):
            play.answer(index, before)
        for index in (first, second, third):
            play.answer(index, after)
            assert play.members() == [1]
        assert play.view().members[0].home_registrar == R3
        assert play.view().members[0].since_s < 100.02, "it came in before it moved"


def test_a_move_while_the_old_home_already_dropped_it() -> None:
    play = settled()
    asked_s = play.now
    play.wait(0.01)
    play.answer(2, pe(1, R3), pe(2, R2))
    play.answer(0, pe(2, R2), asked_s=asked_s)
    assert 1 in play.members()
    play.answer(0, pe(2, R2))
    assert 1 in play.members(), "its home is the third by now"
    play.answer(1, pe(1, R3), pe(2, R2))
    assert play.members() == [1, 2]


def test_a_move_to_a_home_that_was_asked_before() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(0, pe(1, R1))
    play.answer(1)
    play.answer(0, pe(1, R2))
    assert play.members() == [1]
    assert play.asked() == {(1, POOL)}


def test_moving_there_and_back_never_blinks() -> None:
    play = settled()
    for home in (R3, R1, R3, R1):
        for index in (2, 1, 0):
            play.answer(index, pe(1, home), pe(2, R2))
            assert play.members() == [1, 2]


def test_crossed_views_of_a_move_are_no_death() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(0, pe(1, R2))
    play.answer(1, pe(1, R1))
    assert play.members() == [1]


def test_an_element_that_moved_and_died_is_not_kept_by_its_old_homes_word_of_the_move() -> None:
    play = settled()
    for index in (0, 1, 2):
        play.answer(index, pe(1, R3), pe(2, R2))
    play.wait(10)
    play.answer(2, pe(2, R2))
    assert play.members() == [2]
    play.answer(0, pe(1, R3), pe(2, R2))
    play.answer(1, pe(1, R3), pe(2, R2))
    assert play.members() == [2]


def test_a_registrar_that_lists_an_old_home_follows_what_that_home_says() -> None:
    play = settled()
    for index in (0, 2):
        play.answer(index, pe(1, R3), pe(2, R2))
    play.wait(10)
    play.answer(1, pe(1, R1), pe(2, R2))
    play.answer(2, pe(2, R2))
    assert play.members() == [2], "the second still names the first, which names the third, which dropped it"


def test_a_partition_each_home_speaks_for_its_own() -> None:
    play = settled()
    play.answer(0, pe(1, R1))
    play.answer(2, pe(1, R1))
    play.answer(1, pe(1, R1), pe(2, R2))
    assert play.members() == [1, 2], "the others dropped PE 2, its home has it"
    play.answer(1, pe(1, R1))
    assert play.members() == [1]


# Remote servers

AGENT, SERVER = "10.9.9.9", "10.20.0.50"
REMOTE = PoolRules((ip_network("10.20.0.0/16"),), remote_agents=frozenset({ip_address(AGENT)}))


def remote(address: str = SERVER, agent: str = AGENT) -> PoolElement:
    """A server elsewhere, as its sidecar registers it: at the sidecar's own address."""
    return pe(int(ip_address(address)), R1, agent)


def played(rules: PoolRules) -> Play:
    play = Play()
    play.belief.set_pools({POOL: rules}, play.now)
    play.settle(0, 1)
    return play


@pytest.mark.parametrize("own_children", [True, False])
def test_an_element_of_a_remote_agent_is_a_member_at_the_servers_address(own_children: bool) -> None:
    """Whichever way a registrar tells of it."""
    play, at_its_own = played(REMOTE), [(ip_address(SERVER),)]
    play.answer(0, remote())
    assert [member.addresses for member in play.view().members] == at_its_own
    play.belief.updated(0, Update(R1, POOL.encode(), remote(), True, play.now))
    assert play.members() == []
    play.wait(1)
    play.belief.updated(0, Update(R1, POOL.encode(), remote(), False, play.now))
    assert [member.addresses for member in play.view().members] == at_its_own
    play.wait(1)
    play.belief.table(0, Table(R1, {POOL.encode(): (remote(),)}, own_children, play.now, play.now))
    assert [member.addresses for member in play.view().members] == at_its_own


def test_accept_is_asked_about_the_remote_server_and_not_its_agent() -> None:
    play = played(REMOTE)
    play.answer(0, remote("192.0.2.1"))
    assert play.members() == []
    assert play.out() == {
        int(ip_address("192.0.2.1")): "refused: not in the pool's accept networks: 192.0.2.1"
    }


def test_an_agent_that_is_not_named_speaks_for_its_own_address_alone() -> None:
    play = played(REMOTE)
    play.answer(0, remote(agent="10.20.3.3"))
    assert [member.addresses for member in play.view().members] == [(ip_address("10.20.3.3"),)], "at its own"


def test_naming_the_agent_in_a_reload_counts_from_the_next_renewal() -> None:
    play = played(PoolRules(REMOTE.accept))
    play.answer(0, remote())
    assert play.members() == []
    play.belief.set_pools({POOL: REMOTE}, play.now)
    play.belief.updated(0, Update(R1, POOL.encode(), remote(), False, play.now))
    assert [member.addresses for member in play.view().members] == [(ip_address(SERVER),)]


@pytest.mark.parametrize("address", ["10.0.0.0", "10.255.255.255"])
def test_the_own_and_the_broadcast_address_of_a_network_are_no_servers(address: str) -> None:
    play = Play()
    play.settle(0, 1, 2)
    for index in (0, 1, 2):
        play.answer(index, pe(1, R1), pe(2, R1, address))
    assert play.members() == [1]
    assert play.out()[2].startswith("refused: not in the pool's accept networks")


def test_the_broadcast_address_of_a_nested_network_is_no_server() -> None:
    networks = tuple(map(ip_network, ("10.0.0.0/8", "10.1.2.0/24", "fd00::/16", "fd00::/64")))
    for address in ("10.1.2.0", "10.1.2.255", "10.0.0.0", "fd00::"):
        assert accepted((ip_address(address),), networks) == ()
    assert accepted((ip_address("10.1.3.255"),), networks)


@pytest.mark.parametrize("network", ["10.0.0.4/31", "10.0.0.4/32", "10.0.0.4/30"])
def test_the_first_address_of_a_link_of_two_hosts_is_a_server(network: str) -> None:
    own = {"10.0.0.4/30": ()}.get(network, (ip_address("10.0.0.4"),))
    assert accepted((ip_address("10.0.0.4"),), (ip_network(network),)) == own
