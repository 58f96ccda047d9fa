"""From the claims about one pool to a decision about each of its PEs: is it in (rule 2)?

Each registrar that lists a PE makes a **claim**: "this PE is in, and its home is that registrar". A claim
does not end because its registrar stops listing the PE, or stops answering: it is *remembered* until
somebody entitled to say so denies it. A PE is in while one claim about it stands. `judge()` decides on
one claim:

- **Its home is settled.** Then the home speaks. It lists the PE itself: the claim stands (and should the
  home name yet another home, that one is followed). It answered without the PE to a question asked *after*
  the claim was first made, or pushed the deletion after the question was asked that the claim answers: the
  claim is denied. Else the home is asked, and until it answers a PE that is in stays in. So a registrar
  that missed the news of a death can list the PE for as long as it likes. A third party's news bring nobody
  in before the home's word: that registrar may be catching up, or lie. An answer of the home that was cut off
  denies nobody, and brings nobody in that it lacks.
- **Its home is unknown, silent or not settled.** Then whoever lists the PE at present is believed,
  settled or not: the registrar of a PE that just moved, a peer that takes over. A remembered claim is
  denied once every settled registrar has answered without the PE to a question asked after the claim was
  last made. With no settled registrar, nobody is entitled: it stands (rule 5).

A claim denied while its registrar goes on making it is **overruled**: should the home fall silent later,
the old claim does not come back to life. It counts again when the home lists the PE again, or when the
registrar makes it anew, after having dropped it or with another home.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Set
from dataclasses import dataclass
from enum import Enum

from pool_user.belief.listing import Claim, Listings, RegistrarListing
from pool_user.belief.rules import UNKNOWN_HOME_LIFE_S
from pool_user.cause import Cause, Code
from pool_user.registrars.standing import SettledRegistrars
from rserpool import PoolElement


class ClaimVerdict(Enum):
    """The verdict on a claim.

    VOUCHED: a registrar lists the PE now. PENDING: the claim stands until the registrars that were asked
    answer. NEWS: until then a PE that is in stays in, and a PE that is out stays out. DENIED: the claim does
    not stand.
    """

    VOUCHED = "vouched"
    PENDING = "pending"
    NEWS = "news"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, who denied, and which registrars have to be asked before more can be said."""

    verdict: ClaimVerdict
    overruled: Code | None = None
    awaited: tuple[int, ...] = ()


VOUCHED = Judgement(ClaimVerdict.VOUCHED)


def judge(
    index: int,
    claim: Claim,
    listings: Listings,
    registrars: SettledRegistrars,
    followed: frozenset[int] = frozenset(),
) -> Judgement:
    """Decide on the claim that the registrar at `index` makes, as the text of this module says."""
    home = registrars.homes.get(claim.element.home_registrar)
    if home is not None:
        return _judge_by_home(home, index, claim, listings, registrars, followed)
    was_news = claim.overruled is Code.UNCONFIRMED and index in registrars.settled
    if claim.overruled is not None and not was_news:
        return Judgement(ClaimVerdict.DENIED, claim.overruled)
    if index in registrars.answering and not claim.remembered:
        return VOUCHED
    last_s = max(listings[index].last_made_s(claim), registrars.since_s)
    identifier = claim.element.identifier
    awaited = tuple(
        settled
        for settled in registrars.settled
        if settled not in listings
        or not (listings[settled].absent_since(identifier, last_s) or listings[settled].present(identifier))
    )
    if awaited or not registrars.settled:
        asked = tuple(settled for settled in awaited if not _is_full(listings.get(settled)))
        return Judgement(ClaimVerdict.PENDING, awaited=asked)
    return Judgement(ClaimVerdict.DENIED, Code.UNLISTED)


