"""A registrar's two clients, without SCTP: what the agent asked of them, and answers the test decides."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from ipaddress import ip_address
from typing import Any

from ppe_agent.registration import Registration

from rserpool import (
    Answer,
    LeastUsed,
    Policy,
    PoolElement,
    Protocol,
    RegistrarAddress,
    RegistrarUnreachable,
    RegistrationEvent,
    RegistrationEventKind,
    Resolution,
    ServerKey,
    Transport,
)

REGISTRAR = RegistrarAddress("127.0.0.1")
OTHER = RegistrarAddress("127.0.0.2")
ELEMENT = PoolElement(
    identifier=7,
    home_registrar=0,
    life_ms=6000,
    user_transport=Transport(Protocol.UDP, 5060, (ip_address("127.0.0.1"),)),
    policy=LeastUsed(0.1),
)


class FakePoolElementClient:
    """Registers at once; notes what was asked of it in `calls`."""

    def __init__(
        self,
        registrar: RegistrarAddress,
        handle: bytes,
        element: PoolElement,
        on_event: Callable[[RegistrationEvent], None],
    ) -> None:
        self.registrar = registrar
        self.handle = handle
        self.element = element
        self.calls: list[str] = []
        self.heeds_silence = False
        self.home_registrar: int | None = None
        self.confirms = asyncio.Event()
        self.confirms.set()
        self.confirmed = True
        self._on_event = on_event

    def start(self) -> None:
        self.calls.append("start")
        self.tell(RegistrationEventKind.REGISTERED, self.registrar, "")

    def tell(self, kind: RegistrationEventKind, registrar: RegistrarAddress, detail: str) -> None:
        self._on_event(RegistrationEvent(kind, asyncio.get_running_loop().time(), registrar, detail))

    def update_policy(self, policy: Policy) -> None:
        self.calls.append(f"update {policy}")

    def update_registrars(self, registrars: Sequence[RegistrarAddress]) -> None:
        self.calls.append(f"registrars {', '.join(map(str, registrars))}")

    def heed_silence(self, is_heeded: bool) -> None:
        self.heeds_silence = is_heeded

    def register_again(self, reason: str) -> None:
        self.calls.append(f"again {reason}")

    def leave_registrar(self, reason: str) -> None:
        self.calls.append("leave")

    async def deregister(self, timeout_ms: int = 500) -> bool:
        self.calls.append("deregister")
        await self.confirms.wait()
        return self.confirmed

    async def close(self) -> None:
        self.calls.append("close")


class FakePool:
    """Makes the PE clients, one for each stay in the pool."""

    def __init__(self) -> None:
        self.stays: list[FakePoolElementClient] = []

    def make(self, registrars: Any, handle: bytes, element: PoolElement, **options: Any) -> Any:
        self.stays.append(FakePoolElementClient(registrars[0], handle, element, options["on_event"]))
        return self.stays[-1]


class FakeRegistrarClient:
    """Answers look-ups with `elements`, or not at all while it is None."""

    def __init__(self, address: RegistrarAddress, *, on_link: Callable[[bool], None]) -> None:
        self.is_up = True
        self.round_trip_ms: float | None = 0.3
        self.elements: tuple[PoolElement, ...] | None = None
        self.asked = asyncio.Event()
        self.on_link = on_link
        self.is_closed = False

    def start(self) -> None: ...

    def ask(self, handle: bytes, answered: Answer) -> int:
        self.asked.set()
        if self.elements is None:
            raise RegistrarUnreachable("no association")
        now = asyncio.get_running_loop().time()
        answered(Resolution(handle, bool(self.elements), None, self.elements, now, now))
        return 1

    async def close(self) -> None:
        self.is_closed = True


@contextlib.asynccontextmanager
async def running(pool: FakePool, server_key: ServerKey | None = None) -> AsyncIterator[Registration]:
    one = Registration(
        [REGISTRAR],
        b"pool",
        ELEMENT,
        reregistration_ms=2000,
        name="sip-1",
        server_key=server_key,
        make_client=pool.make,
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
