"""What the asyncio clients share: messages over an SCTP socket in the event loop, and one timer."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from rserpool import asap, enrp
from rserpool.aio.sctp import AssociationLost, Message, Notification, SctpSocket
from rserpool.asap import AsapMessage
from rserpool.enrp import EnrpMessage
from rserpool.errors import DecodeError
from rserpool.rspregistrar import check_safe

_READS_IN_A_ROW = 64
_IN_A_ROW_S = 0.005
"""Messages that come within this time of each other are read in one go: twice as many each time."""
_TURN_S, _WAITING_TURN_S = 0.005, 0.1
"""Reading goes on for so long at most, then all else in the event loop has its turn: no sender without end
keeps others from being heard. The second is for what waits before time-outs are judged."""
_MOST_WAITING = 2048
"""Messages read before time-outs are judged; more than any registrar was asked for at once."""
MAX_QUEUED = 1024
"""Messages that wait for a full socket buffer; above it they are dropped, and time-outs do the rest."""
_KEPT, _MOST_KEPT_BYTES = 128, 1024
"""So many messages are kept in both forms, of so many bytes at most: the same are said again and again."""
_SAID_AGAIN = frozenset({asap.HandleResolution, asap.EndpointKeepAliveAck})

M = TypeVar("M", bound=AsapMessage | EnrpMessage)


@dataclass(frozen=True, slots=True)
class Codec(Generic[M]):
    """How one protocol's messages travel; `encode` raises UnsafeMessageError for what must not be sent."""

    ppid: int
    encode: Callable[[M], bytes]
    decode: Callable[[bytes], M]


def _safe_asap(message: AsapMessage) -> bytes:
    check_safe(message)
    return asap.encode(message)


def _safe_enrp(message: EnrpMessage) -> bytes:
    check_safe(message)
    return enrp.encode(message)


_kept_bytes = lru_cache(_KEPT)(_safe_asap)
_kept_message = lru_cache(_KEPT)(asap.decode)


def _encode_asap(message: AsapMessage) -> bytes:
    return _kept_bytes(message) if type(message) in _SAID_AGAIN else _safe_asap(message)


def _decode_asap(data: bytes) -> AsapMessage:
    return _kept_message(data) if len(data) <= _MOST_KEPT_BYTES else asap.decode(data)


ASAP: Codec[AsapMessage] = Codec(asap.PPID, _encode_asap, _decode_asap)
ENRP: Codec[EnrpMessage] = Codec(enrp.PPID, _safe_enrp, enrp.decode)


class MessageEndpoint(Generic[M]):
    """Sends and receives messages on an SCTP socket, from construction to `close`.

    `on_dead` is called with the reason when the socket itself fails; the endpoint is closed by then.
    """

    def __init__(
        self,
        codec: Codec[M],
        sock: SctpSocket,
        *,
        on_message: Callable[[int, M, tuple[str, int]], None],
        on_notification: Callable[[Notification], None],
        on_dead: Callable[[str], None],
    ) -> None:
        self._codec = codec
        self._socket = sock
        self._on_message = on_message
        self._on_notification = on_notification
        self._on_dead = on_dead
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._reads = 1
        self._readable_at_s = float("-inf")
        self.undecodable = 0
        """Messages received that were none."""
        self._loop.add_reader(sock.fileno(), self._readable)

    @property
    def port(self) -> int:
        """The local SCTP port."""
        return self._socket.port

    @property
    def is_closed(self) -> bool:
        """True after `close`, and after the socket failed."""
        return self._socket.fileno() < 0

    def peers(self, association: int) -> list[tuple[str, int]]:
        """Return every address of the other side of an association."""
        return [] if self.is_closed else self._socket.peers(association)

    def is_confirmed(self, association: int, peer: tuple[str, int]) -> bool:
        """Whether the other side of an association has proved that it is at the address `peer`."""
        return not self.is_closed and self._socket.is_confirmed(association, peer)

    def locals(self, association: int) -> list[tuple[str, int]]:
        """Return every address of this side of an association."""
        return [] if self.is_closed else self._socket.locals(association)

    def connect(self, peer: tuple[str, int]) -> None:
        """Begin an association; raise OSError when it is clear at once that there will be none."""
        self._socket.connect(peer)

    def send(self, association: int, message: M) -> None:
        """Send a message; raise UnsafeMessageError for one that must not be sent.

        A message on an association that is gone vanishes: the notification of its end tells.
        """
        data = self._codec.encode(message)
        if self._queue or not self._send_now(association, data):
            if not self._queue:
                self._loop.add_writer(self._socket.fileno(), self._writable)
            if len(self._queue) < MAX_QUEUED:
                self._queue.append((association, data))

    def close_association(self, association: int) -> None:
        """Begin a graceful end of one association."""
        if not self.is_closed:
            self._socket.close_association(association)

    def abort_association(self, association: int) -> None:
        """End one association at once, whether its other side answers or not."""
        if not self.is_closed:
            self._socket.abort_association(association)

    def close(self) -> None:
        """Close the socket and every association."""
        if not self.is_closed:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._queue.clear()
            self._socket.close()

    def _send_now(self, association: int, data: bytes) -> bool:
        try:
            self._socket.send(association, self._codec.ppid, data)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _writable(self) -> None:
        while self._queue and self._send_now(*self._queue[0]):
            self._queue.popleft()
        if not self._queue:
            self._loop.remove_writer(self._socket.fileno())

    def read_waiting(self) -> None:
        """Read all that has arrived. To be called before somebody is found silent: a process that was kept
        busy for seconds would else take its own silence for that of others."""
        self._read(_MOST_WAITING, _WAITING_TURN_S)

    def _readable(self) -> None:
        # Mostly there is one message; to find out that there is no other costs as much as reading it.
        now = time.monotonic()
        is_burst = now - self._readable_at_s < _IN_A_ROW_S
        self._reads = min(_READS_IN_A_ROW, 2 * self._reads) if is_burst else 1
        self._readable_at_s = now
        self._read(self._reads, _TURN_S)

    def _read(self, most: int, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        for count in range(most):
            if self.is_closed or (count and time.monotonic() >= end_s):
                return
            try:
                received = self._socket.receive()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as problem:
                self.close()
                self._on_dead(str(problem))
                return
            if isinstance(received, Message):
                self._take(received)
            elif received is not None:
                if isinstance(received, AssociationLost):
                    self._socket.forget(received.association)
                self._on_notification(received)

    def _take(self, received: Message) -> None:
        if received.ppid != self._codec.ppid:
            self.undecodable += 1
            return
        try:
            message = self._codec.decode(received.data)
        except DecodeError:
            self.undecodable += 1
            return
        self._on_message(received.association, message, received.peer)


class DeadlineTimer:
    """Calls `callback` at a deadline on the monotonic clock that may move; possibly a little early."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._fires_at_s = 0.0

    def set(self, deadline_s: float | None) -> None:
        """Move the deadline; None: there is none. A timer that fires too early does no harm, and stays."""
        if self._handle and (deadline_s is None or deadline_s < self._fires_at_s):
            self._handle.cancel()
            self._handle = None
        if deadline_s is not None and self._handle is None:
            self._fires_at_s = deadline_s
            delay_s = max(0.0, deadline_s - time.monotonic())
            self._handle = self._loop.call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._callback()
