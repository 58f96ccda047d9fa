"""Addresses that the other side of an association only claims to have (needs root)."""

import errno
import socket
import struct

from played_peer import (
    ABORT,
    COOKIE_ACK,
    COOKIE_ECHO,
    FIRST_TSN,
    INIT,
    INIT_ACK,
    OURS,
    PLAYED,
    PORT,
    TAG,
    WINDOW,
    Peer,
    played,
)
from raw_sctp import chunk
from sctp_api import (
    COMM_UP,
    addresses_of,
    one_to_many,
    path_state,
    receive_change,
    send,
)

NOWHERE = "10.97.0.77"
ABORT_FLAG, COOKIE = 4, 7
ACTIVE, UNCONFIRMED = 2, 3


def begin(peer: Peer, port: int) -> None:
    """Set up an association from PLAYED that lists NOWHERE, too."""
    listed = b"".join(struct.pack(">HH4s", 5, 8, socket.inet_aton(host)) for host in (NOWHERE, PLAYED))
    init = struct.pack(">IIHHI", TAG, WINDOW, 10, 10, FIRST_TSN) + listed
    peer.send_from(PORT, port, 0, chunk(INIT, 0, init))
    peer.play_until(port, INIT_ACK, 1)
    value = peer.of(port, INIT_ACK)[0].value
    tag, at = int.from_bytes(value[:4]), 16  # bytes of the fixed part
    while int.from_bytes(value[at : at + 2]) != COOKIE:
        at += int.from_bytes(value[at + 2 : at + 4]) + 3 & ~3
    cookie = value[at + 4 : at + int.from_bytes(value[at + 2 : at + 4])]
    peer.send_from(PORT, port, tag, chunk(COOKIE_ECHO, 0, cookie))
    peer.play_until(port, COOKIE_ACK, 1)


def case_listed_address_is_not_confirmed_and_makes_way() -> None:
    """It is never the primary path; after an abort an association of our own with it can begin at once."""
    with played() as peer, one_to_many() as server:
        server.bind((OURS, 0))
        server.listen(5)
        server.setblocking(False)
        port = server.getsockname()[1]
        begin(peer, port)
        up = receive_change(server, COMM_UP)
        assert up.address == (PLAYED, PORT)
        association = up.changed_association
        assert sorted(addresses_of(server, association, peer=True)) == [(PLAYED, PORT), (NOWHERE, PORT)]
        peer.play(timeout_s=1)
        assert path_state(server, association, (PLAYED, PORT)) == ACTIVE
        assert path_state(server, association, (NOWHERE, PORT)) == UNCONFIRMED
        assert server.connect_ex((NOWHERE, PORT)) == errno.EISCONN
        send(server, b"", association=association, flags=ABORT_FLAG)
        assert server.connect_ex((NOWHERE, PORT)) == errno.EINPROGRESS
        peer.play_until(port, ABORT, 1)
