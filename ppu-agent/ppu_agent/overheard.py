"""The messages of clients and servers over TCP, read from copies of their packets. Sans-IO.

SIP repeats nothing over TCP (RFC 3261, section 17.1.1.2): when a server dies, a request that it left
unanswered waits for its timer of 32 s, also when the connection ends. So the agent answers it with 503 in
the server's place, and RFC 3263 section 4.3 has the client go on to the next one. For that, `Overheard`
follows the connections to servers that died through the packets of the last seconds:

1. Each direction is put together by its sequence numbers (RFC 9293). If a piece is missing, or the copies
   begin within a message, it goes on with the next packet that begins a message.
2. Whole messages are told to `Conversation`, which keeps the requests without a final response.
3. `refusal()` is what the client is to hear, and where in the server's sequence numbers.

The bytes that it reads may be hostile, and packets can be forged. One with numbers far from those that were
seen is passed over, as TCP does. A forged SYN, or a packet whose numbers were guessed, can keep its
connection from the 503. It harms no other connection, and has nothing said in its own but 503 to requests.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from ipaddress import ip_address
from typing import Final, NamedTuple

from ppu_agent.destinations import AddressPort
from ppu_agent.unanswered import Conversation, MessageStream, SipMessage

_TCP: Final = 6
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
_NUMBERS: Final = 1 << 32
_PORTS_AND_NUMBERS: Final = struct.Struct(">HHIIBB")
_MOST_CONNECTIONS: Final = 20_000
_FAR_BYTES: Final = 1 << 20
"""More than is ever under way in a connection of SIP."""


class Segment(NamedTuple):
    """A TCP segment: ends, numbers, flags and data. Addresses are packed."""

    source: tuple[bytes, int]
    destination: tuple[bytes, int]
    sequence: int
    acknowledged: int
    flags: int
    data: bytes

    @property
    def end(self) -> int:
        """The number after its last byte; SYN and FIN count as one each."""
        length = len(self.data) + bool(self.flags & _SYN) + bool(self.flags & _FIN)
        return (self.sequence + length) % _NUMBERS


class Refusal(NamedTuple):
    """The answer for the client: `data`, at this number of the server's; `acknowledged` is the client's.

    It answers this number of `requests`.
    """

    sequence: int
    acknowledged: int
    data: bytes
    requests: int


def segment_of(packet: bytes) -> Segment | None:
    """Read an IPv4 or IPv6 packet; None when it is no whole TCP segment."""
    if len(packet) < 20:
        return None
    if packet[0] >> 4 == 4:
        at = (packet[0] & 15) * 4
        length = int.from_bytes(packet[2:4], "big") or len(packet)
        is_fragment = int.from_bytes(packet[6:8], "big") & 0x3FFF
        if packet[9] != _TCP or is_fragment or at < 20:
            return None
        source, destination = packet[12:16], packet[16:20]
    elif packet[0] >> 4 == 6 and len(packet) >= 40 and packet[6] == _TCP:
        at, length = 40, int.from_bytes(packet[4:6], "big") + 40
        if length == 40:  # a jumbogram of this host's own, before it is cut
            length = len(packet)
        source, destination = packet[8:24], packet[24:40]
    else:
        return None
    if length > len(packet) or at + 20 > length:
        return None
    sport, dport, sequence, acknowledged, offset, flags = _PORTS_AND_NUMBERS.unpack_from(packet, at)
    begin = at + (offset >> 4) * 4
    if begin < at + 20 or begin > length:
        return None
    return Segment((source, sport), (destination, dport), sequence, acknowledged, flags, packet[begin:length])


def _is_after(number: int, other: int | None) -> bool:
    """Whether this sequence number comes after the other one, if there is one (RFC 9293, section 3.4)."""
    return other is None or 0 < (number - other) % _NUMBERS < _NUMBERS // 2


def _is_far(number: int, other: int | None) -> bool:
    """Whether two sequence numbers can't be of one connection, where the other one is known."""
    return other is not None and _FAR_BYTES < (number - other) % _NUMBERS < _NUMBERS - _FAR_BYTES


class _Direction:
    """The bytes of one side."""

    def __init__(self) -> None:
        self.next: int | None = None
        """The number after the last byte that was seen."""
        self._stream = MessageStream()

    def feed(self, segment: Segment) -> list[SipMessage]:
        """Take what is new in a segment, return the messages that are whole now."""
        if self.next is None or segment.flags & _SYN:
            self.next = (segment.sequence + bool(segment.flags & _SYN)) % _NUMBERS
            self._stream = MessageStream()
        seen = (self.next - segment.sequence) % _NUMBERS
        if seen >= _NUMBERS // 2:  # a piece is missing
            self._stream = MessageStream()
            seen = 0
        if _is_after(segment.end, self.next):
            self.next = segment.end
        new = segment.data[seen:]
        if not new:
            return []
        found = self._stream.feed(new)
        if self._stream.is_garbage:
            self._stream = MessageStream()
        return found

    @property
    def is_within_response(self) -> bool:
        """Whether a response has begun that is not whole."""
        return self._stream.rest.lstrip().startswith(b"SIP/2.0 ")

    def passed(self, number: int) -> None:
        """The other side has got everything before this number."""
        if _is_after(number, self.next):
            self.next = number
            self._stream = MessageStream()


