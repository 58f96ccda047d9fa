"""The pools that clients look up: registrars are asked about them more often, and chance draws for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from pool_user import HandlespaceUsers

from rspdns.configuration import BackendConfig
from rspdns.pdns.answering import LookedUp
from rspdns.zones.zone import PoolNames, Zone


class PoolLookups:
    """Notes for `pool_user` which pools are looked up, by PowerDNS or by the kernel.

    `on_looked_up` is told the handles that PowerDNS looked up, in the main event loop.
    """

    def __init__(
        self, config: BackendConfig, pool_user: HandlespaceUsers, on_looked_up: Callable[[list[str]], None]
    ) -> None:
        self._pool_user = pool_user
        self._on_looked_up = on_looked_up
        self._hot_for_s = config.poll_hot_for_s
        self._has_kernel = config.fastpath.socket is not None
        self._names = PoolNames(config.zones)
        self._carrier = LookedUp(self._note_queries)
        self._powerdns_asked_s: dict[str, float] = {}
        """When PowerDNS last looked each pool up."""

    def start(self) -> None:
        """Begin; must run in the main event loop."""
        self._carrier.start()

    def close(self) -> None:
        """Note nothing more of PowerDNS."""
        self._carrier.close()

    def set_zones(self, zones: Sequence[Zone]) -> None:
        """These zones are served from now on."""
        self._names = PoolNames(zones)

    def by_powerdns(self, name: str) -> None:
        """PowerDNS looked a name up. Called in the answering thread."""
        if handles := self._names.handles(name):
            self._carrier.note(handles)

    def by_kernel(self, names: Iterable[str]) -> None:
        """The kernel answered: these pools are in use. It draws its answers itself, so that chance need not
        draw again."""
        handles = {handle for name in names for handle in self._names.handles(name)}
        for handle in handles:
            self._pool_user.note_query(handle)

    def hot(self) -> frozenset[str]:
        """The pools for which chance is to draw again: PowerDNS looked them up lately."""
        now = time.monotonic()
        hot = frozenset(self._pool_user.looked_up(now))
        if not self._has_kernel:
            return hot
        since_s = now - self._hot_for_s
        return frozenset(handle for handle in hot if self._powerdns_asked_s.get(handle, 0.0) >= since_s)

    def _note_queries(self, handles: Iterable[str]) -> None:
        handles = list(handles)
        now = time.monotonic()
        for handle in handles:
            self._pool_user.note_query(handle)
            self._powerdns_asked_s[handle] = now
        self._on_looked_up(handles)
