"""SIP requests over TCP that nobody has answered: kept, so that another server can be asked. Sans-IO.

SIP repeats requests over UDP, and over TCP never (RFC 3261, section 17.1.1.2): what was written into a
connection before its server died is lost, and the client waits for its timer of 32 s. So `Conversation` reads
along:

1. `from_client()` and `from_server()` cut the two byte streams into whole messages (section 18.3). Only whole
   messages are passed on, so that a server may change between any two of them.
2. A request but ACK is kept until its final response. Section 17.1.3: a response belongs to the request with
   the same uppermost branch and CSeq.
3. `repeat()` is what the next server is to be sent. A request that three servers left unanswered is answered
   with 503 instead: it may be what kills them. `refuse()` answers all so, when no server is left.

A stream that is not SIP (TLS, WebSocket, something else) is passed on as it comes, and nothing is kept of it.
The first byte that SIP can't have there shows that. Streams that begin like a line of SIP and stop within it
are in doubt: the caller ends that by `end_doubt()` after DOUBT_S, since the server may wait for these bytes.
Input may be hostile: messages and kept bytes are bounded.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from daemon_kit.sip import refusal

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_MESSAGE_BYTES: Final = 256 * 1024
"""A stream with a larger message is passed on, and no more understood."""
MAX_LINE_BYTES: Final = 8 * 1024
"""The longest request line or status line."""
MAX_KEPT_BYTES: Final = 512 * 1024
"""The most bytes of unanswered requests of one connection, if there is room; if there are more the oldest
are forgotten."""
LEAST_KEPT_BYTES: Final = 16 * 1024
"""There is always room for so much of a connection."""
INVITE_FOR_S: Final = 180.0
"""Timer C (section 16.6): the time that a telephone may ring."""
OTHERS_FOR_S: Final = 32.0
"""Timer F (section 17.1.2.2)."""
MOST_SERVERS: Final = 3
"""The number of servers that are sent the same request, one after the other."""
DOUBT_S: Final = 0.1
"""A stream that may be SIP, but has not shown its first line yet, is held back for this time at most."""

_TOKEN: Final = rb"[A-Za-z0-9.!%*_+`'~-]{1,32}"
_URI: Final = rb"[^\x00-\x20\x7f]+"
_FIRST_LINE: Final = re.compile(
    rb"(?:SIP/2\.0 (?P<status>[1-6][0-9]{2})(?: .*)?|(?P<method>%b) %b SIP/2\.0)" % (_TOKEN, _URI),
    re.IGNORECASE,
)


def _any_begin_of(text: bytes) -> bytes:
    """A pattern for every beginning of `text`, the empty one, too."""
    pattern = b""
    for at in reversed(range(len(text))):
        pattern = b"(?:%b%b)?" % (re.escape(text[at : at + 1]), pattern)
    return pattern


_BEGINS_A_LINE: Final = re.compile(
    rb"(?:%b(?: (?:%b(?: %b)?)?)?|%b|SIP/2\.0 (?:[1-6][0-9]{0,2})?|SIP/2\.0 [1-6][0-9]{2}(?: .*|\r))"
    % (_TOKEN, _URI, _any_begin_of(b"SIP/2.0\r"), _any_begin_of(b"SIP/2.0")),
    re.IGNORECASE,
)
"""The beginnings that more bytes can make a first line."""
_BEGINS_A_RESPONSE: Final = b"SIP/2.0 "
_LINE_ENDS: Final = re.compile(rb"[\r\n]+")
_FOLD: Final = re.compile(rb"\r\n(?=[ \t])")
_FIELD: Final = re.compile(rb"\n(via|v|cseq|content-length|l)[ \t]*:([^\r\n]*)", re.I)
_LENGTH: Final = re.compile(rb"[ \t]*([0-9]{1,9})[ \t]*")
_BRANCH: Final = re.compile(rb";\s*branch\s*=\s*([^;,\s]+)", re.I)
_SEQUENCE: Final = re.compile(rb"[ \t]*([0-9]{1,10})[ \t]+([A-Za-z0-9.!%*_+`'~-]{1,32})")
_SHORT: Final = {b"v": b"via", b"l": b"content-length"}
_LEAST_HEAD_BYTES: Final = 50
"""With the header fields that each message has (section 8.1.1), in their shortest form."""

RequestKey = tuple[bytes, bytes, bytes]
"""Branch, CSeq number and method."""


class _NotSipError(Exception):
    """The stream can't be cut into SIP messages."""


