"""A registration that runs against a pool played by the test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from ipaddress import ip_address

from ppe_agent.registration import Registration
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.parameters import PoolElement, Protocol, Transport
from rserpool.policies import LeastUsed

from tests.ppe_agent.fakes import FakePool

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


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
