"""The paths to a client: PowerDNS, which asks the connector; the kernel's fast path; secondaries; and name
servers that take DNS UPDATE.

All are told the same changes. The kernel's answers change at once, PowerDNS's with the purge, those of
secondaries when they transferred the zone after that, and of others when they took the UPDATE.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from pool_user import PoolView

from rspdns.answers.change import Change
from rspdns.answers.serial_number import SerialNumbers
from rspdns.answers.snapshot import Snapshot
from rspdns.configuration import BackendConfig
from rspdns.dnssec.store import DnssecStore
from rspdns.fastpath import FastPath
from rspdns.lookups import PoolLookups
from rspdns.pdns import name_table
from rspdns.pdns.answering import AnsweringThread, make_connector
from rspdns.pdns.purge import Purger
from rspdns.pdns.responder import PdnsResponder
from rspdns.publish import Publications
from rspdns.secondaries import Secondaries
from rspdns.zones.zone import Zone


class AnswerPaths:
    """All paths, the keys with which PowerDNS signs, and the table that tells it which names there are.

    `lookups` is told the names that are looked up, `views` gives the belief about the pools.
    """

    def __init__(
        self,
        config: BackendConfig,
        serials: SerialNumbers,
        purger: Purger,
        lookups: PoolLookups,
        views: Callable[[], Mapping[str, PoolView]],
    ) -> None:
        self.store = DnssecStore(config.state.path, self._signing_changed)
        self.responder = PdnsResponder(lookups.by_powerdns, self.store)
        self.connector = AnsweringThread(make_connector(config.pdns.connector, self.responder, self.store))
        self.fastpath: FastPath | None = None
        """Answers from the kernel; None: all answers are PowerDNS's."""
        if config.fastpath.socket is not None:
            self.fastpath = FastPath(
                config.fastpath.socket,
                config.fastpath.udp_payload,
                asked=lookups.by_kernel,
                limit=config.fastpath.limit,
                client_subnet=config.fastpath.client_subnet,
            )
            self.fastpath.set_zones(config.zones)
        self.publications = Publications(views)
        self._address = config.pdns.connector
        self._zones: Sequence[Zone] = config.zones
        self._serials = serials
        self._purger = purger
        self._snapshot = Snapshot()
        self.secondaries = Secondaries(config.pdns.control, lambda: self._snapshot)
        self._signed = frozenset(self.store.signed_zones())
        """Zones that PowerDNS signs."""
        self._loop: asyncio.AbstractEventLoop

    async def start(self) -> None:
        """Answer PowerDNS from now on. Raises FatalError."""
        self._loop = asyncio.get_running_loop()
        await self.connector.start()

    def start_kernel(self) -> None:
        """Begin to connect to rspdns-fastpath, if it is to be used."""
        if self.fastpath is not None:
            self.fastpath.start()

    async def close(self) -> None:
        """Answer no more: the kernel first."""
        if self.fastpath is not None:
            await self.fastpath.close()
        await self.connector.close()

    def is_kernel_answering(self) -> bool:
        """Whether the kernel shows a change as soon as it is told."""
        return self.fastpath is not None and self.fastpath.is_answering

    def apply(self, change: Change, purge: Callable[[Collection[str]], None]) -> None:
        """Answer as this change says, then call `purge` with the names to purge first."""

        def purge_and_tell(first: Collection[str]) -> None:
            now = time.monotonic()
            purge(first)
            self.secondaries.changed(change, now)

        self._snapshot = change.after
        if self.fastpath is not None:
            self.fastpath.apply(change, self._signed)
        self.connector.do(lambda: self.responder.swap(change), purge_and_tell)
        self.publications.changed(change.after)

    def set_zones(self, zones: Sequence[Zone]) -> None:
        """These zones are served from now on; their answers come with the next change."""
        self._zones = zones
        self.write_names()
        if self.fastpath is not None:
            self.fastpath.set_zones(zones)

    def write_names(self) -> None:
        """Tell PowerDNS which names there are."""
        name_table.write(self._address, self._zones, self._signed, self._serials.following)

    def _signing_changed(self, zone: str) -> None:
        """Called in the answering thread."""
        signed = self.store.signed_zones()
        self._loop.call_soon_threadsafe(self._take_signing, zone, signed)

    def _take_signing(self, zone: str, signed: Sequence[str]) -> None:
        self._signed = frozenset(signed)
        self.write_names()
        if self.fastpath is not None:
            self.fastpath.take(self._snapshot, self._signed)
        # PowerDNS keeps keys and metadata for 30 and 60 s.
        self._purger.purge({f"{zone}$"})
