"""Who says what about one pool, and whether a PE is in (rule 2).

Each registrar that lists a PE makes a **claim**: "this PE is in, and its home is that registrar". A claim
does not end because its registrar stops listing the PE, or stops answering: it is *remembered* until
somebody entitled to say so denies it. A PE is in while one claim about it stands. `judge()` decides on
one claim:

- **Its home is settled.** Then the home speaks. It lists the PE itself: the claim stands (and should the
  home name yet another home, that one is followed). It answered without the PE: the claim is denied, if
  the answer is to a question asked *after* the claim was first made; else the claim stands and the home
  is asked again. So a registrar that missed the news of a death can list the PE for as long as it likes.
  News from a registrar that is not settled bring nobody in before the home's word: it may be catching up,
  and read of a registration before it reads of the death.
- **Its home is unknown, silent or not settled.** Then whoever lists the PE at present is believed,
  settled or not: the registrar of a PE that just moved, a peer that takes over. A remembered claim is
  denied once every settled registrar has answered without the PE to a question asked after the claim was
  last made. With no settled registrar, nobody is entitled: it stands (rule 5).

A claim denied while its registrar goes on making it is **overruled**: should the home fall silent later,
the old claim does not come back to life. It counts again when the home lists the PE again, or when the
registrar makes it anew, after having dropped it or with another home.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from rserpool.parameters import PoolElement

from rspdns.belief.rules import Reply

MAX_CLAIMS = 1024
"""Of one registrar about one pool, remembered ones included: an answer names 128 PEs at most, but a hostile
registrar may name others each time."""
MAX_LISTED = 128
"""PEs in one answer: a registrar cuts longer ones off, so one that is full denies nobody."""
MEMORY = -1
"""The place of what was read from the last-known-good file, beside those of the registrars."""


class Overruled(Enum):
    """Who overruled a claim that its registrar goes on making."""

    BY_HOME = "its home registrar does not list it any more"
    BY_OTHERS = "no settled registrar lists it any more"
    UNCONFIRMED = "told of by a registrar that is not settled, and not confirmed by its home registrar yet"


@dataclass(slots=True)
class Claim:
    """One registrar's word that a PE is in. `remembered`: not in its last answer; last made at `last_s`."""

    element: PoolElement
    since_s: float
    last_s: float
    remembered: bool = False
    overruled: Overruled | None = None


@dataclass(slots=True)
class Listing:
    """What one registrar said about the pool.

    `asked_at_s` and `answered_at_s` are of its last answer. `was_settled`: so was the registrar when it
    answered, and the answer counts for absence too.
    """

    asked_at_s: float = float("-inf")
    answered_at_s: float = float("-inf")
    was_settled: bool = False
    elements: tuple[PoolElement, ...] = ()
    claims: dict[int, Claim] = field(default_factory=dict)

    def update(self, reply: Reply, settled: bool) -> tuple[bool, bool]:
        """Take an answer. Return whether it says anything new at all, and whether who is in or their
        homes changed."""
        before_s, self.answered_at_s = self.answered_at_s, reply.answered_at_s
        self.asked_at_s = reply.asked_at_s
        self.was_settled = settled
        if reply.pool_elements == self.elements:
            return False, False
        self.elements = reply.pool_elements
        members_changed = False
        listed = {element.identifier: element for element in reply.pool_elements}
        for identifier, element in listed.items():
            claim = self.claims.get(identifier)
            if claim is None or claim.remembered or claim.element.home_registrar != element.home_registrar:
                self.claims[identifier] = Claim(element, reply.answered_at_s, reply.answered_at_s)
                members_changed = True
            else:
                claim.element = element
        for identifier, claim in self.claims.items():
            if identifier not in listed and not claim.remembered:
                claim.remembered, claim.last_s = True, before_s
                members_changed = True
        self._forget_the_oldest()
        return True, members_changed

    def forget_answers(self) -> None:
        """The registrar's life ended: all its claims are remembered ones, no answer counts for absence."""
        for claim in self.claims.values():
            if not claim.remembered:
                claim.remembered, claim.last_s = True, self.answered_at_s
        self.asked_at_s = self.answered_at_s = float("-inf")
        self.was_settled = False
        self.elements = ()

    def _forget_the_oldest(self) -> None:
        excess = len(self.claims) - MAX_CLAIMS
        if excess > 0:
            remembered = [identifier for identifier, claim in self.claims.items() if claim.remembered]
            for identifier in remembered[:excess]:
                del self.claims[identifier]

    def present(self, identifier: int) -> Claim | None:
        """The claim in the last answer, None if it did not list the PE."""
        claim = self.claims.get(identifier)
        return None if claim is None or claim.remembered else claim

    @property
    def is_full(self) -> bool:
        """True when the last answer may have been cut off; asking again at once would not help."""
        return len(self.elements) >= MAX_LISTED

    def absent_since(self, identifier: int, after_s: float) -> bool:
        """True when a settled answer to a question asked after `after_s` was without the PE.

        Never with a full answer, which may have been cut off before the PE.
        """
        return (
            not self.is_full
            and self.was_settled
            and self.asked_at_s > after_s
            and self.present(identifier) is None
        )

    def last_made_s(self, claim: Claim) -> float:
        """When the claim was made last."""
        return claim.last_s if claim.remembered else self.answered_at_s


