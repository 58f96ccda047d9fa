"""Two hosts with the same PE identifier, and registrars that change, without SCTP."""

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from ipaddress import ip_address

import pytest
from ppe_agent import registration
from ppe_agent.registration import (
    REJOIN_EVERY_S,
    Membership,
    Registration,
    RegistrationMachine,
    Tell,
    is_same_server,
)

from rserpool import (
    Cause,
    LeastUsed,
    PoolElement,
    PoolKey,
    Protocol,
    RegistrarAddress,
    RegistrationEvent,
    RegistrationEventKind,
    Resolution,
    Transport,
)
from tests.ppe_agent.fakes import ELEMENT, OTHER, REGISTRAR, FakePool, running, settle
from tests.support.waiting import until_async

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


def test_identifiers_that_are_taken_again_and_again_are_replaced_at_a_bounded_rate() -> None:
    """At once after the first collision, then once a second: the host that takes them must not win."""
    fresh = iter(range(101, 200))
    machine = RegistrationMachine(ELEMENT, lambda: next(fresh))
    taken = RegistrationEvent(RegistrationEventKind.REJECTED, 0.0, REGISTRAR, "no", (Cause(0x0004),))
    now, waits_s = 1000.0, []
    machine.want(True, now)
    for _ in range(6):
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
    assert waits_s == [0, 1, 1, 1, 1, 1]
    assert machine.element.identifier == 106
    machine.happened(replace(taken, at_s=now + 10 * REJOIN_EVERY_S))
    assert machine.state is Membership.JOINING


def registered(new_identifier: Callable[[], int]) -> RegistrationMachine:
    machine = RegistrationMachine(ELEMENT, new_identifier)
    machine.want(True, 1000.0)
    machine.happened(RegistrationEvent(RegistrationEventKind.REGISTERED, 1000.0, REGISTRAR, ""))
    machine.take_actions()
    return machine


def lacking(at_s: float) -> Resolution:
    return Resolution(b"pool", False, None, (), at_s, at_s)


def test_an_identifier_that_its_home_loses_again_and_again_is_replaced() -> None:
    machine = registered(lambda: 101)
    for second in (1001.0, 1002.0):
        machine.check_listed(REGISTRAR, lacking(second), second)
        assert machine.element.identifier == ELEMENT.identifier
    machine.check_listed(REGISTRAR, lacking(1003.0), 1003.0)
    assert machine.element.identifier == 101
    assert "identifier_contested" in [one.event for one in machine.take_actions() if isinstance(one, Tell)]


@pytest.mark.parametrize(("registrar", "apart_s"), [(OTHER, 1.0), (REGISTRAR, 3.0)])
def test_an_identifier_that_is_missed_elsewhere_or_now_and_then_stays(
    registrar: RegistrarAddress, apart_s: float
) -> None:
    machine = registered(lambda: 101)
    for number in range(1, 9):
        machine.check_listed(registrar, lacking(1000 + number * apart_s), 1000 + number * apart_s)
    assert machine.element.identifier == ELEMENT.identifier


async def test_the_host_that_takes_an_identifier_is_named() -> None:
    pool = FakePool()
    async with running(pool) as one:
        await joined(one, pool)
        one.check_listed(REGISTRAR, resolution(replace(ELEMENT, user_transport=THEIRS)))
        assert one.machine.taken_by == "127.0.0.9 port 5060"


def test_a_second_sidecar_of_the_server_is_told_of_after_a_while() -> None:
    machine = registered(lambda: 101)
    twin = replace(ELEMENT, identifier=9)
    for second in (1001.0, 1003.0):
        machine.check_listed(REGISTRAR, Resolution(b"p", True, None, (ELEMENT, twin), second, second), second)
        assert machine.twin is None
    machine.check_listed(REGISTRAR, Resolution(b"p", True, None, (ELEMENT, twin), 1004.5, 1004.5), 1004.5)
    assert machine.twin == 9
    assert "registered_twice" in [one.event for one in machine.take_actions() if isinstance(one, Tell)]
    machine.check_listed(REGISTRAR, Resolution(b"p", True, None, (ELEMENT,), 1005.0, 1005.0), 1005.0)
    assert machine.twin is None


KEY = PoolKey(bytes(32)).server_key(Protocol.UDP, MINE.addresses[0], 5060)


@contextlib.asynccontextmanager
async def keyed(pool: FakePool) -> AsyncIterator[Registration]:
    async with running(pool, KEY) as one:
        one.on_collision = lambda: KEY.next_identifier(b"pool", one.identifier)
        one.want(True)
        await settle()
        yield one


async def test_each_stay_in_a_keyed_pool_has_another_identifier_and_leaving_is_said() -> None:
    pool = FakePool()
    async with keyed(pool) as one:
        first = one.identifier
        assert KEY.is_mine(b"pool", first)
        one.want(False)
        await until_async(lambda: one.state is Membership.OUT)
        stay, farewell = pool.stays
        assert stay.calls == ["start", "deregister", "close"]
        assert (farewell.element.identifier, farewell.calls) == (KEY.leaving(b"pool", first), ["start"])
        assert (farewell.element.life_ms, farewell.element.policy) == (2000, LeastUsed(0.999))
        one.want(True)
        await settle()
        assert KEY.is_mine(b"pool", one.identifier)
        assert one.identifier != first
    assert farewell.calls == ["start", "close"]


async def test_a_collision_in_a_keyed_pool_leads_to_the_next_identifier() -> None:
    pool = FakePool()
    async with keyed(pool) as one:
        first = one.identifier
        mine = replace(ELEMENT, identifier=first)
        one.check_listed(REGISTRAR, resolution(replace(mine, user_transport=THEIRS)))
        await settle()
        assert one.identifier == KEY.next_identifier(b"pool", first)
        assert one.state is Membership.IN
        assert len(pool.stays) == 2


async def test_own_identifiers_in_a_keyed_pool_are_no_second_sidecar() -> None:
    pool = FakePool()
    async with keyed(pool) as one:
        mine = replace(ELEMENT, identifier=one.identifier)
        own = [KEY.next_identifier(b"pool", one.identifier), KEY.leaving(b"pool", one.identifier)]
        others = [replace(ELEMENT, identifier=each) for each in own]
        for second in (1.0, 10.0):
            now = time.monotonic() + second
            one.machine.check_listed(REGISTRAR, Resolution(b"p", True, None, (mine, *others), now, now), now)
        assert one.machine.twin is None


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
