"""The whole belief: every registrar, every pool."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from daemon_kit.finding import Finding

from pool_user.belief.pool import PoolBelief
from pool_user.belief.rules import (
    RENEW_STALE_S,
    PoolRules,
    pool_handle,
    pool_name,
)
from pool_user.cause import Code
from pool_user.overrides import PoolOverride
from pool_user.registrars.session import RegistrarQuestion, RegistrarSessions
from pool_user.registrars.standing import RegistrarView, SettledRegistrars
from pool_user.views import (
    BeliefChange,
    BeliefEvent,
    Departure,
    Member,
    PoolChange,
    PoolView,
    RememberedPool,
)
from rserpool import MAX_POOL_ELEMENTS, MOST_RESOLVED, SENTINEL_POOL_PREFIX, Resolution, Table, Update

_EVENTS_KEPT = 10_000


class Belief:
    """The belief about one handlespace, formed from all reports of its registrars. No clock: every `now` is
    monotonic seconds, never decreasing. `handlespace` is its name, if there are several
    (`pool_user.handlespaces`); its pools are then called `handlespace/handle`.

    `registrars` are their addresses, in the order of their sentinels' numbers; a registrar is named by its
    index in it, from 0. `sessions` hold what is known of each registrar itself. Tell the belief what happens
    (`link`, `answered`, `updated`, `table`, `unanswered`, `probed`); `evaluate()` what is `due()`, which
    returns what changed; ask `questions()` at once, and come back at `next_deadline_s` at the latest.
    """

    def __init__(
        self, registrars: Sequence[str], pools: Mapping[str, PoolRules], handlespace: str = ""
    ) -> None:
        self.handlespace = handlespace
        self._events: deque[BeliefEvent] = deque(maxlen=_EVENTS_KEPT)
        self.sessions = RegistrarSessions(registrars, self._events.append)
        self._pools = {handle: self._made(handle, rules) for handle, rules in pools.items()}
        self._dirty: set[str] = set(self._pools)
        """The pools of which something was told."""
        self._concerned: set[str] = set()
        """Those that others are judged about anew, since a registrar's standing changed: they have time."""
        self.views: Mapping[str, PoolView] = {handle: pool.view for handle, pool in self._pools.items()}
        """Every pool by the last evaluation. A pool in which nothing changed keeps the very same object."""
        self._stale_since_s: float | None = None
        self._timers_s: dict[str, float] = {}
        self._waiting: set[str] = set()
        self._now = self._renew_s = float("-inf")

    # Events

    def link(self, registrar: int, up: bool, now: float) -> None:
        """The association with a registrar came up or was lost."""
        self.advance(now)
        self.sessions[registrar].link(up, now)
        for handle, pool in self._pools.items():
            pool.reports.link_lost(registrar)
            if pool.reports.is_dirty:
                self._concerned.add(handle)
        self.advance(now)

    def answered(self, registrar: int, resolution: Resolution) -> bool:
        """A registrar answered. Return True when others should be asked at once: who is listed, or where,
        changed.

        Ignored, and False: answers about unknown pools, and to questions from before the link came up.
        """
        session = self.sessions[registrar]
        if not session.life.is_of(resolution.asked_at_s):
            return False
        now = resolution.answered_at_s
        handle, elements = pool_name(resolution.handle, self.handlespace), resolution.pool_elements
        self.advance(now)
        session.answered(now)
        if (sentinels := pool_name(resolution.handle)).startswith(SENTINEL_POOL_PREFIX):
            self.sessions.sentinels(registrar, sentinels, elements, now)
            self.advance(now)
            return False
        self.advance(now)
        pool = self._pools.get(handle)
        if pool is None:
            return False
        changed = pool.reports.answered(
            registrar,
            elements,
            resolution.asked_at_s,
            now,
            # A registrar cuts longer answers off. Its pushes and its handle table tell which members left
            # such a pool.
            is_full=len(elements) >= MOST_RESOLVED,
            settled=registrar in self._registrars.settled,
        )
        if changed:
            self.sessions.note_changed(registrar, (handle,))
        self._note_report(handle, pool)
        return changed

    def updated(self, registrar: int, update: Update) -> bool:
        """A registrar told of a change. Return True when others should be asked at once, as for `answered()`.

        Ignored, and False: what comes under an identifier that is not known for that registrar's, while it
        is down, and about unknown pools.
        """
        handle = pool_name(update.handle, self.handlespace)
        pool = self._pools.get(handle)
        if pool is None:
            return False
        self.advance(update.at_s)
        if not self.sessions[registrar].life.has_spoken(update.sender):
            return False
        changed = pool.reports.updated(registrar, update, settled=registrar in self._registrars.settled)
        if changed:
            self.sessions.note_changed(registrar, (handle,))
        self._note_report(handle, pool)
        return changed

    def table(self, registrar: int, table: Table) -> list[str]:
        """A registrar gave its handle table. Return the pools about which others should be asked at once.

        It is ignored where `updated()` would be, and when it was asked for before the link came up.
        """
        self.advance(table.answered_at_s)
        life = self.sessions[registrar].life
        if not life.has_spoken(table.sender) or not life.is_of(table.asked_at_s):
            return []
        settled = registrar in self._registrars.settled
        listed = {pool_name(handle, self.handlespace): elements for handle, elements in table.pools.items()}
        changed = []
        for handle, pool in self._pools.items():
            elements = listed.get(handle, ())
            if table.own_children_only:
                news = pool.reports.own_children(registrar, table.sender, elements, table.asked_at_s)
            else:
                news = pool.reports.answered(
                    registrar,
                    elements,
                    table.asked_at_s,
                    table.answered_at_s,
                    is_full=len(elements) >= MAX_POOL_ELEMENTS,
                    settled=settled,
                )
            if news:
                changed.append(handle)
            self._note_report(handle, pool)
        self.sessions.note_changed(registrar, changed)
        return changed

    def unanswered(self, registrar: int, asked_at_s: float, now: float) -> None:
        """A question of `asked_at_s` was given up; by and by that makes a registrar silent."""
        self.advance(now)
        self.sessions[registrar].unanswered(asked_at_s)
        self.advance(now)

    def probing(self, handle: str, member: Member, now: float) -> None:
        """The backend's own probe of a member begins."""
        pool = self._pools.get(handle)
        if pool is not None:
            pool.probing(member, now)

    def probe_answered(self, handle: str, member: Member, now: float) -> None:
        """A member answered the backend's own probe. Each answer is told, conclusions by `probed()`."""
        pool = self._pools.get(handle)
        if pool is not None:
            pool.probe_answered(member, now)

    def probed(
        self, handle: str, member: Member, reachable: bool, now: float, finding: Finding | None = None
    ) -> None:
        """The backend's own probe of a member came to a conclusion, the last time by this `finding`.

        If the pool is verified, the conclusion holds on when the member is gone and comes back, at the same
        address and port.
        """
        self.advance(now)
        pool = self._pools.get(handle)
        if pool is not None:
            pool.probed(member, reachable, finding)
            self._note_dirty(handle, pool)

    def examined(self, handle: str, member: Member, finding: Finding) -> bool:
        """A probe looked at a member that had left. Return False if it is in again."""
        pool = self._pools.get(handle)
        if pool is None or not pool.examined(member, finding):
            return False
        self._note_dirty(handle, pool)
        return True

    def forget(self, handle: str, is_wanted: Callable[[Departure], bool]) -> list[Departure]:
        """Forget the departures of a pool that are wanted, and return them."""
        pool = self._pools.get(handle)
        if pool is None:
            return []
        forgotten = pool.forget(is_wanted)
        self._note_dirty(handle, pool)
        return forgotten

    def remember(self, remembered: RememberedPool, now: float) -> None:
        """Take a pool from the last-known-good file."""
        self.advance(now)
        pool = self._pools.get(remembered.handle)
        if pool is not None:
            pool.remember(remembered, now)
            self._note_dirty(remembered.handle, pool)

    def set_pools(self, pools: Mapping[str, PoolRules], now: float) -> None:
        """Take new pools and rules; what is known of a pool that stays is kept, and `accept` applied
        again."""
        self.advance(now)
        self._pools = {
            handle: self._pools.get(handle) or self._made(handle, pools[handle]) for handle in pools
        }
        for handle, pool in self._pools.items():
            pool.reports.set_rules(pools[handle])
        self.views = {handle: pool.view for handle, pool in self._pools.items()}
        self._timers_s.clear()
        self._waiting.clear()
        self._concerned.clear()
        self._dirty = set(self._pools)

    def set_overrides(self, overrides: Mapping[str, Sequence[PoolOverride]]) -> None:
        """Let these overrides hold from now on, by pool handle, and no others."""
        for handle, pool in self._pools.items():
            pool.set_overrides(overrides.get(handle, ()))
            self._note_dirty(handle, pool)

    def advance(self, now: float) -> None:
        """Bring the registrars' standings up to `now`; a change concerns every pool."""
        self._now = max(now, self._now)
        if self._stale_since_s is None:
            self._stale_since_s = now
        if not self._registrars.settled and now >= self._renew_s:
            self._renew_s = now - now % RENEW_STALE_S + RENEW_STALE_S
            self._concerned |= self._pools.keys()
        had_settled = bool(self._registrars.settled)
        settled_anew = self.sessions.update(now)
        if settled_anew is None:
            return
        for index in settled_anew:
            for pool in self._pools.values():
                pool.reports.settled(index)
        if had_settled and not self._registrars.settled:
            self._stale_since_s = now
        self._concerned |= self._pools.keys()

    # Evaluation

    def due(self, now: float) -> list[tuple[str, int]]:
        """The pools to evaluate, each with the number of PEs that are known of it. Those come first of which
        something was said, or whose time has come, the small ones before the large."""
        self.advance(now)
        timed = {handle for handle, timer_s in self._timers_s.items() if timer_s <= now}
        urgent = self._dirty | timed
        sizes = [
            (handle, len(self._pools[handle].reports.admission))
            for handle in (*urgent, *(self._concerned - urgent))
        ]
        return sorted(sizes, key=lambda sized: (sized[0] not in urgent, sized[1]))

    def evaluate(self, now: float, handles: Iterable[str] | None = None) -> BeliefChange:
        """Evaluate these pools, or all that are due. Return what changed."""
        changes: dict[str, PoolChange] = {}
        for handle in [handle for handle, _ in self.due(now)] if handles is None else handles:
            change = self._evaluate(self._pools[handle], now)
            self._dirty.discard(handle)
            self._concerned.discard(handle)
            if change is not None:
                changes[handle] = change
        if changes:
            self.views = {**self.views, **{handle: change.after for handle, change in changes.items()}}
        return BeliefChange(changes, self.views)

    def questions(self) -> list[RegistrarQuestion]:
        """The answers that are waited for: to be asked at once."""
        return [
            RegistrarQuestion(index, handle)
            for handle in sorted(self._waiting)
            for index in sorted(self._pools[handle].awaited)
        ]

    def probe_targets(self) -> dict[str, tuple[Member, ...]]:
        """The members to be probed, those found unreachable too: of verified pools always, of the others
        while no settled registrar answers, or while the home registrar of one of them is lost."""
        stale = not self._registrars.settled
        pools = [
            (handle, pool)
            for handle, pool in self._pools.items()
            if stale or pool.rules.verified or pool.is_probing
        ]
        return {handle: targets for handle, pool in pools if (targets := pool.probe_targets)}

    @property
    def next_deadline_s(self) -> float | None:
        """When time alone may change a view."""
        times = [self.sessions.standing_deadline_s(self._now), *self._timers_s.values()]
        if not self._registrars.settled:
            times.append(self._renew_s)
        return min((time_s for time_s in times if time_s is not None), default=None)

    def registrar_states(self, now: float) -> tuple[RegistrarView, ...]:
        """Every registrar, for status and metrics."""
        self.advance(now)
        return tuple(session.view for session in self.sessions)

    def take_events(self) -> list[BeliefEvent]:
        """The events since the last call, the latest 10,000 at most."""
        events = list(self._events)
        self._events.clear()
        return events

    def refused(self, handle: str) -> Mapping[Code, int]:
        """How many registrations of a pool were refused before anything was stored, by cause."""
        pool = self._pools.get(handle)
        return {} if pool is None else pool.reports.admission.refused

    def listed_by(self, handle: str, identifier: int) -> list[int]:
        """The numbers, from 1, of the registrars that list a PE of a pool now."""
        pool = self._pools.get(handle)
        return [] if pool is None else pool.reports.listed_by(identifier)

    # Within

    def _made(self, handle: str, rules: PoolRules) -> PoolBelief:
        return PoolBelief(handle, rules, pool_handle(handle, self.handlespace))

    @property
    def _registrars(self) -> SettledRegistrars:
        """The registrars whose word counts now."""
        return self.sessions.settled_registrars

    def _note_report(self, handle: str, pool: PoolBelief) -> None:
        """A registrar told something of the pool."""
        self._note_dirty(handle, pool)
        self._events.extend(pool.reports.take_notices())

    def _note_dirty(self, handle: str, pool: PoolBelief) -> None:
        if pool.reports.is_dirty:
            self._dirty.add(handle)

    def _evaluate(self, pool: PoolBelief, now: float) -> PoolChange | None:
        stale_since_s = self._stale_since_s if self._stale_since_s is not None else now
        followed = {session.index for session in self.sessions if session.is_followed}
        change, events = pool.evaluate(self._registrars, stale_since_s, now, followed)
        self._events.extend(events)
        (self._waiting.add if pool.awaited else self._waiting.discard)(pool.handle)
        deadline_s = pool.next_deadline_s
        if deadline_s is None:
            self._timers_s.pop(pool.handle, None)
        else:
            self._timers_s[pool.handle] = deadline_s
        return change
