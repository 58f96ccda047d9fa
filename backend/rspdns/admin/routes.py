"""Every route of the admin API: what it needs, takes and gives. The application and its OpenAPI description
are both made from this table."""

from __future__ import annotations

from dataclasses import dataclass

from rspdns.admin.access import Right

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


ROUTES = (
    Route("GET", "/v1/status", "status", "Everything at once.", "Status"),
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
    Route("GET", "/v1/events", "events", "What happened lately, the oldest first.", "Events"),
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
    Route("GET", "/v1/openapi.json", "openapi", "This description.", "Description", right=Right.NOTHING),
    Route("GET", "/metrics", "metrics", "Prometheus metrics.", "Text", content="text/plain"),
)
