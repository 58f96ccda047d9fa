"""Copies of packets that nftables' `log group` sends here (nfnetlink_log), kept for a while.

Nothing looks at them until a server dies: to take a batch costs some 10 us, whatever is in it. The packets
themselves go their way in the kernel. Needs CAP_NET_ADMIN.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import itertools
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Final

COPIES_GROUP: Final = 0x7070
"""The number that `log group` of the rules has. No other program can listen to it meanwhile."""
MAX_KEPT_BYTES: Final = 8 * 1024 * 1024
"""If there are more bytes, the oldest are forgotten."""
KEPT_S: Final = 32.0
"""The longest time that a client waits for an answer: timers B and F of RFC 3261, section 17.1."""
COLLECT_EVERY_S: Final = 0.1
FLUSH_S: Final = 0.01
"""The kernel sends a batch after this time at the latest."""

_NETLINK_NETFILTER: Final = 12
_ULOG_PACKET, _ULOG_CONFIG = 4 << 8, 4 << 8 | 1
_COMMAND, _MODE, _BATCH_BYTES, _TIMEOUT, _THRESHOLD = 1, 2, 3, 4, 5
_BIND: Final = 1
_COPY_PACKET: Final = 2
_PAYLOAD: Final = 9
_REQUEST, _ACKNOWLEDGE = 1, 4
_ERROR: Final = 2
_SO_RCVBUFFORCE: Final = 33
_QUEUE_BYTES: Final = 8 * 1024 * 1024
_PACKET_BYTES: Final = 65535
_ROOM_OF_A_BATCH: Final = 16_000
"""The kernel takes so much memory for each batch, also for one with a single packet. Larger ones get more."""
_PACKETS_OF_A_BATCH: Final = 60
_HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")


class PacketCopies:
    """Takes the copies of one network namespace: that of the thread that opens it.

    `problem` says in words what the kernel refused. `collect()` may be called by several threads.
    """

    def __init__(self) -> None:
        self.problem: str | None = None
        self.kept_bytes = 0
        self._batches: collections.deque[tuple[float, bytes]] = collections.deque()
        self._taken = 0
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    @property
    def is_open(self) -> bool:
        """Whether there are copies."""
        return self._socket is not None

    def open(self) -> None:
        """Begin to listen; what fails is told by `problem`."""
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        try:
            made.settimeout(1.0)
            made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _QUEUE_BYTES)
            for kind, value in (
                (_COMMAND, struct.pack("B", _BIND)),
                (_MODE, struct.pack(">IBx", _PACKET_BYTES, _COPY_PACKET)),
                (_BATCH_BYTES, struct.pack(">I", _ROOM_OF_A_BATCH)),
                (_TIMEOUT, struct.pack(">I", round(FLUSH_S * 100))),
                (_THRESHOLD, struct.pack(">I", _PACKETS_OF_A_BATCH)),
            ):
                _configure(made, kind, value)
            made.setblocking(False)
        except OSError as problem:
            made.close()
            self.problem = _words_of(problem)
            return
        self._socket, self.problem = made, None

    def close(self) -> None:
        """Keep nothing any more; safe to repeat."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            self._batches.clear()
            self.kept_bytes = 0

    def collect(self) -> None:
        """Take what has come, and forget what is too old or too much."""
        with self._lock:
            now = time.monotonic()
            while self._socket is not None:
                try:
                    batch = self._socket.recv(2 * _PACKET_BYTES)
                except BlockingIOError:
                    break
                except OSError as problem:
                    if problem.errno == errno.ENOBUFS:  # more came than there was room for
                        continue
                    break
                self._batches.append((now, batch))
                self._taken += 1
                self.kept_bytes += len(batch)
            while self._batches and (self.kept_bytes > MAX_KEPT_BYTES or self._batches[0][0] < now - KEPT_S):
                self.kept_bytes -= len(self._batches.popleft()[1])

    def reader(self) -> CopiesReader:
        """The reader that gives the packets one after the other, from the oldest that is kept."""
        return CopiesReader(self)

    def after(self, number: int) -> tuple[int, list[bytes]]:
        """The batches that were taken after the one with this number, and the number of the last."""
        self.collect()
        with self._lock:
            newest = itertools.islice(reversed(self._batches), self._taken - number)
            return self._taken, [batch for _, batch in newest][::-1]

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Have the kernel send each packet at once meanwhile, and wait for what it has not sent yet."""
        self._set_threshold(1)
        for _ in range(4):
            time.sleep(FLUSH_S / 2)
            self.collect()
        try:
            yield
        finally:
            self._set_threshold(_PACKETS_OF_A_BATCH)

    def _set_threshold(self, packets: int) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.send(_configuration(_THRESHOLD, struct.pack(">I", packets), _REQUEST))


class CopiesReader:
    """Gives each packet once, as it begins with its IP header."""

    def __init__(self, copies: PacketCopies) -> None:
        self._copies = copies
        self._number = 0

    def new(self) -> Iterator[bytes]:
        """The packets that came since the last time; the first time all that are kept."""
        self._number, batches = self._copies.after(self._number)
        for batch in batches:
            yield from packets_of(batch)


def packets_of(batch: bytes) -> Iterator[bytes]:
    """The packets in a batch of nfnetlink_log."""
    at = 0
    while at + _HEADER.size <= len(batch):
        length, kind, _, _, _ = _HEADER.unpack_from(batch, at)
        if length < _HEADER.size:
            return
        if kind == _ULOG_PACKET:
            payload = _payload(batch, at + _HEADER.size + 4, min(at + length, len(batch)))
            if payload is not None:
                yield payload
        at += length + 3 & ~3


def _payload(batch: bytes, at: int, end: int) -> bytes | None:
    while at + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(batch, at)
        if length < 4:
            return None
        if kind & 0x3FFF == _PAYLOAD:
            return batch[at + 4 : min(at + length, end)]
        at += length + 3 & ~3
    return None


def _configuration(kind: int, value: bytes, flags: int) -> bytes:
    attribute = _ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)
    body = struct.pack(">BBH", 0, 0, COPIES_GROUP) + attribute
    return _HEADER.pack(_HEADER.size + len(body), _ULOG_CONFIG, flags, 0, 0) + body


def _configure(netlink: socket.socket, kind: int, value: bytes) -> None:
    """Raises OSError."""
    netlink.send(_configuration(kind, value, _REQUEST | _ACKNOWLEDGE))
    while True:
        answer = netlink.recv(2 * _PACKET_BYTES)
        if _HEADER.unpack_from(answer)[1] == _ERROR:
            code = -struct.unpack_from("=i", answer, _HEADER.size)[0]
            if code:
                raise OSError(code, "")
            return


def _words_of(problem: OSError) -> str:
    if problem.errno in (errno.EBUSY, errno.EPERM):
        return f"another program takes the packets of nftables' log group {COPIES_GROUP}"
    if problem.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOENT):
        return "this kernel has no nfnetlink_log"
    return f"the kernel copies no packets: {problem.strerror or errno.errorcode.get(problem.errno or 0, '')}"
