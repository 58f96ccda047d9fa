"""The server of DNS Push beside a control socket that answers as the backend's does, and its clients."""

import asyncio
import ssl
from pathlib import Path
from random import Random
from typing import Any

from daemon_kit.control import ControlCommand, ControlServer
from pool_user import Member
from rspdns.answers.change import Change
from rspdns.answers.snapshot import Snapshot
from rspdns.news.configuration import PushConfig
from rspdns.news.push import PushServer
from rspdns.next_records import KEYS, NextRecords

from tests.backend.making import FIXED, ZONE, built, view, views, zone
from tests.backend.push_client import ServerMessage, messages_of
from tests.support.certificates import authority, certificate_of
from tests.support.primaries import free_port

OWNER = f"_sip._udp.as.{ZONE}"
CUT = "sub IN NS ns1.sub\n_dns-push-tls._tcp SRV 0 0 853 ns1\n"


class Backend:
    """The answers of a pool, and the control socket that tells them."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "admin.sock")
        self.zones = [zone(fixed=FIXED + CUT)]
        self.snapshot = Snapshot()
        self.records = NextRecords(lambda: self.snapshot)
        self._serial = 0
        self._control: ControlServer | None = None

    async def start(self) -> None:
        self._control = ControlServer(self.path, {"records": ControlCommand(self.records.tell, KEYS)})
        await self._control.start()

    async def restart(self) -> None:
        await self.stop()
        self.records = NextRecords(lambda: self.snapshot)
        await self.start()

    async def stop(self) -> None:
        assert self._control is not None
        await self._control.close()

    def members(self, *members: Member) -> None:
        self._serial += 1
        believed = views(view(*members))
        change: Change = built(
            self.zones, believed, self.snapshot, 1000.0, self._serial, Random(1), max_stale_s=3600.0
        )
        self.snapshot = change.after
        self.records.published(change.names(), change)


class Client:
    """A TLS connection, and what came."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, *messages: bytes) -> None:
        self.writer.write(b"".join(messages))
        await self.writer.drain()

    async def hear(self) -> ServerMessage:
        async with asyncio.timeout(20):
            length = await self.reader.readexactly(2)
            (message,) = messages_of(length + await self.reader.readexactly(int.from_bytes(length)))
        return message


class Served:
    """A backend, and the server beside it."""

    def __init__(self, folder: Path, **keys: Any) -> None:
        self.backend = Backend(folder)
        issuer = authority(folder, "ca")
        files = certificate_of(folder, issuer, 30)
        self.port = free_port()
        self.config = PushConfig(
            listen=f"127.0.0.1:{self.port}",
            tls_certificate=str(files["crt"]),
            tls_key=str(files["key"]),
            **keys,
        )
        access, errors = self.config.access(folder)
        assert not errors
        self.server = PushServer(self.config, access, self.backend.path)
        self.stop = asyncio.Event()
        self.tls = ssl.create_default_context(cafile=issuer)
        self.running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.backend.start()
        self.running = asyncio.create_task(self.server.run(self.stop))
        await asyncio.sleep(0)  # it listens

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        return Client(reader, writer)

    async def end(self) -> None:
        self.stop.set()
        assert self.running is not None
        await self.running
