"""The connection to rspdns-fastpath, and the lease that it hands over.

The lease is a number in memory that is shared with the BPF program; it ends with the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import socket
import time
from collections.abc import Callable

from rspdns.fastpath import messages

_READ_BYTES = 1 << 16
_MOST_WAITING_BYTES = 256 << 20
_SEND_BUFFER_BYTES = 1 << 20


class Lease:
    """When this backend last stood behind its answers: a number in memory that the BPF program reads."""

    def __init__(self) -> None:
        self.number = 0
        """Which one of those in the memory is ours."""
        self._memory: mmap.mmap | None = None

    @property
    def is_shared(self) -> bool:
        """Whether there is memory to write to."""
        return self._memory is not None

    def take(self, file: int) -> None:
        """Use the memory behind this descriptor, and close that. Raises OSError."""
        self.close()
        try:
            self._memory = mmap.mmap(file, mmap.PAGESIZE)
        except ValueError as error:
            raise OSError(str(error)) from None
        finally:
            os.close(file)

    def renew(self) -> None:
        """The answers are good for a second from now on."""
        self._write(time.monotonic_ns())

    def end(self) -> None:
        """The answers are no longer good."""
        self._write(0)

    def close(self) -> None:
        """Forget the memory."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _write(self, renewed_ns: int) -> None:
        if self._memory is not None:
            with memoryview(self._memory) as plain, plain.cast("Q") as numbers:  # written whole, by one store
                numbers[self.number] = renewed_ns


class DaemonConnection:
    """The connection to the daemon at the socket `path`, open or not. All of it lives in one event loop.

    `take` is given each message of the daemon, and may raise MessageError; `lost` is told why the connection
    can't go on, and is to close it.
    """

    def __init__(
        self, path: str, take: Callable[[messages.DaemonMessage], None], lost: Callable[[str], None]
    ) -> None:
        self.lease = Lease()
        self._path = path
        self._take = take
        self._lost = lost
        self._socket: socket.socket | None = None
        self._reader = messages.Reader()
        self._waiting = bytearray()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._socket is not None

    def open(self) -> None:
        """Connect. Raises OSError."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        try:
            connection.connect(self._path)
        except OSError:
            connection.close()
            raise
        self._socket = connection
        self._reader = messages.Reader()
        self._waiting.clear()
        asyncio.get_running_loop().add_reader(connection.fileno(), self.read)

    def read(self) -> None:
        """Take what has come."""
        if self._socket is None:
            return
        try:
            data, files, _, _ = socket.recv_fds(self._socket, _READ_BYTES, 1)
            for file in files:
                self.lease.take(file)
            if not data:
                self._lost("rspdns-fastpath ended the connection")
                return
            for message in self._reader.feed(data):
                self._take(message)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, messages.MessageError) as error:
            self._lost(str(error))

    def send(self, data: bytes) -> None:
        """Send at once what the socket takes; the rest follows, in order."""
        if self._socket is None:
            return
        sent = 0
        if not self._waiting:
            try:
                sent = self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._lost(error.strerror or str(error))
                return
        if sent == len(data):
            return
        if not self._waiting:
            asyncio.get_running_loop().add_writer(self._socket.fileno(), self._send_waiting)
        self._waiting += memoryview(data)[sent:]
        if len(self._waiting) > _MOST_WAITING_BYTES:
            self._lost("it does not read what it is told")

    def _send_waiting(self) -> None:
        if self._socket is None:
            return
        try:
            del self._waiting[: self._socket.send(memoryview(self._waiting)[:_SEND_BUFFER_BYTES].tobytes())]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(error.strerror or str(error))
            return
        if not self._waiting:
            asyncio.get_running_loop().remove_writer(self._socket.fileno())

    def close(self) -> bool:
        """End the lease, then the connection: the daemon ends the lease too when it sees that. Return False
        when there was none."""
        connection, self._socket = self._socket, None
        self.lease.end()
        self.lease.close()
        if connection is None:
            return False
        with contextlib.suppress(RuntimeError):  # no loop runs any more
            loop = asyncio.get_running_loop()
            loop.remove_reader(connection.fileno())
            loop.remove_writer(connection.fileno())
        connection.close()
        self._waiting.clear()
        return True
