"""Stands between PowerDNS and the backend and makes every reply late, as a busy machine does."""

import contextlib
import socket
import threading
import time
from pathlib import Path


class SlowConnector:
    """Listens at `here`, passes requests on to `there`, and replies back after `delay_s`."""

    def __init__(self, here: Path, there: Path, delay_s: float) -> None:
        self._there = there
        self._delay_s = delay_s
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(here))
        self._listener.listen(64)
        self._clients: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End every connection."""
        for one in (self._listener, *self._clients):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.append(client)
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as backend:
            backend.connect(str(self._there))
            with client.makefile("rb") as requests, backend.makefile("rb") as replies:
                for request in requests:
                    backend.sendall(request)
                    reply = replies.readline()
                    time.sleep(self._delay_s)
                    client.sendall(reply)
