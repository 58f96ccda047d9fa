"""A UDP socket to which nftables redirects what was sent elsewhere, and which answers from there."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from daemon_kit.errors import FatalError

_IP_PKTINFO: Final = 8
_AT_ONCE: Final = 64
"""Datagrams taken before the event loop does other work."""
_ROOM: Final = socket.CMSG_SPACE(64)

Ancillary = list[tuple[int, int, bytes]]
"""The kernel's data about a datagram: the address that it was sent to."""
Source = tuple[Any, ...]
Take = Callable[[bytes, Ancillary, Source], None]


class RedirectedDatagrams:
    """A UDP socket at a free port of every address of this host. `take` gets each datagram.

    `purpose` says in an error what the socket is for; `most_bytes` of a datagram are read. The packet filter
    is to admit only what was redirected.
    """

    def __init__(self, purpose: str, most_bytes: int, take: Take) -> None:
        self.port = 0
        self._purpose = purpose
        self._most_bytes = most_bytes
        self._take = take
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Open the socket. Raises FatalError."""
        try:
            self._socket = _at_every_address()
        except OSError as problem:
            raise FatalError(f"can't open {self._purpose}: {problem.strerror}") from None
        self.port = self._socket.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._socket, self._read, self._socket)

    def close(self) -> None:
        """Take nothing any more; safe to repeat."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def answer(self, data: bytes, ancillary: Ancillary, source: Source) -> bool:
        """Send to where a datagram came from, from the address that it was sent to: conntrack knows the
        answer by that address alone. `ancillary` came with the datagram. Return whether the kernel took
        it."""
        if self._socket is None:
            return False
        try:
            self._socket.sendmsg([data], [_from_there(*item) for item in ancillary], 0, source)
        except OSError:  # the client is gone, or its queue is full
            return False
        return True

    def _read(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                data, ancillary, _flags, source = listener.recvmsg(self._most_bytes, _ROOM)
            except OSError:  # nothing more, or an ICMP error about an answer
                return
            self._take(data, ancillary, source)


def _from_there(level: int, kind: int, data: bytes) -> tuple[int, int, bytes]:
    if level == socket.IPPROTO_IPV6:
        return level, kind, data[:16] + struct.pack("=I", 0)
    return level, kind, struct.pack("=I4s4s", 0, data[4:8], bytes(4))


def _at_every_address() -> socket.socket:
    """A socket of every address, IPv6 too where there is IPv6, that is told to which address a datagram came.

    Raises OSError.
    """
    try:
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        made.bind(("::", 0))
    except OSError:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        made.bind(("0.0.0.0", 0))  # noqa: S104 - the packet filter keeps others out
    made.setblocking(False)
    return made
