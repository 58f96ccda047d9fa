"""Two hosts with the same PE identifier, and registrars that change, without SCTP."""

import time
from dataclasses import replace
from ipaddress import ip_address

import pytest
from ppe_agent import registration
from ppe_agent.registration import (
    COLLISION_FORGOTTEN_S,
    Membership,
    Registration,
    RegistrationMachine,
    is_same_server,
)

from rserpool import (
    Cause,
    PoolElement,
    Protocol,
    RegistrationEvent,
    RegistrationEventKind,
    Resolution,
    Transport,
)
from tests.ppe_agent.fakes import ELEMENT, OTHER, REGISTRAR, FakePool, running, settle

MINE = ELEMENT.user_transport
THEIRS = Transport(Protocol.UDP, 5060, (ip_address("127.0.0.9"),))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a registrar's answer count at once."""
    monkeypatch.setattr(registration, "_COLLISION_AFTER_S", -1.0)


def state_of(machine: RegistrationMachine) -> Membership:
    return machine.state


def resolution(*elements: PoolElement) -> Resolution:
    now = time.monotonic()
    return Resolution(b"pool", bool(elements), None, elements, now, now)


async def joined(one: Registration, pool: FakePool) -> None:
    fresh = iter((101, 102, 103))
    one.on_collision = lambda: next(fresh)
    one.want(True)
    await settle()


async def test_an_identifier_that_another_host_has_is_replaced_by_a_fresh_one() -> None:
    pool = FakePool()
    async with running(pool) as one:
        await joined(one, pool)
        assert one.check_listed(REGISTRAR, resolution(replace(ELEMENT, user_transport=THEIRS))) is False
        await settle()
        assert pool.stays[0].calls == ["start", "close"]  # to deregister would take the other host out
        assert (pool.stays[1].element.identifier, one.identifier, one.machine.collision_count) == (
            101,
            101,
            1,
        )
        assert one.state is Membership.IN
        one.want(False)
        await settle()
        assert pool.stays[1].calls == ["start", "deregister", "close"]


async def test_two_sidecars_of_one_remote_server_keep_its_identifier_and_say_so() -> None:
    pool = FakePool()
    async with running(pool) as one:
        one.want(True)  # no fresh identifier: that of a remote server is its address
        await settle()
        assert one.check_listed(REGISTRAR, resolution(replace(ELEMENT, user_transport=THEIRS))) is False
        assert one.machine.problem == (
            "the sidecar at 127.0.0.9 port 5060 registers this server too: give each a handle of its own"
        )
        await settle()
        assert (one.identifier, one.state) == (ELEMENT.identifier, Membership.IN)


async def test_our_own_entry_is_no_collision() -> None:
    pool = FakePool()
    async with running(pool) as one:
        await joined(one, pool)
        assert one.check_listed(REGISTRAR, resolution(ELEMENT))
        await settle()
        assert one.machine.collision_count == 0


async def test_a_registrar_that_is_not_in_charge_may_show_where_we_were_before() -> None:
    pool = FakePool()
    async with running(pool) as one:
        await joined(one, pool)
        assert one.check_listed(OTHER, resolution(replace(ELEMENT, user_transport=THEIRS)))
        await settle()
        assert one.machine.collision_count == 0


async def test_a_registrar_that_says_so_is_believed_and_another_cause_is_not_taken_for_it() -> None:
    pool = FakePool()
    async with running(pool) as one:
        await joined(one, pool)
        client = pool.stays[-1]
        for code, identifier in ((0x0005, 7), (0x0004, 101)):
            refusal = RegistrationEvent(RegistrationEventKind.REJECTED, 0.0, REGISTRAR, "no", (Cause(code),))
            client._on_event(refusal)
            await settle()
            assert one.identifier == identifier
        assert one.machine.rejected_count == 2


def test_a_registrar_that_takes_no_identifier_is_asked_ever_less_often() -> None:
    """At once after the first collision, then after 1 s, 2 s, 4 s, ...; a long time later at once again."""
    fresh = iter(range(101, 200))
    machine = RegistrationMachine(ELEMENT, lambda: next(fresh))
    taken = RegistrationEvent(RegistrationEventKind.REJECTED, 0.0, REGISTRAR, "no", (Cause(0x0004),))
    now, waits_s = 1000.0, []
    machine.want(True, now)
    for _ in range(5):
        assert state_of(machine) is Membership.JOINING
        machine.happened(replace(taken, at_s=now))
        wait_s = (machine.next_deadline_s or now) - now
        waits_s.append(wait_s)
        if wait_s:
            machine.want(False, now)  # who stops wanting it in between does not shorten the pause
            machine.want(True, now)
            machine.advance(now + 0.9 * wait_s)
            assert state_of(machine) is Membership.WAITING
        now += wait_s
        machine.advance(now)
    assert waits_s == [0, 1, 2, 4, 8]
    assert machine.element.identifier == 105
    machine.happened(replace(taken, at_s=now + COLLISION_FORGOTTEN_S + 1))
    assert machine.state is Membership.JOINING


async def test_events_of_a_dropped_client_do_not_count() -> None:
    pool = FakePool()
    async with running(pool) as one:
        await joined(one, pool)
        first = pool.stays[0]
        assert one.check_listed(REGISTRAR, resolution(replace(ELEMENT, user_transport=THEIRS))) is False
        await settle()
        first._on_event(RegistrationEvent(RegistrationEventKind.REGISTRAR_LOST, 0.0, REGISTRAR))
        assert one.state is Membership.IN


async def test_other_registrars_are_handed_on_and_kept_for_the_next_stay() -> None:
    pool = FakePool()
    async with running(pool) as one:
        await joined(one, pool)
        one.update_registrars([OTHER])
        assert pool.stays[0].calls == ["start", "registrars 127.0.0.2"]


@pytest.mark.parametrize(
    ("listed", "same"),
    [
        (MINE, True),
        (replace(MINE, port=5061), False),
        (replace(MINE, protocol=Protocol.TCP), False),
        (replace(MINE, addresses=(ip_address("127.0.0.1"), ip_address("10.0.0.1"))), True),
        (THEIRS, False),
    ],
)
def test_which_transport_is_ours(listed: Transport, same: bool) -> None:
    assert is_same_server(listed, MINE) is same
