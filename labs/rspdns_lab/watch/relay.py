"""Brings a TCP port of a host in the lab to this machine's loopback, for a browser outside the lab."""

import asyncio
import contextlib
import os
import socket
import threading
from pathlib import Path

from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, call_in

HANDED_ON = "RSPDNS_LAB_LISTENER"
"""In the environment: the number of a listening socket that this program inherited."""
_CHUNK_BYTES = 65536


def listener_on_loopback(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1, 0: at a free port. Raises LabError when the port is taken.

    It is the machine's loopback even if this program goes on in a namespace of its own: then a socket that
    was made before, and handed on by `HANDED_ON`, is returned.
    """
    handed_on = os.environ.get(HANDED_ON)
    if handed_on is not None:
        return socket.socket(fileno=int(handed_on))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()  # now, not when somebody accepts: who has the url may use it
    except OSError as error:
        listener.close()
        raise LabError(f"port {port} of 127.0.0.1: {error.strerror}") from None
    listener.set_inheritable(True)
    return listener


class Relay(threading.Thread):
    """Relays what `listener` accepts to 127.0.0.1:`port` on `host`, and closes it in the end."""

    def __init__(self, host: Host, port: int, listener: socket.socket) -> None:
        super().__init__(daemon=True)
        self._path: Path = host.path
        self._port = port
        self._listener = listener
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()

    @property
    def url(self) -> str:
        """The address at which a browser finds it."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def run(self) -> None:
        """Relay until `close()`."""
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._ended.set)
        if self.is_alive():
            self.join()
        self._listener.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._listener)
        await self._ended.wait()
        server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(writer):
            # A socket belongs to the namespace of the thread that made it, wherever it is used.
            inside: socket.socket = await asyncio.to_thread(call_in, self._path, _new_socket)
            await self._loop.sock_connect(inside, ("127.0.0.1", self._port))
            there, back = await asyncio.open_connection(sock=inside)
            with contextlib.closing(back):
                await asyncio.gather(_copy(reader, back), _copy(there, writer))


def _new_socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setblocking(False)
    return made


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
        sink.write_eof()
