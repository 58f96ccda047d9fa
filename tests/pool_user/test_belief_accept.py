"""Rule 6: nobody joins uninvited."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from pool_user.belief import PoolRules
from pool_user.belief.admission import accepted, why_refused
from rserpool.parameters import Protocol, Transport

from tests.pool_user.belief_support import POOL, R1, Play, pe


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


def test_a_member_that_moves_out_of_the_networks_leaves_at_once_even_in_a_crowd() -> None:
    play = Play()
    play.settle(0)
    play.answer(0, pe(1, R1), pe(2, R1))
    play.answer(0, pe(1, R1, address="192.0.2.1"), pe(2, R1, address="192.0.2.2"))
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
def test_networks(address: str, networks: list[str], expected: bool) -> None:
    assert bool(accepted([ip_address(address)], [ip_network(text) for text in networks])) is expected


def test_no_address_at_all() -> None:
    words = why_refused(Transport(Protocol.UDP, 5060, ()), [ip_network("0.0.0.0/0")])
    assert words == "refused: not in the pool's accept networks: none"
