"""The part of PowerDNS's remote-backend protocol that is about signing: keys, metadata, TSIG keys.

Reading is answered at once from memory. A change is a coroutine: it is acknowledged when it is on the disk.
Whoever may ask these may read private keys: they are served over the unix connector only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rspdns.answers.snapshot import Snapshot
from rspdns.dnssec.store import DnssecStore, DomainKey, Refused, TsigKey
from rspdns.pdns.remote import Parameters, Reply, RequestError, name_of, text_of

_MAX_FLAGS = 65535


def _zone_of(parameters: Parameters, snapshot: Snapshot) -> str | None:
    """The zone that is asked about, None for one that is not served here."""
    name = name_of(parameters, "name")
    return name if name in snapshot.zone_answers else None


def _get_all_domain_metadata(parameters: Parameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    zone = _zone_of(parameters, snapshot)
    return False if zone is None else {kind: list(values) for kind, values in store.metadata(zone).items()}


def _get_domain_metadata(parameters: Parameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    zone, kind = _zone_of(parameters, snapshot), text_of(parameters, "kind")
    return False if zone is None else list(store.metadata(zone).get(kind, ()))


def _get_domain_keys(parameters: Parameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    zone = _zone_of(parameters, snapshot)
    return False if zone is None else [_key(key) for key in store.keys(zone)]


def _key(key: DomainKey) -> Reply:
    return {
        "id": key.id,
        "flags": key.flags,
        "active": key.active,
        "published": key.published,
        "content": key.content,
    }


def _get_tsig_key(parameters: Parameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    key = store.tsig(name_of(parameters, "name"))
    return False if key is None else _tsig(key)


def _get_tsig_keys(parameters: Parameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    return [_tsig(key) for key in store.tsig_keys()]


def _tsig(key: TsigKey) -> Reply:
    return {"name": f"{key.name}.", "algorithm": f"{key.algorithm}.", "content": key.content}


async def _set_domain_metadata(parameters: Parameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    zone, kind = _zone_of(parameters, snapshot), text_of(parameters, "kind")
    values = parameters.get("value")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise RequestError("the list of texts 'value' is missing")
    if zone is None:
        return False
    await store.set_metadata(zone, kind, values)
    return True


async def _add_domain_key(parameters: Parameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    zone, key = _zone_of(parameters, snapshot), parameters.get("key")
    if not isinstance(key, dict):
        raise RequestError("the object 'key' is missing")
    flags, content = _number(key, "flags"), text_of(key, "content")
    if flags > _MAX_FLAGS:
        raise RequestError("the flags do not fit 16 bits")
    if zone is None:
        return False
    return await store.add_key(
        zone, flags, bool(key.get("active", True)), bool(key.get("published", True)), content
    )


async def _remove_domain_key(parameters: Parameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    zone, identifier = _zone_of(parameters, snapshot), _number(parameters, "id")
    return zone is not None and await store.remove_key(zone, identifier)


def _set_key(active: bool | None = None, published: bool | None = None) -> Write:
    async def method(parameters: Parameters, snapshot: Snapshot, store: DnssecStore) -> Any:
        zone, identifier = _zone_of(parameters, snapshot), _number(parameters, "id")
        return zone is not None and await store.set_key(zone, identifier, active=active, published=published)

    return method


async def _set_tsig_key(parameters: Parameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    name, algorithm = name_of(parameters, "name"), name_of(parameters, "algorithm")
    await store.set_tsig(name, algorithm, text_of(parameters, "content"))
    return True


async def _delete_tsig_key(parameters: Parameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    return await store.remove_tsig(name_of(parameters, "name"))


def _number(parameters: Parameters, key: str) -> int:
    value = parameters.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RequestError(f"the number {key!r} is missing")
    return value


async def change(method: str, parameters: Parameters, snapshot: Snapshot, store: DnssecStore) -> Reply:
    """Do one of `WRITES` and return the reply."""
    try:
        return {"result": await WRITES[method](parameters, snapshot, store)}
    except (RequestError, Refused) as problem:
        return {"error": str(problem)}


Read = Callable[[Parameters, Snapshot, DnssecStore], Any]
Write = Callable[[Parameters, Snapshot, DnssecStore], Awaitable[Any]]

METADATA: Mapping[str, Read] = {
    "getAllDomainMetadata": _get_all_domain_metadata,
    "getDomainMetadata": _get_domain_metadata,
}
"""Nothing secret."""
SECRETS: Mapping[str, Read] = {
    "getDomainKeys": _get_domain_keys,
    "getTSIGKey": _get_tsig_key,
    "getTSIGKeys": _get_tsig_keys,
}
WRITES: Mapping[str, Write] = {
    "setDomainMetadata": _set_domain_metadata,
    "addDomainKey": _add_domain_key,
    "removeDomainKey": _remove_domain_key,
    "activateDomainKey": _set_key(active=True),
    "deactivateDomainKey": _set_key(active=False),
    "publishDomainKey": _set_key(published=True),
    "unpublishDomainKey": _set_key(published=False),
    "setTSIGKey": _set_tsig_key,
    "deleteTSIGKey": _delete_tsig_key,
}
