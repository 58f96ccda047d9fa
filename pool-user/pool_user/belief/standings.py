"""Every registrar together: how far each is believed, since when, and so who may speak for whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pool_user.belief.claims import Court
from pool_user.belief.registrars import RegistrarBelief, RegistrarState, Standing, identify_all
from pool_user.belief.rules import BeliefEvent
from rserpool import PoolElement, sentinel_handle


class Standings:
    """The registrars at these `addresses`, named by their place in the list, from 0.

    What is told holds with the next `update()`, which makes `court` anew when a standing changed; `tell`
    takes what happened.
    """

    def __init__(self, addresses: Sequence[str], tell: Callable[[BeliefEvent], None]) -> None:
        self.court = Court()
        self._registrars = [
            RegistrarBelief(number, address) for number, address in enumerate(addresses, start=1)
        ]
        self._tell = tell
        self._standings: list[tuple[Standing, int | None]] = [(Standing.DOWN, None)] * len(addresses)
        self._since_s: list[float | None] = [None] * len(addresses)
        self._steady_until_s = float("-inf")
        """Until when no standing changes, unless something is told."""

    # What happens

    def link(self, place: int, up: bool, now: float) -> None:
        """The association with a registrar came up or was lost."""
        self._registrars[place].link(up, now)
        self._steady_until_s = now

    def answered(self, place: int, now: float) -> None:
        """A registrar answered something."""
        if self._registrars[place].answered(now):
            self._steady_until_s = now

    def unanswered(self, place: int, asked_at_s: float, now: float) -> None:
        """A question of `asked_at_s` was given up."""
        self._registrars[place].unanswered(asked_at_s)
        self._steady_until_s = now

    def sentinels(self, place: int, handle: str, elements: Sequence[PoolElement], now: float) -> None:
        """A registrar answered who is in a pool of sentinels; that of another tells nothing."""
        registrar = self._registrars[place]
        if handle != sentinel_handle(registrar.number):
            return
        before = registrar.problem
        registrar.sentinels(elements, now)
        self._steady_until_s = now
        if registrar.problem and not before:
            words = f"registrar {registrar.number} ({registrar.address}): {registrar.problem}"
            self._tell(BeliefEvent(now, "misplaced", "", registrar.number, words))

    def update(self, now: float) -> list[int] | None:
        """Bring the standings up to `now`. Return who is settled anew, or under another identifier; None when
        no standing changed."""
        if now < self._steady_until_s:
            return None
        identify_all(self._registrars, now)
        self._steady_until_s = min(registrar.steady_until_s(now) for registrar in self._registrars)
        standings = [(registrar.standing(now), registrar.identifier) for registrar in self._registrars]
        if standings == self._standings:
            return None
        before, self._standings = self._standings, standings
        changed = [place for place, old in enumerate(before) if old != standings[place]]
        for place in changed:
            self._since_s[place] = now
            self._tell_standing(place, now)
        self.court = _court(standings, now)
        return [place for place in changed if standings[place][0] is Standing.SETTLED]

    # What is known

    def is_of_this_life(self, place: int, asked_at_s: float) -> bool:
        """Whether a question of `asked_at_s` went over the association that there is now."""
        registrar = self._registrars[place]
        return registrar.link_up and asked_at_s >= registrar.link_since_s

    def is_own_word(self, place: int, sender: int) -> bool:
        """Whether what comes from `sender` is known to be this registrar's word."""
        registrar = self._registrars[place]
        return registrar.link_up and registrar.identifier == sender

    def next_deadline_s(self, now: float) -> float | None:
        """When time alone may change a standing."""
        times = (registrar.next_deadline_s(now) for registrar in self._registrars)
        return min((time_s for time_s in times if time_s is not None), default=None)

    def states(self) -> tuple[RegistrarState, ...]:
        """Every registrar, for status and metrics."""
        return tuple(
            RegistrarState(
                registrar.number,
                registrar.address,
                standing,
                identifier,
                since_s,
                problem=registrar.problem,
                doubt=registrar.doubt,
            )
            for registrar, (standing, identifier), since_s in zip(
                self._registrars, self._standings, self._since_s, strict=True
            )
        )

    def _tell_standing(self, place: int, now: float) -> None:
        registrar, (standing, own) = self._registrars[place], self._standings[place]
        identifier = f", identifier {own:08x}" if own is not None else ""
        words = f"registrar {registrar.number} ({registrar.address}) is {standing.value}{identifier}"
        self._tell(BeliefEvent(now, "registrar", "", registrar.number, words))


def _court(standings: Sequence[tuple[Standing, int | None]], now: float) -> Court:
    settled = {place for place, (standing, _) in enumerate(standings) if standing is Standing.SETTLED}
    return Court(
        answering=frozenset(place for place, (standing, _) in enumerate(standings) if standing.answers),
        settled=frozenset(settled),
        homes={
            identifier: place
            for place, (_, identifier) in enumerate(standings)
            if place in settled and identifier is not None
        },
        since_s=now,
    )
