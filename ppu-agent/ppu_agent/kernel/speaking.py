"""Speaking in a TCP connection of others in the place of its server, which is dead: by TCP_REPAIR.

A socket in repair mode takes over the server's end where it stands: its address (IP_TRANSPARENT), and both
sequence numbers. Bytes that are written into it reach the client as if the server had said them. Closed in
repair mode, it ends without a word. Needs CAP_NET_ADMIN, as nftables does.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Final

Address = IPv4Address | IPv6Address

_REPAIR, _REPAIR_QUEUE, _QUEUE_SEQUENCE, _REPAIR_OPTIONS, _REPAIR_WINDOW = 19, 20, 21, 22, 29
_TO_RECEIVE, _TO_SEND = 1, 2
_ON, _OFF = 1, 0
_IP_TRANSPARENT, _IPV6_TRANSPARENT = 19, 75
_WINDOW: Final = 65535
_NO_SCALE: Final = struct.pack("=II", 3, 0)
"""The window is told unscaled: never too small, whatever scale the server had (RFC 7323, section 2)."""
AT_ONCE_BYTES: Final = 4096
"""The client's acknowledgements go to the dead server, so no more is sent than the first window of a
connection lets through: 10 segments of 536 bytes."""


def speak(
    server: tuple[Address, int],
    client: tuple[Address, int],
    sequence: int,
    acknowledged: int,
    data: bytes,
    *,
    is_end: bool = False,
) -> None:
    """Say `data` to the client, as the server of its connection, and acknowledge what it sent.

    `sequence` is the first number of the server's that the client has not got, `acknowledged` the first of
    the client's that is not sent yet. With `is_end`, the connection is reset. Raises OSError.
    """
    for at in range(0, max(1, len(data)), AT_ONCE_BYTES):
        here = sequence + at & 0xFFFFFFFF
        _speak_at_once(server, client, here, acknowledged, data[at : at + AT_ONCE_BYTES], is_end)


def _speak_at_once(
    server: tuple[Address, int],
    client: tuple[Address, int],
    sequence: int,
    acknowledged: int,
    data: bytes,
    is_end: bool,
) -> None:
    is_v4 = server[0].version == 4
    with socket.socket(socket.AF_INET if is_v4 else socket.AF_INET6, socket.SOCK_STREAM) as made:
        made.setblocking(False)
        _set(made, _REPAIR, _ON)
        try:
            if is_v4:
                made.setsockopt(socket.IPPROTO_IP, _IP_TRANSPARENT, 1)
            else:
                made.setsockopt(socket.IPPROTO_IPV6, _IPV6_TRANSPARENT, 1)
            # Out of repair mode comes a probe of the number before, which a client drops unread (RFC 9293,
            # section 3.10.7.4): where it is all that is said, it bears the number that is expected.
            first = sequence if data or is_end else sequence + 1 & 0xFFFFFFFF
            for queue, number in ((_TO_SEND, first), (_TO_RECEIVE, acknowledged)):
                _set(made, _REPAIR_QUEUE, queue)
                made.setsockopt(socket.IPPROTO_TCP, _QUEUE_SEQUENCE, struct.pack("=I", number))
            made.bind((str(server[0]), server[1]))
            made.connect((str(client[0]), client[1]))
            made.setsockopt(socket.IPPROTO_TCP, _REPAIR_OPTIONS, _NO_SCALE)
            window = struct.pack("=5I", acknowledged, _WINDOW, _WINDOW, _WINDOW, acknowledged)
            made.setsockopt(socket.IPPROTO_TCP, _REPAIR_WINDOW, window)
            _set(made, _REPAIR, _OFF)
            if data:
                made.send(data)
        finally:
            if is_end:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
            else:
                with contextlib.suppress(OSError):
                    _set(made, _REPAIR, _ON)  # so that its end is not told


def _set(made: socket.socket, option: int, value: int) -> None:
    made.setsockopt(socket.IPPROTO_TCP, option, value)
