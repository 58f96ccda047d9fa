"""The control command `records`: it tells the records of names as DNS answers them now, and which names have
other records than before."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import dns.rcode
import dns.rdatatype
from daemon_kit.control import ControlError

from rspdns import names
from rspdns.answers.change import Change
from rspdns.answers.snapshot import ANY, Failure, Found, Snapshot
from rspdns.next_change import WAIT_S
from rspdns.rrset import Record

KEYS = {"names": list, "life": str, "after": int, "wait_s": float}
"""The names whose records are wanted; `life` and `after` as in the last answer."""
KEPT = 64
"""The changes that are kept for those who ask later."""
MOST_NAMES = 10_000
"""A change of more names counts as one of all names."""
MOST_WAITING = 4
"""The most clients that wait: the socket has places for status and reload, too."""


class NextRecords:
    """Answers the command. `snapshot` gives the answers of now."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._number = 0
        self._kept: deque[tuple[int, frozenset[str] | None]] = deque(maxlen=KEPT)
        """The last changes, each with its number and names; None: any name."""
        self._next = asyncio.Event()
        self._waiting = 0
        self._life = secrets.token_hex(8)
        """Names this life of the backend: numbers of changes begin anew with each."""

    def published(self, changed: Collection[str], change: Change) -> None:
        """These names have other answers; "name$" stands for all below it, too. SOA records change, too."""
        found = {*changed, *change.zones}
        if found:
            self._number += 1
            self._kept.append((self._number, frozenset(found) if len(found) <= MOST_NAMES else None))
            self._next.set()
            self._next = asyncio.Event()

    async def tell(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the records of `names`, and the names that changed after `after`: at once if there are any.

        `changed` is null when it can't be told: any name may have other records. Raises ControlError.
        """
        wanted, after = request.get("names") or [], request.get("after")
        if not all(isinstance(name, str) for name in wanted):
            raise ControlError("names is a list of texts")
        is_known = after is not None and request.get("life") == self._life
        if is_known and after == self._number:
            await self._wait(min(request.get("wait_s") or 0.0, WAIT_S))
        snapshot = self._snapshot()
        return {
            "life": self._life,
            "number": self._number,
            "changed": self._changed(after) if is_known and after is not None else None,
            "records": {name: _records_of(snapshot, name) for name in wanted},
        }

    def _changed(self, after: int) -> list[str] | None:
        missing = [found for number, found in self._kept if number > after]
        if len(missing) < self._number - after or None in missing:
            return None
        return sorted({name for found in missing for name in found or ()})

    async def _wait(self, wait_s: float) -> None:
        if self._waiting >= MOST_WAITING:
            raise ControlError(f"{MOST_WAITING} clients wait for records already")
        self._waiting += 1
        try:
            async with asyncio.timeout(wait_s):
                await self._next.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1


def _records_of(snapshot: Snapshot, name: str) -> list[list[Any]] | int:
    """The type, TTL and data of each record of a name; the RCODE if it has no answer."""
    zone = snapshot.zone_of(name)
    if zone is None or _is_delegated(snapshot, name, zone):
        return dns.rcode.NOTAUTH
    result = snapshot.lookup(name, ANY, zone)
    if isinstance(result, Failure):
        return dns.rcode.SERVFAIL
    return list(_fields(result.records)) if isinstance(result, Found) else []


def _is_delegated(snapshot: Snapshot, name: str, zone: str) -> bool:
    """Whether the name lies at or below a delegation to another zone."""
    nodes = snapshot.nodes[zone]
    above = [name, *names.ancestors(name, zone)] if name != zone else []
    found = (nodes.get(each) for each in above)
    return any(record.type == "NS" for node in found if node is not None for record in node.records)


def _fields(records: Iterable[Record]) -> Iterable[list[Any]]:
    for record in records:
        number = int(dns.rdatatype.from_text(record.type))
        yield [number, record.ttl, base64.b64encode(record.data.wire).decode()]
