"""A backend without registrars, whose pools a test plays, and a real PowerDNS that asks it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ctypes
import random
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from pool_user import BeliefChange, PoolView
from rspdns.answers.change import Change
from rspdns.answers.publisher import Publisher
from rspdns.answers.serial_number import SerialNumbers
from rspdns.dnssec.store import DnssecStore
from rspdns.fastpath import FastPath
from rspdns.pdns import name_table
from rspdns.pdns.answering import make_connector
from rspdns.pdns.purge import Purger
from rspdns.pdns.responder import PdnsResponder
from rspdns.zones.zone import Zone

from tests.support.namespaces import Namespace, own_namespace
from tests.support.pdns import Pdns

_CLONE_NEWNET = 0x40000000


class ScriptedBackend:
    """Serves `zones` at `<folder>/remote.sock`, or another connector, from a thread of its own.

    The thread is in the network namespace `namespace`, if one is named: for connectors with an address.
    `fastpath` is told every snapshot.
    """

    def __init__(
        self,
        zones: Sequence[Zone],
        folder: Path,
        controls: Sequence[Path] = (),
        connector: str | None = None,
        namespace: str | None = None,
        fastpath: FastPath | None = None,
    ) -> None:
        self.zones = zones
        self.fastpath = fastpath
        self._connector = connector or f"unix:{folder}/remote.sock"
        self.zone_names = [zone.name for zone in zones]
        self._folder = folder
        self._controls = controls
        self._loop = uvloop.new_event_loop()
        self._namespace = namespace
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        if self._namespace is not None:
            with open(f"/run/netns/{self._namespace}") as namespace_file:
                if ctypes.CDLL(None, use_errno=True).setns(namespace_file.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
        self._loop.run_forever()

    def start(self, views: Mapping[str, PoolView]) -> None:
        """Begin to serve."""
        self.views = views
        self._thread.start()
        self._in_loop(self._start(views))

    def publish(self, views: Mapping[str, PoolView]) -> None:
        """The pools changed."""
        self._in_loop(self._publish(views))

    def set_zones(self, zones: Sequence[Zone], views: Mapping[str, PoolView]) -> None:
        """The zones changed."""
        self._in_loop(self._set_zones(zones, views))

    def freeze(self, seconds: float) -> float:
        """Do nothing at all for this time; return when that began (monotonic)."""
        began: concurrent.futures.Future[float] = concurrent.futures.Future()

        def stand_still() -> None:
            began.set_result(time.monotonic())
            time.sleep(seconds)

        self._loop.call_soon_threadsafe(stand_still)
        return began.result(10)

    def stop(self) -> None:
        """Serve no more."""
        self._in_loop(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _in_loop(self, work: object) -> None:
        future: concurrent.futures.Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)  # type: ignore[arg-type]
        future.result(10)

    async def _start(self, views: Mapping[str, PoolView]) -> None:
        self.purger = Purger([str(path) for path in self._controls])
        self.store = DnssecStore(self._folder, self._signing_changed)
        self.responder = PdnsResponder(store=self.store)
        self.connector = make_connector(self._connector, self.responder, self.store)
        self.serials = SerialNumbers(self._folder, 1000.0)
        self._write_names()
        self.publisher = Publisher(
            self.zones,
            self.serials,
            self._swap,
            self.purger,
            max_stale_s=3600,
            hot=frozenset,
            draw=random.Random(1),
            is_seen_at_once=lambda: self.fastpath is not None and self.fastpath.is_answering,
        )
        self.publisher.start(BeliefChange.between({}, views))
        await self.connector.start()
        if self.fastpath is not None:
            self.fastpath.set_zones(self.zones)
            self.fastpath.start()
        self.purger.start()

    def _swap(self, change: Change, purge: Callable[[Collection[str]], None]) -> None:
        if self.fastpath is not None:
            self.fastpath.apply(change, self.store.signed_zones())
        purge(self.responder.swap(change))

    async def _publish(self, views: Mapping[str, PoolView]) -> None:
        before, self.views = self.views, views
        self.publisher.publish(BeliefChange.between(before, views))

    async def _set_zones(self, zones: Sequence[Zone], views: Mapping[str, PoolView]) -> None:
        self.zones = zones
        self._write_names()
        if self.fastpath is not None:
            self.fastpath.set_zones(zones)
        before, self.views = self.views, views
        self.publisher.set_zones(zones, BeliefChange.between(before, views))

    def _signing_changed(self, zone: str) -> None:
        self._write_names()
        if self.fastpath is not None:
            self.fastpath.take(self.publisher.snapshot, self.store.signed_zones())
        self.purger.purge({f"{zone}$"})

    def _write_names(self) -> None:
        name_table.write(self._connector, self.zones, self.store.signed_zones(), self.serials.following)

    async def _stop(self) -> None:
        self.publisher.close()
        if self.fastpath is not None:
            await self.fastpath.close()
        await self.purger.close()
        await self.connector.close()
        self.store.close()


@dataclass(frozen=True)
class Served:
    """All of it, in one folder."""

    namespace: Namespace
    backend: ScriptedBackend
    pdns: Pdns
    folder: Path

    def delv(self, *question: str) -> str:
        """The output of delv, with the zone's own key as the trust anchor."""
        zone = self.backend.zone_names[0]
        anchor = self.folder / "anchor"
        if not anchor.exists():
            self.trust(zone)
        said = self.namespace.run("delv", "@127.0.0.1", "-a", str(anchor), f"+root={zone}", *question)
        return said.stdout + said.stderr

    def trust(self, zone: str) -> None:
        """Take the zone's present keys as trust anchors, as if the parent had them."""
        lines = self.pdns.short(zone, "DNSKEY")
        fields = [line.split(maxsplit=3) for line in lines]
        keys = (f'"{zone}" static-key {" ".join(head)} "{key.replace(" ", "")}";' for *head, key in fields)
        (self.folder / "anchor").write_text(f"trust-anchors {{ {' '.join(keys)} }};\n")


@contextmanager
def served(
    zones: Sequence[Zone], views: Mapping[str, PoolView], folder: Path, **settings: Any
) -> Iterator[Served]:
    """Serve these zones until the end of the block; `settings` are pdns-config's."""
    with own_namespace() as namespace:
        connector = settings.get("connector")
        pdns = Pdns(namespace, folder, **settings)
        backend = ScriptedBackend(zones, folder, [pdns.control], connector, namespace.name)
        backend.start(views)
        try:
            pdns.start(zones[0].name)
            yield Served(namespace, backend, pdns, folder)
        finally:
            backend.stop()


def status(said: str) -> str:
    """The response code in what dig prints."""
    return said.partition("status: ")[2].partition(",")[0]


class SlowConnector:
    """Stands between PowerDNS and the backend and makes every reply late, as a busy machine does.

    Listens at `here`, passes requests on to `there`, and replies back after `delay_s`.
    """

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
        for sock in (self._listener, *self._clients):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

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
