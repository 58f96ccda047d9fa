"""One client's session of DNS Push Notifications (RFC 8765), from the first byte to the last. Sans-IO.

| state | messages from the client |
|---|---|
| CONNECTED | a first request, KEEPALIVE or SUBSCRIBE, establishes the session |
| ESTABLISHED | requests are answered, changes are pushed |
| ENDING | it was told to come again later, has 5 s to close, and is not heard any more |
| ABORTED | it broke the rules or fell silent: the connection is to be reset |

The session keeps what it told of each name, and tells the difference between that and the answer
of now, so that a client that reads slowly costs no memory, and skips what is over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

import dns.exception
import dns.message
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
from dns.rcode import Rcode

from rspdns.news.message import MalformedError
from rspdns.news.push.dso import (
    HEADER,
    OPCODE,
    RESPONSE,
    DsoType,
    PushQuestion,
    RecordChange,
    Tlv,
    message,
    push_messages,
    read_question,
    read_tlvs,
)
from rspdns.news.push.records import NameRecords, RecordStore, difference, types_of

DEFAULT_TIMEOUT_MS = 15_000
"""Both timeouts until the client asks for others (RFC 8490 section 6.2)."""
MOST_INACTIVITY_MS = 60_000
LEAST_KEEPALIVE_MS, MOST_KEEPALIVE_MS = 10_000, 3_600_000
"""The bounds of the keepalive interval: the RFC's least, and the interval that it recommends."""
CLOSE_WITHIN_S = 5.0
MOST_MESSAGE_BYTES = 16_384
MOST_INPUT_BYTES = 1024 * 1024
"""The most bytes that wait until output is taken."""
MOST_OUTPUT_BYTES = 256 * 1024
"""With so much to send, further work waits until it is sent."""
MESSAGES_PER_S = 100.0
RETRY_MS = {
    Rcode.FORMERR: 300_000,
    Rcode.SERVFAIL: 10_000,
    Rcode.REFUSED: 300_000,
    Rcode.NOTAUTH: 300_000,
    Rcode.DSOTYPENI: 3_600_000,
}
"""The time until a client may try again, by the reason (RFC 8765 section 6.2.2)."""
OVERLOAD_MS = 60_000
_EDNS_TCP_KEEPALIVE = 11
_NO_RECORD_TYPES = frozenset({0, 41, *range(128, 255)})
"""The types that no record of a zone has, less ANY (RFC 6895 section 3.1)."""
CHANGES_TOGETHER = 1000
_KNOWN_TYPES = frozenset(DsoType)
_TIMEOUTS = struct.Struct("!2L")


class PushState(Enum):
    """The state of a session."""

    CONNECTED = auto()
    ESTABLISHED = auto()
    ENDING = auto()
    ABORTED = auto()


class _BrokenRuleError(Exception):
    """A message after which RFC 8490 has the connection reset."""


class _RefusedError(Exception):
    """A request that is answered by an error."""

    def __init__(self, rcode: Rcode, retry_ms: int | None = None) -> None:
        self.rcode = rcode
        self.retry_ms = RETRY_MS[rcode] if retry_ms is None else retry_ms
        super().__init__()


@dataclass(slots=True)
class _WatchedName:
    """A name of a session: its subscriptions by the identifiers of their messages, and what was told."""

    subscriptions: dict[int, PushQuestion] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)
    """The subscriptions that are not answered yet."""
    told: NameRecords = field(default_factory=dict)


@dataclass(slots=True)
class _Timers:
    """The timeouts of a session, and when the last message came or went; a KEEPALIVE is no use of it."""

    heard_s: float
    used_s: float
    inactivity_s: float = DEFAULT_TIMEOUT_MS / 1000
    keepalive_s: float = DEFAULT_TIMEOUT_MS / 1000

    def note(self, now: float, *, is_use: bool) -> None:
        self.heard_s = now
        if is_use:
            self.used_s = now

    def over_s(self, *, is_in_use: bool) -> float:
        """When the client is too late to say something, or to close what it does not use."""
        silent_s = self.heard_s + 2 * self.keepalive_s
        unused_s = self.used_s + max(CLOSE_WITHIN_S, 2 * self.inactivity_s)
        return silent_s if is_in_use else min(silent_s, unused_s)