class _OverheardConnection:
    """One connection of a client to a server."""

    def __init__(self) -> None:
        self.of_client, self.of_server = _Direction(), _Direction()
        self._acknowledged: int | None = None
        """The client's number up to which the server has acknowledged."""
        self.conversation = Conversation()

    def from_client(self, segment: Segment) -> None:
        """Take what the client sent."""
        if self._acknowledged is None:
            self._acknowledged = (segment.sequence + bool(segment.flags & _SYN)) % _NUMBERS
        if segment.flags & _ACK:
            self.of_server.passed(segment.acknowledged)
        for message in self.of_client.feed(segment):
            self.conversation.asked(message, 0.0)

    def from_server(self, segment: Segment) -> None:
        """Take what the server sent."""
        if segment.flags & _ACK:
            if self.of_client.next is None:
                self.of_client.passed(segment.acknowledged)
            if _is_after(segment.acknowledged, self._acknowledged):
                self._acknowledged = segment.acknowledged
        for message in self.of_server.feed(segment):
            self.conversation.answered(message)

    def is_strange(self, segment: Segment, *, is_of_client: bool) -> bool:
        """Whether its numbers are far from all that was heard."""
        said, heard = (self.of_client, self.of_server) if is_of_client else (self.of_server, self.of_client)
        is_ack_far = bool(segment.flags & _ACK) and _is_far(segment.acknowledged, heard.next)
        return _is_far(segment.sequence, said.next) or is_ack_far

    @property
    def place(self) -> Refusal | None:
        """The position in both sequences; None when that is not known."""
        if self.of_server.next is None or self.of_client.next is None:
            return None
        return Refusal(self.of_server.next, self.of_client.next, b"", 0)

    def refusal(self, client: AddressPort) -> Refusal | None:
        """The answer for the client now; None when it waits for nothing, or nothing is known.

        Data that the server has not acknowledged is acknowledged also when nothing is answered: the client
        may have more to send, and TCP waits with that.
        """
        sequence, acknowledged = self.of_server.next, self.of_client.next
        if sequence is None or acknowledged is None:
            return None
        is_within_response = (
            self.of_server.is_within_response
        )  # what is said next would be taken for its rest
        data = (
            b""
            if is_within_response
            else self.conversation.refuse((str(client[0]), client[1]), all_of_them=True)
        )
        if not data and acknowledged == self._acknowledged:
            return None
        self.of_server.next = (sequence + len(data)) % _NUMBERS
        self._acknowledged = acknowledged
        requests = data.count(b"SIP/2.0 503 Service Unavailable\r\n")
        return Refusal(sequence, acknowledged, data, requests)


class Overheard:
    """The connections to these servers: address and port, as the clients name them."""

    def __init__(self, servers: Collection[AddressPort]) -> None:
        self._servers = {(address.packed, port) for address, port in servers}
        self._connections: dict[tuple[tuple[bytes, int], tuple[bytes, int]], _OverheardConnection] = {}

    def feed(self, packets: Iterable[bytes]) -> None:
        """Take copies of packets, in the order in which they came."""
        for packet in packets:
            segment = segment_of(packet)
            if segment is None:
                continue
            if segment.destination in self._servers:
                key = segment.source, segment.destination
            elif segment.source in self._servers:
                key = segment.destination, segment.source
            else:
                continue
            is_of_client = segment.destination in self._servers
            is_begin = segment.flags & (_SYN | _ACK | _RST) == _SYN
            connection = self._connections.get(key)
            if connection and not is_begin and connection.is_strange(segment, is_of_client=is_of_client):
                continue
            if segment.flags & _RST or is_begin:
                self._connections.pop(key, None)
            if segment.flags & _RST:
                continue
            if key not in self._connections:
                if len(self._connections) >= _MOST_CONNECTIONS:
                    continue
                self._connections[key] = _OverheardConnection()
            if is_of_client:
                self._connections[key].from_client(segment)
            else:
                self._connections[key].from_server(segment)

    def refusal(self, client: AddressPort, server: AddressPort) -> Refusal | None:
        """The answer for this client in its connection to this server; None: nothing. It is told once.

        After that it may have sent more: ask again.
        """
        key = (client[0].packed, client[1]), (server[0].packed, server[1])
        connection = self._connections.get(key)
        return None if connection is None else connection.refusal(client)

    def place(self, client: AddressPort, server: AddressPort) -> Refusal | None:
        """The position of the connection, with nothing to say in it; None when that is not known."""
        key = (client[0].packed, client[1]), (server[0].packed, server[1])
        connection = self._connections.get(key)
        return None if connection is None else connection.place

    @property
    def connections(self) -> list[tuple[AddressPort, AddressPort]]:
        """Client and server of each."""
        return [
            ((ip_address(client), client_port), (ip_address(server), server_port))
            for (client, client_port), (server, server_port) in self._connections
        ]
