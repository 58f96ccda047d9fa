"""Packets that no socket call sends, as if of the peer, forged with the tag of one that was seen (needs
root)."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from raw_sctp import chunk, packet
from sctp_api import (
    ASSOC_CHANGE,
    COMM_LOST,
    PARTIAL_DELIVERY_EVENT,
    REMOTE_ERROR,
    SCTP_PARTIAL_DELIVERY_POINT,
    SOL_SCTP,
    Received,
    addresses_of,
    associated,
    receive,
    receive_data,
    receive_notification,
    send,
    subscribe,
)

IPV4_HEADER_BYTES, COMMON_HEADER_BYTES = 20, 12
DATA, ABORT_CHUNK, ERROR_CHUNK = 0, 6, 9
INVALID_STREAM, PROTOCOL_VIOLATION = 1, 13
ASCONF_CHUNK, ADD_IP, IPV4_PARAMETER = 0xC1, 0xC001, 5
BEGINNING = 2
REMOTE_ERROR_HEADER = struct.Struct("=HHIHxxI")


class Forger(NamedTuple):
    """Sends as the server of an association does."""

    raw: socket.socket
    source: int
    destination: int
    tag: int
    tsn: int
    sequence: int
    """Both of the last message."""
    association: int
    """The client's name for it."""

    def send(self, chunks: bytes) -> None:
        self.raw.sendto(packet(self.source, self.destination, self.tag, chunks), ("127.0.0.1", 0))


@contextmanager
def forged() -> Iterator[tuple[socket.socket, Forger]]:
    """Yield the client of an association, and who forges its server's packets."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP) as raw:
        raw.settimeout(10)
        with associated() as (client, association, server, to_client):
            ports = server.getsockname()[1], client.getsockname()[1]
            send(server, b"seen", association=to_client)
            receive_data(client)
            yield client, see(raw, *ports, association)


def see(raw: socket.socket, source: int, destination: int, association: int) -> Forger:
    """Look for the packet with the message."""
    while True:
        data = raw.recv(65535)[IPV4_HEADER_BYTES:]
        ports, tag = struct.unpack(">HH", data[:4]), int.from_bytes(data[4:8])
        chunks = data[COMMON_HEADER_BYTES:]
        while ports == (source, destination) and len(chunks) >= 8:
            length = int.from_bytes(chunks[2:4])
            if chunks[0] == DATA and chunks[16:20] == b"seen":
                tsn, _, sequence = struct.unpack(">IHH", chunks[4:12])
                return Forger(raw, source, destination, tag, tsn, sequence, association)
            chunks = chunks[length + 3 & ~3 :]


def error_of(got: Received) -> tuple[int, bytes]:
    """Return the cause and its information of a remote error."""
    kind, _, length, cause, association = REMOTE_ERROR_HEADER.unpack_from(got.data)
    assert (kind, length) == (REMOTE_ERROR, len(got.data))
    assert association != 0
    return socket.ntohs(cause), got.data[REMOTE_ERROR_HEADER.size :]


def case_remote_error() -> None:
    """ERROR chunks (RFC 9260, section 3.3.10): the association goes on."""
    with forged() as (client, forger):
        subscribe(client, data_io=True, association=True, peer_error=True)
        forger.send(chunk(ERROR_CHUNK, 0, struct.pack(">HHHH", INVALID_STREAM, 8, 77, 0)))
        assert error_of(receive_notification(client, REMOTE_ERROR)) == (INVALID_STREAM, b"\0\x4d\0\0")
        forger.send(chunk(ERROR_CHUNK, 0, struct.pack(">HH", PROTOCOL_VIOLATION, 12) + b"violated"))
        assert error_of(receive_notification(client, REMOTE_ERROR)) == (PROTOCOL_VIOLATION, b"violated")


def case_remote_error_unasked() -> None:
    with forged() as (client, forger):
        forger.send(chunk(ERROR_CHUNK, 0, struct.pack(">HHHH", INVALID_STREAM, 8, 77, 0)))
        forger.send(chunk(ABORT_CHUNK, 0, b""))
        got = receive(client)
        assert (got.notification, got.state) == (ASSOC_CHANGE, COMM_LOST)


def case_addresses_cannot_be_added() -> None:
    """ASCONF (RFC 5061) isn't agreed on: it is answered as a chunk that nobody knows, and adds nothing."""
    with forged() as (client, forger):
        subscribe(client, data_io=True, association=True, address=True, peer_error=True)
        before = addresses_of(client, forger.association, peer=True)
        of_peer = struct.pack(">HH4B", IPV4_PARAMETER, 8, 127, 0, 0, 1)
        for number in range(3):
            added = struct.pack(">HHIHH4B", ADD_IP, 16, number, IPV4_PARAMETER, 8, 127, 0, 77, number)
            forger.send(chunk(ASCONF_CHUNK, 0, struct.pack(">I", forger.tsn + number) + of_peer + added))
        forger.send(chunk(ERROR_CHUNK, 0, struct.pack(">HH", PROTOCOL_VIOLATION, 8) + b"last"))
        assert error_of(receive_notification(client, REMOTE_ERROR)) == (PROTOCOL_VIOLATION, b"last")
        assert addresses_of(client, forger.association, peer=True) == before


def case_partial_delivery_is_aborted() -> None:
    """A message whose beginning was read, and whose end never comes."""
    with forged() as (client, forger):
        subscribe(client, data_io=True, association=True, partial_delivery=True)
        client.setsockopt(SOL_SCTP, SCTP_PARTIAL_DELIVERY_POINT, 500)
        data = struct.pack(">IHHI", (forger.tsn + 1) % 2**32, 0, forger.sequence + 1, 0) + bytes(1000)
        forger.send(chunk(DATA, BEGINNING, data))
        beginning = receive(client)
        assert (len(beginning.data), beginning.is_notification) == (1000, False)
        assert not beginning.flags & socket.MSG_EOR
        forger.send(chunk(ABORT_CHUNK, 0, b""))
        event = receive(client)
        assert event.notification == PARTIAL_DELIVERY_EVENT
        assert event.flags & socket.MSG_EOR
        indication, association, stream = struct.unpack_from("=III", event.data, 8)
        assert (len(event.data), indication, stream) == (24, 0, 0)  # 0: SCTP_PARTIAL_DELIVERY_ABORTED
        lost = receive(client)
        assert (lost.notification, lost.state, lost.changed_association) == (
            ASSOC_CHANGE,
            COMM_LOST,
            association,
        )
