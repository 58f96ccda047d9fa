"""The handlers of the admin API and of the live page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any, Protocol

import orjson
from aiohttp import web
from daemon_kit.control import ControlError, check_keys
from daemon_kit.errors import printable
from daemon_kit.metrics import CONTENT_TYPE, exposition
from pool_user import OVERLOADED_AT, RELIEVED_AT
from prometheus_client import CollectorRegistry

from rspdns import names
from rspdns.admin.access import Access, Right
from rspdns.admin.answers import PoolOfZone, answers_page, page_wish, server_page
from rspdns.admin.guard import RequestGuard, RequestRefused, failure, set_headers
from rspdns.admin.history import Histories, history_wish
from rspdns.admin.openapi import JSON, MOST_NAMES, ROUTES, Ready, description
from rspdns.admin.stream import Streams
from rspdns.answers.snapshot import Snapshot
from rspdns.event_log import EventLog
from rspdns.journal import JournalError
from rspdns.overrides.book import MOST_CHARACTERS
from rspdns.overrides.keeper import WISH_KEYS
from rspdns.pdns.listening import DnsServer
from rspdns.status.model import Status

BODY_BYTES = 128 * 1024
BODY_S = 10.0
FRESH_S = 0.1
"""How long a status is told again before one is made anew, at least ten times what making it took: asking may
not cost DNS."""
DNS_SERVER_S = 30.0
"""How long the address at which PowerDNS answers is not asked for again."""
PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
} | {f"/{name}.js": (f"{name}.js", "text/javascript") for name in ("page", "stream", "view")}
FIGURES = {"OVERLOADED_AT": OVERLOADED_AT, "RELIEVED_AT": RELIEVED_AT}
"""The values of the names in braces in the page's files; the page colours loads by them."""


class BackendService(Protocol):
    """The part of the backend that the API needs."""

    def status(self) -> Status:
        """The values of `rspdns status`."""

    def answering(self) -> Snapshot:
        """The answers of now."""

    def not_ready(self, zone: str) -> list[str] | None:
        """Why this name server may answer a zone wrongly; None: it does not serve such a zone."""

    def listed_by(self, handle: str, identifier: str) -> list[int]:
        """The numbers of the registrars that list a PE now."""

    @property
    def state_directory(self) -> str:
        """The directory of the journal."""

    def handles_of(self, pool: str) -> Collection[str]:
        """The handles of the pools of this name; a handle that is not configured any more counts, too."""

    def overriding(self, handle: str, address: str, port: int) -> int | None:
        """The number of the override that holds for this server."""

    async def dns_server(self) -> DnsServer:
        """The address at which PowerDNS answers."""

    async def reload(self, by: str, *, force: bool = False) -> dict[str, Any]:
        """Read the files again. Raises ControlError with every error; then nothing changed.

        Without `force` it is an error, too, that a pool would lose its last member.
        """

    async def override(self, keys: Mapping[str, Any], by: str) -> dict[str, Any]:
        """Set an override, as the control command `override` does. Raises ControlError."""

    async def clear(self, named: Sequence[str], by: str, *, everywhere: bool = False) -> dict[str, Any]:
        """Clear overrides, as the control command `clear` does. Raises ControlError."""

    def purge(self, wanted: Collection[str], by: str) -> None:
        """Purge these names at every PowerDNS; those of the form "name$" with all below them."""


