"""`getBeforeAndAfterNamesAbsolute`: what PowerDNS asks to prove that a name or a type does not exist."""

from __future__ import annotations

from rspdns import remote
from rspdns.dnssec_store import DnssecStore
from rspdns.domain_ids import DomainIds
from rspdns.nsec import Chain, Nsec3Parameters
from rspdns.snapshot import Snapshot, ZoneAnswers

NAMES_AROUND = "getBeforeAndAfterNamesAbsolute"
_CHAINS = 3
"""Kept of each zone: questions of the moment before are still under way when the next one comes."""


class Chains:
    """The chains of the zones that are signed, made when they are first asked for."""

    def __init__(self, ids: DomainIds) -> None:
        self._ids = ids
        self._chains: dict[str, list[Chain]] = {}
        """By zone, the latest last."""

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
        found = self._chain(zone, store).around(qname)
        if not found.known:
            raise remote.NoAnswer(f"not all names of {zone.name} are known: {qname!r} can't be denied")
        return {"unhashed": found.name, "before": found.before, "after": found.after}

    def _chain(self, zone: ZoneAnswers, store: DnssecStore | None) -> Chain:
        text = next(iter(store.metadata(zone.name).get("NSEC3PARAM", ())), "") if store is not None else ""
        parameters = Nsec3Parameters.parse(text)
        kept = [chain for chain in self._chains.get(zone.name, ()) if chain.parameters == parameters]
        for chain in kept:
            if chain.zone is zone:
                return chain
        made = Chain(zone, parameters, kept[-1].hashes if kept else {})
        self._chains[zone.name] = [*kept[1 - _CHAINS :], made]
        return made
