"""Follows every registrar: by what it pushes (`following`), and by asking: handle resolutions of 128 items,
pipelined.

A round asks about the registrar's sentinel and its due pools together (`polling` says which). A change found
at one registrar makes the others be asked at once, and so does every question of the belief.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol as Interface

from daemon_kit.logs import get_logger

from pool_user.belief import AT_ONCE, Belief, BeliefEvent, RegistrarState, Standing
from pool_user.registrars.asking import Asking
from pool_user.registrars.following import Following
from pool_user.registrars.polling import REPEAT_AFTER_S, HotPools, Intervals
from pool_user.views import Member, PoolView
from rserpool import PoolElement, RegistrarAddress, Resolution

ASK_FOLLOWED_AFTER_S = 0.02
"""After a change, those who push changes themselves are asked about it so much later."""
MOST_ASKED_AT_ONCE = 100
"""Pools that change with one handle table and are asked about at once; the rest is left to the rounds."""


class Settings(Interface):
    """What the follower reads of the backend's configuration."""

    @property
    def registrar_addresses(self) -> Sequence[RegistrarAddress]: ...  # noqa: D102
    @property
    def follow(self) -> str: ...  # noqa: D102
    @property
    def accept_by_handle(self) -> Mapping[str, object]: ...  # noqa: D102
    @property
    def poll_hot_ms(self) -> int: ...  # noqa: D102
    @property
    def poll_hot_for_s(self) -> float: ...  # noqa: D102
    @property
    def poll_idle_s(self) -> float: ...  # noqa: D102
    @property
    def resolve_timeout_ms(self) -> int: ...  # noqa: D102


