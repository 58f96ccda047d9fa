"""The word of one registrar about one pool: its answers, its pushes, and the claims that these make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pool_user.cause import Code
from rserpool import PoolElement

MAX_DELETIONS = 4096
"""The most deletions kept of one registrar about one pool: a hostile registrar may name others each time."""
MEMORY = -1
"""Stands for the last-known-good file where else the index of a registrar stands."""


@dataclass(slots=True)
class Claim:
    """One registrar's word that a PE is in, made first at `since_s` in answer to a question of `asked_s`.

    `remembered`: it is not made any more; last made at `last_s`.
    """

    element: PoolElement
    asked_s: float
    since_s: float
    last_s: float
    remembered: bool = False
    overruled: Code | None = None
    """Why it does not count, although its registrar goes on making it."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """The registrar told at `at_s` that a PE is gone. `was_settled`: so was the registrar."""

    at_s: float
    was_settled: bool


@dataclass(slots=True)
class RegistrarListing:
    """The word of one registrar about the pool.

    `asked_at_s` and `was_settled` are of its last whole answer: so was the registrar when it answered, and
    the answer counts for absence too. `answered_at_s` is of its last answer, `elements` what that held (None
    when it has pushed something since). `pushed_s` and `deletions` hold what it pushed after that whole
    answer was asked for, the oldest first. `touched` takes the identifiers of all PEs about which it said
    something new.
    """

    touched: set[int] = field(default_factory=set)
    asked_at_s: float = float("-inf")
    answered_at_s: float = float("-inf")
    was_settled: bool = False
    is_full: bool = False
    """The last answer may have been cut off; asking again at once would not help."""
    elements: tuple[PoolElement, ...] | None = ()
    claims: dict[int, Claim] = field(default_factory=dict)
    pushed_s: dict[int, float] = field(default_factory=dict)
    deletions: dict[int, Deletion] = field(default_factory=dict)

    def update(
        self,
        elements: tuple[PoolElement, ...],
        asked_at_s: float,
        answered_at_s: float,
        *,
        is_full: bool,
        settled: bool,
    ) -> tuple[bool, bool]:
        """Take an answer, which tells of a moment between `asked_at_s` and `answered_at_s` (monotonic).

        `is_full`: it may have been cut off, and denies nobody. Return whether it says anything new at all,
        and whether who is in or their homes changed.
        """
        before_s, self.answered_at_s = self.answered_at_s, answered_at_s
        self.is_full = is_full
        if not is_full:
            self.asked_at_s = asked_at_s
            self.was_settled = settled
            self._forget_pushes_before(asked_at_s)
        if elements == self.elements:
            return False, False
        self.elements = elements
        members_changed = False
        listed = set()
        for element in elements:
            listed.add(element.identifier)
            if not self._is_newer(element.identifier, asked_at_s):
                members_changed |= self._claim(element, asked_at_s, answered_at_s)
        for identifier, claim in self.claims.items():
            if (
                identifier not in listed
                and not claim.remembered
                and not is_full
                and not self._is_newer(identifier, asked_at_s)
            ):
                claim.remembered, claim.last_s = True, max(claim.last_s, before_s)
                members_changed = True
                self.touched.add(identifier)
        return True, members_changed

    def push(self, element: PoolElement, at_s: float) -> bool:
        """Take word that a PE came or changed. Return whether who is in or their homes changed."""
        self.elements = None
        self._note_push(element.identifier, at_s)
        self.deletions.pop(element.identifier, None)
        changed = self._claim(element, at_s, at_s)
        self.claims[element.identifier].last_s = at_s
        return changed

    def renew(self, element: PoolElement, at_s: float) -> bool:
        """Take word of a PE that registered again, if it is listed exactly so; else return False."""
        claim = self.present(element.identifier)
        if claim is None or claim.overruled is not None or claim.element != element:
            return False
        if element.identifier in self.deletions:
            return False
        self._note_push(element.identifier, at_s)
        claim.last_s = at_s
        return True

    def delete(self, identifier: int, at_s: float, settled: bool) -> bool:
        """Take word that a PE is gone. Return whether it was listed."""
        self.elements = None
        self.touched.add(identifier)
        self.pushed_s.pop(identifier, None)
        self.deletions.pop(identifier, None)  # the order is that of their times
        self.deletions[identifier] = Deletion(at_s, settled)
        while len(self.deletions) > MAX_DELETIONS:
            del self.deletions[next(iter(self.deletions))]
        claim = self.present(identifier)
        if claim is None:
            return False
        claim.remembered, claim.last_s = True, max(claim.last_s, self.answered_at_s)
        return True

    def own_children(self, home: int, elements: Iterable[PoolElement], asked_at_s: float) -> bool:
        """Take all PEs whose home the registrar is, `home` being its identifier, as of `asked_at_s` or later.

        A PE that is no child of it any more may have died or moved: only an answer tells, to a question
        asked from now on. Return whether who is in or their homes changed.
        """
        changed = False
        owned = set()
        for element in elements:
            owned.add(element.identifier)
            if not self._is_newer(element.identifier, asked_at_s):
                changed |= self.push(element, asked_at_s)
        for identifier, claim in self.claims.items():
            if (
                identifier not in owned
                and not claim.remembered
                and claim.element.home_registrar == home
                and not self._is_newer(identifier, asked_at_s)
            ):
                self.elements = None
                claim.remembered, claim.last_s = True, max(claim.last_s, self.answered_at_s)
                claim.asked_s = claim.since_s = asked_at_s
                changed = True
                self.touched.add(identifier)
        return changed

    def settled_anew(self) -> None:
        """The registrar became settled: only what it says from now on counts for absence."""
        self.was_settled = False
        self.deletions.clear()

    def forget_answers(self) -> None:
        """The registrar's life ended: all its claims are remembered ones, no answer counts for absence."""
        for claim in self.claims.values():
            if not claim.remembered:
                claim.remembered, claim.last_s = True, max(claim.last_s, self.answered_at_s)
        self.asked_at_s = self.answered_at_s = float("-inf")
        self.was_settled = self.is_full = False
        self.elements = ()
        self.pushed_s.clear()
        self.deletions.clear()

    def _claim(self, element: PoolElement, asked_s: float, at_s: float) -> bool:
        """The registrar lists the PE. Return whether it did not before, or with another home."""
        claim = self.claims.get(element.identifier)
        if claim is None or claim.remembered or claim.element.home_registrar != element.home_registrar:
            self.claims[element.identifier] = Claim(element, asked_s, at_s, at_s)
            self.touched.add(element.identifier)
            return True
        if claim.element != element:
            self.touched.add(element.identifier)
        claim.element = element
        return False

    def _note_push(self, identifier: int, at_s: float) -> None:
        self.pushed_s.pop(identifier, None)  # the order is that of their times
        self.pushed_s[identifier] = at_s

    def forget(self, identifier: int) -> None:
        """Nothing that was said about this PE counts any more."""
        if self.claims.pop(identifier, None) is not None:
            self.elements = None
            self.touched.add(identifier)
        self.pushed_s.pop(identifier, None)

    def _is_newer(self, identifier: int, asked_at_s: float) -> bool:
        """Whether something was pushed about the PE after a question was asked: then that is what counts."""
        deletion = self.deletions.get(identifier)
        pushed_s = deletion.at_s if deletion else self.pushed_s.get(identifier, float("-inf"))
        return pushed_s > asked_at_s

    def _forget_pushes_before(self, asked_at_s: float) -> None:
        while self.pushed_s and self.pushed_s[first := next(iter(self.pushed_s))] <= asked_at_s:
            del self.pushed_s[first]
        while self.deletions and self.deletions[first := next(iter(self.deletions))].at_s <= asked_at_s:
            del self.deletions[first]

    def present(self, identifier: int) -> Claim | None:
        """The claim that the registrar makes at present, None if it does not list the PE."""
        claim = self.claims.get(identifier)
        return None if claim is None or claim.remembered else claim

    def absent_since(self, identifier: int, after_s: float) -> bool:
        """True when the registrar, settled, said after `after_s` that the PE is gone, or answered without it
        to a question asked after `after_s`.

        Never with a full answer, which may have been cut off before the PE.
        """
        if self.present(identifier) is not None:
            return False
        answered = self.was_settled and self.asked_at_s > after_s
        return answered or self.deleted_since(identifier, after_s)

    def has_deleted(self, identifier: int) -> bool:
        """True when the registrar, settled, told that the PE is gone, and no later answer says otherwise."""
        return self.deleted_since(identifier, float("-inf"))

    def deleted_since(self, identifier: int, after_s: float) -> bool:
        """True when the registrar, settled, told after `after_s` that the PE is gone."""
        deletion = self.deletions.get(identifier)
        return deletion is not None and deletion.was_settled and deletion.at_s > after_s

    def last_made_s(self, claim: Claim) -> float:
        """When the claim was made last."""
        return claim.last_s if claim.remembered else max(claim.last_s, self.answered_at_s)


Listings = Mapping[int, RegistrarListing]
"""By the index of the registrar, or MEMORY."""
