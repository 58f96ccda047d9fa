"""Members that registrars tell at another place under the same identifier, in a pool without keys.

A registrar that lies says so of servers that live, and so does a host that takes identifiers. A sidecar says
so, too, when its server has another address after a restart. The old place tells them apart:

- It answers the backend's own probe: the member stays there, and the other place is refused. That place may
  be outside `accept` or `ports`.
- It does not answer within MOVED_AFTER_S of the first probe, or stops to: the member is at the other place.
  Probes have a rate: those of a large pool begin one after the other.
- The server there is in under another identifier: its sidecar took a fresh one. Nothing is left to defend.

In a keyed pool an identifier proves its place, and no other place counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pool_user.belief.admission import TOLD_EVERY_S
from pool_user.belief.identities import WantedMembers, place_of
from pool_user.belief.rules import MOVED_AFTER_S, MOVED_UNPROBED_S
from pool_user.cause import Cause, Code
from pool_user.views import BeliefEvent, Member


@dataclass(slots=True)
class _Move:
    """`member` is at the old place, `other` at the one that was told last, `since_s` when that began."""

    member: Member
    other: Member
    since_s: float
    probed_s: float | None = None
    """When the first probe of the old place began."""
    answers: bool = False
    is_over: bool = False

    @property
    def until_s(self) -> float:
        """When it is over unless the old place answers."""
        return self.since_s + MOVED_UNPROBED_S if self.probed_s is None else self.probed_s + MOVED_AFTER_S

    def is_due(self, now: float) -> bool:
        """Whether nothing answered at the old place in time."""
        return not self.is_over and not self.answers and now >= self.until_s


class MovedMembers:
    """The members of one pool that stay at their old place for now, and are probed there."""

    def __init__(self) -> None:
        self._moves: dict[int, _Move] = {}
        self._told_s = self._now = float("-inf")

    def placed(self, other: Member, before: Member | None, now: float) -> Member:
        """Return the member that counts: `other`, as the registrars tell it, or the member of `before`."""
        self._now = now
        move = self._moves.get(other.identifier)
        if before is None or _is_at(other, before):
            self._moves.pop(other.identifier, None)
            return other
        if move is None or place_of(move.member) != place_of(before):
            move = self._moves[other.identifier] = _Move(before, other, now)
        move.other = other
        move.is_over |= move.is_due(now)
        return other if move.is_over else move.member

    def forget(self, identifier: int) -> None:
        """No registrar's word about this PE counts any more."""
        self._moves.pop(identifier, None)

    def probing(self, member: Member, now: float) -> None:
        """A probe of the member begins. The next look at the deadline is soon enough to notice."""
        move = self._moves.get(member.identifier)
        if move is not None and move.probed_s is None and place_of(member) == place_of(move.member):
            move.probed_s = now

    def probed(self, member: Member, answers: bool) -> bool:
        """The probe came to a conclusion. Return whether it concerns a member that stays at its old place."""
        move = self._moves.get(member.identifier)
        if move is None or move.is_over or place_of(member) != place_of(move.member):
            return False
        move.answers = answers
        move.is_over = not answers
        return True

    def due(self, now: float) -> set[int]:
        """The members whose old place did not answer in time."""
        self._now = now
        return {identifier for identifier, move in self._moves.items() if move.is_due(now)}

    def doubled(self, wanted: WantedMembers) -> set[int]:
        """The members whose server is in under another identifier; they do not stay any more."""
        doubled = {
            identifier
            for identifier, move in self._moves.items()
            if not move.is_over and wanted.others(move.member)
        }
        for identifier in doubled:
            self._moves[identifier].is_over = True
        return doubled

    @property
    def members(self) -> Mapping[int, Member]:
        """Those that stay, at their old places, by identifier."""
        return {identifier: move.member for identifier, move in self._moves.items() if not move.is_over}

    def events(self, handle: str, now: float) -> Iterator[BeliefEvent]:
        """Tell of one place that is refused, now and then: whoever sends these may send any number."""
        refused = [move for move in self._moves.values() if move.answers and not move.is_over]
        if not refused or now < self._told_s + TOLD_EVERY_S:
            return
        self._told_s = now
        move = refused[-1]
        other, old = map(_where, (move.other, move.member))
        cause = Cause(Code.IDENTIFIER_TAKEN, detail=other, former=old)
        yield BeliefEvent(now, "refused", handle, move.member.identifier, cause)

    @property
    def next_deadline_s(self) -> float | None:
        """When a member may be elsewhere by time alone, or its probe may have begun in the meantime."""
        times = [
            move.until_s if move.probed_s is not None else min(move.until_s, self._now + MOVED_AFTER_S)
            for move in self._moves.values()
            if not move.is_over and not move.answers
        ]
        return min((time_s for time_s in times if time_s > self._now), default=None)


def _where(member: Member) -> str:
    return f"{member.addresses[0] if member.addresses else 'no address'} port {member.port}"


def _is_at(other: Member, before: Member) -> bool:
    """Whether no other place is told than those of before."""
    return (
        bool(other.addresses)
        and other.port == before.port
        and other.protocol is before.protocol
        and set(other.addresses) <= set(before.addresses)
    )
