"""The reports of the registrars about one pool: which of them are taken, and what they say.

A report passes three doors: in a keyed pool the proof in the identifier (`Identities`), the rules of the
pool, and its size (`PoolAdmission`). A PE that is refused leaves no trace but a count. `RegistrarListing`
keeps the reports about the others. The PEs of which something new was said are to be decided on anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from pool_user.belief.admission import PoolAdmission, spoken_for, why_refused
from pool_user.belief.decisions import PoolDecisions
from pool_user.belief.homes import Homes
from pool_user.belief.identities import Farewells, Identities
from pool_user.belief.listing import MEMORY, Claim, RegistrarListing
from pool_user.belief.rules import PoolRules
from pool_user.cause import Code
from pool_user.views import BeliefEvent, Member
from rserpool import PoolElement, Transport, Update, is_drained_life


class PoolReports:
    """The reports about the pool `name`. `decisions` are those made of them, `homes` the members' homes.

    `members` returns the PEs that are in: when the pool is full, these keep their places.
    """

    def __init__(
        self,
        name: str,
        handle: bytes,
        rules: PoolRules,
        decisions: PoolDecisions,
        homes: Homes,
        members: Callable[[], Set[int]],
    ) -> None:
        self.rules = rules
        self.admission = PoolAdmission(name)
        self.identities = Identities(handle)
        self.farewells = Farewells()
        self.listings: dict[int, RegistrarListing] = {}
        """By the registrar's index."""
        self.is_dirty = False
        """Whether the next evaluation may find something."""
        self.is_awaited = True
        """Whether any report may settle something, also when it is no news."""
        self._decisions = decisions
        self._homes = homes
        self._members = members
        self._touched: set[int] = set()
        """PEs of which something was said since the last evaluation."""
        self._spare: list[int] | None = None
        """Known PEs inside `accept` that were not in at the last evaluation: others may have their places.
        None: not looked for since."""
        self._notices: list[BeliefEvent] = []

    def set_rules(self, rules: PoolRules) -> None:
        """Take other rules: by these all PEs are decided on anew."""
        if rules != self.rules:
            self._decisions.reopen()
        self.rules = rules

    def touch(self, identifier: int) -> None:
        """The PE is to be decided on anew."""
        self._touched.add(identifier)
        self.is_dirty = True

    def take_touched(self) -> set[int]:
        """An evaluation begins: take the PEs of which something was said since the last evaluation."""
        touched = self._touched.copy()
        self._touched.clear()  # the listings add to this very set
        self._spare = None
        self.is_dirty = False
        return touched

    def release(self, identifiers: Iterable[int]) -> None:
        """Give the places of those of these PEs free that no registrar claims."""
        for identifier in identifiers:
            if not any(identifier in listing.claims for listing in self.listings.values()):
                self.admission.release(identifier)

    def listed_by(self, identifier: int) -> list[int]:
        """The numbers, from 1, of the registrars that list a PE now."""
        return sorted(
            index + 1
            for index, listing in self.listings.items()
            if index != MEMORY and listing.present(identifier) is not None
        )

    def take_notices(self) -> list[BeliefEvent]:
        """Take the events about refusals."""
        notices, self._notices = self._notices, []
        return notices

    def answered(
        self,
        index: int,
        elements: Sequence[PoolElement],
        asked_at_s: float,
        answered_at_s: float,
        *,
        is_full: bool,
        settled: bool,
    ) -> bool:
        """Take an answer, as `RegistrarListing.update()` does. Return True when it changes who is listed, or
        with which home."""
        listing = self._listing(index)
        if asked_at_s < listing.asked_at_s:
            return False
        was_settled = listing.was_settled
        taken = tuple(
            element
            for element in self._genuine(elements, index, answered_at_s)
            if self._takes(element, answered_at_s)
        )
        news, members_changed = listing.update(
            taken, asked_at_s, answered_at_s, is_full=is_full, settled=settled
        )
        is_news = news or bool(self._touched) or was_settled != listing.was_settled
        self.is_dirty |= is_news or self.is_awaited
        return members_changed

    def updated(self, index: int, update: Update, *, settled: bool) -> bool:
        """Take what a registrar pushed. Return True when it changes who is listed, or with which home."""
        listing = self._listing(index)
        element, at_s = update.pool_element, update.at_s
        if not update.is_deletion:
            genuine = next(iter(self._genuine((element,), index, at_s)), None)
            if genuine is None:
                return False
            element = genuine
        if not update.is_deletion and settled and listing.renew(element, at_s):
            self.is_dirty |= self.is_awaited
            return False
        if update.is_deletion:
            self._homes.deleted(element.identifier, index)
            changed = listing.delete(element.identifier, at_s, settled)
            self.is_dirty |= changed or self.is_awaited or element.identifier in self._decisions.by_identifier
            return changed
        if not self._takes(element, at_s):
            return False
        self.is_dirty = True
        return listing.push(element, at_s)

    def own_children(self, index: int, home: int, elements: Iterable[PoolElement], asked_at_s: float) -> bool:
        """Take all PEs whose `home` the registrar is. Return True when that changes who is listed."""
        genuine = self._genuine(elements, index, asked_at_s)
        taken = [element for element in genuine if self._takes(element, asked_at_s)]
        changed = self._listing(index).own_children(home, taken, asked_at_s)
        self.is_dirty |= changed
        return changed

    def link_lost(self, index: int) -> None:
        """A registrar's life ended."""
        if index in self.listings:
            self.listings[index].forget_answers()
            self._decisions.reopen()
            self.is_dirty = True

    def settled(self, index: int) -> None:
        """A registrar became settled: only what it answers from now on counts for absence.

        A PE that it goes on listing counts like that of any other registrar, unless its home denied it.
        """
        listing = self.listings.get(index)
        if listing is None:
            return
        self._decisions.reopen()
        listing.settled_anew()
        for claim in listing.claims.values():
            if claim.overruled is not Code.REMOVED:
                claim.overruled = None

    def remember(self, members: Iterable[Member], now: float) -> None:
        """Take the members that were in before a restart, as claims of nobody who could be asked."""
        claims = self._listing(MEMORY).claims
        self._decisions.reopen()
        for member in members:
            self.admission.remember(member.identifier)
            if self.rules.keys:
                self.identities.remember(member)
            transport = Transport(member.protocol, member.port, member.addresses)
            element = PoolElement(member.identifier, member.home_registrar, 0, transport, member.policy)
            claims[member.identifier] = Claim(element, now, now, now, remembered=True)
        self._spare = None

    def _listing(self, index: int) -> RegistrarListing:
        listing = self.listings.get(index)
        if listing is None:
            listing = self.listings[index] = RegistrarListing(self._touched)
        return listing

    def _takes(self, element: PoolElement, at_s: float) -> bool:
        """Whether what is said about this PE counts; a refusal is counted."""
        identifier, rules, size = element.identifier, self.rules, len(self.admission)
        is_foreign = why_refused(element.user_transport, rules.accept, rules.ports) is not None
        if self.admission.takes(identifier, is_foreign=is_foreign, most=rules.max_members):
            if len(self.admission) > size:  # should no claim come of it, the next evaluation releases it
                self._touched.add(identifier)
            return True
        if not is_foreign and self._make_room():
            return self.admission.takes(identifier, is_foreign=False, most=rules.max_members)
        self._note_refusal(element, Code.FOREIGN if is_foreign else Code.TOO_MANY, at_s)
        return False

    def _make_room(self) -> bool:
        """Forget a PE of a full pool whose claims were denied; one that is in stays. Return False when there
        is none."""
        if self._spare is None:  # once for each evaluation: those refused may be thousands a second
            self._spare = self.admission.others(self._members())
        while self._spare:
            identifier = self._spare.pop()
            if identifier not in self._touched:
                for listing in self.listings.values():
                    listing.forget(identifier)
                self.touch(identifier)
                self.admission.release(identifier)
                return True
        return False

    def _note_refusal(self, element: PoolElement, code: Code, at_s: float) -> None:
        notice = self.admission.refuse(element, code, self.rules.max_members, at_s)
        if notice is not None:
            self._notices.append(notice)

    def _genuine(self, elements: Iterable[PoolElement], index: int, at_s: float) -> Iterable[PoolElement]:
        """The PEs that registrar `index` tells, with the addresses of their servers; of a keyed pool those
        that prove who they are.

        A PE that says that it leaves is none: it takes out the PE that it was. Nor is the farewell of a
        drained server.
        """
        agents = self.rules.remote_agents
        if self.rules.keys and not agents:
            return [genuine for element in elements if (genuine := self._proven(element, index, at_s))]
        servers = [element for element in elements if not self._is_farewell(element, index, at_s)]
        return [spoken_for(element, agents) for element in servers] if agents else servers

    def _is_farewell(self, element: PoolElement, index: int, at_s: float) -> bool:
        """Whether the PE only says that its server is drained; the word of its home registrar is noted."""
        if not is_drained_life(element.life_ms):
            return False
        registrars = self._decisions.registrars
        if registrars is not None and registrars.homes.get(element.home_registrar) == index:
            self.farewells.note(element, at_s)
        return True

    def _proven(self, element: PoolElement, index: int, at_s: float) -> PoolElement | None:
        proven, element = self.identities.genuine(element, self.rules.keys, index, at_s)
        if proven is None:
            self._note_refusal(element, Code.UNPROVEN, at_s)
            return None
        if not proven.is_leaving:
            return element
        home, registrars = self._homes.home_of(proven.member), self._decisions.registrars
        by_home = (
            registrars is not None and home == element.home_registrar and registrars.homes.get(home) == index
        )
        self._is_farewell(element, index, at_s)
        if self.identities.left(proven.member, at_s, by_home=by_home):
            self.touch(proven.member)
        return None
