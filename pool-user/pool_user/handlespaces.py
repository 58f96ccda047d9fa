"""Several handlespaces side by side: a belief and a set of sessions for each. It joins, and decides nothing.

A handlespace is what the registrars that know each other share. Members of one are believed by its own
registrars only: losing all of them makes its pools stale, and no other handlespace's. In a handlespace that
has a name a pool is called `handlespace/handle`, so that views, changes and events of several lie side by
side. Without names there is one, and a pool is called by its handle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import is_not

from daemon_kit.finding import Finding

from pool_user.belief import Belief, PoolRules, pool_handle
from pool_user.cause import Code
from pool_user.overrides import PoolOverride
from pool_user.registrars.polling import Intervals
from pool_user.registrars.standing import RegistrarView
from pool_user.user import PoolUser
from pool_user.views import (
    BeliefChange,
    BeliefEvent,
    Departure,
    Member,
    PoolChange,
    PoolView,
    RememberedPool,
)
from rserpool import PoolElement, RegistrarAddress


@dataclass(frozen=True, slots=True)
class Handlespace:
    """One handlespace: its name, empty if it has none, and the addresses of its registrars."""

    name: str
    registrars: tuple[str, ...]

    def pool(self, handle: str) -> str:
        """The name of its pool with this handle."""
        return f"{self.name}/{handle}" if self.name else handle

    def handle(self, pool: str) -> bytes:
        """The handle of its pool with this name."""
        return pool_handle(pool, self.name)

    def has(self, pool: str) -> bool:
        """Whether a pool with this name is in it."""
        return not self.name or pool.startswith(f"{self.name}/")


class HandlespaceBeliefs:
    """The beliefs about all handlespaces, which answer as one `Belief` does."""

    def __init__(self, handlespaces: Sequence[Handlespace], pools: Mapping[str, PoolRules]) -> None:
        self.by_name: dict[str, Belief] = {}
        self._joined: tuple[Mapping[str, PoolView], ...] = ()
        self._views: Mapping[str, PoolView] = {}
        self.set_handlespaces(handlespaces, pools, 0.0)

    def set_handlespaces(
        self, handlespaces: Sequence[Handlespace], pools: Mapping[str, PoolRules], now: float
    ) -> None:
        """Take new pools and rules, and handlespaces that came; those that went are forgotten."""
        before, self.by_name = self.by_name, {}
        has_names = all(handlespace.name for handlespace in handlespaces)
        of_name: dict[str, dict[str, PoolRules]] = {handlespace.name: {} for handlespace in handlespaces}
        for pool, rules in pools.items():
            of_name.get(pool.partition("/")[0] if has_names else "", {})[pool] = rules
        for handlespace in handlespaces:
            name, belief = handlespace.name, before.get(handlespace.name)
            if belief is None:
                belief = Belief(handlespace.registrars, of_name[name], name)
            else:
                belief.set_pools(of_name[name], now)
            self.by_name[name] = belief

    def name_of(self, pool: str) -> str:
        """The name of the handlespace that a pool is in."""
        return "" if "" in self.by_name else pool.partition("/")[0]

    def _of(self, pool: str) -> Belief | None:
        return self.by_name.get(self.name_of(pool))

    @property
    def views(self) -> Mapping[str, PoolView]:
        """Every pool by the last evaluation of its belief; the very same mapping until one changes."""
        parts = tuple(belief.views for belief in self.by_name.values())
        if len(parts) != len(self._joined) or any(map(is_not, parts, self._joined)):
            self._joined = parts
            self._views = parts[0] if len(parts) == 1 else dict(chain(*(part.items() for part in parts)))
        return self._views

    def evaluate(self, now: float) -> BeliefChange:
        """Evaluate all pools that are due. Return what changed."""
        changes: dict[str, PoolChange] = {}
        for belief in self.by_name.values():
            changes.update(belief.evaluate(now).pools)
        return BeliefChange(changes, self.views)

    def remember(self, remembered: RememberedPool, now: float) -> None:
        """Take a pool from the last-known-good file."""
        if (belief := self._of(remembered.handle)) is not None:
            belief.remember(remembered, now)

    def set_overrides(self, overrides: Mapping[str, Sequence[PoolOverride]]) -> None:
        """Let these overrides hold from now on, by pool, and no others."""
        for belief in self.by_name.values():
            belief.set_overrides(overrides)

    def probe_targets(self) -> dict[str, tuple[Member, ...]]:
        """The members to be probed, by pool."""
        return dict(chain(*(belief.probe_targets().items() for belief in self.by_name.values())))

    def probing(self, pool: str, member: Member, now: float) -> None:
        """A probe of a member begins."""
        if (belief := self._of(pool)) is not None:
            belief.probing(pool, member, now)

    def probe_answered(self, pool: str, member: Member, now: float) -> None:
        """A member answered a probe."""
        if (belief := self._of(pool)) is not None:
            belief.probe_answered(pool, member, now)

    def probed(
        self, pool: str, member: Member, reachable: bool, now: float, finding: Finding | None = None
    ) -> None:
        """A probe of a member came to a conclusion."""
        if (belief := self._of(pool)) is not None:
            belief.probed(pool, member, reachable, now, finding)

    def examined(self, pool: str, member: Member, finding: Finding) -> bool:
        """A probe looked at a member that had left. Return False if it is in again."""
        belief = self._of(pool)
        return belief is not None and belief.examined(pool, member, finding)

    def forget(self, pool: str, is_wanted: Callable[[Departure], bool]) -> list[Departure]:
        """Forget the departures of a pool that are wanted, and return them."""
        belief = self._of(pool)
        return [] if belief is None else belief.forget(pool, is_wanted)

    def refused(self, pool: str) -> Mapping[Code, int]:
        """How many registrations of a pool were refused before anything was stored, by cause."""
        belief = self._of(pool)
        return {} if belief is None else belief.refused(pool)

    def listed_by(self, pool: str, identifier: int) -> list[int]:
        """The numbers, from 1, of the registrars of its handlespace that list a PE of a pool now."""
        belief = self._of(pool)
        return [] if belief is None else belief.listed_by(pool, identifier)

    def registrar_states(self, now: float) -> tuple[RegistrarView, ...]:
        """Every registrar, handlespace by handlespace."""
        return tuple(
            replace(state, handlespace=name) if name else state
            for name, belief in self.by_name.items()
            for state in belief.registrar_states(now)
        )


class HandlespaceUsers:
    """The sessions with the registrars of all handlespaces: a `PoolUser` for each, which feeds its belief.

    `on_change` and `on_events` are those of `PoolUser`; a change holds the views of all handlespaces.
    """

    def __init__(
        self,
        handlespaces: Sequence[Handlespace],
        beliefs: HandlespaceBeliefs,
        on_change: Callable[[BeliefChange], None],
        *,
        is_to_follow: bool,
        intervals: Intervals,
        timeout_ms: int,
        on_events: Callable[[Sequence[BeliefEvent]], None],
    ) -> None:
        self._beliefs = beliefs
        self._on_change = on_change
        self._on_events = on_events
        self._is_to_follow = is_to_follow
        self._intervals = intervals
        self._timeout_ms = timeout_ms
        self._users: dict[str, PoolUser] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_started = False
        self._make(handlespaces)

    def _make(self, handlespaces: Sequence[Handlespace]) -> None:
        """Have a user for each of these, the new ones not started."""
        self._users = {
            handlespace.name: self._users.get(handlespace.name) or self._made(handlespace)
            for handlespace in handlespaces
        }

    def _made(self, handlespace: Handlespace) -> PoolUser:
        name, belief = handlespace.name, self._beliefs.by_name[handlespace.name]

        def on_events(events: Sequence[BeliefEvent]) -> None:
            self._on_events([replace(event, handlespace=name) for event in events] if name else events)

        return PoolUser(
            [RegistrarAddress.parse(text) for text in handlespace.registrars],
            list(belief.views),
            belief,
            lambda change: self._on_change(BeliefChange(change.pools, self._beliefs.views)),
            is_to_follow=self._is_to_follow,
            intervals=self._intervals,
            timeout_ms=self._timeout_ms,
            on_events=on_events,
        )

    def start(self) -> None:
        """Begin; must run in an event loop. Raise SctpUnavailable where there is no SCTP."""
        self._is_started = True
        for user in self._users.values():
            user.start()

    def set_handlespaces(self, handlespaces: Sequence[Handlespace]) -> None:
        """Follow these, and their pools, from now on: `HandlespaceBeliefs.set_handlespaces()` has them
        already."""
        before = self._users
        self._make(handlespaces)
        for name, user in self._users.items():
            if name in before:
                user.set_handles(list(self._beliefs.by_name[name].views))
            elif self._is_started:
                user.start()
        for name in before.keys() - self._users.keys():
            ending = asyncio.get_running_loop().create_task(_end(before[name]))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def leave(self) -> None:
        """Take leave of all registrars (`PoolUser.leave`)."""
        await asyncio.gather(*(user.leave() for user in self._users.values()))

    async def close(self) -> None:
        """Ask nothing any more and close the associations."""
        ending = [*self._ending]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await asyncio.gather(*(user.close() for user in self._users.values()))

    def _of(self, pool: str) -> PoolUser | None:
        return self._users.get(self._beliefs.name_of(pool))

    def note_query(self, pool: str) -> None:
        """Somebody looked the pool up: it is hot from now on. An unknown pool is ignored."""
        if (user := self._of(pool)) is not None:
            user.note_query(pool)

    def looked_up(self, now: float) -> list[str]:
        """The pools that are hot since somebody looked them up."""
        return [pool for user in self._users.values() for pool in user.pools.looked_up(now)]

    async def listed(self, pools: Iterable[str]) -> dict[str, list[PoolElement]]:
        """Ask every registrar about pools that are not followed (yet). Unanswered questions tell nothing."""
        listed: dict[str, list[PoolElement]] = {}
        for pool in pools:
            if (user := self._of(pool)) is not None:
                listed |= await user.listed([pool])
        return listed

    def report_unreachable(self, pool: str, member: Member) -> None:
        """Tell the member's home registrar that nobody reaches it (`PoolUser.report_unreachable`)."""
        if (user := self._of(pool)) is not None:
            user.report_unreachable(pool, member)

    def look(self) -> None:
        """Something happened: look at the beliefs once all that happened at this moment is told."""
        for user in self._users.values():
            user.look()


async def _end(user: PoolUser) -> None:
    """Take leave of the registrars of a handlespace that is followed no more."""
    try:
        await user.leave()
    finally:
        await user.close()
