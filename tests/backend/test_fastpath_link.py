"""The messages of the backend to rspdns-fastpath, and when it ends the lease itself.

The daemon is played: only so can it stand still at a certain message.
"""

import asyncio
import errno
import mmap
import os
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from rspdns.answers.snapshot import Snapshot
from rspdns.fastpath import FastPath
from rspdns.fastpath.link import COMMITTED_WITHIN_S, LEASE_S, RENEW_EVERY_S
from rspdns.fastpath.messages import DaemonMessage, Reader
from rspdns.fastpath.ready import VARIANTS

from tests.backend.making import ZONE, answered, member, view, views, zone
from tests.support.waiting import until_async

OWNER = f"_sip._udp.as.{ZONE}"
NUMBER = 3


def snapshot(count: int) -> Snapshot:
    return answered(zone(), views(view(*(member(number) for number in range(1, count + 1)))))


class PlayedDaemon:
    """One connection of a backend, and the memory that it shares."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "fastpath.sock"
        self.told: list[DaemonMessage] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._listener.setblocking(False)
        self._connection: socket.socket | None = None
        self._file = os.memfd_create("leases")
        os.ftruncate(self._file, mmap.PAGESIZE)
        self._memory = mmap.mmap(self._file, mmap.PAGESIZE)
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def renewed_ns(self) -> int:
        """When the lease was renewed; 0: it was ended."""
        return int.from_bytes(self._memory[8 * NUMBER : 8 * NUMBER + 8], sys.byteorder)

    @property
    def has_lease(self) -> bool:
        """Whether the BPF program would answer."""
        return 0 <= time.monotonic_ns() - self.renewed_ns < 10**9

    @property
    def commits(self) -> int:
        """How many changes were told."""
        return sum(message.kind == "C" for message in self.told)

    @property
    def puts(self) -> list[int]:
        """How many variants each answer had that was told so far."""
        found = []
        for message in self.told:
            if message.kind == "P":
                size = message.body[6]
                found.append(message.body[7 + size])
        return found

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        connection, _ = await loop.sock_accept(self._listener)
        self._connection = connection
        reader = Reader()
        while data := await loop.sock_recv(connection, 1 << 20):
            await self.goes_on.wait()
            for message in reader.feed(data):
                self.told.append(message)
                if message.kind == "H":
                    reply = struct.pack("=IBH", 3, ord("h"), NUMBER)
                    socket.send_fds(connection, [reply], [self._file])
                if message.kind == "C":
                    reply = struct.pack("=IB", 13, ord("c")) + message.body + bytes(4)
                    await loop.sock_sendall(connection, reply)

    def kill(self) -> None:
        """End the connection."""
        assert self._connection is not None
        self._connection.close()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._listener.close()
        if self._connection is not None:
            self._connection.close()
        self._memory.close()
        os.close(self._file)


@asynccontextmanager
async def connected(folder: Path, members: int = 2) -> AsyncIterator[tuple[PlayedDaemon, FastPath]]:
    daemon = PlayedDaemon(folder)
    link = FastPath(str(daemon.path), 1232, draw=Random(1))
    link.take(snapshot(members), ())
    link.start()
    try:
        await until_async(lambda: link.is_answering)
        yield daemon, link
    finally:
        await link.close()
        await daemon.close()


async def test_lease_is_given_when_all_answers_are_visible(tmp_path: Path) -> None:
    daemon = PlayedDaemon(tmp_path)
    daemon.goes_on.clear()
    link = FastPath(str(daemon.path), 1232)
    link.take(snapshot(2), ())
    link.start()
    try:
        await asyncio.sleep(0.1)
        assert daemon.renewed_ns == 0
        daemon.goes_on.set()
        await until_async(lambda: daemon.has_lease)
        assert link.problem is None
    finally:
        await link.close()
        assert daemon.renewed_ns == 0
        await daemon.close()


async def test_change_is_told_before_the_variants_that_chance_draws(tmp_path: Path) -> None:
    async with connected(tmp_path, 20) as (daemon, link):
        await until_async(lambda: VARIANTS in daemon.puts)
        daemon.told.clear()
        link.take(snapshot(19), ())
        await until_async(lambda: VARIANTS in daemon.puts)
        first = [message.kind for message in daemon.told].index("C")
        assert 1 in daemon.puts[:first]
        assert VARIANTS not in daemon.puts[:first]


async def test_frozen_daemon_loses_the_lease_when_it_does_not_take_a_change(tmp_path: Path) -> None:
    """Its program would go on to answer as before the change."""
    async with connected(tmp_path) as (daemon, link):
        await until_async(lambda: daemon.commits == 2)  # the other orders, too
        daemon.goes_on.clear()
        await asyncio.sleep(3 * COMMITTED_WITHIN_S)
        await until_async(lambda: daemon.has_lease)  # nothing changed: what it answers is right
        link.take(snapshot(1), ())
        await until_async(lambda: daemon.renewed_ns == 0)
        assert not link.is_answering
        await until_async(lambda: link.problem is not None)
        assert daemon.renewed_ns == 0  # also after the next renewals
        daemon.goes_on.set()
        await until_async(lambda: daemon.has_lease)
        assert link.is_answering
        await until_async(lambda: link.problem is None)


async def test_backend_that_stood_still_does_not_stand_behind_its_answers_at_once(tmp_path: Path) -> None:
    """It first hears what it missed: a server may have died meanwhile."""
    async with connected(tmp_path) as (daemon, _):
        time.sleep(LEASE_S + 0.1)  # noqa: ASYNC251 - that is what is tested
        woken_ns = time.monotonic_ns()
        assert not daemon.has_lease
        await until_async(lambda: daemon.has_lease)
        assert daemon.renewed_ns - woken_ns > 0.8 * RENEW_EVERY_S * 1e9


async def test_killed_daemon_loses_the_lease_at_once(tmp_path: Path) -> None:
    async with connected(tmp_path) as (daemon, link):
        await until_async(lambda: daemon.has_lease)
        daemon.kill()
        await until_async(lambda: daemon.renewed_ns == 0)
        assert link.problem is not None


async def test_welcome_without_a_lease_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fastpath.sock"
    said = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack("=IBH", 3, ord("h"), 1))
        await reader.read()
        said.set()
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    link = FastPath(str(path), 1232)
    link.start()
    try:
        await asyncio.wait_for(said.wait(), 20)
        assert link.problem == "a welcome without a lease"
    finally:
        await link.close()
        server.close()


async def test_link_connects_as_soon_as_a_descriptor_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(family: int, kind: int) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    daemon = PlayedDaemon(tmp_path)
    link = FastPath(str(daemon.path), 1232)
    link.take(snapshot(2), ())
    try:
        with monkeypatch.context() as patched:
            patched.setattr(socket, "socket", refuse)
            link.start()
            await until_async(lambda: link.problem == "Too many open files")
        await until_async(lambda: link.is_answering)
    finally:
        await link.close()
        await daemon.close()