@dataclass(frozen=True, slots=True)
class Court:
    """Who may speak: registrars (by place) that answer, those settled, and the settled ones by identifier.

    `since_s` is when that changed last: what was said before then is not enough to speak for a home that has
    fallen silent, since news of its last moments may have been on the way.
    """

    answering: Collection[int] = ()
    settled: Collection[int] = ()
    homes: Mapping[int, int] = field(default_factory=dict)
    since_s: float = float("-inf")


class Verdict(Enum):
    """What becomes of a claim. VOUCHED: a registrar lists the PE now. PENDING: it stands until somebody
    answers. NEWS: so it does about a PE that is in already, while one that is out stays so until then."""

    VOUCHED = "vouched"
    PENDING = "pending"
    NEWS = "news"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, who denied, and which registrars have to be asked before more can be said."""

    verdict: Verdict
    overruled: Overruled | None = None
    awaited: tuple[int, ...] = ()


VOUCHED = Judgement(Verdict.VOUCHED)


def judge(
    place: int,
    claim: Claim,
    listings: Mapping[int, Listing],
    court: Court,
    followed: frozenset[int] = frozenset(),
) -> Judgement:
    """Decide on the claim that the registrar at `place` makes, as the text of this module says."""
    home = court.homes.get(claim.element.home_registrar)
    if home is not None:
        return _judge_by_home(home, place, claim, listings, court, followed)
    if claim.overruled is not None:
        return Judgement(Verdict.DENIED, claim.overruled)
    if place in court.answering and not claim.remembered:
        return VOUCHED
    last_s = max(listings[place].last_made_s(claim), court.since_s)
    identifier = claim.element.identifier
    awaited = tuple(
        settled
        for settled in court.settled
        if settled not in listings
        or not (listings[settled].absent_since(identifier, last_s) or listings[settled].present(identifier))
    )
    if awaited or not court.settled:
        asked = tuple(settled for settled in awaited if not _is_full(listings.get(settled)))
        return Judgement(Verdict.PENDING, awaited=asked)
    return Judgement(Verdict.DENIED, Overruled.BY_OTHERS)


def _judge_by_home(
    home: int,
    place: int,
    claim: Claim,
    listings: Mapping[int, Listing],
    court: Court,
    followed: frozenset[int],
) -> Judgement:
    identifier = claim.element.identifier
    listing = listings.get(home)
    own = listing.present(identifier) if listing is not None else None
    if own is not None:
        if home == place or home in followed:
            return VOUCHED
        return judge(home, own, listings, court, followed | {place})
    if listing is not None and listing.absent_since(identifier, claim.since_s):
        return Judgement(Verdict.DENIED, Overruled.BY_HOME)
    if claim.overruled is not None:
        return Judgement(Verdict.DENIED, claim.overruled, (home,))
    catching_up = place in court.answering and place not in court.settled and not claim.remembered
    if catching_up and listing is not None and listing.was_settled:
        return Judgement(Verdict.NEWS, awaited=(home,))
    return Judgement(Verdict.PENDING, awaited=() if _is_full(listing) else (home,))


def _is_full(listing: Listing | None) -> bool:
    return listing is not None and listing.is_full
