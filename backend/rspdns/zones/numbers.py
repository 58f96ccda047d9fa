"""The numbers PowerDNS lists zones by (`id` of getAllDomains, `zone-id` of a look-up). Pure."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

LIMIT = 2**30
"""Numbers of zones are below it; those above stand for moments of signed zones (`rspdns.pdns.domain_ids`)."""


def zone_id(zone: str) -> int:
    """Return the number a zone has unless another zone has it: the same after every restart and reload."""
    return zlib.crc32(zone.encode()) % LIMIT


@dataclass(frozen=True, slots=True)
class ZoneNumbers:
    """One number for each zone, and one zone for each number."""

    by_zone: Mapping[str, int] = field(default_factory=dict)
    by_number: Mapping[int, str] = field(default_factory=dict)

    def of(self, zone: str) -> int:
        """The number of a zone; -1, PowerDNS's word for "unknown", for a zone that is not served."""
        return self.by_zone.get(zone, -1)

    def zone(self, number: object) -> str | None:
        """The zone of a number; None if no zone has it."""
        return self.by_number.get(number) if isinstance(number, int) else None

    def following(self, zones: Collection[str]) -> ZoneNumbers:
        """The numbers of `zones`, which now are served: a zone that was served before keeps its number."""
        if self.by_zone.keys() == set(zones):
            return self
        by_zone = {zone: self.by_zone[zone] for zone in zones if zone in self.by_zone}
        taken = set(by_zone.values())
        for zone in sorted(set(zones) - by_zone.keys()):
            number = zone_id(zone)
            while number in taken:
                number = (number + 1) % LIMIT
            taken.add(number)
            by_zone[zone] = number
        return ZoneNumbers(by_zone, {number: zone for zone, number in by_zone.items()})