class Follower:
    """Keeps `belief` fed. `on_change` gets every pool's view whenever one of them changed.

    `on_events` gets what a person following the pools wants to read; without it, events are logged. Both
    are called in the event loop and must not raise.
    """

    def __init__(
        self,
        config: Settings,
        belief: Belief,
        on_change: Callable[[Mapping[str, PoolView]], None],
        *,
        on_events: Callable[[Sequence[BeliefEvent]], None] | None = None,
        local_addresses: Sequence[str] = (),
    ) -> None:
        self._belief = belief
        self._on_change = on_change
        self._on_events = on_events or _log
        self._intervals = Intervals(config.poll_hot_ms / 1000, config.poll_hot_for_s, config.poll_idle_s)
        self._pools = HotPools(config.accept_by_handle, self._intervals, time.monotonic())
        self._registrars = [
            Asking(self, place, address, config.resolve_timeout_ms, local_addresses, self._intervals)
            for place, address in enumerate(config.registrar_addresses)
        ]
        self._following: Following | None = None
        if config.follow == "enrp":
            self._following = Following(
                config.registrar_addresses,
                belief,
                self._pools,
                on_news=self._on_news,
                on_followed=self._on_followed,
                local_addresses=local_addresses,
            )
        self._views: Mapping[str, PoolView] = {}
        self._looking = False
        self._changed: dict[tuple[str, int], None] = {}
        """Pools in which something changed at the registrar of a place: the others are to be asked."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def start(self) -> None:
        """Begin; must run in an event loop. Raise SctpUnavailable where there is no SCTP."""
        for registrar in self._registrars:
            registrar.start()
        if self._following is not None:
            self._following.start()
        self.look()

    async def leave(self) -> None:
        """Take leave of the registrars, so that none of them waits for us after `close()`: about 2 s."""
        if self._following is not None:
            await self._following.leave()

    async def close(self) -> None:
        """Ask nothing any more and close the associations."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._following is not None:
            self._following.close()
        await asyncio.gather(*(registrar.close() for registrar in self._registrars))

    def note_query(self, handle: str) -> None:
        """Somebody looked the pool up: it is hot from now on. An unknown handle is ignored."""
        if self._pools.note_query(handle, time.monotonic()):
            self.ask_at_once(handle)

    def set_handles(self, handles: Sequence[str]) -> None:
        """Follow these pools from now on (`Belief.set_pools()` has them already)."""
        self._pools.set_handles(handles, time.monotonic())
        if self._following is not None:
            self._following.ask_for_everything()
        self.look()

    def ask_at_once(self, handle: str) -> None:
        """Ask every registrar about the pool."""
        for registrar in self._registrars:
            registrar.ask_at_once(handle)

    async def listed(self, handles: Sequence[str]) -> dict[str, list[PoolElement]]:
        """Ask every registrar about pools that are not followed (yet). Unanswered questions tell nothing."""
        up = [registrar for registrar in self._registrars if registrar.client.is_up]
        found: dict[str, dict[int, PoolElement]] = {handle: {} for handle in handles}
        for handle in handles:
            answers = await asyncio.gather(
                *(registrar.client.resolve(handle.encode()) for registrar in up), return_exceptions=True
            )
            for answer in answers:
                if isinstance(answer, Resolution):
                    found[handle] |= {element.identifier: element for element in answer.pool_elements}
        return {handle: list(elements.values()) for handle, elements in found.items()}

    def report_unreachable(self, handle: str, member: Member) -> None:
        """Tell the member's home registrar, or all where it is not known, that nobody reaches the member."""
        up = [registrar for registrar in self._registrars if registrar.client.is_up]
        states = self._belief.registrar_states(time.monotonic())
        home = [one for one in up if states[one.place].identifier == member.home_registrar]
        for registrar in home or up:
            registrar.client.report_unreachable(handle.encode(), member.identifier)

    def registrar_states(self) -> tuple[RegistrarState, ...]:
        """Every registrar, with its round trip and how it is followed."""
        states = self._belief.registrar_states(time.monotonic())
        return tuple(
            replace(
                state,
                round_trip_ms=registrar.client.round_trip_ms,
                follow="enrp" if registrar.is_followed else "poll",
                follow_problem=self._following.problem(registrar.place) if self._following else "",
            )
            for state, registrar in zip(states, self._registrars, strict=True)
        )

    def look(self) -> None:
        """Something happened: look at the belief once all that happened at this moment is told."""
        if not self._looking and not self._is_closed:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        if self._is_closed:
            return
        now = time.monotonic()
        views = self._belief.views(now, AT_ONCE)
        events = self._belief.take_events()
        if events:
            self._on_events(events)
        if views is not self._views:
            self._views = views
            self._on_change(views)
        # Only now: each question waits for the SCTP daemon's turn, and the change is urgent.
        changed, self._changed = self._changed, {}
        for handle, place in changed:
            self._ask_others(handle, place)
        if self._following is not None:
            self._following.follow_settled(now)
        self._set_timer(self._ask_what_is_waited_for(now), now)

    def _ask_others(self, handle: str, place: int) -> None:
        """Ask the others about what changed at the registrar of a place.

        Those that are followed tell it by themselves: they are asked only to be sure, when PowerDNS has asked
        for the answers that were purged. Of whom a handle table is on its way nothing is asked but what the
        belief waits for.
        """
        loop = asyncio.get_running_loop()
        for registrar in self._registrars:
            if registrar.place != place and registrar.is_followed:
                loop.call_later(ASK_FOLLOWED_AFTER_S, self._ask_later, registrar, handle)
            elif registrar.place != place and not self.is_about_to_tell(registrar.place):
                registrar.ask_at_once(handle)

    def _ask_later(self, registrar: Asking, handle: str) -> None:
        if not self._is_closed:
            registrar.ask_at_once(handle)

    def _ask_what_is_waited_for(self, now: float) -> bool:
        """Return True when a question has to wait a moment, since the last one just went out."""
        late = False
        questions = self._belief.questions(now)
        if len(questions) > MOST_ASKED_AT_ONCE:  # a handle table tells sooner
            questions = [one for one in questions if not self.is_about_to_tell(one.registrar)]
        for question in questions:
            registrar = self._registrars[question.registrar]
            late |= registrar.client.is_up and not registrar.ask_at_once(question.handle)
        return late

    def _set_timer(self, late: bool, now: float) -> None:
        resume_at_s = self._belief.resume_at_s
        deadline_s = self._belief.next_deadline_s
        if resume_at_s is not None:
            deadline_s = resume_at_s if deadline_s is None else min(deadline_s, resume_at_s)
        if late:
            deadline_s = min(deadline_s if deadline_s is not None else float("inf"), now + REPEAT_AFTER_S)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_s is not None:
            delay_s = max(deadline_s - now, 0.001)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.look)

    # What registrars tell

    def link(self, place: int, up: bool) -> None:
        """The association with a registrar came up or was lost."""
        self._belief.link(place, up, time.monotonic())
        self.look()

    def answered(self, place: int, handle: str, resolution: Resolution) -> None:
        """A registrar answered."""
        if self._belief.answered(place, resolution):
            self._changed[handle, place] = None
        self.look()

    def _on_news(self, place: int, changed: Sequence[str]) -> None:
        """A registrar told something by itself; who is in, or their homes, changed in these pools."""
        self._changed |= dict.fromkeys((handle, place) for handle in changed[:MOST_ASKED_AT_ONCE])
        self.look()

    def _on_followed(self, place: int, is_followed: bool) -> None:
        """A registrar pushes changes from now on, or does not any more."""
        self._registrars[place].follow(is_followed)
        self.look()

    def unanswered(self, place: int, asked_at_s: float) -> None:
        """A registrar did not answer in time."""
        self._belief.unanswered(place, asked_at_s, time.monotonic())
        self.look()

    def is_silent(self, place: int) -> bool:
        """Whether a registrar answers nothing at present."""
        return self._belief.registrar_states(time.monotonic())[place].standing is Standing.SILENT

    def is_about_to_tell(self, place: int) -> bool:
        """Whether a registrar's handle table is on its way, or will be in a moment."""
        return self._following is not None and self._following.is_about_to_tell(place)

    @property
    def follows(self) -> bool:
        """Whether registrars are followed, once they are settled, instead of asked alone."""
        return self._following is not None

    @property
    def awaits_sentinels(self) -> bool:
        """Whether a registrar that is connected has not told yet who its sentinel is."""
        return any(registrar.awaits_sentinel for registrar in self._registrars)

    @property
    def pools(self) -> HotPools:
        """The pools that are followed."""
        return self._pools


def _log(events: Sequence[BeliefEvent]) -> None:
    log = get_logger("belief")
    for event in events:
        identifier = None if event.identifier is None else f"{event.identifier:08x}"
        log.info(event.kind, handle=event.handle, identifier=identifier, why=event.words)
