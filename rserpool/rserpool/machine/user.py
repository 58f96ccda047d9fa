"""A pool user's dealings with one registrar, without sockets and clocks (RFC 5352, section 2.2).

`PoolUser` is told what happened (`associated`, `lost`, `received`, time with `advance`), and `take_actions`
says what is to be done. Handle resolutions are pipelined. ASAP's replies name the pool but not the question;
a registrar answers in the order asked. So a reply always belongs to the *oldest* unanswered question about
its pool, also when that question's asker gave up long ago: a late reply is never taken for the answer to a
newer question. Should a reply go missing for good, the association is given up after `RESET_AFTER_S`, and
with it the count.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from rserpool.asap import (
    DEFAULT_ITEMS,
    AsapMessage,
    EndpointUnreachable,
    HandleResolution,
    HandleResolutionResponse,
)
from rserpool.errors import CauseCode, RegistrarUnreachable, ResolutionTimeout, RSerPoolError
from rserpool.machine.registrar_choice import backoff_s
from rserpool.parameters import PoolElement
from rserpool.policies import Policy

CONNECT_TIMEOUT_S = 1.0
RECONNECT_FIRST_S = 0.1
RECONNECT_CEILING_S = 1.0
RESET_AFTER_S = 5.0
"""A question unanswered for so long: the registrar is frozen or a reply was lost. Start afresh."""
MAX_UNANSWERED = 4096
"""Questions kept at once; above it, asking fails rather than filling memory for a frozen registrar."""


class Link(Enum):
    """The states of the association with the registrar."""

    DOWN = auto()
    CONNECTING = auto()
    UP = auto()
    CLOSED = auto()


class Input(Enum):
    """What moves a link from one state to another."""

    CONNECT = auto()
    ASSOCIATED = auto()
    LOST = auto()
    CLOSE = auto()


TRANSITIONS: Mapping[Link, Mapping[Input, Link]] = {
    Link.DOWN: {Input.CONNECT: Link.CONNECTING, Input.CLOSE: Link.CLOSED},
    Link.CONNECTING: {Input.ASSOCIATED: Link.UP, Input.LOST: Link.DOWN, Input.CLOSE: Link.CLOSED},
    Link.UP: {Input.LOST: Link.DOWN, Input.CLOSE: Link.CLOSED},
    Link.CLOSED: {},
}
"""Every transition there is; an input without one changes nothing."""


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
class Connect:
    """Set up a new association with the registrar."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the association, or give up the attempt to set one up."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send `message` to the registrar."""

    message: AsapMessage


@dataclass(frozen=True, slots=True)
class Answered:
    """The question `number` has its answer."""

    number: int
    resolution: Resolution


@dataclass(frozen=True, slots=True)
class Failed:
    """The question `number` will not be answered."""

    number: int
    error: RSerPoolError


Action = Connect | Disconnect | Send | Answered | Failed


@dataclass(slots=True, eq=False)
class _Question:
    number: int
    handle: bytes
    asked_at_s: float
    awaited: bool = True
    answered: bool = False


class PoolUser:
    """One pool user and one registrar. Starts DOWN, and connects with the first `advance`."""

    def __init__(self, *, timeout_s: float = 0.3, items: int = DEFAULT_ITEMS) -> None:
        self._timeout_s = timeout_s
        self._items = items
        self._actions: list[Action] = []
        self._by_handle: dict[bytes, deque[_Question]] = {}
        self._awaited: deque[_Question] = deque()
        self._unanswered: deque[_Question] = deque()
        self._last_number = 0
        self._failures = 0
        self._timer_s: float | None = float("-inf")
        self.state = Link.DOWN
        self.round_trip_s: float | None = None
        """Smoothed time from question to answer; None before the first."""
        self.ignored = 0
        """Messages that answered nothing we asked."""

    def take_actions(self) -> list[Action]:
        """Return what is to be done, in order, and forget it."""
        actions, self._actions = self._actions, []
        return actions

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
            self._actions.append(Failed(question.number, ResolutionTimeout(words)))
            self._forget_finished()
        if self._unanswered and now >= self._unanswered[0].asked_at_s + RESET_AFTER_S:
            self._lose(now, f"the registrar is silent since {RESET_AFTER_S:.0f} s")
        if self._timer_s is not None and now >= self._timer_s:
            if self.state is Link.CONNECTING:
                self._lose(now, "the registrar does not answer")
            elif self._move(Input.CONNECT):
                self._timer_s = now + CONNECT_TIMEOUT_S
                self._actions.append(Connect())

    def associated(self, now: float) -> None:
        """Take note that the association is up."""
        del now
        if self._move(Input.ASSOCIATED):
            self._failures = 0
            self._timer_s = None

    def lost(self, now: float, reason: str = "the association with the registrar is lost") -> None:
        """Take note that the association ended or could not be set up; what is unanswered fails."""
        if self.state in (Link.CONNECTING, Link.UP):
            self._lose(now, reason)

    def close(self) -> None:
        """End for good."""
        was_open = self.state in (Link.CONNECTING, Link.UP)
        if self._move(Input.CLOSE):
            self._timer_s = None
            self._fail_all("closed")
            if was_open:
                self._actions.append(Disconnect())

    def resolve(self, handle: bytes, now: float) -> int:
        """Ask who is in the pool; return the number that its `Answered` or `Failed` will carry.

        Raise RegistrarUnreachable when there is no association, or too much is unanswered already.
        """
        if self.state is not Link.UP:
            raise RegistrarUnreachable("there is no association with the registrar")
        if len(self._unanswered) >= MAX_UNANSWERED:
            raise RegistrarUnreachable(f"{MAX_UNANSWERED} questions are unanswered already")
        self._last_number += 1
        question = _Question(self._last_number, handle, now)
        self._by_handle.setdefault(handle, deque()).append(question)
        self._awaited.append(question)
        self._unanswered.append(question)
        self._actions.append(Send(HandleResolution(handle, self._items)))
        return question.number

    def report_unreachable(self, handle: bytes, identifier: int) -> None:
        """Tell the registrar that a pool element cannot be reached; without an association, do nothing."""
        if self.state is Link.UP:
            self._actions.append(Send(EndpointUnreachable(handle, identifier)))

    def received(self, message: AsapMessage, now: float) -> None:
        """Take a message from the registrar; what answers nothing we asked is counted and ignored."""
        questions = None
        if self.state is Link.UP and isinstance(message, HandleResolutionResponse):
            questions = self._by_handle.get(message.handle)
        if not questions or not isinstance(message, HandleResolutionResponse):
            self.ignored += 1
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
        else:
            self.ignored += 1
        self._forget_finished()

    def _forget_finished(self) -> None:
        while self._awaited and not self._awaited[0].awaited:
            self._awaited.popleft()
        while self._unanswered and self._unanswered[0].answered:
            self._unanswered.popleft()

    def _move(self, what: Input) -> bool:
        target = TRANSITIONS[self.state].get(what)
        if target is None:
            return False
        self.state = target
        return True

    def _lose(self, now: float, reason: str) -> None:
        if not self._move(Input.LOST):
            return
        self._failures += 1
        self._timer_s = now + backoff_s(self._failures, RECONNECT_FIRST_S, RECONNECT_CEILING_S)
        self._actions.append(Disconnect())
        self._fail_all(reason)

    def _fail_all(self, reason: str) -> None:
        for question in self._unanswered:
            if question.awaited:
                self._actions.append(Failed(question.number, RegistrarUnreachable(reason)))
        self._by_handle.clear()
        self._awaited.clear()
        self._unanswered.clear()


def _outcome(question: _Question, message: HandleResolutionResponse, now: float) -> Answered | Failed:
    """Tell an answer, "no such pool" included, from a refusal."""
    if any(cause.code != CauseCode.UNKNOWN_POOL_HANDLE for cause in message.error):
        words = "; ".join(cause.explain() for cause in message.error)
        return Failed(question.number, ResolutionRefused(f"the registrar refused: {words}"))
    found = bool(message.pool_elements) and not message.error
    elements = message.pool_elements if found else ()
    resolution = Resolution(
        question.handle, found, message.policy if found else None, elements, question.asked_at_s, now
    )
    return Answered(question.number, resolution)