@dataclass(frozen=True, slots=True)
class SipMessage:
    """A whole message, or the line ends between two (a keep-alive, RFC 5626), which have no `key`.

    `method` is empty for a response, `status` 0 for a request.
    """

    raw: bytes
    method: bytes = b""
    status: int = 0
    key: RequestKey | None = None


class MessageStream:
    """Cuts messages out of a stream, by their Content-Length."""

    def __init__(self) -> None:
        self.is_garbage = False
        """True once `rest` can't be understood."""
        self._buffer = bytearray()
        self._seen = 0  # bytes of the buffer that have been searched for the end of the head
        self._head: _Head | None = None  # of the message that begins the buffer, once it is known
        self._whole = 0  # bytes of that message
        self._is_sip = False  # whether a first line has been seen

    @property
    def is_in_doubt(self) -> bool:
        """Whether it has begun, could become SIP, and has not shown that."""
        is_shown = self._is_sip or self._buffer.startswith(_BEGINS_A_RESPONSE)
        return bool(self._buffer) and not is_shown and not self.is_garbage

    @property
    def rest(self) -> bytes:
        """The message that is not whole yet."""
        return bytes(self._buffer)

    def feed(self, data: bytes) -> list[SipMessage]:
        """Take what was received, return what is whole now."""
        self._buffer += data
        found: list[SipMessage] = []
        try:
            while self._buffer and (message := self._line_ends() or self._message()) is not None:
                found.append(message)
        except _NotSipError:
            self.is_garbage = True
        return found

    def _line_ends(self) -> SipMessage | None:
        found = None if self._head else _LINE_ENDS.match(self._buffer)
        return SipMessage(self._taken(found.end())) if found else None

    def _message(self) -> SipMessage | None:
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n", max(0, self._seen - 3), MAX_HEAD_BYTES + 4)
            if end < 0:
                self._check_begin()
                if len(self._buffer) > MAX_HEAD_BYTES:
                    raise _NotSipError
                self._seen = len(self._buffer)
                return None
            self._head = _read(bytes(self._buffer[:end]))
            self._is_sip = True
            self._whole = end + 4 + self._head.length
            if self._whole > MAX_MESSAGE_BYTES:
                raise _NotSipError
        if len(self._buffer) < self._whole:
            return None
        head = self._head
        return SipMessage(self._taken(self._whole), head.method, head.status, head.key)

    def _check_begin(self) -> None:
        line, end, _ = self._buffer[: MAX_LINE_BYTES + 2].partition(b"\r\n")
        if end:
            _check_line(line)
            self._is_sip = True
        elif len(line) > MAX_LINE_BYTES or _BEGINS_A_LINE.fullmatch(line) is None:
            raise _NotSipError

    def _taken(self, count: int) -> bytes:
        raw = bytes(self._buffer[:count])
        del self._buffer[:count]
        self._head = None
        self._whole = self._seen = 0
        return raw


class _Head(NamedTuple):
    """The parts of a message's head that count."""

    method: bytes
    status: int
    key: RequestKey | None
    length: int


def _check_line(line: bytes | bytearray) -> re.Match[bytes]:
    found = _FIRST_LINE.fullmatch(line) if len(line) <= MAX_LINE_BYTES else None
    if found is None:
        raise _NotSipError
    return found


def _read(head: bytes) -> _Head:
    if len(head) < _LEAST_HEAD_BYTES:
        raise _NotSipError
    first = _check_line(head.partition(b"\r\n")[0])
    fields: dict[bytes, bytes] = {}
    for name, value in _FIELD.findall(_FOLD.sub(b"", head)):
        name = name.lower()
        fields.setdefault(_SHORT.get(name, name), value)
    length = _LENGTH.fullmatch(fields.get(b"content-length", b""))
    branch = _BRANCH.search(fields.get(b"via", b"").partition(b",")[0])
    sequence = _SEQUENCE.match(fields.get(b"cseq", b""))
    return _Head(
        (first["method"] or b"").upper(),
        int(first["status"] or 0),
        (branch[1], sequence[1], sequence[2].upper()) if branch and sequence else None,
        int(length[1]) if length else 0,
    )


class Passed(NamedTuple):
    """The bytes to be passed on now."""

    to_server: bytes = b""
    to_client: bytes = b""


@dataclass(slots=True)
class _Kept:
    raw: bytes
    until_s: float
    servers: int = 1


