"""Two hosts with the same PE identifier, and registrars that change, without SCTP."""

import asyncio
import time
from dataclasses import replace
from ipaddress import ip_address
from types import SimpleNamespace

import pytest
from ppe_agent import registration
from ppe_agent.listing import is_same_server
from ppe_agent.registration import PoolState, Registration
from rserpool.aio.user import Resolution
from rserpool.errors import Cause
from rserpool.machine.element import Event, EventKind
from rserpool.parameters import PoolElement, Protocol, Transport

from tests.ppe_agent.fakes import FakePool
from tests.ppe_agent.registrations import ELEMENT, OTHER, REGISTRAR, running, settle

MINE = ELEMENT.user_transport
THEIRS = Transport(Protocol.UDP, 5060, (ip_address("127.0.0.9"),))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a registrar's answer count at once."""
    monkeypatch.setattr(registration, "_COLLISION_AFTER_S", -1.0)


def resolution(*elements: PoolElement) -> Resolution:
    now = time.monotonic()
    return Resolution(b"pool", bool(elements), None, elements, now, now)


async def joined(one: Registration, pool: FakePool) -> None:
    fresh = iter((101, 102, 103))
    one.on_collision = lambda: next(fresh)
    one.want(True)
    await settle()
    pool.stays[-1].registrar = REGISTRAR


async def test_another_host_with_our_identifier_makes_us_take_a_fresh_one() -> None:
    pool = FakePool()
    async with running(pool) as one:
        await joined(one, pool)
        assert one.check_listed(REGISTRAR, resolution(replace(ELEMENT, user_transport=THEIRS))) is False
        await settle()
        assert pool.stays[0].calls == ["start", "close"]  # to deregister would take the other host out
        assert (pool.stays[1].element.identifier, one.identifier, one.collision_count) == (101, 101, 1)
        assert one.state is PoolState.IN
        one.want(False)
        await settle()
        assert pool.stays[1].calls == ["start", "deregister", "close"]


async def test_our_own_entry_is_no_collision() -> None:
    pool = FakePool()
    async with running(pool) as one:
        await joined(one, pool)
        assert one.check_listed(REGISTRAR, resolution(ELEMENT))
        await settle()
        assert one.collision_count == 0


async def test_a_registrar_that_is_not_in_charge_may_show_where_we_were_before() -> None:
    pool = FakePool()
    async with running(pool) as one:
        await joined(one, pool)
        assert one.check_listed(OTHER, resolution(replace(ELEMENT, user_transport=THEIRS)))
        await settle()
        assert one.collision_count == 0


async def test_a_registrar_that_says_so_is_believed_and_another_cause_is_not_taken_for_it() -> None:
    pool = FakePool()
    async with running(pool) as one:
        await joined(one, pool)
        client = pool.stays[-1]
        for code, identifier in ((0x0005, 7), (0x0004, 101)):
            client._on_event(Event(EventKind.REJECTED, 0.0, REGISTRAR, "no", (Cause(code),)))
            await settle()
            assert one.identifier == identifier
        assert one.rejected_count == 2


async def test_a_registrar_that_takes_no_identifier_is_asked_ever_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once at once, then after 1 s, 2 s, 4 s: here with a clock of the test's own."""
    pool = FakePool()
    waits_s: list[float] = []
    goes_on = asyncio.sleep

    async def sleep(wait_s: float) -> None:
        waits_s.append(wait_s)
        one._pause.join_at_s -= wait_s
        await goes_on(0)

    async with running(pool) as one:
        await joined(one, pool)
        one.on_collision = lambda: one.identifier + 1
        monkeypatch.setattr(registration, "asyncio", SimpleNamespace(sleep=sleep))
        for rejections in range(1, 6):
            rejection = Event(EventKind.REJECTED, 0.0, REGISTRAR, "no", (Cause(0x0004),))
            pool.stays[-1]._on_event(rejection)
            for _ in range(20):
                await goes_on(0)
            assert len(pool.stays) == rejections + 1
        assert [round(wait_s) for wait_s in waits_s] == [1, 2, 4, 8]


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
