"""Answers SIP requests to a dead server with 503 Service Unavailable.

RFC 3263 section 4.3 has the client go on to the next server then. nftables redirects the packets here, and
the answer goes back as if the server had given it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import struct
from typing import Final

from daemon_kit.errors import FatalError
from daemon_kit.sip import MAX_REQUEST_BYTES, refusal

MAX_ANSWERS_PER_S: Final = 5000
"""What is more is not answered: the client repeats its request."""
_IP_PKTINFO: Final = 8
_AT_ONCE: Final = 64
"""Requests answered before the event loop does other work."""
_Ancillary = tuple[int, int, bytes]
_ROOM: Final = socket.CMSG_SPACE(64)


class Responder:
    """A UDP socket at a free port of every address of this host."""

    def __init__(self) -> None:
        self.answered = 0
        self.port = 0
        self.is_guarded = False
        """Whether a rule admits only what was redirected. Without that, nothing is answered."""
        self._tag = secrets.token_hex(4)
        self._socket: socket.socket | None = None
        self._second = 0
        self._in_second = 0

    async def start(self) -> None:
        """Open the socket. Raises FatalError."""
        try:
            self._socket = every_address()
        except OSError as problem:
            raise FatalError(f"can't open the socket that answers with 503: {problem.strerror}") from None
        self.port = self._socket.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._socket, self._read, self._socket)

    def close(self) -> None:
        """Answer nothing any more; safe to repeat."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _read(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                data, told, _flags, source = listener.recvmsg(MAX_REQUEST_BYTES, _ROOM)
            except OSError:  # nothing more, or an ICMP error about an answer
                return
            self._answer(listener, data, told, source)

    def _answer(
        self,
        listener: socket.socket,
        data: bytes,
        told: list[tuple[int, int, bytes]],
        source: tuple[str, int],
    ) -> None:
        """Answer a request; what is none, or an ACK, gets nothing."""
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second, self._in_second = second, 0
        answer = refusal(data, (source[0].removeprefix("::ffff:"), source[1]), self._tag)
        if answer is None or not self.is_guarded or self._in_second >= MAX_ANSWERS_PER_S:
            return
        self._in_second += 1
        with contextlib.suppress(OSError):  # the client repeats its request
            listener.sendmsg([answer], [from_there(*one) for one in told], 0, source)
            self.answered += 1


def from_there(level: int, kind: int, data: bytes) -> _Ancillary:
    """What has the answer come from the address that was asked: conntrack knows it by that one alone."""
    if level == socket.IPPROTO_IPV6:
        return level, kind, data[:16] + struct.pack("=I", 0)
    return level, kind, struct.pack("=I4s4s", 0, data[4:8], bytes(4))


def every_address() -> socket.socket:
    """A UDP socket at a free port of every address, IPv6 too where there is IPv6.

    It is told to which address a request came. The packet filter admits only what was redirected. Raises
    OSError.
    """
    try:
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        made.bind(("::", 0))
    except OSError:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        made.bind(("0.0.0.0", 0))  # noqa: S104
    made.setblocking(False)
    return made
