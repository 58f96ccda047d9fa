"""The admin API, described once: what it gives and takes, its routes, and its OpenAPI description.

The application and the OpenAPI description are both made from the table of routes. The models here are those
that the status (`rspdns.status.model`) does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pool_user import OverrideAction
from pydantic import Field

from rspdns.admin.access import Right
from rspdns.admin.answers import (
    MOST_FILTER,
    MOST_POOLS,
    MOST_SERVERS,
    POOLS,
    SERVERS,
    AnswersPage,
    PoolOfZone,
    Server,
)
from rspdns.admin.history import HOURS, MOST_HOURS, MOST_SPANS, MOST_SPANS_IN_ALL, HistoryPage
from rspdns.admin.history import MOST_SERVERS as MOST_HISTORIES
from rspdns.hooks.message import HookMessage
from rspdns.overrides.book import ServerShare
from rspdns.status.model import (
    EventStatus,
    OverrideStatus,
    PeerResult,
    RegistrarStatus,
    Schema,
    Status,
    ZoneStatus,
    schemas,
)

MOST_NAMES = 1000


@dataclass(slots=True)
class Pools:
    """All pools."""

    pools: list[PoolOfZone]


@dataclass(slots=True)
class Zones:
    """All zones."""

    zones: list[ZoneStatus]


@dataclass(slots=True)
class Registrars:
    """All registrars."""

    registrars: list[RegistrarStatus]


@dataclass(slots=True)
class Events:
    """The last events."""

    events: list[EventStatus]


@dataclass(slots=True)
class Reloaded:
    """The zones that are served now."""

    zones: list[str]
    going: Annotated[
        list[str], Field(description="pools that lost members by it, with the members and reasons")
    ]
    needs_restart: Annotated[list[str], Field(description="keys that changed and count only after a restart")]


@dataclass(slots=True)
class Purge:
    """The names to purge, all in our zones; a name that ends in $ means all below it too."""

    names: Annotated[list[str], Field(min_length=1, max_length=MOST_NAMES)]


@dataclass(slots=True)
class Purged:
    """The names that are being purged."""

    names: list[str]


@dataclass(slots=True)
class OverrideList:
    """The overrides that hold or will."""

    overrides: list[OverrideStatus]
    may_write: Annotated[bool, Field(description="whether this client may set and clear overrides")]


@dataclass(slots=True)
class WantedOverride:
    """An override to set."""

    action: OverrideAction
    servers: Annotated[str, Field(description="name, address, address:port, PE identifier, network or glob")]
    reason: str
    share: Annotated[float | None, Field(gt=0, lt=1, description="for the action share")] = None
    pool: Annotated[str | None, Field(description="the name of SRV records or a handle")] = None
    in_s: Annotated[float | None, Field(description="when it begins; null: now")] = None
    for_s: Annotated[float | None, Field(description="how long it holds; null: until it is cleared")] = None
    force: Annotated[bool | None, Field(description="also if a pool loses its last member")] = None
    dry_run: Annotated[bool | None, Field(description="only tell the shares that would result")] = None
    everywhere: Annotated[bool | None, Field(description="at all peers, too")] = None
    id: Annotated[str | None, Field(description="by which all name servers know it")] = None
    starts_at_s: Annotated[float | None, Field(description="as in_s, by the wall clock")] = None
    ends_at_s: Annotated[float | None, Field(description="as for_s, by the wall clock")] = None
    behalf: Annotated[str | None, Field(description="who wants it, where another name server asks")] = None


@dataclass(slots=True)
class Outlook:
    """The override, and the shares that result, by the name of SRV records."""

    override: Annotated[dict[str, Any], Field(description="as it is kept")]
    pools: dict[str, list[ServerShare]]
    notes: Annotated[list[str], Field(description="what the person who wants it may not expect")]
    is_repeat: Annotated[bool, Field(description="it was set before, for as long and for the reason it has")]
    peers: list[PeerResult]


@dataclass(slots=True)
class Cleared:
    """The overrides that were cleared."""

    cleared: list[int]
    identifiers: Annotated[list[str], Field(description="of those that all name servers know")]
    peers: list[PeerResult]


@dataclass(slots=True)
class Ready:
    """A zone that this name server answers rightly."""

    zone: str


@dataclass(slots=True)
class Error:
    """The problem."""

    error: str


SCHEMAS: dict[str, Schema] = schemas(
    (
        Status,
        AnswersPage,
        HistoryPage,
        Server,
        PoolOfZone,
        Pools,
        Zones,
        Registrars,
        Events,
        Reloaded,
        Purge,
        Purged,
        OverrideList,
        WantedOverride,
        HookMessage,
        Outlook,
        Cleared,
        Ready,
        Error,
    )
) | {
    "Description": {"type": "object", "description": "An OpenAPI document."},
    "Text": {"type": "string"},
}


JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Route:
    """One route. `answer` and `body` name schemas; `handler`, after an underscore, a method of `Api`."""

    method: str
    path: str
    handler: str
    summary: str
    answer: str
    right: Right = Right.READ
    body: str | None = None
    parameters: tuple[str, ...] = ()
    content: str = JSON
    query: Mapping[str, str] = field(default_factory=dict)
    """The parameters behind the question mark, with their meaning."""


ROUTES = (
    Route(
        "GET",
        "/v1/status",
        "status",
        "Everything at once.",
        "Status",
        query={"zones": "false leaves the zones out"},
    ),
    Route(
        "GET",
        "/v1/answers",
        "answers",
        "The answers of DNS now for each pool, page by page, pools with problems first.",
        "AnswersPage",
        query={
            "filter": "words that name pool, server or state, all of which must be found; "
            f"{MOST_FILTER} characters at most",
            "offset": "pools before the page",
            "pools": f"pools of the page, {POOLS} unless given, {MOST_POOLS} at most",
            "servers": f"servers of each pool, in and out each, {SERVERS} unless given, {MOST_SERVERS} at "
            "most",
        },
    ),
    Route(
        "GET",
        "/v1/servers/{server}",
        "server",
        "One server, by address and port: its pools, the registrars that list it, its events.",
        "Server",
        parameters=("server",),
    ),
    Route(
        "GET",
        "/v1/history",
        "history",
        "How available the servers of a pool were, or one server: outages, causes, and the time up, down, "
        "planned and unknown.",
        "HistoryPage",
        query={
            "pool": "the name of SRV records, or a handle",
            "server": "in place of pool: address:port",
            "hours": f"of the last hours, {HOURS:g} unless given, {MOST_HOURS:g} at most; of a pool "
            f"{MOST_HISTORIES} servers at most, of each server the latest {MOST_SPANS} spans, "
            f"{MOST_SPANS_IN_ALL} in all",
        },
    ),
    Route("GET", "/v1/zones", "zones", "Every zone with its pools.", "Zones"),
    Route("GET", "/v1/zones/{zone}", "zone", "One zone.", "Zone", parameters=("zone",)),
    Route("GET", "/v1/pools", "pools", "Every pool: who is in and who is out, and why.", "Pools"),
    Route(
        "GET",
        "/v1/pools/{owner}",
        "pool",
        "One pool, by the name of its SRV records.",
        "PoolOfZone",
        parameters=("owner",),
    ),
    Route(
        "GET", "/v1/registrars", "registrars", "Every registrar, and how far it is believed.", "Registrars"
    ),
    Route("GET", "/v1/events", "events", "The latest events, the oldest first.", "Events"),
    Route(
        "GET",
        "/v1/events/stream",
        "stream",
        "Events as they happen, each as an Event: `change` when it happens, `converged` once every PowerDNS "
        "has purged the answers it changed. With the header Last-Event-ID those missed come first.",
        "Event",
        content="text/event-stream",
    ),
    Route(
        "POST",
        "/v1/reload",
        "reload",
        "Read zones, tokens and certificate again; with an error in any file, or when a pool would lose its "
        "last member, nothing changes. The latter is done all the same with ?force=true.",
        "Reloaded",
        right=Right.WRITE,
    ),
    Route(
        "POST",
        "/v1/purge",
        "purge",
        "Purge names, or whole zones, from the caches of every PowerDNS.",
        "Purged",
        right=Right.WRITE,
        body="Purge",
    ),
    Route("GET", "/v1/overrides", "overrides", "The overrides that hold or will.", "OverrideList"),
    Route(
        "POST",
        "/v1/overrides",
        "override",
        "Take servers out, drain them, hold them in, or give each a share.",
        "Outlook",
        right=Right.WRITE,
        body="WantedOverride",
    ),
    Route(
        "DELETE",
        "/v1/overrides/{number}",
        "clear",
        "Clear an override, by its number or by its identifier.",
        "Cleared",
        right=Right.WRITE,
        parameters=("number",),
        query={
            "everywhere": "true clears it at all peers, too",
            "behalf": "who wants it, where another name server asks",
        },
    ),
    Route(
        "GET",
        "/ready/{zone}",
        "ready",
        "200 while this name server answers the zone rightly; otherwise 503 with the reasons.",
        "Ready",
        right=Right.NOTHING,
        parameters=("zone",),
    ),
    Route("GET", "/v1/openapi.json", "openapi", "This description.", "Description", right=Right.NOTHING),
    Route("GET", "/metrics", "metrics", "Prometheus metrics.", "Text", content="text/plain"),
)


_ABOUT = """Reading is open on loopback unless read_tokens are set; writing needs a token of write_tokens.
Fields are only ever added within /v1/."""


def description() -> dict[str, Any]:
    """The document (OpenAPI 3.1)."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "rspdns admin API", "version": "1", "description": _ABOUT},
        "paths": paths,
        "webhooks": {
            "pool.changed": {
                "post": {
                    "summary": "Members changed; posted to each [[hook]] (Standard Webhooks).",
                    "requestBody": {"required": True, "content": _content(JSON, "HookMessage")},
                    "responses": {"2XX": {"description": "Taken; with any other it is tried again."}},
                }
            }
        },
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler,
        "summary": route.summary,
        "responses": {
            "200": {"description": "As asked.", "content": _content(route.content, route.answer)},
            "default": {"description": "The problem.", "content": _content(JSON, "Error")},
        },
    }
    if route.parameters or route.query:
        text = {"schema": {"type": "string"}}
        operation["parameters"] = [
            *({"name": name, "in": "path", "required": True, **text} for name in route.parameters),
            *(
                {"name": name, "in": "query", "description": words, **text}
                for name, words in route.query.items()
            ),
        ]
    if route.body:
        operation["requestBody"] = {"required": True, "content": _content(JSON, route.body)}
    if route.right is not Right.NOTHING:
        # An empty requirement: on loopback, reading may be open.
        operation["security"] = [{"token": []}] if route.right is Right.WRITE else [{}, {"token": []}]
    return operation


def _content(kind: str, schema: str) -> dict[str, Any]:
    return {kind: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
