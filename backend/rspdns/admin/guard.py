"""The checks before every handler: Host, Origin, rate and token; and the headers of every answer to the
browser.

`RateLimit` says how often each client may ask; it is pure, `now` is given.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection
from ipaddress import ip_address, ip_network

from aiohttp import web
from daemon_kit.http_server import host_is_own, origin_is_own

from rspdns.admin.access import Access, Right

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


REQUESTS = (40.0, 120)
"""Requests of one client: a second, and at once."""
WRITES = (2.0, 10)
BAD_TOKENS = (0.2, 10)
"""Wrong tokens from one address, a second and at once; further wrong ones are refused with 429. Users of this
host, and all behind a reverse proxy, share an address: requests with a right token, or with none, go on."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "rspdns",
}
_TOKEN_FILES = {
    Right.READ: "`read_tokens` or `write_tokens` in [admin]",
    Right.WRITE: "`write_tokens` in [admin]",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RequestRefused(Exception):  # noqa: N818 - it is what happens to a request
    """The request is not answered; `why` is one word for the metrics."""

    def __init__(self, status: int, why: str, words: str, **headers: str) -> None:
        super().__init__(words)
        self.status, self.why, self.words, self.headers = status, why, words, headers


class RequestGuard:
    """Checks each request. `needed` tells the right that a route's path needs; `refused` counts by reason."""

    def __init__(
        self, access: Access, names: Collection[str], needed: Callable[[web.Request], Right]
    ) -> None:
        self.access = access
        self.refused: Counter[str] = Counter()
        self._names = names
        self._needed = needed
        self._requests = RateLimit(*REQUESTS)
        self._of_holders = RateLimit(*REQUESTS)
        """Requests with a right token, which those without one don't count against."""
        self._writes = RateLimit(*WRITES)
        self._bad_tokens = RateLimit(*BAD_TOKENS)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the request, answer errors as JSON."""
        try:
            self._check(request)
            return await handler(request)
        except RequestRefused as refusal:
            self.refused[refusal.why] += 1
            return failure(refusal.status, refusal.words, **refusal.headers)
        except web.HTTPException as error:
            words = {404: "nothing is there; see /v1/openapi.json", 405: "this method is not for this path"}
            return failure(error.status, words.get(error.status, error.reason))

    def _check(self, request: web.Request) -> None:
        now = time.monotonic()
        client = request.remote or ""
        if not host_is_own(request.headers.get("Host"), self._names):
            words = "this service has no such host name; `names` in [admin] lists those it has"
            raise RequestRefused(421, "host", words)
        headers = request.headers
        if not origin_is_own(
            headers.get("Origin"), headers.get("Sec-Fetch-Site"), request.scheme, headers.get("Host")
        ) and not _is_link(request):
            raise RequestRefused(403, "origin", "pages of other sites may not ask here")
        holds_token = self.access.holds_token(headers.get("Authorization"))
        requests = self._of_holders if holds_token else self._requests
        is_guess = "Authorization" in headers and not holds_token
        is_locked = is_guess and self._bad_tokens.is_spent(client, now)
        if is_locked or not requests.allow(client, now):
            raise RequestRefused(429, "rate", "too many requests; wait a moment", **{"Retry-After": "5"})
        needed = self._needed(request)
        if needed is Right.NOTHING:
            return
        right = self.access.right_of(headers.get("Authorization"))
        if right < needed:
            self._refuse_token(request, right, client, now)
        if needed is Right.WRITE and not self._writes.allow(client, now):
            raise RequestRefused(429, "rate", "too many changes; wait a moment", **{"Retry-After": "1"})

    def _refuse_token(self, request: web.Request, right: Right, client: str, now: float) -> None:
        if right is Right.READ and "Authorization" in request.headers and self._is_reader(request):
            raise RequestRefused(403, "token", "this token may read only")
        if "Authorization" in request.headers:
            self._bad_tokens.allow(client, now)
        words = f"needs a bearer token of {_TOKEN_FILES[self._needed(request)]}: Authorization: Bearer TOKEN"
        raise RequestRefused(401, "token", words, **{"WWW-Authenticate": 'Bearer realm="rspdns"'})

    def _is_reader(self, request: web.Request) -> bool:
        """Whether the token itself gives the right to read (on loopback nobody needs one)."""
        strict = Access(self.access.read, self.access.write, reading_needs_token=True)
        return strict.right_of(request.headers.get("Authorization")) is Right.READ


async def set_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Put on every answer what protects the browser."""
    for name, value in HEADERS.items():
        response.headers[name] = value


def failure(status: int, words: str, **headers: str) -> web.Response:
    """An error as JSON."""
    return web.json_response({"error": words}, status=status, headers=headers)


def _is_link(request: web.Request) -> bool:
    """A person who follows a link to the page, from wherever: it changes and tells nothing to that site."""
    return (
        request.method == "GET"
        and request.path == "/"
        and request.headers.get("Sec-Fetch-Mode") == "navigate"
        and "Origin" not in request.headers
    )