class Conversation:
    """The messages of one client and, one after the other, its servers. `now` is monotonic seconds.

    `room` says how many bytes of unanswered requests may be kept now, at most MAX_KEPT_BYTES.
    """

    def __init__(self, *, is_sip: bool = True, room: Callable[[], int] = lambda: MAX_KEPT_BYTES) -> None:
        self._room = room
        self.is_sip = is_sip
        """False once one of the two streams turned out to be something else: all passes as it comes."""
        self._of_client, self._of_server = MessageStream(), MessageStream()
        self._kept: dict[RequestKey, _Kept] = {}
        self._kept_bytes = 0

    def from_client(self, data: bytes, now: float) -> Passed:
        """Take what the client sent."""
        if not self.is_sip:
            return Passed(to_server=data)
        messages = self._of_client.feed(data)
        for message in messages:
            self.asked(message, now)
        is_too_much = len(self._of_client.rest) > self._most_kept_bytes
        left = self._given_up() if self._of_client.is_garbage or is_too_much else Passed()
        return Passed(b"".join(message.raw for message in messages) + left.to_server, left.to_client)

    def from_server(self, data: bytes) -> Passed:
        """Take what the server sent."""
        if not self.is_sip:
            return Passed(to_client=data)
        messages = self._of_server.feed(data)
        for message in messages:
            self.answered(message)
        left = self._given_up() if self._of_server.is_garbage else Passed()
        return Passed(left.to_server, b"".join(message.raw for message in messages) + left.to_client)

    @property
    def is_in_doubt(self) -> bool:
        """Whether bytes are held back of which nobody can say whether they are SIP."""
        return self.is_sip and (self._of_client.is_in_doubt or self._of_server.is_in_doubt)

    def end_doubt(self, *, is_server_done: bool = False) -> Passed:
        """Take streams in doubt for something else; with `is_server_done` only if the server's is."""
        is_wanted = self._of_server.is_in_doubt if is_server_done else self.is_in_doubt
        return self._given_up() if self.is_sip and is_wanted else Passed()

    def asked(self, message: SipMessage, now: float) -> None:
        """Keep what the client sent, if it is a request that will have a final response."""
        if message.key is None or not message.method or message.method == b"ACK":
            return
        self._forget(message.key)
        for_s = INVITE_FOR_S if message.method == b"INVITE" else OTHERS_FOR_S
        self._kept[message.key] = _Kept(message.raw, now + for_s)
        self._kept_bytes += len(message.raw)
        self.make_room()

    def answered(self, message: SipMessage) -> None:
        """Forget the request of which this is the final response, if the server sent such."""
        if message.status >= 200 and message.key is not None:
            self._forget(message.key)

    @property
    def held_bytes(self) -> int:
        """So much memory its messages take."""
        return self._kept_bytes + len(self._of_client.rest) + len(self._of_server.rest)

    def is_waiting(self, now: float) -> bool:
        """Whether a request is without its final response."""
        for key in [key for key, kept in self._kept.items() if kept.until_s <= now]:
            self._forget(key)
        return bool(self._kept)

    def repeat(self, now: float) -> list[bytes]:
        """The requests without a final response, oldest first, on their way to another server."""
        if not self.is_waiting(now):
            return []
        for kept in self._kept.values():
            kept.servers += 1
        return [kept.raw for kept in self._kept.values()]

    def refuse(self, client: tuple[str, int], *, all_of_them: bool) -> bytes:
        """Give requests up: those that were sent to 3 servers, or all. Return what the client is told: 503.

        `client` is its address and port.
        """
        given_up = {
            key: kept for key, kept in self._kept.items() if all_of_them or kept.servers >= MOST_SERVERS
        }
        for key in given_up:
            self._forget(key)
        tag = secrets.token_hex(4)
        return b"".join(refusal(kept.raw, client, tag) or b"" for kept in given_up.values())

    def next_server(self) -> None:
        """Another server speaks from now on: half a message of the former one is dropped."""
        self._of_server = MessageStream()

    def make_room(self) -> None:
        """Forget the oldest requests that there is no room for any more."""
        while self._kept_bytes > self._most_kept_bytes:
            self._forget(next(iter(self._kept)))

    @property
    def _most_kept_bytes(self) -> int:
        return max(LEAST_KEPT_BYTES, min(MAX_KEPT_BYTES, self._room()))

    def _forget(self, key: RequestKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._kept_bytes -= len(kept.raw)

    def _given_up(self) -> Passed:
        """This is no SIP, or no more: both streams go on as they are."""
        left = Passed(self._of_client.rest, self._of_server.rest)
        self.is_sip = False
        self._of_client, self._of_server = MessageStream(), MessageStream()
        self._kept.clear()
        self._kept_bytes = 0
        return left
