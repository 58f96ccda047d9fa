"""The backend without registrars: a test says who is in each pool, PowerDNS asks over the real connector."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import random
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop
from pool_user.views import PoolView
from rspdns.answers.publisher import Publisher
from rspdns.answers.serial_number import SerialNumbers
from rspdns.dnssec.store import DnssecStore
from rspdns.pdns import name_table
from rspdns.pdns.connectors import make_connector
from rspdns.pdns.purge import Purger
from rspdns.pdns.responder import Responder
from rspdns.zones.zone import Zone

_CLONE_NEWNET = 0x40000000


class ScriptedBackend:
    """Serves `zones` at `<folder>/remote.sock`, or another connector, from a thread of its own.

    The thread is in the network namespace `namespace`, if one is named: for connectors with an address.
    """

    def __init__(
        self,
        zones: Sequence[Zone],
        folder: Path,
        controls: Sequence[Path] = (),
        connector: str | None = None,
        namespace: str | None = None,
    ) -> None:
        self.zones = zones
        self._connector = connector or f"unix:{folder}/remote.sock"
        self.zone_names = [zone.name for zone in zones]
        self._folder = folder
        self._controls = controls
        self._loop = uvloop.new_event_loop()
        self._namespace = namespace
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        if self._namespace is not None:
            with open(f"/run/netns/{self._namespace}") as place:
                if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), _CLONE_NEWNET):
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
        self.responder = Responder(store=self.store)
        self.connector = make_connector(self._connector, self.responder, self.store)
        self.serials = SerialNumbers(self._folder, 1000.0)
        self._write_names()
        self.publisher = Publisher(
            self.zones,
            self.serials,
            self.responder.swap,
            self.purger,
            max_stale_s=3600,
            hot=frozenset,
            draw=random.Random(1),
        )
        self.publisher.start(views)
        await self.connector.start()
        self.purger.start()

    async def _publish(self, views: Mapping[str, PoolView]) -> None:
        self.views = views
        self.publisher.publish(views)

    async def _set_zones(self, zones: Sequence[Zone], views: Mapping[str, PoolView]) -> None:
        self.zones = zones
        self._write_names()
        self.publisher.set_zones(zones, views)

    def _signing_changed(self, zone: str) -> None:
        self._write_names()
        self.purger.purge({f"{zone}$"})

    def _write_names(self) -> None:
        name_table.write(self._connector, self.zones, self.store.signed_zones(), self.serials.following)

    async def _stop(self) -> None:
        self.publisher.close()
        await self.purger.close()
        await self.connector.close()
        self.store.close()
