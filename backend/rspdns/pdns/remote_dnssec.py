"""The part of PowerDNS's remote-backend protocol that is about signing: keys, metadata, TSIG keys,
and `getBeforeAndAfterNamesAbsolute`, by which PowerDNS proves that a name or a type does not exist.

Reading is answered at once from memory. A change is a coroutine: it is acknowledged when it is on the disk.
A client that may ask these may read private keys: they are served over the unix connector only.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rspdns.answers.snapshot import Snapshot, ZoneAnswers
from rspdns.audit import audit
from rspdns.dnssec.nsec import Chain, Nsec3Parameters
from rspdns.dnssec.store import DnssecStore, DomainKey, TsigKey, WriteRefused
from rspdns.pdns import remote
from rspdns.pdns.domain_ids import DomainIds
from rspdns.pdns.remote import Reply, RequestError, RequestParameters, name_of, text_of

_MAX_FLAGS = 65535


def _zone_of(parameters: RequestParameters, snapshot: Snapshot) -> str | None:
    """The zone that is asked about, None for one that is not served here."""
    name = name_of(parameters, "name")
    return name if name in snapshot.zone_answers else None


def _get_all_domain_metadata(parameters: RequestParameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    zone = _zone_of(parameters, snapshot)
    return False if zone is None else {kind: list(values) for kind, values in store.metadata(zone).items()}


def _get_domain_metadata(parameters: RequestParameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    zone, kind = _zone_of(parameters, snapshot), text_of(parameters, "kind")
    return False if zone is None else list(store.metadata(zone).get(kind, ()))


def _get_domain_keys(parameters: RequestParameters, snapshot: Snapshot, store: DnssecStore) -> Any:
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


def _get_tsig_key(parameters: RequestParameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    key = store.tsig(name_of(parameters, "name"))
    return False if key is None else _tsig(key)


def _get_tsig_keys(parameters: RequestParameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    return [_tsig(key) for key in store.tsig_keys()]


def _tsig(key: TsigKey) -> Reply:
    return {"name": f"{key.name}.", "algorithm": f"{key.algorithm}.", "content": key.content}


async def _set_domain_metadata(parameters: RequestParameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    zone, kind = _zone_of(parameters, snapshot), text_of(parameters, "kind")
    values = parameters.get("value")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise RequestError("the list of texts 'value' is missing")
    if zone is None:
        return False
    await store.set_metadata(zone, kind, values)
    return True


_MOST_AUDITED = 255
_RSA_FIELDS = ("Modulus", "PublicExponent", "PrivateExponent", "Prime1", "Prime2")
_ELLIPTIC_OCTETS = {13: 32, 14: 48, 15: 32, 16: 57}
"""By algorithm (RFC 6605, RFC 8080), octets of the private key."""
_ALGORITHMS = {
    **dict.fromkeys((5, 7, 8, 10), _RSA_FIELDS),
    **dict.fromkeys(_ELLIPTIC_OCTETS, ("PrivateKey",)),
}
_ENGINE = "Engine"
"""The field of a key that stays in a hardware token: the others say which key there."""


def _key_problem(content: str) -> str:
    """The reason why `content` is no private key as BIND and PowerDNS write it; empty if it is.

    A zone with a key that PowerDNS can't read is not answered at all.
    """
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in content.split("\n"))}
    if not fields.get("Private-key-format", "").startswith("v1."):
        return "its first field is not Private-key-format: v1"
    number = fields.get("Algorithm", "").partition(" ")[0]
    algorithm = int(number) if re.fullmatch("[0-9]{1,3}", number) else 0
    if algorithm not in _ALGORITHMS:
        return f"its Algorithm {number!r} is none of {', '.join(map(str, _ALGORITHMS))}"
    if _ENGINE in fields:
        return ""
    for name in _ALGORITHMS[algorithm]:
        try:
            octets = base64.b64decode(fields.get(name, ""), validate=True)
        except ValueError:
            octets = b""
        if not octets:
            return f"its field {name} is missing or no base64"
        if len(octets) != _ELLIPTIC_OCTETS.get(algorithm, len(octets)):
            return f"its field {name} has {len(octets)} octets, not {_ELLIPTIC_OCTETS[algorithm]}"
    return ""


async def _add_domain_key(parameters: RequestParameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    zone, key = _zone_of(parameters, snapshot), parameters.get("key")
    if not isinstance(key, dict):
        raise RequestError("the object 'key' is missing")
    flags, content = _number(key, "flags"), text_of(key, "content")
    if flags > _MAX_FLAGS:
        raise RequestError("the flags do not fit 16 bits")
    if problem := _key_problem(content):
        raise RequestError(f"the key is not kept: {problem}")
    if zone is None:
        return False
    return await store.add_key(
        zone, flags, bool(key.get("active", True)), bool(key.get("published", True)), content
    )


async def _remove_domain_key(parameters: RequestParameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    zone, identifier = _zone_of(parameters, snapshot), _number(parameters, "id")
    return zone is not None and await store.remove_key(zone, identifier)


def _set_key(active: bool | None = None, published: bool | None = None) -> WriteMethod:
    async def method(parameters: RequestParameters, snapshot: Snapshot, store: DnssecStore) -> Any:
        zone, identifier = _zone_of(parameters, snapshot), _number(parameters, "id")
        return zone is not None and await store.set_key(zone, identifier, active=active, published=published)

    return method


async def _set_tsig_key(parameters: RequestParameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    name, algorithm = name_of(parameters, "name"), name_of(parameters, "algorithm")
    await store.set_tsig(name, algorithm, text_of(parameters, "content"))
    return True


async def _delete_tsig_key(parameters: RequestParameters, snapshot: Snapshot, store: DnssecStore) -> Any:
    return await store.remove_tsig(name_of(parameters, "name"))


def _number(parameters: RequestParameters, key: str) -> int:
    value = parameters.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RequestError(f"the number {key!r} is missing")
    return value


async def change(method: str, parameters: RequestParameters, snapshot: Snapshot, store: DnssecStore) -> Reply:
    """Do one of `WRITES` and return the reply."""
    try:
        result = await WRITES[method](parameters, snapshot, store)
        if result is not False:
            named = (str(parameters[key]) for key in ("name", "kind", "id") if key in parameters)
            audit("PowerDNS", method, " ".join(named)[:_MOST_AUDITED])
        return {"result": result}
    except (RequestError, WriteRefused) as problem:
        return {"error": str(problem)}


ReadMethod = Callable[[RequestParameters, Snapshot, DnssecStore], Any]
WriteMethod = Callable[[RequestParameters, Snapshot, DnssecStore], Awaitable[Any]]

METADATA: Mapping[str, ReadMethod] = {
    "getAllDomainMetadata": _get_all_domain_metadata,
    "getDomainMetadata": _get_domain_metadata,
}
"""Nothing secret."""
SECRETS: Mapping[str, ReadMethod] = {
    "getDomainKeys": _get_domain_keys,
    "getTSIGKey": _get_tsig_key,
    "getTSIGKeys": _get_tsig_keys,
}
WRITES: Mapping[str, WriteMethod] = {
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


NAMES_AROUND = "getBeforeAndAfterNamesAbsolute"
NSEC3PARAM = "NSEC3PARAM"
PARAMETERS_KEPT_S = 120.0
"""PowerDNS keeps metadata for 60 s (`domain-metadata-cache-ttl`)."""
_HASH = re.compile("[0-9a-v]{32}")
_KINDS = 2
"""Kinds of chains kept of each zone beside the one in use: NSEC and NSEC3 before and after a change."""
_CHAINS = 3
"""Kept of each zone: questions of the moment before are still under way when the next one comes."""


class Chains:
    """The chains of the zones that are signed, made when they are first asked for."""

    def __init__(self, ids: DomainIds) -> None:
        self._ids = ids
        self._chains: dict[str, dict[Nsec3Parameters | None, list[Chain]]] = {}
        """By zone and parameters, both the latest last."""
        self._matched: dict[str, Nsec3Parameters | None] = {}
        """By zone: the parameters of the last hash that was one of a name."""

    def around(
        self, parameters: remote.RequestParameters, current: Snapshot, store: DnssecStore | None, now: float
    ) -> remote.Reply | bool:
        """Answer one request; `now` is monotonic.

        Raises NoAnswer where the zone is not wholly known, RequestError.
        """
        qname = remote.name_of(parameters, "qname")
        zone = self._ids.zone(parameters.get("id"), current, now)
        if zone is None:
            return False
        around = self._chain_of(qname, zone, store, now).around(qname)
        if not around.known:
            raise remote.NoAnswer(f"not all names of {zone.name} are known: {qname!r} can't be denied")
        return {"unhashed": around.name, "before": around.before, "after": around.after}

    def _chain_of(self, qname: str, zone: ZoneAnswers, store: DnssecStore | None, now: float) -> Chain:
        """The chain that a request is about: PowerDNS asks for a hash to prove by NSEC3, else for a name.

        It keeps NSEC3PARAM in a cache of its own, so that for some milliseconds after `set-nsec3` and
        `unset-nsec3`, for a minute after a lost purge, it goes on as before: it is answered as it asks.
        """
        if store is None or not _HASH.fullmatch(qname):
            return self._chain(zone, None)
        present = store.metadata(zone.name).get(NSEC3PARAM, ())
        former = store.former(zone.name, NSEC3PARAM, now - PARAMETERS_KEPT_S)
        known = [Nsec3Parameters.parse(text) for text in (*present[:1], *former[:1])]
        chains = [self._chain(zone, parameters) for parameters in known if parameters is not None]
        if not chains:
            return self._chain(zone, None)  # a name that looks like a hash
        own = next((chain for chain in chains if qname in chain), None)
        if own is not None:
            self._matched[zone.name] = own.parameters
            return own
        # A proof begins with a hash that is there, the closest encloser's; those that are not there follow.
        return next(
            (candidate for candidate in chains if candidate.parameters == self._matched.get(zone.name)),
            chains[0],
        )

    def _chain(self, zone: ZoneAnswers, parameters: Nsec3Parameters | None) -> Chain:
        kept = self._chains.setdefault(zone.name, {})
        same = kept.pop(parameters, [])
        while len(kept) >= _KINDS:
            del kept[next(iter(kept))]
        own = next((chain for chain in same if chain.zone is zone), None)
        if own is None:
            own = Chain(zone, parameters, same[-1].hashes if same else {})
            same = [*same[1 - _CHAINS :], own]
        kept[parameters] = same
        return own
