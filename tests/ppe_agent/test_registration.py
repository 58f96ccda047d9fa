"""One AS and its pool: joining, leaving, being missed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from ppe_agent import lookup, registration
from ppe_agent.lookup import RegistrarWatch
from ppe_agent.registration import PoolState, Registration, is_listed
from rserpool.client import Resolution
from rserpool.parameters import PoolElement, Protocol, Transport
from rserpool.policies import LeastUsed
from rserpool.pool_element_events import EventKind
from rserpool.registrar_choice import RegistrarAddress

from tests.ppe_agent.fakes import FakePool, FakeRegistrarClient

REGISTRAR = RegistrarAddress("127.0.0.1")
OTHER = RegistrarAddress("127.0.0.2")
ELEMENT = PoolElement(
    identifier=7,
    home_registrar=0,
    life_ms=6000,
    user_transport=Transport(Protocol.UDP, 5060, (ip_address("127.0.0.1"),)),
    policy=LeastUsed(0.1),
)


@contextlib.asynccontextmanager
async def running(pool: FakePool) -> AsyncIterator[Registration]:
    one = Registration(
        [REGISTRAR], b"pool", ELEMENT, reregistration_ms=2000, name="sip-1", make_client=pool.make
    )
    task = asyncio.create_task(one.run())
    try:
        yield one
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def state_of(one: Registration) -> PoolState:
    return one.state


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_it_joins_and_leaves_as_wanted() -> None:
    pool = FakePool()
    async with running(pool) as one:
        assert state_of(one) is PoolState.OUT
        one.want(True)
        await settle()
        assert state_of(one) is PoolState.IN
        one.want(False)
        await settle()
        assert state_of(one) is PoolState.OUT
        assert [stay.calls for stay in pool.stays] == [["start", "deregister", "close"]]
        one.want(True)
        await settle()
        assert pool.stays[1].calls == ["start"]


async def test_it_comes_back_only_when_leaving_is_over() -> None:
    pool = FakePool()
    async with running(pool) as one:
        one.want(True)
        await settle()
        pool.stays[0].confirms.clear()
        one.want(False)
        await settle()
        assert state_of(one) is PoolState.LEAVING
        one.want(True)
        await settle()
        assert len(pool.stays) == 1
        pool.stays[0].confirms.set()
        await settle()
        assert pool.stays[0].calls[-1] == "close"
        assert pool.stays[1].calls == ["start"]


async def test_the_load_of_the_moment_is_registered_and_updated() -> None:
    pool = FakePool()
    async with running(pool) as one:
        one.update_policy(LeastUsed(0.5))
        one.want(True)
        await settle()
        assert pool.stays[0].element == replace(ELEMENT, policy=LeastUsed(0.5))
        one.update_policy(LeastUsed(0.75))
        assert pool.stays[0].calls == ["start", f"update {LeastUsed(0.75)}"]


async def test_it_says_why_it_is_not_in() -> None:
    pool = FakePool()
    async with running(pool) as one:
        one.want(True)
        await settle()
        pool.stays[0].tell(EventKind.REJECTED, REGISTRAR, "all elements must agree on the policy")
        assert state_of(one) is PoolState.JOINING
        assert one.problem == "registrar 127.0.0.1 refuses it: all elements must agree on the policy"


def resolution(*identifiers: int, asked_at_s: float = 1e9) -> Resolution:
    elements = tuple(replace(ELEMENT, identifier=identifier) for identifier in identifiers)
    return Resolution(b"pool", bool(elements), None, elements, asked_at_s, asked_at_s)


@pytest.mark.parametrize(
    ("identifiers", "listed"),
    [((), False), ((7,), True), ((1, 7, 9), True), ((1, 2), False), (range(100, 228), None)],
)
def test_listed_or_not_or_not_to_be_told(identifiers: tuple[int, ...], listed: bool | None) -> None:
    assert is_listed(resolution(*identifiers), 7) is listed


async def test_a_missing_element_is_registered_again_but_not_on_old_news() -> None:
    pool = FakePool()
    async with running(pool) as one:
        assert one.check_listed(OTHER, resolution()) is False  # out of the pool: all is right
        one.want(True)
        await settle()
        assert one.check_listed(OTHER, resolution(7)) is True
        before = asyncio.get_running_loop().time() - 1
        assert one.check_listed(OTHER, resolution(asked_at_s=before)) is False
        assert pool.stays[0].calls == ["start"]
        assert one.check_listed(OTHER, resolution(1, 2)) is False
        assert pool.stays[0].calls == ["start", "again not listed by 127.0.0.2"]
        assert one.missing_count == 1


async def test_every_registrar_is_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "INTERVAL_S", 0.01)
    monkeypatch.setattr(registration, "_SETTLED_AFTER_S", 0.0)
    pool = FakePool()
    clients: list[FakeRegistrarClient] = []

    def make(address: RegistrarAddress, **options: Any) -> Any:
        clients.append(FakeRegistrarClient(address, **options))
        return clients[-1]

    async with running(pool) as one:
        watch = RegistrarWatch(REGISTRAR, [one], make_client=make)
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(0.05)
        assert not clients[0].asked.is_set()  # nothing to look up while out of the pool
        one.want(True)
        await asyncio.wait_for(clients[0].asked.wait(), 5)
        assert watch.lists(one) is None
        clients[0].elements = (ELEMENT,)
        await asyncio.sleep(0.05)
        assert watch.lists(one) is True
        assert pool.stays[0].calls == ["start"]
        clients[0].elements = ()
        await asyncio.sleep(0.05)
        assert watch.lists(one) is False
        assert "again not listed by 127.0.0.1" in pool.stays[0].calls
        clients[0].on_link(False)
        clients[0].is_up = False
        assert watch.lists(one) is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
