"""Does for a service what systemd does: holds its socket and what it stores, for its next process."""

import contextlib
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program

_HAND_OVER = """
import fcntl, os, sys
descriptors = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 600) for one in sys.argv[1].split(",")]
for index, one in enumerate(descriptors):
    os.dup2(one, 3 + index)
    os.close(one)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(descriptors)), LISTEN_FDNAMES=sys.argv[2])
os.environ["NOTIFY_SOCKET"] = sys.argv[3]
os.execvp(sys.argv[4], sys.argv[4:])
"""
_READ_WITHIN_S = 10.0


class ServiceManager:
    """Holds the listening socket at `path`.

    Source: sd_listen_fds(3), sd_pid_notify_with_fds(3), sd_notify_barrier(3).
    """

    def __init__(self, path: Path, notify_socket: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(128)
        self._stored: list[tuple[str, int]] = []
        self.is_keeping = True
        self.notified: list[str] = []
        self._mail = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mail.bind(str(notify_socket))
        self.environment = {"NOTIFY_SOCKET": str(notify_socket)}
        """The socket of the service alone: neither its children nor its parent may speak for it."""
        self._read_so_far = threading.Event()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._mail, 4096, 16)
            if data == b"END":
                return
            if data == b"SO FAR":
                self._read_so_far.set()
                continue
            text = data.decode()
            self.notified.append(text)
            state = dict(line.split("=", 1) for line in text.splitlines())
            if state.get("FDSTORE") == "1" and self.is_keeping:
                self._stored += [(state["FDNAME"], descriptor) for descriptor in descriptors]
                continue
            for descriptor in descriptors:  # a barrier's, too
                os.close(descriptor)

    def keep_nothing(self) -> None:
        """From now on, as without `FileDescriptorStoreMax=`."""
        self.is_keeping = False
        self._drop_all()

    def _drop_all(self) -> None:
        while self._stored:
            os.close(self._stored.pop()[1])

    def _send(self, data: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(data, self._mail.getsockname())

    def drop_the_dead(self) -> None:
        """Read what was sent until now; forget what hung up, which systemd does by itself."""
        self._read_so_far.clear()
        self._send(b"SO FAR")
        self._read_so_far.wait(_READ_WITHIN_S)
        for stored in list(self._stored):
            poll = select.poll()
            poll.register(stored[1], 0)
            if poll.poll(0):
                self._stored.remove(stored)
                os.close(stored[1])

    @property
    def stored(self) -> int:
        """How many living descriptors it keeps."""
        self.drop_the_dead()
        return len(self._stored)

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that the next process must inherit, by these numbers."""
        self.drop_the_dead()
        return [self._listener.fileno(), *(descriptor for _, descriptor in self._stored)]

    def hand_over(self) -> tuple[list[str], list[int]]:
        """The words that start a command as systemd would, and the descriptors that it must inherit."""
        descriptors = self.descriptors
        names = ":".join(["rspdns.socket", *(name for name, _ in self._stored)])
        numbers = ",".join(map(str, descriptors))
        words = [sys.executable, "-c", _HAND_OVER, numbers, names, self.environment["NOTIFY_SOCKET"]]
        return words, descriptors

    def close(self) -> None:
        """Give up everything."""
        with contextlib.suppress(OSError):
            self._send(b"END")
        self._reading.join(10)
        paths = (self._mail.getsockname(), self._listener.getsockname())
        self._mail.close()
        self._listener.close()
        self._drop_all()
        for path in paths:
            Path(path).unlink(missing_ok=True)


class Service(Program):
    """A program that is started as systemd starts it: with the socket and the connections of its unit."""

    def __init__(
        self,
        name: str,
        host: Host,
        command: Callable[[Sequence[str]], list[str]],
        log: Path,
        path: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`command` puts together the whole command line, with the words in it that hand over what is kept;
        `path` is that of the listening socket."""
        self._path = path
        self._notify_socket = path.with_suffix(".notify")
        self._line = command
        self._manager: ServiceManager | None = None
        super().__init__(name, host, command([]), log, environment)

    def start(self, stdout: int | None = None) -> None:
        """Start it, also again after its end."""
        if self._manager is None:
            self._manager = ServiceManager(self._path, self._notify_socket)
        self._manager.notified.clear()
        words, self.descriptors = self._manager.hand_over()
        self.command = self._line(words)
        super().start(stdout)

    @property
    def is_ready(self) -> bool:
        """Whether it has said so since it was started last."""
        return self._manager is not None and "READY=1" in self._manager.notified

    def ended(self) -> None:
        """Make sure that nothing of it is left, its socket included."""
        super().ended()
        if self._manager is not None:
            self._manager.close()
            self._manager = None
