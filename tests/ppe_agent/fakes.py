"""Registrars without SCTP: pool elements on paper sockets, look-ups with answers that the test decides."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from ipaddress import ip_address

import pytest
from ppe_agent.registration import ServerRegistration

from rserpool import (
    CauseCode,
    ErrorCause,
    LeastUsed,
    Notification,
    PoolElement,
    Protocol,
    RegistrarAddress,
    RegistrarUnreachable,
    Resolution,
    ResolutionCallback,
    SctpMessage,
    ServerKey,
    Transport,
    asap,
)
from tests.rserpool.paper_registrars import PaperRegistrar
from tests.rserpool.paper_sockets import PaperNetwork, PaperSocket, install

REGISTRAR = RegistrarAddress("127.0.0.1")
OTHER = RegistrarAddress("127.0.0.2")
AGENTS_REGISTRAR = RegistrarAddress("10.20.0.1")
ELEMENT = PoolElement(
    identifier=7,
    home_registrar=0,
    life_ms=6000,
    user_transport=Transport(Protocol.UDP, 5060, (ip_address("127.0.0.1"),)),
    policy=LeastUsed(0.1),
)


class Stay(PaperSocket):
    """One stay in the pool, or a farewell: its socket, which shows what was sent on it."""

    def __init__(self, network: PaperNetwork, options: dict[str, object]) -> None:
        super().__init__(network, options)
        self.rejects: tuple[ErrorCause, ...] = ()
        """Why the registrar refuses registrations; () while it takes them."""
        self.is_refused = False
        """Whether the registrar does not confirm the deregistration."""
        self._held: list[SctpMessage] | None = None

    @property
    def messages(self) -> list[asap.AsapMessage]:
        return [asap.decode(data) for data in self.sent]

    @property
    def registered(self) -> list[PoolElement]:
        return [message.pool_element for message in self.messages if isinstance(message, asap.Registration)]

    @property
    def element(self) -> PoolElement:
        """The element that was registered last."""
        return self.registered[-1]

    @property
    def calls(self) -> list[str]:
        """The registrations, deregistrations and the end, in one word each."""
        words = {asap.Registration: "register", asap.Deregistration: "deregister"}
        closed = ["close"] if self.fileno() < 0 else []
        return [words[type(message)] for message in self.messages if type(message) in words] + closed

    def hold(self) -> None:
        """Keep all answers back until `release`."""
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for each in held:
            self.deliver(each)

    def deliver(self, what: SctpMessage | Notification | OSError) -> None:
        if isinstance(what, SctpMessage):
            answer = asap.decode(what.data)
            if self.is_refused and isinstance(answer, asap.DeregistrationResponse):
                refused = replace(answer, error=(ErrorCause(CauseCode.UNKNOWN_POOL_HANDLE),))
                what = replace(what, data=asap.encode(refused))
            if self.rejects and isinstance(answer, asap.RegistrationResponse):
                rejected = replace(answer, rejected=True, error=self.rejects)
                what = replace(what, data=asap.encode(rejected))
            if self._held is not None:
                self._held.append(what)
                return
        super().deliver(what)


class PaperPool(PaperNetwork):
    """Paper registrars, and the stays in the pool in the order in which they began."""

    def __init__(self) -> None:
        super().__init__()
        for number, address in enumerate((REGISTRAR, OTHER, AGENTS_REGISTRAR)):
            self.registrars[address.endpoint] = PaperRegistrar(0x100 + number)

    @property
    def stays(self) -> list[Stay]:
        return [each for each in self.sockets if isinstance(each, Stay)]

    def socket(self, **options: object) -> Stay:
        if self.is_broken:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        stay = Stay(self, options)
        self.sockets.append(stay)
        return stay


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> PaperPool:
    """Let pool elements open sockets of a paper pool."""
    pool = PaperPool()
    install(monkeypatch.setattr, pool)
    return pool


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

    def ask(self, handle: bytes, answered: ResolutionCallback) -> int:
        self.asked.set()
        if self.elements is None:
            raise RegistrarUnreachable("no association")
        now = asyncio.get_running_loop().time()
        answered(Resolution(handle, bool(self.elements), None, self.elements, now, now))
        return 1

    async def close(self) -> None:
        self.is_closed = True


@contextlib.asynccontextmanager
async def running(
    server_key: ServerKey | None = None, new_identifier: Callable[[], int] | None = None
) -> AsyncIterator[ServerRegistration]:
    registration = ServerRegistration(
        [REGISTRAR],
        b"pool",
        ELEMENT,
        reregistration_ms=2000,
        name="sip-1",
        new_identifier=new_identifier,
        server_key=server_key,
    )
    try:
        yield registration
    finally:
        await registration.close()


async def settle() -> None:
    """Let all that was sent be read and answered."""
    for _ in range(30):
        await asyncio.sleep(0)
