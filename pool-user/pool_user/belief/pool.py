"""The belief about one pool: PEs are decided on, a crowd is questioned, and the remainder is the view."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import filterfalse

from daemon_kit.finding import Finding

from pool_user.belief.admission import accepted, why_refused
from pool_user.belief.crowd import Crowd
from pool_user.belief.decisions import PoolDecisions
from pool_user.belief.history import History
from pool_user.belief.homes import Homes
from pool_user.belief.identities import VanishedMembers, WantedMembers, place_of
from pool_user.belief.moves import MovedMembers
from pool_user.belief.reachability import OrphanedMembers, Reachability
from pool_user.belief.reports import PoolReports
from pool_user.belief.rules import RENEW_STALE_S, PoolRules, handlespace_of
from pool_user.cause import Cause, Code
from pool_user.overrides import MemberOverrides, PoolOverride
from pool_user.registrars.standing import SettledRegistrars
from pool_user.views import (
    BeliefEvent,
    Departure,
    Member,
    OutMember,
    PoolChange,
    PoolView,
    RememberedPool,
    events_of,
)
from rserpool import PoolElement, Transport, prove


class PoolBelief:
    """The belief about the pool `handle`, which registrars know as `wire_handle`.

    `reports` take in what the registrars say. `view` is what the last `evaluate()` found, and stays the same
    object until something in it changes. `awaited` are the registrars (by index) to be asked at once;
    `next_deadline_s` is when time alone changes something.
    """

    def __init__(self, handle: str, rules: PoolRules, wire_handle: bytes) -> None:
        self.handle = handle
        self.view = PoolView(handle)
        self.awaited: frozenset[int] = frozenset()
        self._decisions = PoolDecisions()
        self._homes = Homes()
        self.reports = PoolReports(handle, wire_handle, rules, self._decisions, self._homes, self._members_in)
        self._wanted = WantedMembers()
        self._out: dict[int, OutMember] = {}
        """The known PEs that are not wanted."""
        self._shown: dict[int, Member] = {}
        """The members of `view`."""
        self._members: dict[int, Member] = {}
        """The members, those that the backend's own probe does not reach included."""
        self._crowd = Crowd()
        self._history = History()
        self._orphans = OrphanedMembers()
        self._reachability = Reachability()
        self._moves = MovedMembers()
        self._vanished = VanishedMembers()
        self._causes: dict[int, Cause] = {}
        """Why those held back would be out."""
        self._overrides = MemberOverrides()
        self._known = False
        self._staleness = Staleness()

    @property
    def rules(self) -> PoolRules:
        """The configuration of the pool."""
        return self.reports.rules

    def _members_in(self) -> Set[int]:
        return self._wanted.members.keys() | self._members.keys()

    def probing(self, member: Member, now: float) -> None:
        """A probe of the member begins."""
        self._moves.probing(member, now)

    def probe_answered(self, member: Member, now: float) -> None:
        """The member answered a probe; whether it is reachable is another question."""
        known = self._members.get(member.identifier)
        if known is not None and known.transport_addresses == member.transport_addresses:
            self._decisions.probe_answered(member.identifier, now)

    def probed(self, member: Member, reachable: bool, finding: Finding | None) -> None:
        """The backend's own probe came to a conclusion, the last time by this `finding`.

        It counts while the pool is stale or verified, and about a member whose home registrar is lost. It
        alone counts about members that vanished, or that are told elsewhere.
        """
        if self._vanished.probed(member, reachable):
            self.reports.is_dirty = True
        elif self._moves.probed(member, reachable):
            self.reports.touch(member.identifier)
        else:
            self.reports.is_dirty |= self._reachability.probed(member, reachable, finding)

    def remember(self, remembered: RememberedPool, now: float) -> None:
        """Take what was known before a restart.

        The file may be of a time with other rules: keys and `accept` are applied again.
        """
        self._history.departures.remember(remembered.departures)
        if self.rules.keys:
            self._orphans.remember(remembered.departures)
        self.reports.is_dirty = True
        if remembered.stale_since_s is None:
            return
        members = [member for known in remembered.members if (member := self._invited(known)) is not None]
        self.reports.remember(members, now)
        for member in members:
            self._members.setdefault(member.identifier, member)
            self._homes.remember(member.identifier, member.home_registrar)
        self._history.recent = remembered.recent  # `_recent` applies the rules
        self._known = True
        self._staleness.remember(remembered.stale_since_s)

    def examined(self, member: Member, finding: Finding) -> bool:
        """A probe looked at a member that had left. Return False if it is in again."""
        is_out = self._history.departures.examined(member, finding)
        self.reports.is_dirty |= is_out
        return is_out

    def forget(self, is_wanted: Callable[[Departure], bool]) -> list[Departure]:
        """Forget the departures that are wanted, and return them."""
        forgotten = self._history.departures.forget(is_wanted)
        self.reports.is_dirty |= bool(forgotten)
        return forgotten

    @property
    def next_deadline_s(self) -> float | None:
        """When time alone changes something."""
        times = (
            self._crowd.next_deadline_s,
            self._homes.next_deadline_s,
            self._decisions.next_deadline_s,
            self._orphans.next_deadline_s,
            self._vanished.next_deadline_s,
            self._moves.next_deadline_s,
        )
        return min((time_s for time_s in times if time_s is not None), default=None)

    @property
    def is_probing(self) -> bool:
        """Whether some member is to be probed although registrars vouch for the pool."""
        return bool(self.view.suspected or self.view.vanished or self.view.moving)

    @property
    def probe_targets(self) -> tuple[Member, ...]:
        """The members of a pool that is stale, verified, or has somebody whose home registrar is lost (the
        others are the witnesses), the unreachable too; else the vanished, and those told elsewhere, only."""
        targets = {**self._vanished.members, **self._moves.members}
        if self._is_probed(self.view.stale_since_s) or self.view.suspected:
            targets = self._members | targets
        return tuple(targets[identifier] for identifier in sorted(targets))

    def evaluate(
        self, registrars: SettledRegistrars, stale_since_s: float, now: float, followed: Collection[int] = ()
    ) -> tuple[PoolChange | None, list[BeliefEvent]]:
        """Form the view anew. Return its change, None if it is the same, and what happened. Each step takes
        what the one before it found.

        `stale_since_s` is when the last settled registrar was lost; it matters while there is none.
        `followed` are the registrars (by index) that push changes.
        """
        reports = self.reports
        concerned = reports.take_touched() | self._moves.due(now)
        judged = self._decisions.judge(reports.listings, registrars, self._members, concerned, now)
        reports.release(judged)
        self._admit(judged, registrars, now)
        if doubled := self._moves.doubled(self._wanted):
            self._admit(doubled, registrars, now)
        members, out = dict(self._wanted.members), dict(self._out)
        self._contest(members, registrars, followed, now)
        events = self._hold_back(members, registrars, now)
        self._drop_surplus(members, out)
        if self.rules.keys:
            events += self._keep_vanished(members, out, registrars, now)
        is_settled = bool(registrars.settled)
        is_vouched = not is_settled and any(
            decision.vouched for decision in self._decisions.by_identifier.values()
        )
        stale_s = self._staleness.since(stale_since_s, now, is_settled=is_settled, is_vouched=is_vouched)
        suspected = self._suspects(members, registrars, judged, stale_s, now)
        before, self._members = self._members, dict(members)
        for identifier in self._members.keys() - before.keys():
            reports.farewells.returned(self._members[identifier])
        unreachable = self._reachability.drop(
            members, out, suspected, everybody=self._is_probed(stale_s), stale=stale_s is not None
        )
        members, judged_departures = self._override(members, out, now)
        causes = self._why_out(judged, members, out, now)
        events += self._moves.events(self.handle, now)
        departed = self._history.departures.note(
            self._shown, members, causes, self._homes, now, home_of=self._orphans.home_of
        )
        self._history.note(before, self._members, causes, self._homes, now)
        self._homes.keep(self._members.keys())
        self._causes = {identifier: causes[identifier] for identifier in causes.keys() & members.keys()}
        self._known |= bool(self._members) or any(
            listing.was_settled for listing in reports.listings.values()
        )
        reports.is_awaited = bool(self.awaited or self._crowd.held_since_s or not self._known)
        view = PoolView(
            handle=self.handle,
            members=self._in_order(members),
            out=self._history.out(out, now),
            departures=self._history.departures.all,
            known=self._known,
            stale_since_s=stale_s,
            recent=() if members else self._recent(now),
            unreachable=tuple(filterfalse(self._overrides.is_down, unreachable)),
            suspected=suspected,
            vanished=tuple(sorted(self._vanished.members)),
            moving=tuple(sorted(self._moves.members)),
        )
        self._shown = members
        if view == self.view:
            return None, events
        change = PoolChange.between(self.view, view, departed, judged_departures)
        self.view = view
        return change, events + events_of(change, now)

    def set_overrides(self, overrides: Iterable[PoolOverride]) -> None:
        """Let these overrides hold from now on."""
        self.reports.is_dirty |= self._overrides.set(overrides)

    def _override(
        self, members: dict[int, Member], out: dict[int, OutMember], now: float
    ) -> tuple[dict[int, Member], tuple[Departure, ...]]:
        """The members after the overrides; those that an override takes out are `out`. And the departures of
        before that have another cause now."""
        departures = self._history.departures

        def known() -> Iterator[Member]:
            before = (*self._shown.values(), *self._members.values())
            for member in (*before, *(departure.member for departure in departures.all)):
                invited = self._invited(member)
                if invited is not None:
                    yield invited

        members, overridden = self._overrides.apply(members, known, now)
        out |= overridden
        for identifier in members:
            out.pop(identifier, None)
        judged = departures.judge(
            self._overrides.down,
            lambda departure: self.reports.farewells.lasting(departure.member, departure.left_s, now),
            overridden,
        )
        return members, judged

    def _in_order(self, members: Mapping[int, Member]) -> tuple[Member, ...]:
        """The members by identifier; those of the view when they are the same."""
        return (
            self.view.members if members == self._shown else tuple(map(members.__getitem__, sorted(members)))
        )

    def _admit(self, judged: Iterable[int], registrars: SettledRegistrars, now: float) -> None:
        """Put each of the `judged` among those that are in by the word of the registrars and by `accept`, or
        that are known beside them."""
        for identifier in judged:
            self._wanted.remove(identifier)
            self._out.pop(identifier, None)
            decision = self._decisions.by_identifier.get(identifier)
            if decision is None or not decision.is_in:
                self._moves.forget(identifier)
            if decision is None:
                continue
            element = decision.element
            refusal = why_refused(element.user_transport, self.rules.accept, self.rules.ports)
            stays = decision.is_in and refusal is not None and self._stays(element, now)
            if refusal is not None and decision.is_listed and not stays:
                self._out[identifier] = _out(element, refusal)
            elif self._decisions.has_expired(
                element,
                registrars,
                is_confirmed=self._homes.has_confirmed(identifier, element.home_registrar),
            ):
                self._out[identifier] = _out(element, Cause(Code.EXPIRED))
            elif decision.is_in and self.reports.identities.is_withdrawn(
                identifier, now, is_confirmed=decision.is_confirmed
            ):
                self._out[identifier] = _out(element, Cause(Code.WITHDRAWN))
            elif decision.is_in and (refusal is None or stays):
                stale = not decision.vouched and not registrars.settled
                member, before = self._member(element, stale, now), self._members.get(identifier)
                if decision.is_confirmed:
                    self._homes.confirm(member, self.reports.listings, registrars, now)
                if self.rules.keys:
                    self._moves.forget(identifier)
                else:
                    member = self._moves.placed(member, self._defended(identifier), now)
                self._wanted.add(before if before is not None and before == member else member)
            elif decision.is_listed and decision.cause is not None:
                self._out[identifier] = _out(element, decision.cause)

    def _defended(self, identifier: int) -> Member | None:
        """The member that stays at its place while it answers there; None if it does not, or if the rules
        refuse that place."""
        before = self._members.get(identifier)
        if before is None or self.rules.keys or identifier in self._reachability.unreachable:
            return None
        transport = Transport(before.protocol, before.port, before.addresses)
        is_refused = why_refused(transport, self.rules.accept, self.rules.ports) is not None
        return None if is_refused else before

    def _stays(self, element: PoolElement, now: float) -> bool:
        """Whether the member of this identifier stays where it is, though the PE is told at a place that the
        rules refuse."""
        before = self._defended(element.identifier)
        if before is None:
            return False
        other = self._member(element, False, now)
        return place_of(self._moves.placed(other, before, now)) == place_of(before)

    def _drop_surplus(self, members: dict[int, Member], out: dict[int, OutMember]) -> None:
        """Leave each server one place: two sidecars may have registered it, or one under two identifiers."""
        for identifier, first in self._wanted.surplus(self._shown.keys()):
            member = members.pop(identifier)
            cause = Cause(Code.REGISTERED_TWICE, identifier=first)
            out[identifier] = OutMember(identifier, member.addresses[0], member.port, cause, 0.0)
        for identifier in members.keys() - self._wanted.members.keys():  # held back
            if self._wanted.others(members[identifier]):
                del members[identifier]

    def _keep_vanished(
        self, members: dict[int, Member], out: dict[int, OutMember], registrars: SettledRegistrars, now: float
    ) -> list[BeliefEvent]:
        """Keep the members in that vanished without their sidecar's word and answer the probe."""
        gone = self._members.keys() - members.keys() - self._vanished.members.keys()
        gone |= self._crowd.held_since_s.keys() & self._members.keys()  # probed while it is questioned
        missing = [self._members[identifier] for identifier in gone - set(self._reachability.unreachable)]
        self._vanished.update(missing, (), (), now)
        over = [
            identifier
            for identifier, member in self._vanished.members.items()
            if (identifier in members and identifier not in self._crowd.held_since_s)
            or self._wanted.others(member)
            or self.reports.identities.has_left(identifier, now)
            or not self._may_be_held(member, now)
        ]
        settled = [listing for index, listing in self.reports.listings.items() if index in registrars.settled]
        listed = {
            identifier
            for identifier in self._vanished.members
            if any(listing.present(identifier) for listing in settled)
        }
        self._vanished.update((), listed, over, now)
        kept, events = self._vanished.kept(self.handle, self._crowd.held_since_s, now)
        for member in kept:
            members[member.identifier] = member
            out.pop(member.identifier, None)
        return events

    def _suspects(
        self,
        members: Mapping[int, Member],
        registrars: SettledRegistrars,
        judged: Collection[int],
        stale_s: float | None,
        now: float,
    ) -> tuple[int, ...]:
        """The members whose home registrar is lost. When the probe has no say about anybody, what it found is
        forgotten."""
        self._orphans.update(
            members,
            registrars.homes,
            self._reachability.unreachable,
            judged,
            now,
            is_keyed=bool(self.rules.keys),
        )
        orphans = self._orphans.suspects(self._reachability.unreachable)
        suspected = tuple(sorted({*orphans, *self._homes.contested}))
        if not suspected and not self._is_probed(stale_s):
            self._reachability.forget()
        return suspected

    def _why_out(
        self, judged: Iterable[int], members: Mapping[int, Member], out: Mapping[int, OutMember], now: float
    ) -> dict[int, Cause]:
        """Why each of the `judged` is out, or would be if it were not held back, each that is `out`, and each
        that leaves now."""
        decisions = self._decisions.by_identifier
        causes = {
            identifier: cause
            for identifier, cause in self._causes.items()
            if identifier not in decisions or not decisions[identifier].is_in
        }
        for identifier in judged:
            decision = decisions.get(identifier)
            if decision is not None and decision.cause is not None:
                causes[identifier] = decision.cause
        causes |= {identifier: member.cause for identifier, member in out.items()}
        for identifier in self._shown.keys() - members.keys():
            member, farewells = self._shown[identifier], self.reports.farewells
            drained = farewells.cause_of(member, now)
            if member.stale and drained is None:  # an override held it in
                drained = farewells.lasting(member, now, now)
            cause = causes.get(identifier)
            if drained is not None and (cause is None or cause.code.is_leave):
                causes[identifier] = drained
        return causes

    def _member(self, element: PoolElement, stale: bool, now: float) -> Member:
        transport = element.user_transport
        addresses = accepted(transport.addresses, self.rules.accept) or transport.addresses
        return Member(
            identifier=element.identifier,
            home_registrar=element.home_registrar,
            addresses=addresses,
            port=transport.port,
            protocol=transport.protocol,
            policy=element.policy,
            since_s=self._history.since_s(
                element.identifier, (addresses, transport.port), self._members, now
            ),
            stale=stale,
            handlespace=handlespace_of(self.handle, self.reports.identities.handle),
        )

    def _contest(
        self, members: dict[int, Member], registrars: SettledRegistrars, followed: Collection[int], now: float
    ) -> None:
        """Keep members in for a while that others than their home registrars took out."""
        leaving = {identifier: self._members[identifier] for identifier in self._leaving(members, now)}
        for identifier in self._homes.hold(leaving, self.reports.listings, registrars, followed, now):
            members[identifier] = self._members[identifier]

    def _leaving(self, members: Mapping[int, Member], now: float) -> set[int]:
        """The members of before that are not among `members` and may be held back."""
        gone = self._members.keys() - members.keys()
        return {identifier for identifier in gone if self._may_be_held(self._members[identifier], now)}

    def _hold_back(
        self, members: dict[int, Member], registrars: SettledRegistrars, now: float
    ) -> list[BeliefEvent]:
        """Keep a crowd in while it is questioned, and find out who has to be asked."""
        listings = self.reports.listings

        def unheard(identifier: int, since_s: float) -> set[int]:
            return {
                index
                for index in registrars.asked
                if index not in listings or not listings[index].absent_since(identifier, since_s)
            }

        def confirmed(identifier: int, since_s: float) -> bool:
            return bool(registrars.settled) and not unheard(identifier, since_s)

        staying = self._members.keys() & members.keys()
        leaving = {
            identifier
            for identifier in self._leaving(members, now)
            if self._homes.may_be_questioned(identifier)
        }
        before = set(self._crowd.held_since_s)
        held = self._crowd.hold(staying | leaving, members.keys(), confirmed, now)
        awaited = self._decisions.awaited
        for identifier in held:
            members[identifier] = self._members[identifier]
            since_s = self._crowd.held_since_s[identifier]
            awaited |= {
                index
                for index in unheard(identifier, since_s)
                if index not in listings or listings[index].asked_at_s <= since_s
            }
        self.awaited = frozenset(awaited)
        if not held - before:
            return []
        cause = Cause(Code.QUESTIONED, count=self._crowd.gone, most=self._crowd.before)
        return [BeliefEvent(now, "questioned", self.handle, None, cause)]

    def _may_be_held(self, member: Member, now: float) -> bool:
        """Whether a member that is not in any more could stay: not one whom `accept` or the keys refuse."""
        decision = self._decisions.by_identifier.get(member.identifier)
        if member.identifier in self._out and decision is not None and decision.is_in:
            return False
        if self.reports.identities.has_left(member.identifier, now):
            return False
        return self._invited(member) is not None

    def _invited(self, member: Member) -> Member | None:
        """The member with the addresses that `accept` allows; None if the rules of now refuse it."""
        transport, keys = Transport(member.protocol, member.port, member.addresses), self.rules.keys
        if keys:
            proven = prove(member.identifier, self.reports.identities.handle, transport, keys)
            if proven is None or proven.is_leaving:
                return None
            transport = replace(transport, addresses=(proven.address,))
        if why_refused(transport, self.rules.accept, self.rules.ports) is not None:
            return None
        return replace(member, addresses=accepted(transport.addresses, self.rules.accept))

    def _is_probed(self, stale_s: float | None) -> bool:
        """Whether the backend's own probe has a say about all members."""
        return stale_s is not None or self.rules.verified

    def _recent(self, now: float) -> tuple[Member, ...]:
        """The last good ones but those that left by their own word; the rules may have changed since."""
        invited = (
            self._invited(member)
            for member in filterfalse(self._overrides.is_down, self._history.recent)
            if not self.reports.identities.has_left(member.identifier, now)
            and not self._history.departures.is_drained(member.identifier)
        )
        return tuple(replace(member, stale=True) for member in invited if member is not None)


class Staleness:
    """Since when no registrar can vouch for a pool."""

    def __init__(self) -> None:
        self._remembered_s: float | None = None
        self._vouched_s = float("-inf")

    def remember(self, since_s: float) -> None:
        """Take what was known before a restart."""
        self._remembered_s = since_s

    def since(self, lost_s: float, now: float, *, is_settled: bool, is_vouched: bool) -> float | None:
        """Return since when, None while a settled registrar can vouch for the pool. `lost_s` is when the last
        settled registrar was lost; some other registrar vouches for a member if `is_vouched`."""
        if is_settled:
            self._remembered_s, self._vouched_s = None, float("-inf")
            return None
        if is_vouched:
            self._vouched_s = now
        since_s = self._remembered_s if self._remembered_s is not None else lost_s
        if math.isfinite(self._vouched_s):
            since_s = max(since_s, self._vouched_s - self._vouched_s % RENEW_STALE_S)
        return since_s


def _out(element: PoolElement, cause: Cause) -> OutMember:
    transport = element.user_transport
    address = transport.addresses[0] if transport.addresses else None
    return OutMember(element.identifier, address, transport.port, cause, 0.0)
