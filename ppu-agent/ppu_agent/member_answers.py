"""Which members answered their pool's question, and when. Sans-IO: `now` is monotonic seconds.

Silence shows that a server is dead only if this agent heard it answer the same question while it was a
member. Otherwise a host that may register could name a live service that never answers such a question, leave
again, and have every client redirect the service's packets.

Every member is asked when it joins, and once a minute from then on. A member that does not answer is asked
again after 1 s, and then ever less often. All questions together stay below a rate.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping
from dataclasses import dataclass

from pool_user import Member, PoolView, ProbePlan

from ppu_agent.destinations import Destination, destinations_of

ASK_EVERY_S = 60.0
"""The time between two questions to a member that answers."""
ASK_AGAIN_AFTER_S = 1.0
"""The least time until a member that did not answer is asked again."""
MOST_ASKED_PER_S = 100.0
"""The most questions a second about all pools together."""
BURST_S = 0.2
"""The part of a second's questions that may be sent at once."""
HOLDS_S = 300.0
"""An answer counts for a member that left at most this long after it."""
MOST_KEPT = 1000
"""Answers of members that left, of all pools; the oldest are dropped above that."""
JITTER = 0.1
"""Intervals differ by up to this part, so that many clients' agents don't ask at the same moment."""

AskedQuestion = tuple[Destination, ProbePlan]
"""A destination, and the question that its pool asks."""


@dataclass(slots=True, eq=False)
class _MemberRecord:
    asked: AskedQuestion
    handle: str
    member: Member
    since_s: float
    answered_s: float = float("-inf")
    is_member: bool = True
    is_under_way: bool = False


class MemberAnswers:
    """Says which members are to be asked now, and keeps when they answered."""

    def __init__(self, draw: random.Random | None = None) -> None:
        self._records: dict[AskedQuestion, _MemberRecord] = {}
        self._queue: list[tuple[float, int, _MemberRecord]] = []
        self._count = 0
        self._allowed_at_s = float("-inf")
        self._draw = draw or random.Random()  # noqa: S311 - spreads load, no secret

    def __len__(self) -> int:
        return len(self._records)

    def follow(self, views: Mapping[str, PoolView], questions: Mapping[str, ProbePlan], now: float) -> None:
        """Take the members of all pools, and the question of each pool handle."""
        listed = {
            (destination, questions[handle]): (handle, member)
            for handle, view in views.items()
            if handle in questions
            for member in view.members
            for destination in destinations_of(member)
        }
        for asked, (handle, member) in listed.items():
            record = self._records.get(asked)
            if record is None or not record.is_member:
                answered_s = record.answered_s if record is not None else float("-inf")
                record = self._records[asked] = _MemberRecord(asked, handle, member, now, answered_s)
                self._wait(record, now)
        for asked in self._records.keys() - listed.keys():
            self._records[asked].is_member = False
        self._forget()

    def remember(self, asked: AskedQuestion, handle: str, member: Member, now: float) -> None:
        """Take an answer that an agent before heard within the last minutes."""
        self._records[asked] = _MemberRecord(asked, handle, member, now, now, is_member=False)

    def due(self, now: float, most: int) -> list[tuple[str, Member, AskedQuestion]]:
        """Return the members to ask now, each with its pool handle; `note()` must follow for each."""
        found: list[tuple[str, Member, AskedQuestion]] = []
        while self._queue and self.next_due_s <= now and len(found) < most:
            _, _, record = heapq.heappop(self._queue)
            if record.is_member and self._records.get(record.asked) is record:
                self._allowed_at_s = max(self._allowed_at_s, now - BURST_S) + 1 / MOST_ASKED_PER_S
                record.is_under_way = True
                found.append((record.handle, record.member, record.asked))
        return found

    @property
    def next_due_s(self) -> float:
        """When `due()` may have a member; infinity for never."""
        return max(self._allowed_at_s, self._queue[0][0]) if self._queue else float("inf")

    def note(self, asked: AskedQuestion, now: float, *, is_answer: bool) -> None:
        """Take the outcome of a question."""
        record = self._records.get(asked)
        if record is None or not record.is_under_way:
            return
        record.is_under_way = False
        pause_s = ASK_EVERY_S
        if is_answer:
            record.answered_s = now
        else:
            silent_for_s = now - max(record.since_s, record.answered_s)
            pause_s = min(ASK_EVERY_S, max(ASK_AGAIN_AFTER_S, silent_for_s))
        self._wait(record, now + pause_s * self._draw.uniform(1 - JITTER, 1 + JITTER))

    def was_heard(self, asked: AskedQuestion, left_at_s: float) -> bool:
        """Whether a member that left then had answered this question in the minutes before."""
        record = self._records.get(asked)
        return record is not None and record.answered_s >= left_at_s - HOLDS_S

    # Within

    def _wait(self, record: _MemberRecord, due_s: float) -> None:
        self._count += 1
        heapq.heappush(self._queue, (due_s, self._count, record))

    def _forget(self) -> None:
        """Drop members that left: those that never answered, and of the others the oldest answers."""
        left = [
            record for record in self._records.values() if not record.is_member and not record.is_under_way
        ]
        answered = [record for record in left if record.answered_s > float("-inf")]
        if len(answered) < len(left) or len(answered) > MOST_KEPT:
            latest = heapq.nlargest(MOST_KEPT, answered, key=lambda record: record.answered_s)
            for record in set(left) - set(latest):
                del self._records[record.asked]
