"""One gRPC call as a client, on an HTTP/2 connection of its own (grpc/doc/PROTOCOL-HTTP2.md, RFC 9113).

`GrpcCall` makes and reads the bytes by the library h2, and does no I/O; `OpenCall` moves them over a socket.
The bytes of a server are bounded: a message by `MESSAGE_BYTES`, all bytes between two messages by
`BYTES_WITHOUT_MESSAGE`, header lists and frames by h2. grpcio would do the same with 18 MB of C, grpclib
bounds no message.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import deque
from collections.abc import Iterable
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

MESSAGE_BYTES: Final = 64 * 1024
BYTES_WITHOUT_MESSAGE: Final = 256 * 1024
_READ_BYTES: Final = 16 * 1024
_TLS_GOODBYE_S: Final = 1.0
_TYPE_AT, _SETTINGS = 3, 4
"""The place of a frame's type in it, and the type of the first frame."""
_PREFIX: Final = struct.Struct("!BI")  # whether the message is compressed, and its length
STATUS: Final = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""The status codes of gRPC (grpc/doc/statuscodes.md) in the order of their numbers."""


class CallEnded(Exception):  # noqa: N818 - a call may end well
    """The server ended the call. `status`: one of `STATUS`; `words`: its message, perhaps empty."""

    def __init__(self, status: str, words: str = "") -> None:
        super().__init__(f"{status}: {words}" if words else status)
        self.status, self.words = status, words


class NoGrpc(Exception):  # noqa: N818 - reads as what it is
    """The answer is no gRPC, or breaks a bound."""


class GrpcCall:
    """The call of `method` ("/package.Service/Method") with one message; the answer has any number."""

    def __init__(self, authority: str, method: str, message: bytes, *, is_tls: bool) -> None:
        self.messages: deque[bytes] = deque()
        """Those that are whole and not taken yet."""
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._h2.local_settings = Settings(client=True, initial_values={SettingCodes.ENABLE_PUSH: 0})
        self._h2.initiate_connection()
        self._stream = self._h2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "https" if is_tls else "http"),
            (":path", method),
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "ppe-agent"),
        ]
        self._h2.send_headers(self._stream, headers)
        self._h2.send_data(self._stream, _PREFIX.pack(0, len(message)) + message, end_stream=True)
        self._part = bytearray()
        self._is_first = True
        self._bytes_without_message = 0
        self._end: CallEnded | None = None

    @property
    def end(self) -> CallEnded | None:
        """How the server ended the call; None: it goes on."""
        return self._end

    def data_to_send(self) -> bytes:
        """Return the bytes to send now."""
        return self._h2.data_to_send()

    def receive(self, data: bytes) -> None:
        """Take in bytes of the server. Raises NoGrpc."""
        if self._is_first and len(data) > _TYPE_AT and data[_TYPE_AT] != _SETTINGS:
            raise NoGrpc("speaks no HTTP/2")  # h2 would wait for the end of a frame
        self._is_first = False
        self._bytes_without_message += len(data)
        try:
            for event in self._h2.receive_data(data):
                self._take(event)
        except (H2Error, UnicodeDecodeError) as error:
            raise NoGrpc(f"speaks no HTTP/2: {str(error)[:120] or type(error).__name__}") from None
        if self._bytes_without_message > BYTES_WITHOUT_MESSAGE:
            raise NoGrpc(f"sent {BYTES_WITHOUT_MESSAGE >> 10} KiB without a message")

    def hang_up(self) -> None:
        """End the connection in order; `data_to_send()` has the goodbye."""
        with contextlib.suppress(H2Error):
            self._h2.close_connection()

    def _take(self, event: Event) -> None:
        match event:
            case ResponseReceived(headers=headers):
                self._begin(_texts(headers or ()))
            case TrailersReceived(headers=headers):
                self._finish(_texts(headers or ()))
            case DataReceived(data=data, flow_controlled_length=length):
                self._h2.acknowledge_received_data(length or 0, self._stream)
                self._part += data or b""
                self._split()
            case StreamEnded() if self._end is None:
                self._end = CallEnded("UNKNOWN", "it ended without a status")
            case StreamReset(error_code=code) if self._end is None:
                self._end = CallEnded("UNAVAILABLE", f"it was reset (HTTP/2 error {code})")
            case ConnectionTerminated(error_code=code, last_stream_id=last) if self._end is None:
                if (last or 0) < self._stream or code:
                    self._end = CallEnded("UNAVAILABLE", f"the connection ends (HTTP/2 error {code})")

    def _begin(self, headers: dict[str, str]) -> None:
        status, kind = headers.get(":status", ""), headers.get("content-type", "")
        if status != "200" or not kind.startswith("application/grpc"):
            raise NoGrpc(f"answered {status[:3]} {kind[:60]}".strip() + ", no gRPC")
        if "grpc-status" in headers:  # an answer without messages has no other headers
            self._finish(headers)

    def _finish(self, trailers: dict[str, str]) -> None:
        number, message = trailers.get("grpc-status", ""), trailers.get("grpc-message", "")
        known = number.isascii() and number.isdigit() and len(number) < 3 and int(number) < len(STATUS)
        printable = "".join(letter for letter in message[:120] if letter.isprintable())
        self._end = CallEnded(STATUS[int(number)] if known else "UNKNOWN", printable)

    def _split(self) -> None:
        while len(self._part) >= _PREFIX.size:
            is_compressed, length = _PREFIX.unpack_from(self._part)
            if is_compressed:
                raise NoGrpc("compresses its message, which was not offered")
            if length > MESSAGE_BYTES:
                raise NoGrpc(f"announces a message above {MESSAGE_BYTES >> 10} KiB")
            if len(self._part) < _PREFIX.size + length:
                return
            self.messages.append(bytes(self._part[_PREFIX.size : _PREFIX.size + length]))
            del self._part[: _PREFIX.size + length]
            self._bytes_without_message = 0


def _texts(headers: Iterable[tuple[str | bytes, str | bytes]]) -> dict[str, str]:
    """The headers, which h2 decodes as it was told (`header_encoding`)."""
    return {_text(name): _text(value) for name, value in headers}


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


class OpenCall:
    """A call under way on a connection."""

    def __init__(self, call: GrpcCall, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._call, self._reader, self._writer = call, reader, writer

    @classmethod
    async def begin(
        cls, call: GrpcCall, connection: socket.socket, tls: ssl.SSLContext | None, host: str
    ) -> OpenCall:
        """Send the call over a connected socket, which this then owns. Raises OSError, also as SSLError."""
        try:
            if tls is not None:
                tls.set_alpn_protocols(["h2"])
            reader, writer = await asyncio.open_connection(
                sock=connection,
                limit=_READ_BYTES,
                ssl=tls,
                server_hostname=None if tls is None else host,
                ssl_shutdown_timeout=None if tls is None else _TLS_GOODBYE_S,
            )
        except BaseException:
            connection.close()
            raise
        writer.write(call.data_to_send())
        return cls(call, reader, writer)

    async def next_message(self) -> bytes:
        """Return the next message of the answer.

        Raises CallEnded, NoGrpc, EOFError when the server closes the connection, OSError.
        """
        call = self._call
        while not call.messages:
            if call.end is not None:
                raise call.end
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise EOFError
            call.receive(data)
            self._writer.write(call.data_to_send())
            await self._writer.drain()
            await asyncio.sleep(0)  # a server that sends without end must not keep the loop from its work
        return call.messages.popleft()

    async def only_message(self) -> bytes:
        """Return the one message of an answer that ended well. Raises as `next_message()`."""
        message = await self.next_message()
        try:
            await self.next_message()
        except CallEnded as end:
            if end.status == STATUS[0]:
                return message
            raise
        raise NoGrpc("answers more than once")

    def close(self) -> None:
        """End the call and the connection."""
        self._call.hang_up()
        self._writer.write(self._call.data_to_send())
        self._writer.close()