def _judge_by_home(
    home: int,
    index: int,
    claim: Claim,
    listings: Listings,
    registrars: SettledRegistrars,
    followed: frozenset[int],
) -> Judgement:
    identifier = claim.element.identifier
    listing = listings.get(home)
    own = listing.present(identifier) if listing is not None else None
    if own is not None:
        if home == index or home in followed:
            return VOUCHED
        return judge(home, own, listings, registrars, followed | {index})
    if listing is not None and (
        listing.absent_since(identifier, claim.since_s) or listing.deleted_since(identifier, claim.asked_s)
    ):
        return Judgement(ClaimVerdict.DENIED, Code.REMOVED)
    if claim.overruled is not None:
        return Judgement(ClaimVerdict.DENIED, claim.overruled, (home,))
    if listing is None:
        return Judgement(ClaimVerdict.PENDING, awaited=(home,))
    is_news = home != index and (listing.was_settled or listing.is_full)
    awaited = () if listing.is_full else (home,)
    return Judgement(ClaimVerdict.NEWS if is_news else ClaimVerdict.PENDING, awaited=awaited)


def _is_full(listing: RegistrarListing | None) -> bool:
    return listing is not None and listing.is_full


_OVERRULED = (Code.REMOVED, Code.UNLISTED, Code.UNCONFIRMED)
"""The causes of a denial; the first of several counts."""
_Judged = list[tuple[int, Claim, Judgement]]


@dataclass(frozen=True, slots=True)
class Decision:
    """One PE: in or out.

    `element` is what its home, or else the latest claim that stands, says about it. `vouched`: somebody
    lists it now. `cause` is why it is out, None if it is in. `is_listed`: some registrar lists it, perhaps
    wrongly. `awaited`: the registrars to be asked, by index.
    """

    element: PoolElement
    vouched: bool
    cause: Cause | None
    is_listed: bool
    awaited: frozenset[int]
    is_confirmed: bool = False
    """Whether its settled home lists it."""
    is_open: bool = False
    """Whether more may change it than what is said about this PE: any answer, or time alone."""

    @property
    def is_in(self) -> bool:
        """True when one claim about it stands."""
        return self.cause is None


def decide(
    listings: Listings,
    registrars: SettledRegistrars,
    members: Container[int],
    identifiers: Iterable[int],
) -> dict[int, Decision]:
    """Judge every claim about these PEs; `members` are in so far. Denied claims are forgotten, or overruled
    where their registrar goes on making them. A PE that nobody claims has no decision."""
    judged: dict[int, _Judged] = {}
    for identifier in identifiers:
        claims = [
            (index, claim, _news(judge(index, claim, listings, registrars), identifier in members))
            for index, listing in listings.items()
            if (claim := listing.claims.get(identifier)) is not None
        ]
        if claims:
            judged[identifier] = claims
    decisions = {identifier: _decision(claims, listings, registrars) for identifier, claims in judged.items()}
    for claims in judged.values():
        _carry_out(claims, listings)
    return decisions


def _news(judgement: Judgement, is_in: bool) -> Judgement:
    """Decide what to do with a third party's news of a PE."""
    if judgement.verdict is not ClaimVerdict.NEWS:
        return judgement
    if is_in:
        return Judgement(ClaimVerdict.PENDING, awaited=judgement.awaited)
    return Judgement(ClaimVerdict.DENIED, Code.UNCONFIRMED, judgement.awaited)


def _decision(judged: _Judged, listings: Listings, registrars: SettledRegistrars) -> Decision:
    def rank(item: tuple[int, Claim, Judgement]) -> tuple[bool, bool, bool, float, int]:
        index, claim, judgement = item
        is_listed = not claim.remembered and index in registrars.answering
        is_own = is_listed and registrars.homes.get(claim.element.home_registrar) == index
        last_s = listings[index].last_made_s(claim)
        return judgement.verdict is not ClaimVerdict.DENIED, is_own, is_listed, last_s, index

    best = max(judged, key=rank)
    _, is_own, *_ = rank(best)
    home = best[1].element.home_registrar
    overruled = {judgement.overruled for _, _, judgement in judged}
    code = next((code for code in _OVERRULED if code in overruled), Code.UNLISTED)
    return Decision(
        element=best[1].element,
        vouched=any(judgement.verdict is ClaimVerdict.VOUCHED for _, _, judgement in judged),
        cause=Cause(code) if best[2].verdict is ClaimVerdict.DENIED else None,
        is_listed=any(not claim.remembered for _, claim, _ in judged),
        awaited=frozenset(index for _, _, judgement in judged for index in judgement.awaited),
        is_confirmed=best[2].verdict is not ClaimVerdict.DENIED
        and registrars.homes.get(best[1].element.home_registrar) == best[0]
        and not best[1].remembered,
        # Its home's word stands before any other with the same home, however new: theirs have an older load.
        is_open=any(
            judgement.verdict is not ClaimVerdict.VOUCHED
            or (claim.element != best[1].element and not (is_own and claim.element.home_registrar == home))
            for _, claim, judgement in judged
        ),
    )