@dataclass(slots=True)
class _MessageRate:
    """A client may send `most` messages at once, and `MESSAGES_PER_S` in the long run."""

    most: float
    left: float
    at_s: float

    def allows(self, now: float) -> bool:
        """Count a message."""
        self.left = min(self.most, self.left + (now - self.at_s) * MESSAGES_PER_S) - 1
        self.at_s = now
        return self.left >= 0


class PushSession:
    """A session with at most `most_subscriptions`. With `is_surplus` there are too many sessions, and its
    first request is answered by the time until it may come again."""

    def __init__(
        self, store: RecordStore, now: float, most_subscriptions: int, *, is_surplus: bool = False
    ) -> None:
        self.state = PushState.CONNECTED
        self.pushes = 0
        """How often changes were told."""
        self._store = store
        self._most = most_subscriptions
        self._is_surplus = is_surplus
        self._is_padded = False
        self._has_asked = False
        """Whether there was a request: it may be cancelled before it is answered."""
        self._input = bytearray()
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._changes: list[RecordChange] = []
        """The changes that the next PUSH tells."""
        self._names: dict[str, _WatchedName] = {}
        self._name_of: dict[int, str] = {}
        """The names by the identifiers of their subscriptions."""
        self._questions: set[PushQuestion] = set()
        self._renewed: dict[str, None] = {}
        """The names whose answers are to be told."""
        self._now = now
        self._timers = _Timers(now, now)
        self._end_s = 0.0
        most = most_subscriptions + MESSAGES_PER_S
        self._rate = _MessageRate(most, most, now)

    @property
    def subscriptions(self) -> int:
        """How many there are."""
        return len(self._name_of)

    @property
    def is_behind(self) -> bool:
        """Whether `proceed` has more to do once the output is taken."""
        return self._output_bytes >= MOST_OUTPUT_BYTES

    @property
    def deadline_s(self) -> float:
        """When `expire` has something to do, unless something happens before."""
        if self.state is PushState.ENDING:
            return self._end_s
        return self._timers.over_s(is_in_use=bool(self._name_of))

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes of the client."""
        if self._is_open:
            self._input += data
            self.proceed(now)
        if len(self._input) > MOST_INPUT_BYTES:
            self._abort()

    def proceed(self, now: float) -> None:
        """Answer messages and tell changes, until there is much to send."""
        self._now = now
        while not self.is_behind and (data := self._next_message()) is not None:
            self._take(data)
        while not self.is_behind and self._renewed:
            name = next(iter(self._renewed))
            del self._renewed[name]
            self._tell(name)
            if len(self._changes) >= CHANGES_TOGETHER:
                self._push()
        self._push()

    def renewed(self, name: str) -> None:
        """The store has another answer for this name; `proceed` tells it."""
        self._renewed[name] = None

    def take_output(self) -> bytes:
        """Return the bytes for the client."""
        output = b"".join(self._output)
        self._output.clear()
        self._output_bytes = 0
        return output

    def end(self, rcode: Rcode, retry_ms: int, now: float) -> None:
        """Ask the client to close, and to come again after this time."""
        self._now = now
        if self.state is PushState.CONNECTED:
            self._abort()  # nobody knows whether it speaks DSO
        elif self.state is PushState.ESTABLISHED:
            self._send(0, (_retry_delay(retry_ms),), rcode)
            self._await_close()

    def expire(self, now: float) -> None:
        """Abort a session that its client does not close, does not use, or keeps silent."""
        if now >= self.deadline_s:
            self._abort()

    def close(self) -> None:
        """The connection is closed, or about to be."""
        for name in self._names:
            self._store.leave(name, self)
        for kept in (self._names, self._name_of, self._questions, self._renewed, self._input, self._changes):
            kept.clear()

    @property
    def _is_open(self) -> bool:
        return self.state in (PushState.CONNECTED, PushState.ESTABLISHED)

    def _abort(self) -> None:
        self.state = PushState.ABORTED
        self.close()
        self.take_output()

    def _await_close(self) -> None:
        self.state = PushState.ENDING
        self._end_s = self._now + CLOSE_WITHIN_S
        self.close()

    def _next_message(self) -> bytes | None:
        if len(self._input) < 2:
            return None
        length = int.from_bytes(self._input[:2])
        if length > MOST_MESSAGE_BYTES:
            self._abort()
            return None
        if len(self._input) < 2 + length:
            return None
        data = bytes(self._input[2 : 2 + length])
        del self._input[: 2 + length]
        return data

    def _take(self, data: bytes) -> None:
        """Take a message of the client."""
        if not self._rate.allows(self._now):
            self.end(Rcode.SERVFAIL, OVERLOAD_MS, self._now)
            return
        identifier = int.from_bytes(data[:2])
        try:
            self._read(identifier, data)
        except _BrokenRuleError:
            self._abort()
        except MalformedError:
            self._refuse(identifier, _RefusedError(Rcode.FORMERR))
        except _RefusedError as refused:
            self._refuse(identifier, refused)

    def _read(self, identifier: int, data: bytes) -> None:
        """Raises _BrokenRuleError, _RefusedError and MalformedError."""
        if len(data) < HEADER.size:
            raise _BrokenRuleError
        _, flags, *counts = HEADER.unpack_from(data)
        opcode = flags >> 11 & 15
        if flags & RESPONSE:
            raise _BrokenRuleError  # nothing was asked
        if opcode != OPCODE:
            self._answer_other(identifier, opcode, data)
            return
        if any(counts):
            raise MalformedError("a DSO message has no sections")
        primary, *additional = read_tlvs(data[HEADER.size :])
        self._is_padded |= any(tlv.type == DsoType.ENCRYPTION_PADDING for tlv in additional)
        self._timers.note(self._now, is_use=primary.type != DsoType.KEEPALIVE)
        self._operate(identifier, primary)

    def _operate(self, identifier: int, primary: Tlv) -> None:
        """Do what the first TLV says. A request has an identifier, another message has none."""
        self._has_asked |= identifier != 0
        is_told = not identifier and self._has_asked
        match primary.type:
            case DsoType.KEEPALIVE if identifier:
                self._grant(identifier, primary.data)
            case DsoType.SUBSCRIBE if identifier:
                self._subscribe(identifier, primary.data)
            case DsoType.UNSUBSCRIBE if is_told and len(primary.data) == 2:
                self._unsubscribe(int.from_bytes(primary.data))
            case DsoType.RECONFIRM if is_told:
                pass  # nothing to do for a server that is no Discovery Proxy (RFC 8765 section 6.5)
            case DsoType.ENCRYPTION_PADDING:
                raise MalformedError("padding is no operation")
            case number if number in _KNOWN_TYPES:
                raise _BrokenRuleError
            case _:
                raise _RefusedError(Rcode.DSOTYPENI)

    def _answer_other(self, identifier: int, opcode: int, data: bytes) -> None:
        """Refuse a message that is none of DSO: the name server answers these."""
        if opcode != dns.opcode.QUERY:
            header = HEADER.pack(identifier, RESPONSE | opcode << 11 | Rcode.NOTIMP, 0, 0, 0, 0)
            self._append(struct.pack("!H", len(header)) + header)
            return
        try:
            query = dns.message.from_wire(data)
            answer = dns.message.make_response(query)
        except (dns.exception.DNSException, ValueError):
            raise _BrokenRuleError from None
        if any(option.otype == _EDNS_TCP_KEEPALIVE for option in query.options):
            raise _BrokenRuleError  # RFC 8490 section 5.4.6
        answer.set_rcode(Rcode.REFUSED)
        self._append(answer.to_wire(prepend_length=True))

    def _grant(self, identifier: int, data: bytes) -> None:
        """Answer a KEEPALIVE by the timeouts from now on."""
        if len(data) != _TIMEOUTS.size:
            raise MalformedError("a KEEPALIVE holds two timeouts")
        inactivity_ms, keepalive_ms = _TIMEOUTS.unpack(data)
        inactivity_ms = min(inactivity_ms, MOST_INACTIVITY_MS)
        keepalive_ms = min(max(keepalive_ms, LEAST_KEEPALIVE_MS), MOST_KEEPALIVE_MS)
        self._timers.inactivity_s, self._timers.keepalive_s = inactivity_ms / 1000, keepalive_ms / 1000
        self._accept(identifier, (Tlv(DsoType.KEEPALIVE, _TIMEOUTS.pack(inactivity_ms, keepalive_ms)),))
        if self._is_surplus:
            self.end(Rcode.SERVFAIL, OVERLOAD_MS, self._now)

    def _subscribe(self, identifier: int, data: bytes) -> None:
        if self._is_surplus:
            self._refuse(identifier, _RefusedError(Rcode.SERVFAIL, OVERLOAD_MS))
            self._await_close()
            return
        question = read_question(data)
        if question in self._questions or identifier in self._name_of:
            raise _BrokenRuleError  # RFC 8765 section 6.2.1
        if question.type in _NO_RECORD_TYPES:
            raise MalformedError("no record has this type")
        if question.rdclass not in (dns.rdataclass.IN, dns.rdataclass.ANY):
            raise _RefusedError(Rcode.NOTAUTH)
        if self.subscriptions >= self._most or self._store.is_full:
            raise _RefusedError(Rcode.SERVFAIL, OVERLOAD_MS)
        if question.name not in self._names:
            self._names[question.name] = _WatchedName()
            self._store.watch(question.name, self)
        watched = self._names[question.name]
        watched.subscriptions[identifier] = question
        watched.pending.add(identifier)
        self._name_of[identifier] = question.name
        self._questions.add(question)
        self._tell(question.name)

    def _unsubscribe(self, identifier: int) -> None:
        name = self._name_of.get(identifier)
        if name is None:
            return  # it was refused meanwhile
        if identifier in self._names[name].pending:
            self._accept(identifier)
        self._forget(identifier)

    def _forget(self, identifier: int) -> None:
        name = self._name_of.pop(identifier)
        watched = self._names[name]
        self._questions.discard(watched.subscriptions.pop(identifier))
        watched.pending.discard(identifier)
        if not watched.subscriptions:
            del self._names[name]
            self._renewed.pop(name, None)
            self._store.leave(name, self)

    def _tell(self, name: str) -> None:
        """Bring a name's subscriptions up to date; those that were not answered are answered first."""
        answer, watched = self._store.answer(name), self._names[name]
        if answer is None:
            return
        if isinstance(answer, Rcode):  # for those answered before it is a cancellation (RFC 8490 section 5.6)
            for identifier in list(watched.subscriptions):
                self._refuse(identifier, _RefusedError(answer))
                self._forget(identifier)
            return
        known = [
            question.type
            for identifier, question in watched.subscriptions.items()
            if identifier not in watched.pending
        ]
        if known and watched.told is not answer:
            self._changes += difference(name, watched.told, answer, types_of(known))
        watched.told = answer
        for identifier in sorted(watched.pending):
            self._accept(identifier)
            types = types_of([watched.subscriptions[identifier].type])
            self._changes += difference(name, {}, answer, types)
        watched.pending.clear()

    def _push(self) -> None:
        """Send the changes that wait."""
        if self._changes:
            data = push_messages(tuple(self._changes), is_padded=self._is_padded)
            self._changes.clear()
            self.pushes += 1
            self._append(data)

    def _accept(self, identifier: int, tlvs: Iterable[Tlv] = ()) -> None:
        if self.state is PushState.CONNECTED:
            self.state = PushState.ESTABLISHED
        self._send(identifier, tlvs, RESPONSE)

    def _refuse(self, identifier: int, refused: _RefusedError) -> None:
        """Answer a request by an error. A message that is none gets no answer (RFC 8490 section 5.4.3)."""
        if identifier:
            self._send(identifier, (_retry_delay(refused.retry_ms),), RESPONSE | refused.rcode)
        else:
            self._abort()

    def _send(self, identifier: int, tlvs: Iterable[Tlv], flags: int) -> None:
        self._push()  # in the order of what happened
        tlvs = tuple(tlvs)
        is_use = not any(tlv.type == DsoType.KEEPALIVE for tlv in tlvs)
        self._append(message(identifier, tlvs, flags, is_padded=self._is_padded), is_use=is_use)

    def _append(self, data: bytes, *, is_use: bool = True) -> None:
        self._timers.note(self._now, is_use=is_use)
        self._output.append(data)
        self._output_bytes += len(data)


def _retry_delay(retry_ms: int) -> Tlv:
    return Tlv(DsoType.RETRY_DELAY, struct.pack("!L", retry_ms))
