"""A pool user's questions to one registrar: theory, table, machine and client (RFC 5352, section 2.2).

Handle resolutions are pipelined: a new question need not wait for the answer to the one before. ASAP's
replies name the pool but not the question; a registrar answers in the order asked. So a reply always belongs
to the *oldest* unanswered question about its pool, also when that question timed out long ago: a late reply
is never taken for the answer to a newer question. Should a reply go missing for good, the association is
given up after `RESET_AFTER_S`, and with it the count.

The pool user connects, and connects again after growing pauses, by itself. Each association has a socket of
its own: nothing of an earlier one can be mistaken for its.

The file holds, in this order: the states and every transition between them, what the owner is told, the
machine, and its client for asyncio.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from rserpool.aio.driver import ASAP, Driver
from rserpool.asap import AsapMessage, EndpointUnreachable, HandleResolution, HandleResolutionResponse
from rserpool.errors import CauseCode, RegistrarUnreachable, ResolutionTimeout, RSerPoolError
from rserpool.machine.base import CloseSocket, Connect, SctpAddress, Send, TableMachine
from rserpool.machine.registrar_choice import RegistrarAddress, backoff_s
from rserpool.parameters import PoolElement
from rserpool.policies import Policy
from rserpool.rspregistrar import MOST_RESOLVED, check_handle

# The states, and every transition between them


class LinkState(Enum):
    """The state of the association with the registrar."""

    DOWN = auto()
    """There is none; another attempt follows."""
    CONNECTING = auto()
    UP = auto()
    CLOSED = auto()
    """Over."""


class LinkInput(Enum):
    """The inputs that move the association from one state to another."""

    CONNECT = auto()
    """The pause after a failure is over."""
    ASSOCIATED = auto()
    LOST = auto()
    """The association is gone or was not set up, or the registrar is silent."""
    CLOSE = auto()


TRANSITIONS: Mapping[LinkState, Mapping[LinkInput, LinkState]] = {
    LinkState.DOWN: {LinkInput.CONNECT: LinkState.CONNECTING, LinkInput.CLOSE: LinkState.CLOSED},
    LinkState.CONNECTING: {
        LinkInput.ASSOCIATED: LinkState.UP,
        LinkInput.LOST: LinkState.DOWN,
        LinkInput.CLOSE: LinkState.CLOSED,
    },
    LinkState.UP: {LinkInput.LOST: LinkState.DOWN, LinkInput.CLOSE: LinkState.CLOSED},
    LinkState.CLOSED: {},
}
"""An input that is not in here changes nothing."""


# Events for the owner


class ResolutionRefused(ResolutionTimeout):
    """The registrar answered with an error other than "no such pool": as good as no answer."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """A registrar's answer to one handle resolution.

    `found` is False when the registrar knows no such pool, which for it is the same as an empty one.
    `asked_at_s` is a time before the question left; the answer tells of a moment between `asked_at_s` and
    `answered_at_s`.
    """

    handle: bytes
    found: bool
    policy: Policy | None
    pool_elements: tuple[PoolElement, ...]
    asked_at_s: float
    answered_at_s: float


@dataclass(frozen=True, slots=True)
class QuestionAnswered:
    """The question `number` has its answer."""

    number: int
    resolution: Resolution


@dataclass(frozen=True, slots=True)
class QuestionFailed:
    """The question `number` will not be answered."""

    number: int
    error: RSerPoolError


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """The association came up, or (`is_up` False) is gone."""

    is_up: bool


ClientEvent = QuestionAnswered | QuestionFailed | LinkChanged


# The machine

CONNECT_TIMEOUT_S = 1.0
RECONNECT_FIRST_S, RECONNECT_CEILING_S = 0.1, 1.0
RESET_AFTER_S = 5.0
"""A question unanswered for so long: the registrar is frozen or a reply was lost. Start afresh."""
MAX_UNANSWERED = 4096
"""Questions kept at once; above it, asking fails rather than filling memory for a frozen registrar."""


@dataclass(slots=True, eq=False)
class _Question:
    number: int
    handle: bytes
    asked_at_s: float
    awaited: bool = True
    answered: bool = False


class RegistrarClientMachine(TableMachine[LinkState, LinkInput, AsapMessage, ClientEvent]):
    """One pool user and the registrar at `registrar`. Starts DOWN, and connects with the first `advance`.

    A question waits `timeout_s` for its answer, and asks for `items` pool elements.
    """

    def __init__(self, registrar: SctpAddress, *, timeout_s: float = 0.3, items: int = MOST_RESOLVED) -> None:
        super().__init__(LinkState.DOWN, TRANSITIONS)
        self.problem: str | None = None
        """Why the last association ended or was not set up; None while there is one."""
        self.heard_at_s: float | None = None
        """When a message of the registrar came last; None before the first."""
        self.round_trip_s: float | None = None
        """Smoothed time from question to answer; None before the first."""
        self._registrar = registrar
        self._timeout_s = timeout_s
        self._items = items
        self._association: int | None = None
        self._last_number = 0
        self._by_handle: dict[bytes, deque[_Question]] = {}
        """The questions without a reply, of each pool, in the order asked."""
        self._awaited: deque[_Question] = deque()
        """Those that have not timed out, in the order asked."""
        self._unanswered: deque[_Question] = deque()
        """All without a reply, in the order asked."""
        self._failures = 0
        self._timer_s: float | None = float("-inf")

    # Wishes of the owner

    def resolve(self, handle: bytes, now: float) -> int:
        """Ask who is in the pool; return the number that `QuestionAnswered` or `QuestionFailed` will have.

        Raise RegistrarUnreachable when there is no association, or too much is unanswered already.
        """
        if self.state is not LinkState.UP or self._association is None:
            raise RegistrarUnreachable(self.problem or "there is no association with the registrar")
        if len(self._unanswered) >= MAX_UNANSWERED:
            raise RegistrarUnreachable(f"{MAX_UNANSWERED} questions are unanswered already")
        self._last_number += 1
        question = _Question(self._last_number, handle, now)
        self._by_handle.setdefault(handle, deque()).append(question)
        self._awaited.append(question)
        self._unanswered.append(question)
        self._actions.append(Send(self._association, HandleResolution(handle, self._items)))
        return question.number

    def report_unreachable(self, handle: bytes, identifier: int) -> None:
        """Tell the registrar that a pool element cannot be reached; without an association, do nothing."""
        if self.state is LinkState.UP and self._association is not None:
            self._actions.append(Send(self._association, EndpointUnreachable(handle, identifier)))

    def close(self) -> None:
        """End for good; what is unanswered fails."""
        before = self.state
        if self._move(LinkInput.CLOSE):
            self._timer_s = None
            if before is not LinkState.DOWN:
                self._disconnect("closed", was_up=before is LinkState.UP)

    # Events of the socket

    def associated(
        self, association: int, peer: SctpAddress, now: float, local: Sequence[SctpAddress] = ()
    ) -> None:
        """Take note that the association is up: the only one of its socket, which does not listen."""
        del peer, now, local
        if self._move(LinkInput.ASSOCIATED):
            self._association = association
            self._failures = 0
            self._timer_s = self.problem = None
            self._actions.append(LinkChanged(True))

    def lost(
        self, association: int, now: float, reason: str = "the association with the registrar is lost"
    ) -> None:
        """Take note that the association ended; what is unanswered fails."""
        if self.state is LinkState.CONNECTING or association == self._association:
            self._lose(now, reason)

    def connect_failed(self, peer: SctpAddress, now: float, reason: str) -> None:
        """Take note that no association could be set up."""
        del peer
        if self.state is LinkState.CONNECTING:
            self._lose(now, f"cannot connect: {reason}")

    def received(self, association: int, message: AsapMessage, now: float) -> None:
        """Take a message; what does not come from the registrar or answers nothing is ignored."""
        questions = None
        if self.state is LinkState.UP and association == self._association:
            self.heard_at_s = now
            if isinstance(message, HandleResolutionResponse):
                questions = self._by_handle.get(message.handle)
        if not questions or not isinstance(message, HandleResolutionResponse):
            return
        question = questions.popleft()
        if not questions:
            del self._by_handle[message.handle]
        question.answered = True
        if question.awaited:
            question.awaited = False
            self._actions.append(_outcome(question, message, now))
            trip_s = now - question.asked_at_s
            before_s = trip_s if self.round_trip_s is None else self.round_trip_s
            self.round_trip_s = before_s + (trip_s - before_s) / 8
        self._forget_finished()

    # Events of the clock

    @property
    def next_deadline_s(self) -> float | None:
        """When `advance` has something to do; None: not before something else happens."""
        deadlines = [] if self._timer_s is None else [self._timer_s]
        if self._awaited:
            deadlines.append(self._awaited[0].asked_at_s + self._timeout_s)
        if self._unanswered:
            deadlines.append(self._unanswered[0].asked_at_s + RESET_AFTER_S)
        return min(deadlines, default=None)

    def advance(self, now: float) -> None:
        """Do what is due: give up on questions, on connecting, on a silent registrar; connect again."""
        while self._awaited and now >= self._awaited[0].asked_at_s + self._timeout_s:
            question = self._awaited.popleft()
            question.awaited = False
            words = f"no answer within {self._timeout_s * 1000:.0f} ms"
            self._actions.append(QuestionFailed(question.number, ResolutionTimeout(words)))
            self._forget_finished()
        if self._unanswered and now >= self._unanswered[0].asked_at_s + RESET_AFTER_S:
            self._lose(now, f"the registrar is silent since {RESET_AFTER_S:.0f} s")
        if self._timer_s is not None and now >= self._timer_s:
            if self.state is LinkState.CONNECTING:
                self._lose(now, "the registrar does not answer")
            elif self._move(LinkInput.CONNECT):
                self._timer_s = now + CONNECT_TIMEOUT_S
                self._actions.append(Connect(self._registrar))

    # Helpers

    def _forget_finished(self) -> None:
        while self._awaited and not self._awaited[0].awaited:
            self._awaited.popleft()
        while self._unanswered and self._unanswered[0].answered:
            self._unanswered.popleft()

    def _lose(self, now: float, reason: str) -> None:
        was_up = self.state is LinkState.UP
        if self._move(LinkInput.LOST):
            self.problem = reason
            self._failures += 1
            self._timer_s = now + backoff_s(self._failures, RECONNECT_FIRST_S, RECONNECT_CEILING_S)
            self._disconnect(reason, was_up=was_up)

    def _disconnect(self, reason: str, *, was_up: bool) -> None:
        """Close the socket, or give up the attempt; all that is unanswered fails."""
        self._association = None
        self._actions.append(CloseSocket())
        for question in self._unanswered:
            if question.awaited:
                self._actions.append(QuestionFailed(question.number, RegistrarUnreachable(reason)))
        self._by_handle.clear()
        self._awaited.clear()
        self._unanswered.clear()
        if was_up:
            self._actions.append(LinkChanged(False))


def _outcome(
    question: _Question, message: HandleResolutionResponse, now: float
) -> QuestionAnswered | QuestionFailed:
    """Tell an answer, "no such pool" included, from a refusal."""
    if any(cause.code != CauseCode.UNKNOWN_POOL_HANDLE for cause in message.error):
        words = "; ".join(cause.explain() for cause in message.error)
        return QuestionFailed(question.number, ResolutionRefused(f"the registrar refused: {words}"))
    is_known = bool(message.pool_elements) and not message.error
    elements = message.pool_elements if is_known else ()
    resolution = Resolution(
        question.handle, is_known, message.policy if is_known else None, elements, question.asked_at_s, now
    )
    return QuestionAnswered(question.number, resolution)


# The machine on a socket

ResolutionCallback = Callable[[Resolution | RSerPoolError], None]
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
        self._driver: Driver[AsapMessage, ClientEvent] = Driver(
            self._machine,
            ASAP,
            self._happened,
            registrars=[address.endpoint],
            local_addresses=local_addresses,
            listens=False,
        )
        self._on_link = on_link
        self._answers: dict[int, ResolutionCallback] = {}
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
        return self._machine.state is LinkState.UP

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

    def ask(self, handle: bytes, answered: ResolutionCallback) -> int:
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

    def _happened(self, event: ClientEvent) -> None:
        match event:
            case QuestionAnswered(number, resolution):
                self._answer(number, resolution)
            case QuestionFailed(number, error):
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
