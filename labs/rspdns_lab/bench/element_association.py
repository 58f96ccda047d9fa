"""The one way in which simulated pool elements reach a registrar; it answers their keep-alives.

A one-to-one socket, whereas agents have a one-to-many socket: on the wire both are the same. With `sctp-run`
a message on a one-to-many socket is a call that waits for sctpd. A process that plays thousands of elements
sends ten thousand acknowledgements a second; each of them would wait for two other turns of the processor.
"""

import asyncio
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from rserpool import (
    ASAP,
    IPPROTO_SCTP,
    AsapMessage,
    EndpointKeepAlive,
    EndpointKeepAliveAck,
    LeastUsed,
    PoolElement,
    Protocol,
    RegistrarAddress,
    Registration,
    RSerPoolError,
    Timers,
    Transport,
    asap,
    set_timers,
)

_LIFE_MS: Final = 3_600_000
_FIRST_PORT: Final = 1024
_ROOM_BYTES: Final = 0x10000
_SAME_BYTES: Final = 64
"""Messages up to this length are decoded once: the short ones are always the same."""
_SNDINFO: Final = 2
_INFORMATION: Final = (
    IPPROTO_SCTP,
    _SNDINFO,
    struct.pack("=HHIIi", 0, 0, socket.htonl(asap.PPID), 0, 0),
)


def registration(handle: bytes, identifier: int, own: str, number: int, load: float = 0.3) -> Registration:
    """Return the registration of a simulated element, the `number`-th of its host, at its own UDP port."""
    port = _FIRST_PORT + number % (65536 - _FIRST_PORT)
    transport = Transport(Protocol.UDP, port, (ip_address(own),))
    return Registration(handle, PoolElement(identifier, 0, _LIFE_MS, transport, LeastUsed(load)))


class ElementAssociation:
    """One association of simulated pool elements with a registrar, from `connect` to its end.

    `own`: the address to speak from. `on_up`: it was set up. `on_message`: something else than a keep-alive
    came. `on_end`: it could not be set up, or ended, for the reason given; `connect` makes another one.
    Without it the program ends. `answers`: whether the element of this identifier answers its keep-alives.
    """

    def __init__(
        self,
        own: str,
        registrar: RegistrarAddress,
        *,
        on_up: Callable[[], object] = lambda: None,
        on_message: Callable[[AsapMessage], object] = lambda _: None,
        on_end: Callable[[str], object] = lambda reason: sys.exit(f"a registrar is gone: {reason}"),
        answers: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self.keep_alives = 0
        """The number of keep-alives that all elements were sent since the start."""
        self.is_up = asyncio.Event()
        self._own, self._registrar = own, registrar
        self._on_up, self._on_message, self._on_end, self._answers = on_up, on_message, on_end, answers
        self._loop = asyncio.get_running_loop()
        self._room = bytearray(_ROOM_BYTES)
        self._waiting: deque[bytes] = deque()
        self._socket: socket.socket | None = None

    def connect(self) -> None:
        """Begin the association. Raises OSError where there is no SCTP, or no such address."""
        host, port = self._registrar.endpoint
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = made = socket.socket(family, socket.SOCK_STREAM, IPPROTO_SCTP)
        made.setblocking(False)
        set_timers(made, Timers())
        made.bind((self._own, 0))
        made.connect_ex((host, port))  # what is wrong at once is told as what goes wrong later
        self._loop.add_writer(made, self._connected, made)

    def send(self, message: AsapMessage) -> None:
        """Send a message; without an association it vanishes."""
        self.send_encoded(ASAP.encode(message))

    def send_encoded(self, data: bytes) -> None:
        """Send what is a message's bytes already."""
        if self.is_up.is_set():
            self._send(data)

    def close(self) -> None:
        """End the association as the kernel does for a process that was killed."""
        self._end("closed")

    def _connected(self, connected: socket.socket) -> None:
        self._loop.remove_writer(connected)
        if error := connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._end(os.strerror(error))
            return
        self.is_up.set()
        self._loop.add_reader(connected, self._receive, connected)
        self._on_up()

    def _receive(self, readable: socket.socket) -> None:
        try:
            length = readable.recv_into(self._room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error.strerror or str(error))
            return
        if length == 0:
            self._end("the registrar closed the association")
            return
        data = bytes(memoryview(self._room)[:length])
        try:
            message, identifier, acknowledgement = _read_once(data) if length <= _SAME_BYTES else _read(data)
        except RSerPoolError:
            return
        if identifier is None:
            self._on_message(message)
            return
        self.keep_alives += 1
        if self._answers(identifier):
            self._send(acknowledgement)

    def _send(self, data: bytes) -> None:
        if self._waiting or not self._is_sent(data):
            if not self._waiting and self._socket:
                self._loop.add_writer(self._socket, self._send_waiting)
            self._waiting.append(data)

    def _send_waiting(self) -> None:
        while self._waiting and self._is_sent(self._waiting[0]):
            self._waiting.popleft()
        if not self._waiting and self._socket:
            self._loop.remove_writer(self._socket)

    def _is_sent(self, data: bytes) -> bool:
        """Whether there was room for it; the end of an association is told to whoever reads."""
        try:
            if self._socket:
                self._socket.sendmsg([data], [_INFORMATION])
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True
        return True

    def _end(self, reason: str) -> None:
        if self._socket:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
        self._socket = None
        self.is_up.clear()
        self._waiting.clear()
        self._on_end(reason)


def _read(data: bytes) -> tuple[AsapMessage, int | None, bytes]:
    """Return the message; of a keep-alive also whom it asks, and the acknowledgement."""
    message = asap.decode(data)
    if isinstance(message, EndpointKeepAlive) and message.identifier is not None:
        acknowledgement = EndpointKeepAliveAck(message.handle, message.identifier)
        return message, message.identifier, asap.encode(acknowledgement)
    return message, None, b""


_read_once = lru_cache(1 << 17)(_read)
