"""PowerDNS's HTTP connector: `/dns/METHOD/...` for each request, answered as the unix connector does.

It knows no caller from another, so what is secret (keys, TSIG keys) and what changes anything is left to the
unix connector, and only this host may ask. PowerDNS waits 1 ms before each request: 200 a second at most.
Source: "Remote Backend", "HTTP connector", in the PowerDNS documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

import orjson
from aiohttp import web
from daemon_kit.addresses import ListenAddress
from daemon_kit.http_server import HttpServer, host_is_own, own_names

from rspdns.pdns import remote, remote_dnssec
from rspdns.pdns.remote_dnssec import NAMES_AROUND
from rspdns.pdns.responder import PdnsResponder

PREFIX = "/dns/"
MAX_CONNECTIONS = 512
_PLACES: Mapping[str, tuple[str, ...]] = {
    "lookup": ("qname", "qtype"),
    "APILookup": ("qname", "qtype"),
    "list": ("domain_id", "zonename"),
    NAMES_AROUND: ("id", "qname"),
    "getDomainInfo": ("name",),
    "getAllDomainMetadata": ("name",),
    "getDomainMetadata": ("name", "kind"),
    "setNotified": ("id",),
}
"""The names of the path's parts after the method, by method; empty for the others."""
_NUMBERS = frozenset({"id", "domain_id", "maxResults"})
_LOOKUPS = frozenset({"lookup", "APILookup"})
_ZONE_ID = "X-RemoteBackend-zone-id"
_ASKER = "X-RemoteBackend-real-remote"
ANSWERED = frozenset((*remote.METHODS, *remote_dnssec.METADATA, NAMES_AROUND))
"""Reading, and nothing that is secret."""


class HttpConnector:
    """Answers at `address` with `responder`."""

    def __init__(self, address: ListenAddress, responder: PdnsResponder) -> None:
        self._responder = responder
        self._names = own_names(address)
        app = web.Application(client_max_size=64 * 1024)
        app.router.add_route("*", PREFIX + "{rest:.*}", self._answer)
        self._server = HttpServer(app, address, connections=MAX_CONNECTIONS)

    async def start(self) -> None:
        """Listen. Raises FatalError when that can't be done."""
        await self._server.start()

    async def close(self) -> None:
        """Answer no more."""
        await self._server.close()

    @property
    def open_connections(self) -> int:
        """How many connections there are."""
        return self._server.open_connections

    async def _answer(self, request: web.Request) -> web.Response:
        if not host_is_own(request.headers.get("Host"), self._names):
            return _reply(403, b'{"error":"this is not the host asked for"}')
        try:
            method, parameters = parse(request.raw_path, request.query)
            if method in _LOOKUPS and _ZONE_ID in request.headers:
                parameters["zone-id"] = _number("zone-id", request.headers[_ZONE_ID])
            if method in _LOOKUPS and _ASKER in request.headers:
                parameters["real-remote"] = request.headers[_ASKER]
            if method not in ANSWERED:
                self._responder.queries["other"] += 1
                return _reply(200, b'{"result":false}')
            line = orjson.dumps({"method": method, "parameters": parameters})
        except remote.RequestError as problem:
            return _reply(400, orjson.dumps({"error": str(problem)}))
        except orjson.JSONEncodeError:
            return _reply(400, b'{"error":"the request is no UTF-8"}')
        reply = self._responder.respond(line)
        if not isinstance(reply, bytes):
            reply = await reply
        # An unknown name is a failure of its own kind, which PowerDNS takes for SERVFAIL.
        return _reply(200 if reply.startswith(b'{"result"') else 503, reply)


def parse(raw_path: str, query: Mapping[str, str]) -> tuple[str, dict[str, object]]:
    """Read method and parameters of a path as PowerDNS writes it. Raises RequestError."""
    method, *parts = raw_path.partition("?")[0].removeprefix(PREFIX).split("/")
    keys = _PLACES.get(method, ())
    if method == "list" and len(parts) == 1:
        keys = ("zonename",)
    if method not in ANSWERED:
        return method, {}
    if len(parts) != len(keys):
        raise remote.RequestError(f"{method} takes {len(keys)} parts of a path: {', '.join(keys) or 'none'}")
    try:
        given = {key: unquote(part, errors="strict") for key, part in zip(keys, parts, strict=True)}
    except UnicodeDecodeError:
        raise remote.RequestError("the path is no UTF-8") from None
    if method == "searchRecords":
        given |= {key: query[key] for key in ("pattern", "maxResults") if key in query}
    return method, {key: _number(key, text) if key in _NUMBERS else text for key, text in given.items()}


def _number(key: str, text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        raise remote.RequestError(f"{key} is no number")
    return int(text)


def _reply(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")
