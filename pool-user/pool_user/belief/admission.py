"""Which PEs of a pool are taken note of at all: what strangers register must not fill memory and time.

A registrar's word about any other PE is refused at the door: nothing of it is stored, nothing is judged anew.
It is counted, and told of now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from pool_user.belief.accept import why_refused
from pool_user.belief.rules import BeliefEvent, PoolRules
from rserpool import PoolElement

MAX_FOREIGN = 64
"""PEs outside `accept` that are known of one pool, so that an administrator sees who is refused and why."""
TOLD_EVERY_S = 10.0
"""Refusals at the door are told of at most so often, for each pool and kind."""
FOREIGN, TOO_MANY = "foreign", "too_many"


class Admission:
    """The known PEs of one pool, by identifier: at most `max_members`, and MAX_FOREIGN outside `accept`."""

    def __init__(self, handle: str) -> None:
        self.refused: Counter[str] = Counter()
        """What was refused at the door since the start: FOREIGN or TOO_MANY."""
        self._handle = handle
        self._own: set[int] = set()
        self._foreign: set[int] = set()
        self._told_s: dict[str, float] = {}
        self._untold: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._own) + len(self._foreign)

    def takes(self, element: PoolElement, rules: PoolRules) -> bool:
        """Whether a registrar's word about this PE counts; then it is known from now on."""
        identifier = element.identifier
        is_foreign = why_refused(element.user_transport, rules.accept) is not None
        if identifier in (self._foreign if is_foreign else self._own):
            return True
        if is_foreign:
            # A known PE that moved out of the networks leaves the pool by that.
            if identifier not in self._own and len(self._foreign) >= MAX_FOREIGN:
                return False
            if len(self._foreign) < MAX_FOREIGN:
                self._own.discard(identifier)
                self._foreign.add(identifier)
            return True
        if len(self._own) >= rules.max_members:
            return False
        self._foreign.discard(identifier)
        self._own.add(identifier)
        return True

    def remember(self, identifier: int) -> None:
        """Take note of a PE of the last-known-good file."""
        self._own.add(identifier)

    def release(self, identifier: int) -> None:
        """Nobody claims the PE any more."""
        self._own.discard(identifier)
        self._foreign.discard(identifier)

    def spare(self, needed: Collection[int]) -> int | None:
        """One of the known PEs inside `accept` that is not `needed`; None if all are."""
        return next(iter(self._own.difference(needed)), None)

    def refuse(self, element: PoolElement, rules: PoolRules, now: float) -> BeliefEvent | None:
        """Count a refusal. Return what is to be told about it and those before, if it is time."""
        is_foreign = why_refused(element.user_transport, rules.accept) is not None
        kind = FOREIGN if is_foreign else TOO_MANY
        self.refused[kind] += 1
        self._untold[kind] += 1
        if now < self._told_s.get(kind, float("-inf")) + TOLD_EVERY_S:
            return None
        self._told_s[kind] = now
        count, self._untold[kind] = self._untold[kind], 0
        addresses = element.user_transport.addresses
        last = f"{addresses[0] if addresses else 'no address'} port {element.user_transport.port}"
        why = (
            f"not in the pool's accept networks, and {MAX_FOREIGN} such PEs are known already"
            if is_foreign
            else f"the pool has {rules.max_members} members already (max_members)"
        )
        words = f"refused: {why}; {count} registrations since this was told last, the latest of {last}"
        return BeliefEvent(now, "refused", self._handle, None, words)
