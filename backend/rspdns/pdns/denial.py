"""`getBeforeAndAfterNamesAbsolute`: what PowerDNS asks to prove that a name or a type does not exist."""

from __future__ import annotations

import re

from rspdns.answers.snapshot import Snapshot, ZoneAnswers
from rspdns.dnssec.nsec import Chain, Nsec3Parameters
from rspdns.dnssec.store import DnssecStore
from rspdns.pdns import remote
from rspdns.pdns.domain_ids import DomainIds

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
        self, parameters: remote.Parameters, current: Snapshot, store: DnssecStore | None, now: float
    ) -> remote.Reply | bool:
        """Answer one request; `now` is monotonic.

        Raises NoAnswer where the zone is not wholly known, RequestError.
        """
        qname = remote.name_of(parameters, "qname")
        zone = self._ids.zone(parameters.get("id"), current, now)
        if zone is None:
            return False
        found = self._chain_of(qname, zone, store, now).around(qname)
        if not found.known:
            raise remote.NoAnswer(f"not all names of {zone.name} are known: {qname!r} can't be denied")
        return {"unhashed": found.name, "before": found.before, "after": found.after}

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
        return next((one for one in chains if one.parameters == self._matched.get(zone.name)), chains[0])

    def _chain(self, zone: ZoneAnswers, parameters: Nsec3Parameters | None) -> Chain:
        kept = self._chains.setdefault(zone.name, {})
        same = kept.pop(parameters, [])
        while len(kept) >= _KINDS:
            del kept[next(iter(kept))]
        found = next((chain for chain in same if chain.zone is zone), None)
        if found is None:
            found = Chain(zone, parameters, same[-1].hashes if same else {})
            same = [*same[1 - _CHAINS :], found]
        kept[parameters] = same
        return found
