"""How often each client may ask. Pure: `now` is given."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import ip_address, ip_network

_CLIENTS = 1024
"""Remembered at once; the one that asked longest ago is forgotten first."""


class RateLimit:
    """Each client may ask `burst` times at once, and `per_s` times a second in the long run."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, client: str, now: float) -> bool:
        """Count one request of `client`, an IP address; whether it may go on."""
        left = self._left(client, now)
        allowed = left >= 1
        self._clients[_network(client)] = (left - 1 if allowed else left, now)
        self._clients.move_to_end(_network(client))
        while len(self._clients) > _CLIENTS:
            self._clients.popitem(last=False)
        return allowed

    def is_spent(self, client: str, now: float) -> bool:
        """Whether the next request would be one too many; counts nothing."""
        return self._left(client, now) < 1

    def _left(self, client: str, now: float) -> float:
        left, at_s = self._clients.get(_network(client), (float(self._burst), now))
        return min(float(self._burst), left + max(0.0, now - at_s) * self._per_s)


def _network(client: str) -> str:
    """One IPv6 host has a whole /64 to ask from."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return ""
    return client if address.version == 4 else str(ip_network((address, 64), strict=False))
