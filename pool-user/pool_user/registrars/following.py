"""What the registrars push, as news for the belief: the backend as a passive ENRP peer of each of them.

A registrar is followed from the moment in which the belief takes it for settled: one that is starting must
not hear of us first (`rserpool.machine.follower` says why). The first handle table is taken from one of them
alone: those of the others tell little more, and side by side all come late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from daemon_kit.logs import get_logger

from pool_user.belief import Belief, Standing, pool_name
from pool_user.registrars.polling import HotPools
from rserpool import Ended, FollowerEvent, FollowerState, HandlespaceFollower, RegistrarAddress, Table, Update

FIRST_CONNECTED_S, FIRST_TABLE_S = 0.25, 2.0
"""The other registrars wait so long for the association with the first one, and so long for its handle table,
at most."""


class Following:
    """Feeds `belief` with what registrars push about the `pools`.

    `on_news` gets the place of a registrar that told something, and the pools in which who is in or their
    homes changed; `on_followed` whether a registrar is followed, when that changes.
    """

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        belief: Belief,
        pools: HotPools,
        *,
        on_news: Callable[[int, Sequence[str]], None],
        on_followed: Callable[[int, bool], None],
        local_addresses: Sequence[str] = (),
    ) -> None:
        self._registrars = registrars
        self._belief = belief
        self._pools = pools
        self._on_news = on_news
        self._on_followed = on_followed
        self._client = HandlespaceFollower(
            registrars, self._on_event, is_wanted=self._is_wanted, local_addresses=local_addresses
        )
        self._problems = [""] * len(registrars)
        self._followed = [False] * len(registrars)
        self._first: tuple[int, float] | None = None
        """The registrar that is followed first, and since when."""
        self._waiting: frozenset[int] = frozenset()
        """Those that are settled and wait for the first one's handle table."""
        self._is_leaving = False

    def start(self) -> None:
        """Open the socket. Raise SctpUnavailable, or OSError."""
        self._client.start()

    async def leave(self) -> None:
        """Take leave of the registrars."""
        self._is_leaving = True
        await self._client.leave()

    def close(self) -> None:
        """Close the socket."""
        self._is_leaving = True
        self._client.close()

    def follow_settled(self, now: float) -> None:
        """Follow every registrar that is settled, the first of all alone at first."""
        if self._is_leaving:
            return
        places = [
            place
            for place, state in enumerate(self._belief.registrar_states(now))
            if state.standing is Standing.SETTLED and self._client.state(place) is FollowerState.IDLE
        ]
        if self._first is None and places:
            self._first = places.pop(0), now
            self._client.follow(self._first[0])
        self._waiting = frozenset(places) if self._is_first_alone(now) else frozenset()
        if not self._waiting:
            for place in places:
                self._client.follow(place)

    def _is_first_alone(self, now: float) -> bool:
        """Whether the first handle table of all is on its way."""
        if self._first is None:
            return False
        place, since_s = self._first
        match self._client.state(place):
            case FollowerState.JOINING:
                return now < since_s + FIRST_TABLE_S
            case FollowerState.WAITING | FollowerState.CONNECTING:
                return now < since_s + FIRST_CONNECTED_S
        return False

    def ask_for_everything(self) -> None:
        """The pools have changed: those that are new have not been told of."""
        self._client.ask_for_everything()

    def is_about_to_tell(self, place: int) -> bool:
        """Whether a registrar's handle table is on its way, or will be after the first one."""
        return self._client.state(place) is FollowerState.JOINING or place in self._waiting

    def problem(self, place: int) -> str:
        """Why a registrar is not followed; empty while it is, and before it was to be."""
        return self._client.problem(place)

    def _is_wanted(self, handle: bytes) -> bool:
        return pool_name(handle) in self._pools.handles

    def _on_event(self, place: int, event: FollowerEvent) -> None:
        changed: Sequence[str] = ()
        match event:
            case Update():
                if self._belief.updated(place, event):
                    changed = (pool_name(event.handle),)
            case Table():
                changed = self._belief.table(place, event)
                self._set_followed(place, True)
            case Ended():
                self._set_followed(place, False, event.reason)
        self._on_news(place, changed)

    def _set_followed(self, place: int, is_followed: bool, why: str = "") -> None:
        log = get_logger("follower").bind(registrar=str(self._registrars[place]))
        if is_followed and not self._followed[place]:
            log.info("followed")
        elif why != self._problems[place]:
            log.info("not_followed", why=f"{why}: it is asked instead")
        self._problems[place] = why
        if is_followed != self._followed[place]:
            self._followed[place] = is_followed
            self._on_followed(place, is_followed)
