"""Several registrars followed over one socket: each association belongs to the follower of its registrar."""

from ipaddress import ip_address

import pytest
from rserpool.follower import (
    MAX_STRANGERS,
    Ended,
    FollowerMachine,
    FollowerState,
    Table,
    own_transport,
)
from rserpool.machine.base import Close, CloseSocket, Connect, Send

from tests.rserpool.paper_enrp import OWN, page, pe

FIRST, SECOND, STRANGER = ("10.0.0.1", 9901), ("10.0.0.2", 9901), ("10.6.6.6", 9901)
LOCAL = [("127.0.0.1", 40_000), ("10.0.0.9", 40_000)]


@pytest.fixture
def machine() -> FollowerMachine:
    return FollowerMachine([FIRST, SECOND], OWN)


def test_each_registrar_is_told_of_by_its_index(machine: FollowerMachine) -> None:
    machine.registrars[1].follow(100.0)
    assert machine.take_actions() == [Connect(SECOND)]
    machine.associated(7, SECOND, 100.0, LOCAL)
    assert {action.association for action in machine.take_actions() if isinstance(action, Send)} == {7}
    machine.received(7, page(pe(1)), 100.1)
    (event,) = (action for action in machine.take_actions() if isinstance(action, tuple))
    assert event[0] == 1
    assert isinstance(event[1], Table)
    machine.lost(7, 100.2, "gone")
    assert machine.take_actions() == [(1, Ended("gone"))]
    assert [registrar.state for registrar in machine.registrars] == [FollowerState.IDLE, FollowerState.IDLE]


def test_messages_of_strangers_count_for_no_registrar(machine: FollowerMachine) -> None:
    machine.registrars[0].follow(100.0)
    machine.take_actions()
    machine.associated(7, STRANGER, 100.0, LOCAL)
    machine.received(7, page(pe(1)), 100.0)
    machine.connect_failed(STRANGER, 100.0, "refused")
    assert machine.take_actions() == []
    assert machine.registrars[0].state is FollowerState.CONNECTING


def test_strangers_do_not_pile_up_and_keep_no_registrar_out(machine: FollowerMachine) -> None:
    for association in range(MAX_STRANGERS + 1):
        machine.associated(association, STRANGER, 100.0, LOCAL)
    assert machine.take_actions() == [Close(MAX_STRANGERS)]
    machine.registrars[0].follow(100.0)
    machine.associated(1000, FIRST, 100.0, LOCAL)
    assert machine.registrars[0].state is FollowerState.JOINING
    machine.lost(0, 100.0)
    machine.take_actions()
    machine.associated(1001, STRANGER, 100.0, LOCAL)
    assert machine.take_actions() == []


def test_a_follower_has_left_when_every_registrar_has_forgotten_it(machine: FollowerMachine) -> None:
    machine.registrars[0].follow(100.0)
    machine.associated(7, FIRST, 100.0, LOCAL)
    machine.take_actions()
    machine.leave(101.0)
    assert not machine.has_left
    deadline_s = machine.next_deadline_s
    assert deadline_s is not None
    machine.advance(deadline_s)
    assert machine.has_left
    assert machine.take_actions() == []
    machine.close()
    assert machine.take_actions() == [CloseSocket()]
    assert machine.next_deadline_s is None


def test_two_registrars_at_one_endpoint_are_refused() -> None:
    with pytest.raises(ValueError, match="same address"):
        FollowerMachine([FIRST, FIRST], OWN)


def test_loopback_and_link_local_addresses_are_named_only_if_there_are_no_others() -> None:
    assert own_transport(LOCAL).addresses == (ip_address("10.0.0.9"),)
    assert own_transport([("127.0.0.1", 7)]).addresses == (ip_address("127.0.0.1"),)
    assert own_transport(LOCAL).port == 40_000