class Api:
    """The application; `guard` checks who asks."""

    def __init__(
        self,
        service: BackendService,
        log: EventLog,
        access: Access,
        own_names: Collection[str],
        registry: CollectorRegistry,
    ) -> None:
        self.guard = RequestGuard(access, own_names, self._needed)
        self.streams = Streams(log)
        self._service = service
        self._registry = registry
        self._told: Status | None = None
        self._fresh_until_s = float("-inf")
        self._histories = Histories(service.state_directory)
        self._dns = DnsServer()
        self._dns_until_s = float("-inf")
        self._page: dict[str, tuple[bytes, str]] = {}
        self._rights = {("GET", path): Right.NOTHING for path in PAGE}
        """The right that each method of a path needs."""

    def application(self) -> web.Application:
        """Make it; for one server."""
        app = web.Application(middlewares=[self.guard.middleware], client_max_size=BODY_BYTES)
        app.on_response_prepare.append(set_headers)
        for path, (name, kind) in PAGE.items():
            text = (files("rspdns.admin") / "page" / name).read_text("utf-8")
            for figure, value in FIGURES.items():
                text = text.replace(f"{{{figure}}}", str(value))
            self._page[path] = text.encode(), f"{kind}; charset=utf-8"
            app.router.add_get(path, self._static)
        for route in ROUTES:
            self._rights[route.method, route.path] = route.right
            handler: Callable[[web.Request], Awaitable[web.StreamResponse]] = getattr(
                self, f"_{route.handler}"
            )
            app.router.add_route(route.method, route.path, handler)
        return app

    def _needed(self, request: web.Request) -> Right:
        resource = request.match_info.route.resource
        method = "GET" if request.method == "HEAD" else request.method
        return self._rights.get((method, resource.canonical), Right.READ) if resource else Right.READ

    def fresh(self) -> Status:
        """The status, not made anew for every request."""
        now = time.monotonic()
        if self._told is None or now >= self._fresh_until_s:
            self._told = self._service.status()
            took_s = time.monotonic() - now
            self._fresh_until_s = now + max(FRESH_S, 10 * took_s)
        return self._told

    async def _static(self, request: web.Request) -> web.Response:
        content, kind = self._page[request.path]
        return web.Response(body=content, headers={"Content-Type": kind})

    async def _status(self, request: web.Request) -> web.Response:
        status = self.fresh()
        return _json(replace(status, zones=[]) if request.query.get("zones") == "false" else status)

    async def _answers(self, request: web.Request) -> web.Response:
        try:
            wish = page_wish(request.query)
        except ValueError as error:
            raise RequestRefused(400, "query", str(error)) from None
        dns = await self._dns_server()
        page = answers_page(self.fresh(), self._service.answering(), wish, dns, self._service.overriding)
        return _json(page)

    async def _dns_server(self) -> DnsServer:
        """The address of PowerDNS, asked for again after a while."""
        now = time.monotonic()
        if now >= self._dns_until_s:
            self._dns_until_s = now + DNS_SERVER_S
            self._dns = await self._service.dns_server()
        return self._dns

    async def _server(self, request: web.Request) -> web.Response:
        service = self._service
        page = server_page(self.fresh(), request.match_info["server"], service.listed_by, service.overriding)
        if page is None:
            raise RequestRefused(404, "unknown", "no pool knows a server at this address and port")
        return _json(page)

    async def _history(self, request: web.Request) -> web.Response:
        try:
            wish = history_wish(request.query)
        except ValueError as error:
            raise RequestRefused(400, "query", str(error)) from None
        handles = None if wish.pool is None else self._service.handles_of(wish.pool)
        try:
            return _json(await self._histories.page(wish, handles))
        except JournalError as error:
            raise RequestRefused(404, "unknown", str(error)) from None

    async def _zones(self, request: web.Request) -> web.Response:
        return _json({"zones": self.fresh().zones})

    async def _zone(self, request: web.Request) -> web.Response:
        wanted = request.match_info["zone"].lower().rstrip(".")
        for zone in self.fresh().zones:
            if zone.zone == wanted:
                return _json(zone)
        raise RequestRefused(404, "unknown", "no zone of this name; see /v1/zones")

    async def _pools(self, request: web.Request) -> web.Response:
        return _json({"pools": self._with_zones()})

    async def _pool(self, request: web.Request) -> web.Response:
        wanted = request.match_info["owner"].lower().rstrip(".")
        for pool in self._with_zones():
            if pool.owner == wanted:
                return _json(pool)
        raise RequestRefused(404, "unknown", "no pool has its SRV records at this name; see /v1/pools")

    def _with_zones(self) -> list[PoolOfZone]:
        return [PoolOfZone.of(zone, pool) for zone in self.fresh().zones for pool in zone.pools]

    async def _registrars(self, request: web.Request) -> web.Response:
        return _json({"registrars": self.fresh().registrars})

    async def _events(self, request: web.Request) -> web.Response:
        return _json({"events": self.fresh().events})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return await self.streams.serve(request)

    async def _reload(self, request: web.Request) -> web.Response:
        try:
            result = await self._service.reload(
                self._name(request), force=request.query.get("force") == "true"
            )
        except ControlError as error:
            raise RequestRefused(409, "reload", str(error)) from None
        self._fresh_until_s = float("-inf")
        return _json(result)

    async def _overrides(self, request: web.Request) -> web.Response:
        may_write = self.guard.access.right_of(request.headers.get("Authorization")) >= Right.WRITE
        return _json({"overrides": self.fresh().overrides, "may_write": may_write})

    async def _override(self, request: web.Request) -> web.Response:
        body = await _body(request)
        if not isinstance(body, dict):
            raise RequestRefused(400, "body", "the body is a JSON object")
        try:
            check_keys("an override", WISH_KEYS, body)
        except ControlError as error:
            raise RequestRefused(400, "body", str(error)) from None
        return await self._changed(self._service.override(body, self._name(request)))

    async def _clear(self, request: web.Request) -> web.Response:
        everywhere = request.query.get("everywhere") == "true"
        named, by = [request.match_info["number"]], self._name(request)
        if behalf := request.query.get("behalf"):
            by = f"{printable(behalf, MOST_CHARACTERS)} ({by})"
        return await self._changed(self._service.clear(named, by, everywhere=everywhere))

    async def _changed(self, work: Awaitable[dict[str, Any]]) -> web.Response:
        try:
            result = await work
        except ControlError as error:
            raise RequestRefused(409, "override", str(error)) from None
        self._fresh_until_s = float("-inf")
        return _json(result)

    def _name(self, request: web.Request) -> str:
        return self.guard.access.name_of(request.headers.get("Authorization"))

    async def _purge(self, request: web.Request) -> web.Response:
        wanted = _wanted(await _body(request))
        zones = [zone.zone for zone in self.fresh().zones]
        for name in wanted:
            plain = name.removesuffix("$")
            if not any(plain == zone or names.is_below(plain, zone) for zone in zones):
                raise RequestRefused(400, "unknown", f"{plain!r} is in no zone of this backend")
        self._service.purge(wanted, self._name(request))
        return _json({"names": wanted})

    async def _ready(self, request: web.Request) -> web.Response:
        zone = request.match_info["zone"].lower().rstrip(".")
        causes = self._service.not_ready(zone)
        if causes is None:
            return failure(404, "no zone of this name")
        return failure(503, "; ".join(causes)) if causes else _json(Ready(zone))

    async def _openapi(self, request: web.Request) -> web.Response:
        return _json(description())

    async def _metrics(self, request: web.Request) -> web.Response:
        self.fresh()
        return web.Response(body=exposition(self._registry), headers={"Content-Type": CONTENT_TYPE})


def _json(value: object) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type=JSON)


async def _body(request: web.Request) -> object:
    if request.content_type != JSON:
        raise RequestRefused(415, "body", f"the body is {JSON}")
    try:
        async with asyncio.timeout(BODY_S):
            return orjson.loads(await request.read())
    except TimeoutError:
        raise RequestRefused(408, "body", "the body did not come in time") from None
    except ValueError:
        raise RequestRefused(400, "body", "the body is not JSON") from None


def _wanted(body: object) -> list[str]:
    given = body.get("names") if isinstance(body, dict) and len(body) == 1 else None
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_NAMES:
        raise RequestRefused(400, "body", f'the body is {{"names": [...]}} with 1 to {MOST_NAMES} names')
    names_to_purge = []
    for text in given:
        if not isinstance(text, str):
            raise RequestRefused(400, "body", f"{text!r}: a name is text")
        try:
            names_to_purge.append(names.normal(text.removesuffix("$")) + ("$" if text.endswith("$") else ""))
        except ValueError as error:
            raise RequestRefused(400, "body", f"{text!r}: {error}") from None
    return names_to_purge
