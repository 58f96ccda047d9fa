"""`getBeforeAndAfterNamesAbsolute`: what PowerDNS asks to prove that a name or a type does not exist.

A proof takes several requests. Between two of them a member may come or go, and a proof made of both would be
none. So each connection keeps in mind which snapshot told it last; what PowerDNS may remember from before is
minded by `rspdns.recent`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rspdns import remote
from rspdns.dnssec_store import DnssecStore
from rspdns.nsec import Chain, Nsec3Parameters
from rspdns.recent import RecentChanges
from rspdns.snapshot import Snapshot, ZoneAnswers

NAMES_AROUND = "getBeforeAndAfterNamesAbsolute"
PROOF_S = 0.05
"""How old the snapshot of a proof may be: a question takes a few milliseconds."""


@dataclass(slots=True)
class Proof:
    """What one connection was told last: from which snapshot, when, and which name a proof has shown it."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    at_s: float = float("-inf")
    shown: str | None = None

    def is_fresh(self, now: float) -> bool:
        """Whether the question that it belongs to may still be asked."""
        return now - self.at_s < PROOF_S


class Chains:
    """The chains of the zones that are signed, made when they are first asked for."""

    def __init__(self, recent: RecentChanges) -> None:
        self._recent = recent
        self._chains: dict[str, Chain] = {}

    def around(
        self,
        parameters: remote.Parameters,
        current: Snapshot,
        store: DnssecStore | None,
        proof: Proof | None,
        now: float,
    ) -> remote.Reply | bool:
        """Answer one request; `now` is monotonic.

        Raises NoAnswer where the zone is not wholly known, RequestError.
        """
        number, qname = parameters.get("id"), remote.name_of(parameters, "qname")
        snapshot = current
        if proof is not None:
            if not proof.is_fresh(now):
                proof.snapshot, proof.at_s = current, now
            snapshot = proof.snapshot
        zone = next((zone for zone in snapshot.zones() if remote.zone_id(zone.name) == number), None)
        if zone is None:
            return False
        found = self._chain(zone, store, now).around(qname)
        if not found.known:
            raise remote.NoAnswer(f"not all names of {zone.name} are known: {qname!r} can't be denied")
        if proof is not None:
            proof.shown = found.name
        return {"unhashed": found.name, "before": found.before, "after": found.after}

    def _chain(self, zone: ZoneAnswers, store: DnssecStore | None, now: float) -> Chain:
        text = next(iter(store.metadata(zone.name).get("NSEC3PARAM", ())), "") if store is not None else ""
        parameters = Nsec3Parameters.parse(text)
        departed = self._recent.departed(zone.name, now)
        kept = self._chains.get(zone.name)
        if kept is not None and kept.parameters == parameters:
            if kept.zone is zone and kept.departed == departed:
                return kept
            hashes = kept.hashes
        else:
            hashes = {}
        made = self._chains[zone.name] = Chain(zone, parameters, hashes, departed)
        return made
