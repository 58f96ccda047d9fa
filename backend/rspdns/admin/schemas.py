"""What the admin API gives and takes beside the status, and the JSON schemas of all of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

from pydantic import Field

from rspdns.status.model import (
    Count,
    EventStatus,
    PoolStatus,
    RegistrarStatus,
    Schema,
    Status,
    ZoneStatus,
    schemas,
)

MOST_NAMES = 1000


@dataclass(slots=True)
class PoolOfZone(PoolStatus):
    """A pool, with the zone it is in."""

    zone: str
    serial: Count | None

    @classmethod
    def of(cls, zone: ZoneStatus, pool: PoolStatus) -> PoolOfZone:
        """A pool of this zone."""
        own = {field.name: getattr(pool, field.name) for field in fields(PoolStatus)}
        return cls(**own, zone=zone.zone, serial=zone.serial)


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
    """What is served now."""

    zones: list[str]
    going: Annotated[
        list[str], Field(description="pools that lost members by it, with the members and reasons")
    ]
    needs_restart: Annotated[list[str], Field(description="keys that changed and count only after a restart")]


@dataclass(slots=True)
class Purge:
    """What to purge: names of our zones; one that ends in $ means all below it too."""

    names: Annotated[list[str], Field(min_length=1, max_length=MOST_NAMES)]


@dataclass(slots=True)
class Purged:
    """What is being purged."""

    names: list[str]


@dataclass(slots=True)
class Error:
    """What was wrong."""

    error: str


SCHEMAS: dict[str, Schema] = schemas(
    (Status, PoolOfZone, Pools, Zones, Registrars, Events, Reloaded, Purge, Purged, Error)
) | {
    "Description": {"type": "object", "description": "An OpenAPI document."},
    "Text": {"type": "string"},
}