def _carry_out(judged: _Judged, listings: Listings) -> None:
    for index, claim, judgement in judged:
        claim.overruled = judgement.overruled
        if claim.remembered and judgement.verdict is ClaimVerdict.DENIED:
            del listings[index].claims[claim.element.identifier]


class PoolDecisions:
    """The decisions on the PEs of one pool, kept up with what is said of them.

    A PE is decided on anew when something was said of it, or while its decision is open: when others may
    change it. All are when the registrars' standings or the rules changed.
    """

    def __init__(self) -> None:
        self.by_identifier: dict[int, Decision] = {}
        self.registrars: SettledRegistrars | None = None
        """The standings by which all PEs were judged; None when all are to be judged anew."""
        self._open: set[int] = set()
        self._expires_s: dict[int, float] = {}
        """When PEs do not count any more whose home was never settled and who registered for too long."""
        self._now = float("-inf")

    def reopen(self) -> None:
        """All PEs are to be decided on anew."""
        self.registrars = None

    def judge(
        self,
        listings: Listings,
        registrars: SettledRegistrars,
        members: Container[int],
        concerned: Set[int],
        now: float,
    ) -> set[int]:
        """Decide on the PEs `concerned`, and on those that are open or have expired; on all when the word of
        other registrars counts. Return which these are. `members` are in so far."""
        self._now = now
        if registrars is not self.registrars:
            judged = set(self.by_identifier).union(*(listing.claims for listing in listings.values()))
        else:
            expired = {identifier for identifier, at_s in self._expires_s.items() if at_s <= now}
            judged = self._open | expired | concerned
        self.registrars = registrars
        decisions = decide(listings, registrars, members, judged)
        for identifier in judged:
            decision = decisions.get(identifier)
            if decision is None:
                self.by_identifier.pop(identifier, None)
                self._expires_s.pop(identifier, None)
            else:
                self.by_identifier[identifier] = decision
            (self._open.add if decision is not None and decision.is_open else self._open.discard)(identifier)
        return judged

    def has_expired(self, element: PoolElement, registrars: SettledRegistrars, *, is_confirmed: bool) -> bool:
        """Whether a PE whose home was never settled registered for longer than what counts of that.
        `is_confirmed`: its home confirmed it while it was settled."""
        identifier = element.identifier
        is_homeless = element.home_registrar not in registrars.homes and not is_confirmed
        if not is_homeless or not registrars.settled or element.life_ms <= UNKNOWN_HOME_LIFE_S * 1000:
            self._expires_s.pop(identifier, None)
            return False
        return self._now >= self._expires_s.setdefault(identifier, self._now + UNKNOWN_HOME_LIFE_S)

    def probe_answered(self, identifier: int, now: float) -> None:
        """The PE, which is in, answered the probe: that counts as much as another registration."""
        if identifier in self._expires_s:
            self._expires_s[identifier] = now + UNKNOWN_HOME_LIFE_S

    @property
    def awaited(self) -> set[int]:
        """The registrars that are to be asked, by index."""
        return {index for identifier in self._open for index in self.by_identifier[identifier].awaited}

    @property
    def next_deadline_s(self) -> float | None:
        """When the next PE expires."""
        return min((at_s for at_s in self._expires_s.values() if at_s > self._now), default=None)
