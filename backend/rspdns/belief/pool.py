"""What is believed about one pool: PEs are decided on, a crowd is questioned, what remains is the view."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rserpool.parameters import PoolElement, Transport

from rspdns.belief.accept import accepted, why_refused
from rspdns.belief.claims import Court
from rspdns.belief.crowd import Crowd
from rspdns.belief.decisions import Decision, decide
from rspdns.belief.happenings import happened
from rspdns.belief.history import History
from rspdns.belief.listing import MEMORY, Claim, Listing, Overruled
from rspdns.belief.orphans import Orphans
from rspdns.belief.reachability import Reachability
from rspdns.belief.rules import RENEW_STALE_S, BeliefEvent, PoolRules, Reply
from rspdns.views import Member, OutMember, PoolView


class PoolBelief:
    """The belief about the pool `handle`.

    `view` is what the last `evaluate()` found, and stays the same object until something in it changes.
    `awaited` are the registrars (by place) to be asked at once; `next_deadline_s` is when time alone
    changes something.
    """

    def __init__(self, handle: str, rules: PoolRules) -> None:
        self.handle = handle
        self.rules = rules
        self.view = PoolView(handle)
        self.awaited: frozenset[int] = frozenset()
        self.is_dirty = False
        self._listings: dict[int, Listing] = {}
        self._crowd = Crowd()
        self._history = History()
        self._orphans = Orphans()
        self._members: dict[int, Member] = {}
        """Who is in, those found unreachable by the backend's own probe included."""
        self._reachability = Reachability()
        self._reasons: dict[int, str] = {}
        """Why those held back would be out."""
        self._known = False
        self._stale_since_s: float | None = None
        self._vouched_s = float("-inf")

    def reply(self, reply: Reply, settled: bool) -> bool:
        """Take an answer. Return True when it changes who is listed, or with which home."""
        listing = self._listings.setdefault(reply.registrar, Listing())
        if reply.asked_at_s < listing.asked_at_s:
            return False
        was_settled = listing.was_settled
        news, members_changed = listing.update(reply, settled)
        self.is_dirty |= news or self._is_waiting or was_settled != listing.was_settled
        return members_changed

    def push(self, place: int, element: PoolElement, is_deletion: bool, at_s: float, settled: bool) -> bool:
        """Take what a registrar pushed. Return True when it changes who is listed, or with which home."""
        listing = self._listings.setdefault(place, Listing())
        if not is_deletion and settled and listing.renew(element, at_s):
            self.is_dirty |= self._is_waiting
            return False
        self.is_dirty = True
        if is_deletion:
            return listing.delete(element.identifier, at_s, settled)
        return listing.push(element, at_s)

    def own_children(self, place: int, home: int, elements: Iterable[PoolElement], asked_at_s: float) -> bool:
        """Take all PEs whose `home` the registrar is. Return True when that changes who is listed."""
        listing = self._listings.setdefault(place, Listing())
        return listing.own_children(home, elements, asked_at_s) and self._set_dirty()

    def _set_dirty(self) -> bool:
        self.is_dirty = True
        return True

    @property
    def _is_waiting(self) -> bool:
        """Whether any word may settle something."""
        return bool(self.awaited or self._crowd.held_since_s or not self._known)

    def link_lost(self, place: int) -> None:
        """A registrar's life ended."""
        if place in self._listings:
            self._listings[place].forget_answers()
            self.is_dirty = True

    def settled(self, place: int) -> None:
        """A registrar became settled: only what it answers from now on counts for absence.

        What it goes on listing counts like that of any other, unless its home denied it.
        """
        listing = self._listings.get(place)
        if listing is None:
            return
        listing.settled_anew()
        for claim in listing.claims.values():
            if claim.overruled is not Overruled.BY_HOME:
                claim.overruled = None

    def probed(self, member: Member, reachable: bool) -> None:
        """The backend's own probe came to a conclusion; it counts while the pool is stale or verified, and
        about a member whose home registrar is lost."""
        self.is_dirty |= self._reachability.probed(member, reachable)

    def remember(
        self, members: Iterable[Member], recent: Iterable[Member], stale_since_s: float, now: float
    ) -> None:
        """Take what was known before a restart; `stale_since_s` is when it was last vouched for."""
        listing = self._listings.setdefault(MEMORY, Listing())
        for member in members:
            transport = Transport(member.protocol, member.port, member.addresses)
            element = PoolElement(member.identifier, member.home_registrar, 0, transport, member.policy)
            listing.claims[member.identifier] = Claim(element, now, now, now, remembered=True)
            self._members.setdefault(member.identifier, member)
        self._history.recent = tuple(recent)
        self._known = True
        self._stale_since_s = stale_since_s
        self.is_dirty = True

    @property
    def next_deadline_s(self) -> float | None:
        """When time alone changes something."""
        times = (
            self._crowd.next_deadline_s,
            self._history.next_deadline_s,
            self._orphans.next_deadline_s,
        )
        return min((time_s for time_s in times if time_s is not None), default=None)

    @property
    def probe_targets(self) -> tuple[Member, ...]:
        """The members of a pool that is stale, verified, or has somebody whose home registrar is lost (the
        others are the witnesses), the unreachable too; else nobody."""
        if not (self._is_probed(self.view.stale_since_s) or self.view.suspected):
            return ()
        return tuple(self._members[identifier] for identifier in sorted(self._members))

    def evaluate(self, court: Court, stale_since_s: float, now: float) -> list[BeliefEvent]:
        """Form the view anew and return what happened.

        `stale_since_s` is when the last settled registrar was lost; it matters while there is none.
        """
        self.is_dirty = False
        decisions = decide(self._listings, court, self._members)
        members, out = self._admit(decisions, court, now)
        events = self._hold_back(members, out, decisions, court, now)
        if any(decision.vouched for decision in decisions.values()):
            self._vouched_s = now
        homes = {identifier: member.home_registrar for identifier, member in members.items()}
        self._orphans.update(homes, court.homes, self._reachability.unreachable, now)
        suspected = self._orphans.suspects(self._reachability.unreachable)
        stale_s = self._stale(court, stale_since_s)
        if not suspected and not self._is_probed(stale_s):
            self._reachability.forget()
        self._members = dict(members)
        unreachable = self._reachability.drop(
            members, out, suspected, everybody=self._is_probed(stale_s), stale=stale_s is not None
        )
        before = {one.identifier: one for one in (*self.view.members, *self.view.unreachable)}
        reasons = self._why_out(decisions, out)
        events += happened(self.handle, self.view, members, out, reasons, now)
        self._history.note(before, self._members, reasons, now)
        self._reasons = {identifier: reasons[identifier] for identifier in reasons.keys() & members.keys()}
        self._known |= bool(self._members) or any(listing.was_settled for listing in self._listings.values())
        view = PoolView(
            handle=self.handle,
            members=tuple(members[identifier] for identifier in sorted(members)),
            out=self._history.out(out, members, now),
            known=self._known,
            stale_since_s=stale_s,
            recent=() if members else self._recent(),
            unreachable=unreachable,
            suspected=suspected,
        )
        self.view = self.view if view == self.view else view
        return events

    def _why_out(self, decisions: Mapping[int, Decision], out: Mapping[int, OutMember]) -> dict[int, str]:
        """Why each one is out, or would be if it were not held back."""
        reasons = {
            identifier: reason
            for identifier, reason in self._reasons.items()
            if identifier not in decisions or not decisions[identifier].is_in
        }
        reasons |= {
            identifier: decision.reason for identifier, decision in decisions.items() if decision.reason
        }
        return reasons | {identifier: member.reason for identifier, member in out.items()}

    def _admit(
        self, decisions: Mapping[int, Decision], court: Court, now: float
    ) -> tuple[dict[int, Member], dict[int, OutMember]]:
        """Who is in by the word of the registrars and by `accept`, and who is known beside them."""
        members: dict[int, Member] = {}
        out: dict[int, OutMember] = {}
        for identifier, decision in decisions.items():
            element = decision.element
            refusal = why_refused(element.user_transport, self.rules.accept)
            if refusal is not None and decision.is_listed:
                out[identifier] = _out(element, refusal)
            elif decision.is_in and refusal is None:
                stale = not decision.vouched and not court.settled
                members[identifier] = self._member(element, stale, now)
            elif decision.is_listed:
                out[identifier] = _out(element, decision.reason)
        return members, out

    def _member(self, element: PoolElement, stale: bool, now: float) -> Member:
        transport = element.user_transport
        addresses = accepted(transport.addresses, self.rules.accept)
        place = (addresses, transport.port)
        return Member(
            identifier=element.identifier,
            home_registrar=element.home_registrar,
            addresses=addresses,
            port=transport.port,
            protocol=transport.protocol,
            policy=element.policy,
            since_s=self._history.since_s(element.identifier, place, self._members, now),
            stale=stale,
        )

    def _hold_back(
        self,
        members: dict[int, Member],
        out: Mapping[int, OutMember],
        decisions: Mapping[int, Decision],
        court: Court,
        now: float,
    ) -> list[BeliefEvent]:
        """Keep a crowd in while it is questioned, and find out who has to be asked."""

        def unheard(identifier: int, since_s: float) -> set[int]:
            return {
                place
                for place in court.settled
                if place not in self._listings or not self._listings[place].absent_since(identifier, since_s)
            }

        def confirmed(identifier: int, since_s: float) -> bool:
            return bool(court.settled) and not unheard(identifier, since_s)

        candidates = {
            identifier: member
            for identifier, member in self._members.items()
            if identifier in members or self._may_be_held(member, out, decisions)
        }
        before = set(self._crowd.held_since_s)
        held = self._crowd.hold(candidates.keys(), members.keys(), confirmed, now)
        awaited = {place for decision in decisions.values() for place in decision.awaited}
        for identifier in held:
            members[identifier] = candidates[identifier]
            since_s = self._crowd.held_since_s[identifier]
            awaited |= {
                place
                for place in unheard(identifier, since_s)
                if place not in self._listings or self._listings[place].asked_at_s <= since_s
            }
        self.awaited = frozenset(awaited)
        if not held - before:
            return []
        gone = f"{self._crowd.gone} of {self._crowd.before}"
        words = f"{gone} would be gone within 500 ms: all registrars are asked"
        return [BeliefEvent(now, "questioned", self.handle, None, words)]

    def _may_be_held(
        self, member: Member, out: Mapping[int, OutMember], decisions: Mapping[int, Decision]
    ) -> bool:
        """Whether a member that is not in any more could stay: not one whom `accept` refuses."""
        identifier = member.identifier
        if identifier in out and identifier in decisions and decisions[identifier].is_in:
            return False
        transport = Transport(member.protocol, member.port, member.addresses)
        return why_refused(transport, self.rules.accept) is None

    def _stale(self, court: Court, stale_since_s: float) -> float | None:
        if court.settled:
            self._stale_since_s = None
            self._vouched_s = float("-inf")
            return None
        since_s = self._stale_since_s if self._stale_since_s is not None else stale_since_s
        if math.isfinite(self._vouched_s):
            since_s = max(since_s, self._vouched_s - self._vouched_s % RENEW_STALE_S)
        return since_s

    def _is_probed(self, stale_s: float | None) -> bool:
        """Whether the backend's own probe has a say about all members."""
        return stale_s is not None or self.rules.verified

    def _recent(self) -> tuple[Member, ...]:
        """The last good ones; `accept` may have changed since they were in."""
        found = []
        for member in self._history.recent:
            addresses = accepted(member.addresses, self.rules.accept)
            if addresses:
                found.append(replace(member, addresses=addresses, stale=True))
        return tuple(found)


def _out(element: PoolElement, reason: str) -> OutMember:
    transport = element.user_transport
    address = transport.addresses[0] if transport.addresses else None
    return OutMember(element.identifier, address, transport.port, reason, 0.0)
