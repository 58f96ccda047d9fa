"""A pool user's connection to one registrar, for asyncio: `RegistrarClientMachine` on the driver."""

import asyncio
import time
from collections.abc import Callable, Sequence

from rserpool.aio.driver import ASAP, Driver
from rserpool.asap import AsapMessage
from rserpool.errors import RegistrarUnreachable, RSerPoolError
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.machine.user import Answered, Event, Failed, LinkChanged, RegistrarClientMachine, State
from rserpool.machine.user import Resolution as Resolution
from rserpool.rspregistrar import MOST_RESOLVED, check_handle

Answer = Callable[[Resolution | RSerPoolError], None]
"""Takes the answer to one question, or why there is none; it must not raise."""


class RegistrarClient:
    """Asks one registrar who is in a pool. Connects, and connects again, by itself.

    `timeout_ms` is how long one question waits for its answer, `items` how many pool elements to ask for (a
    registrar names MOST_RESOLVED at most). `local_addresses` are the IP addresses to speak from (default: the
    system's choice). `on_link` is called with True or False each time the association comes up or is lost.
    """

    def __init__(
        self,
        address: RegistrarAddress,
        *,
        timeout_ms: int = 300,
        items: int = MOST_RESOLVED,
        local_addresses: Sequence[str] = (),
        on_link: Callable[[bool], None] | None = None,
    ) -> None:
        self.address = address
        self._machine = RegistrarClientMachine(address.endpoint, timeout_s=timeout_ms / 1000, items=items)
        self._driver: Driver[AsapMessage, Event] = Driver(
            self._machine,
            ASAP,
            self._told,
            registrars=[address.endpoint],
            local_addresses=local_addresses,
            listens=False,
        )
        self._on_link = on_link
        self._answers: dict[int, Answer] = {}
        self._connected = asyncio.Event()

    @property
    def problem(self) -> str | None:
        """Why the last association ended or was not set up; None while there is one."""
        return self._machine.problem

    @property
    def heard_at_s(self) -> float | None:
        """When a message of the registrar came last, on the monotonic clock; None before the first."""
        return self._machine.heard_at_s

    @property
    def is_up(self) -> bool:
        """True while there is an association with the registrar."""
        return self._machine.state is State.UP

    @property
    def round_trip_ms(self) -> float | None:
        """Smoothed time from question to answer; None before the first answer."""
        seconds = self._machine.round_trip_s
        return None if seconds is None else seconds * 1000

    def start(self) -> None:
        """Begin to connect; must run in an event loop. Raise SctpUnavailable where there is no SCTP."""
        self._driver.start(opens=False)
        self._machine.advance(time.monotonic())
        self._driver.run()

    async def connected(self) -> None:
        """Return as soon as there is an association with the registrar; it may take without end."""
        await self._connected.wait()

    async def close(self) -> None:
        """Close the association; what is unanswered fails with RegistrarUnreachable."""
        self._machine.close()
        self._driver.run()

    async def resolve(self, handle: bytes) -> Resolution:
        """Ask who is in the pool `handle` (1..32 bytes).

        Raise ResolutionTimeout when no answer comes in time, RegistrarUnreachable when there is no
        association, UnsafeMessageError for a handle that must not be sent.
        """
        answer: asyncio.Future[Resolution] = asyncio.get_running_loop().create_future()

        def answered(what: Resolution | RSerPoolError) -> None:
            if answer.done():
                return
            if isinstance(what, Resolution):
                answer.set_result(what)
            else:
                answer.set_exception(what)

        number = self.ask(handle, answered)
        try:
            return await answer
        finally:
            self._answers.pop(number, None)

    def ask(self, handle: bytes, answered: Answer) -> int:
        """Ask as `resolve` does, and have `answered` called, maybe before this returns the question's number.

        Raise RegistrarUnreachable when there is no association, UnsafeMessageError for a handle that must not
        be sent; `answered` is not called then.
        """
        check_handle(handle)
        try:
            number = self._machine.resolve(handle, time.monotonic())
        except RegistrarUnreachable as problem:
            raise RegistrarUnreachable(f"registrar {self.address}: {problem}") from None
        self._answers[number] = answered
        self._driver.run()
        return number

    def report_unreachable(self, handle: bytes, identifier: int) -> None:
        """Tell the registrar that a pool element cannot be reached (several such reports remove it)."""
        check_handle(handle)
        self._machine.report_unreachable(handle, identifier)
        self._driver.run()

    def _told(self, event: Event) -> None:
        match event:
            case Answered(number, resolution):
                self._answer(number, resolution)
            case Failed(number, error):
                self._answer(number, type(error)(f"registrar {self.address}: {error}"))
            case LinkChanged(is_up):
                if is_up:
                    self._connected.set()
                else:
                    self._connected.clear()
                if self._on_link:
                    self._on_link(is_up)

    def _answer(self, number: int, what: Resolution | RSerPoolError) -> None:
        if answered := self._answers.pop(number, None):
            answered(what)
