"""Data channels between a proxy pool user and a proxy pool element: messages embedded in SCTP. Sans-IO.

RFC 5351 leaves the data channel to the application. This one carries TCP connections and UDP datagrams of
clients that have no SCTP, between ppu-agent and ppe-agent. One association has them all. Each is a *flow*
with a number that the proxy pool user draws. An SCTP message is one of these, numbers in network byte order:

     0                   1                   2                   3
    +---------------+---------------+-------------------------------+
    |  version = 1  |     type      |  port of the server, or 0     |
    +---------------+---------------+-------------------------------+
    |                          flow number                          |
    +---------------------------------------------------------------+
    |                          payload ...                          |

| type | name     | from | payload                                                              |
|------|----------|------|----------------------------------------------------------------------|
| 1    | OPEN     | PPU  | none: connect a new flow to the server's TCP port                    |
| 2    | DATA     | both | bytes of the connection, 1 to 32,768                                 |
| 3    | END      | both | none: nothing more comes this way (a half-close)                     |
| 4    | RESET    | both | none: the connection broke, or could not be made                     |
| 5    | CREDIT   | both | 4 bytes: the number of further bytes that may be sent this way       |
| 6    | DATAGRAM | both | one UDP datagram to or from the server's UDP port, 0 to 65,507 bytes |

Types 1 to 5 of a flow travel in order, in the SCTP stream 1 + flow modulo 8: a lost packet delays no other
stream. Datagrams are unordered. Each side may send `WINDOW_BYTES` before the first CREDIT. A side that sends
more breaks its flow, so a slow reader costs the other side no more than that.

A datagram flow's number has the client's UDP port in its lower 16 bits: the proxy pool element sends from a
socket with that port, since a SIP server answers to the port that the request names.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from rserpool.errors import DecodeError

PPID: Final = 0x70707501
"""Payload protocol identifier: "ppu", version 1."""
VERSION: Final = 1
STREAMS: Final = 8
MAX_DATA_BYTES: Final = 32 * 1024
MAX_DATAGRAM_BYTES: Final = 65507
WINDOW_BYTES: Final = 64 * 1024
DATA_CHANNEL_PORT: Final = 4630
"""The port of a proxy pool element, unless configured; IANA has assigned it to no service."""

_HEADER: Final = struct.Struct(">BBHI")
_CREDIT: Final = struct.Struct(">I")


class DataMessageType(IntEnum):
    """The type of a message."""

    OPEN = 1
    DATA = 2
    END = 3
    RESET = 4
    CREDIT = 5
    DATAGRAM = 6


@dataclass(frozen=True, slots=True)
class DataMessage:
    """One message of a flow. `port` is the server's for OPEN and DATAGRAM, else 0; `credit` is for CREDIT."""

    type: DataMessageType
    flow: int
    port: int = 0
    data: bytes = b""
    credit: int = 0


_LENGTHS: Final[Mapping[DataMessageType, range]] = {
    DataMessageType.OPEN: range(1),
    DataMessageType.DATA: range(1, MAX_DATA_BYTES + 1),
    DataMessageType.END: range(1),
    DataMessageType.RESET: range(1),
    DataMessageType.CREDIT: range(_CREDIT.size, _CREDIT.size + 1),
    DataMessageType.DATAGRAM: range(MAX_DATAGRAM_BYTES + 1),
}


def encode(message: DataMessage) -> bytes:
    """Return the bytes of one SCTP message."""
    payload = _CREDIT.pack(message.credit) if message.type is DataMessageType.CREDIT else message.data
    return _HEADER.pack(VERSION, message.type, message.port, message.flow) + payload


def decode(data: bytes) -> DataMessage:
    """Read one SCTP message. Raises DecodeError."""
    if len(data) < _HEADER.size:
        raise DecodeError("shorter than the header of a data channel's message")
    version, number, port, flow = _HEADER.unpack_from(data)
    if version != VERSION:
        raise DecodeError(f"version {version} of data channels, not {VERSION}")
    try:
        kind = DataMessageType(number)
    except ValueError:
        raise DecodeError(f"type {number} is none of a data channel") from None
    payload = data[_HEADER.size :]
    if len(payload) not in _LENGTHS[kind]:
        raise DecodeError(f"{kind.name} with {len(payload)} bytes")
    has_port = kind in (DataMessageType.OPEN, DataMessageType.DATAGRAM)
    if (port != 0) is not has_port:
        raise DecodeError(f"{kind.name} with port {port}")
    if kind is DataMessageType.CREDIT:
        return DataMessage(kind, flow, credit=int(_CREDIT.unpack(payload)[0]))
    return DataMessage(kind, flow, port, payload)


def way_of(message: DataMessage) -> tuple[int, bool]:
    """The SCTP stream of a message, and whether it is unordered."""
    if message.type is DataMessageType.DATAGRAM:
        return 0, True
    return 1 + message.flow % STREAMS, False


class FlowBroken(Exception):  # noqa: N818 - reads as what happened
    """The other side broke the rules, or reset the flow. `is_told`: it knows already."""

    def __init__(self, words: str, *, is_told: bool = False) -> None:
        super().__init__(words)
        self.is_told = is_told


class ChannelFlow:
    """One TCP connection's way through a data channel, as one side sees it. `send` sends a message.

    Data that comes in waits in `incoming`; `took()` gives credit for it.
    """

    def __init__(self, number: int, send: Callable[[DataMessage], None]) -> None:
        self.number = number
        self.incoming: list[bytes] = []
        self.has_ended = False
        """The other side sends nothing more."""
        self.room = WINDOW_BYTES
        """How many bytes may be sent now."""
        self._granted = WINDOW_BYTES
        self._taken = 0
        self._send = send

    def received(self, message: DataMessage) -> None:
        """Take a message of this flow. Raises FlowBroken."""
        match message.type:
            case DataMessageType.DATA if not self.has_ended:
                self._granted -= len(message.data)
                if self._granted < 0:
                    raise FlowBroken("more than was allowed")
                self.incoming.append(message.data)
            case DataMessageType.END:
                self.has_ended = True
            case DataMessageType.CREDIT:
                self.room += message.credit
                if self.room > WINDOW_BYTES:
                    raise FlowBroken("more credit than was used")
            case DataMessageType.RESET:
                raise FlowBroken("reset", is_told=True)
            case _:
                raise FlowBroken(f"{message.type.name} in a flow that is up")

    def take(self) -> bytes:
        """The data that came in; it is passed on, so credit is given for it."""
        data = b"".join(self.incoming)
        self.incoming.clear()
        self._taken += len(data)
        if self._taken >= WINDOW_BYTES // 4:
            self._granted += self._taken
            self._send(DataMessage(DataMessageType.CREDIT, self.number, credit=self._taken))
            self._taken = 0
        return data

    def push(self, data: bytes) -> None:
        """Send these bytes, no more than there is `room` for, and than MAX_DATA_BYTES."""
        self.room -= len(data)
        self._send(DataMessage(DataMessageType.DATA, self.number, data=data))

    def end(self) -> None:
        """Nothing more comes from this side."""
        self._send(DataMessage(DataMessageType.END, self.number))
