"""A backend without registrars and a real PowerDNS that asks it, for a whole module of tests."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pool_user.views import PoolView
from rspdns.zones.zone import Zone

from tests.support.namespaces import Namespace
from tests.support.pdns import Pdns
from tests.support.scripted_backend import ScriptedBackend

GENEROUS_S = 60.0


@dataclass(frozen=True)
class Served:
    """All of it, in one folder."""

    namespace: Namespace
    backend: ScriptedBackend
    pdns: Pdns
    folder: Path

    def delv(self, *question: str) -> str:
        """What delv says, with the zone's own key as the trust anchor."""
        zone = self.backend.zone_names[0]
        anchor = self.folder / "anchor"
        if not anchor.exists():
            self.trust(zone)
        said = self.namespace.run("delv", "@127.0.0.1", "-a", str(anchor), f"+root={zone}", *question)
        return said.stdout + said.stderr

    def trust(self, zone: str) -> None:
        """Take the zone's present keys as trust anchors, as if the parent had them."""
        lines = self.pdns.short(zone, "DNSKEY")
        fields = [line.split(maxsplit=3) for line in lines]
        keys = (f'"{zone}" static-key {" ".join(head)} "{key.replace(" ", "")}";' for *head, key in fields)
        (self.folder / "anchor").write_text(f"trust-anchors {{ {' '.join(keys)} }};\n")


@contextmanager
def served(
    zones: Sequence[Zone], views: Mapping[str, PoolView], folder: Path, **settings: Any
) -> Iterator[Served]:
    """Serve these zones until the end of the block; `settings` are pdns-config's."""
    namespace = Namespace(f"rspdns-test-{os.getpid()}-{uuid.uuid4().hex[:6]}")
    try:
        connector = settings.get("connector")
        pdns = Pdns(namespace, folder, **settings)
        backend = ScriptedBackend(zones, folder, [pdns.control], connector, namespace.name)
        backend.start(views)
        try:
            pdns.start(zones[0].name)
            yield Served(namespace, backend, pdns, folder)
        finally:
            backend.stop()
    finally:
        namespace.close()


def status(said: str) -> str:
    """The response code in what dig prints."""
    return said.partition("status: ")[2].partition(",")[0]
