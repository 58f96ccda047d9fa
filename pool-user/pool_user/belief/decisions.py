"""From the claims about one pool to a decision about each of its PEs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from pool_user.belief.claims import Court, Judgement, Verdict, judge
from pool_user.belief.listing import Claim, Listing, Overruled
from rserpool import PoolElement

_Judged = list[tuple[int, Claim, Judgement]]


@dataclass(frozen=True, slots=True)
class Decision:
    """One PE: in or out.

    `element` is what its home, or else the latest claim that stands, says about it. `vouched`: somebody
    lists it now. `reason` is why it is out, empty if it is in. `is_listed`: somebody lists it, be it
    wrongly. `awaited`: who is to be asked.
    """

    element: PoolElement
    vouched: bool
    reason: str
    is_listed: bool
    awaited: frozenset[int]
    is_open: bool = False
    """Whether more may change it than what is said about this PE: any answer, or time alone."""

    @property
    def is_in(self) -> bool:
        """True when one claim about it stands."""
        return not self.reason


def decide(
    listings: Mapping[int, Listing], court: Court, members: Container[int], identifiers: Iterable[int]
) -> dict[int, Decision]:
    """Judge every claim about these PEs; `members` are in so far. Denied claims are forgotten, or overruled
    where their registrar goes on making them. A PE that nobody claims has no decision."""
    judged: dict[int, _Judged] = {}
    for identifier in identifiers:
        of_one = [
            (index, claim, _news(judge(index, claim, listings, court), identifier in members))
            for index, listing in listings.items()
            if (claim := listing.claims.get(identifier)) is not None
        ]
        if of_one:
            judged[identifier] = of_one
    decisions = {identifier: _decision(of_one, listings, court) for identifier, of_one in judged.items()}
    for of_one in judged.values():
        _carry_out(of_one, listings)
    return decisions


def _news(judgement: Judgement, is_in: bool) -> Judgement:
    """Decide what to do with news of a registrar that is catching up."""
    if judgement.verdict is not Verdict.NEWS:
        return judgement
    if is_in:
        return Judgement(Verdict.PENDING, awaited=judgement.awaited)
    return Judgement(Verdict.DENIED, Overruled.UNCONFIRMED, judgement.awaited)


def _decision(judged: _Judged, listings: Mapping[int, Listing], court: Court) -> Decision:
    def rank(item: tuple[int, Claim, Judgement]) -> tuple[bool, bool, bool, float, int]:
        index, claim, judgement = item
        is_listed = not claim.remembered and index in court.answering
        is_own = is_listed and court.homes.get(claim.element.home_registrar) == index
        last_s = listings[index].last_made_s(claim)
        return judgement.verdict is not Verdict.DENIED, is_own, is_listed, last_s, index

    best = max(judged, key=rank)
    overruled = {judgement.overruled for _, _, judgement in judged}
    reason = next((one for one in Overruled if one in overruled), Overruled.BY_OTHERS)
    return Decision(
        element=best[1].element,
        vouched=any(judgement.verdict is Verdict.VOUCHED for _, _, judgement in judged),
        reason=reason.value if best[2].verdict is Verdict.DENIED else "",
        is_listed=any(not claim.remembered for _, claim, _ in judged),
        awaited=frozenset(index for _, _, judgement in judged for index in judgement.awaited),
        is_open=any(
            judgement.verdict is not Verdict.VOUCHED or claim.element != best[1].element
            for _, claim, judgement in judged
        ),
    )


def _carry_out(judged: _Judged, listings: Mapping[int, Listing]) -> None:
    for index, claim, judgement in judged:
        claim.overruled = judgement.overruled
        if claim.remembered and judgement.verdict is Verdict.DENIED:
            del listings[index].claims[claim.element.identifier]
