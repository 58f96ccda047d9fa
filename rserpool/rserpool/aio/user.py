"""A pool user's connection to one registrar, for asyncio."""

import asyncio
import time
from collections.abc import Callable, Sequence

from rserpool.aio.driver import ASAP, DeadlineTimer, MessageEndpoint
from rserpool.aio.sctp import AssociationUp, Notification, PathChanged, SctpSocket, SctpUnavailable
from rserpool.asap import DEFAULT_ITEMS, AsapMessage
from rserpool.errors import RegistrarUnreachable, RSerPoolError
from rserpool.machine import user as pool_user
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.machine.user import Link, PoolUser
from rserpool.machine.user import Resolution as Resolution
from rserpool.rspregistrar import check_handle

Answer = Callable[[Resolution | RSerPoolError], None]
"""Takes the answer to one question, or why there is none; it must not raise."""


class RegistrarClient:
    """Asks one registrar who is in a pool. Connects, and connects again, by itself.

    `timeout_ms` is how long one question waits for its answer, `items` how many pool elements to ask for (a
    registrar gives 128 at most). `local_addresses` are the IP addresses to speak from (default: the system's
    choice). `on_link` is called with True or False each time the association comes up or is lost.
    """

    def __init__(
        self,
        address: RegistrarAddress,
        *,
        timeout_ms: int = 300,
        items: int = DEFAULT_ITEMS,
        local_addresses: Sequence[str] = (),
        on_link: Callable[[bool], None] | None = None,
    ) -> None:
        self.address = address
        self.problem: str | None = None
        """Why the last attempt to connect failed; None while the association is up."""
        self.heard_at_s: float | None = None
        """When a message of the registrar came last, on the monotonic clock; None before the first."""
        self._local_addresses = tuple(local_addresses)
        self._ipv6 = ":" in address.host
        self._on_link = on_link
        self._user = PoolUser(timeout_s=timeout_ms / 1000, items=items)
        self._answers: dict[int, Answer] = {}
        self._endpoint: MessageEndpoint[AsapMessage] | None = None
        self._association: int | None = None
        self._timer: DeadlineTimer | None = None
        self._was_up = False
        self._is_running = False

    @property
    def is_up(self) -> bool:
        """True while there is an association with the registrar."""
        return self._user.state is Link.UP

    @property
    def round_trip_ms(self) -> float | None:
        """Smoothed time from question to answer; None before the first answer."""
        seconds = self._user.round_trip_s
        return None if seconds is None else seconds * 1000

    def start(self) -> None:
        """Begin to connect; must run in an event loop. Raise SctpUnavailable where there is no SCTP."""
        SctpSocket(ipv6=self._ipv6).close()
        self._timer = DeadlineTimer(self._advance)
        self._advance()

    async def close(self) -> None:
        """Close the association; what is unanswered fails with RegistrarUnreachable."""
        self._user.close()
        self._run()

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
            number = self._user.resolve(handle, time.monotonic())
        except RegistrarUnreachable as problem:
            raise RegistrarUnreachable(f"registrar {self.address}: {self.problem or problem}") from None
        self._answers[number] = answered
        self._run()
        return number

    def report_unreachable(self, handle: bytes, identifier: int) -> None:
        """Tell the registrar that a pool element cannot be reached (several such reports remove it)."""
        check_handle(handle)
        self._user.report_unreachable(handle, identifier)
        self._run()

    def _connect(self) -> None:
        """Begin an association, on a socket of its own: nothing of an earlier one can be mistaken for its."""
        try:
            self._endpoint = MessageEndpoint(
                ASAP,
                SctpSocket(local_addresses=self._local_addresses, ipv6=self._ipv6),
                on_message=self._message,
                on_notification=self._notification,
                on_dead=self._lost,
            )
            self._endpoint.connect(self.address.endpoint)
        except (OSError, SctpUnavailable) as problem:
            self._user.lost(time.monotonic(), str(problem))
            self.problem = f"cannot connect: {problem}"

    def _disconnect(self) -> None:
        if self._endpoint:
            self._endpoint.close()
        self._endpoint = self._association = None

    def _message(self, association: int, message: AsapMessage, _peer: tuple[str, int]) -> None:
        if association == self._association:
            self.heard_at_s = time.monotonic()
            self._user.received(message, self.heard_at_s)
            self._run()

    def _notification(self, notification: Notification) -> None:
        if isinstance(notification, AssociationUp):
            self._association = notification.association
            self.problem = None
            self._user.associated(time.monotonic())
            self._run()
        elif not isinstance(notification, PathChanged):
            self._lost(getattr(notification, "reason", "the registrar cannot be reached"))

    def _lost(self, reason: str) -> None:
        self.problem = reason
        self._user.lost(time.monotonic(), reason)
        self._run()

    def _advance(self) -> None:
        if self._endpoint:
            self._endpoint.read_waiting()
        self._user.advance(time.monotonic())
        self._run()

    def _run(self) -> None:
        """Do what the machine asks for; doing it may ask for more."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while actions := self._user.take_actions():
                for action in actions:
                    self._do(action)
        finally:
            self._is_running = False
        if self._timer:
            self._timer.set(self._user.next_deadline_s if self._user.state is not Link.CLOSED else None)
        if self.is_up != self._was_up:
            self._was_up = self.is_up
            if self._on_link:
                self._on_link(self.is_up)

    def _do(self, action: pool_user.Action) -> None:
        match action:
            case pool_user.Connect():
                self._connect()
            case pool_user.Disconnect():
                self._disconnect()
            case pool_user.Send(message):
                if self._endpoint and self._association is not None:
                    self._endpoint.send(self._association, message)
            case pool_user.Answered(number, resolution):
                if answered := self._answers.pop(number, None):
                    answered(resolution)
            case pool_user.Failed(number, error):
                if answered := self._answers.pop(number, None):
                    answered(_with_address(error, self.address))


def _with_address(error: RSerPoolError, address: RegistrarAddress) -> RSerPoolError:
    return type(error)(f"registrar {address}: {error}")
