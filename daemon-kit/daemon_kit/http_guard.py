"""Which HTTP requests are meant for this service: the Host and Origin headers. Pure.

A browser sends requests of any page to any address it can reach, also to the loopback address. The Host
header tells by which name (a name of a foreign page that was made to lead here, "DNS rebinding", is not
ours); the Origin header tells which page asked.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from daemon_kit.addresses import ListenAddress

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def own_names(address: ListenAddress, more: Collection[str] = ()) -> frozenset[str]:
    """The names a service at `address` may be called by: the address, `more`, and on loopback its names."""
    names = {str(address.address), *(name.lower().rstrip(".") for name in more)}
    return frozenset(names | _LOOPBACK_NAMES if address.is_loopback else names)


def host_is_own(host: str | None, names: Collection[str]) -> bool:
    """Whether the Host header (RFC 9110 section 7.2) names this service; the port may be a tunnel's."""
    if host is None:
        return False
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]{2,45})\]|([A-Za-z0-9._-]{1,253}))(?::[0-9]{1,5})?", host)
    if found is None:
        return False
    return (found[1] or found[2]).lower().rstrip(".") in names


def origin_is_own(origin: str | None, fetch_site: str | None, scheme: str, host: str | None) -> bool:
    """Whether a request comes from our own page, or from no page at all (a program).

    `origin` and `fetch_site` are the headers Origin (RFC 6454) and Sec-Fetch-Site, None where not sent.
    """
    if fetch_site is not None and fetch_site not in ("same-origin", "none"):
        return False
    return origin is None or (host is not None and origin.lower() == f"{scheme}://{host}".lower())
