"""What is believed about the registrars: do they answer, are they settled, what is their identifier (rule 1).

`RegistrarBelief` is about one, `Standings` about all together, and so about who may speak for whom.

A registrar is **settled** while it answers and lists its own sentinel, the PE in the pool
`rspdns-sentinel-N`. The sentinel's home is the registrar's identifier, which no reply carries otherwise.
Not every listed sentinel is to be trusted, though:

- **Whoever may register could forge sentinels.** The sentinel's one address is that of the registrar's own
  host: a registrar takes a pool element only at an address of its association. All others in the pool are
  ignored, and told of.
- A registrar that was restarted has a new identifier, copies the handlespace from a peer, and so lists
  the sentinel of its *former* life for a second or two: with its old identifier as home, or with the
  identifier of the registrar that took the sentinel over. Each registration of a sentinel has a fresh PE
  identifier. So, when the link to the registrar was lost, **the PE identifiers seen before do not count
  again until they have been listed for 10 s** in answer after answer (it was only the network), while an
  unseen one counts at once.
- In one life of the link, **a sentinel that changes its home was taken over**: not its own any more, the same
  10 s hold.
- **Two registrars never have the same identifier**: where two list the same as their own, only the one that
  has had it for 10 s keeps it, else neither is settled.

A registrar whose link stays up while it answers nothing for 500 ms is **silent** (frozen, cut off). When
it answers again it is **waking** for 1 s: what it missed is still on its way to it, and it may take the
loss of an association for the loss of a member that moved away long ago. A waking registrar is not
settled.

What this cannot see: a backend that starts within the two seconds after a registrar's restart takes the
former sentinel for the present one. The registrar has copied the members with it, so little can go wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address

from pool_user.belief.decisions import Court
from pool_user.belief.rules import (
    OLD_SENTINEL_TRUSTED_AFTER_S,
    SILENT_AFTER_S,
    WAKING_S,
    BeliefEvent,
)
from rserpool import PoolElement, RegistrarAddress, sentinel_handle

_REMEMBERED_SENTINELS = 256
"""Sentinel identifiers remembered for each registrar; a healthy one has one at a time."""


class Standing(Enum):
    """How far a registrar is believed."""

    DOWN = "down"
    SILENT = "silent"
    STARTING = "starting"
    WAKING = "waking"
    SETTLED = "settled"

    @property
    def explanation(self) -> str:
        """What that means, for the person who reads the status."""
        return _EXPLANATIONS[self]

    @property
    def answers(self) -> bool:
        """True while it is believed for presence."""
        return self in (Standing.STARTING, Standing.WAKING, Standing.SETTLED)


_EXPLANATIONS = {
    Standing.DOWN: "no association with it",
    Standing.SILENT: "it is connected, but has answered nothing for half a second",
    Standing.STARTING: "it is heard about members that are in, not about members that are gone",
    Standing.WAKING: "it answers again after a silence; for a second it is not heard about members "
    "that are gone",
    Standing.SETTLED: "it answers and lists its own sentinel: what it says counts",
}


@dataclass(frozen=True, slots=True)
class RegistrarView:
    """One registrar, for status and metrics. `since_s` (monotonic) is when its standing began.

    `follow`: "enrp" while it pushes changes, else "poll"; `follow_problem` is why it does not push them.
    """

    number: int
    address: str
    standing: Standing
    identifier: int | None
    since_s: float | None
    round_trip_ms: float | None = None
    problem: str = ""
    doubt: str = ""
    """Why a starting one is not settled, where there is more to say than that it lists no sentinel."""
    follow: str = "poll"
    follow_problem: str = ""

    @property
    def why(self) -> str:
        """What its standing means, and what is wrong with it if anything is."""
        words = self.standing.explanation
        if self.standing is Standing.STARTING:
            unknown = "" if self.problem else ": just started, or no sentinel runs beside it"
            words = f"{self.doubt or 'it does not list its own sentinel' + unknown}; {words}"
        return f"{words}. {self.problem}" if self.problem else words


@dataclass(slots=True)
class _Sentinel:
    home: int
    listed_since_s: float
    is_trusted: bool


class RegistrarBelief:
    """What is believed about one registrar; `number` counts from 1."""

    def __init__(self, number: int, address: str) -> None:
        self.number = number
        self.address = address
        self.identifier: int | None = None
        self.identified_s = 0.0
        self.link_up = False
        self.link_since_s = float("-inf")
        self._life = 0
        self._listed: dict[int, _Sentinel] = {}
        self._has_told = False
        self._seen: dict[int, tuple[int, int]] = {}
        self._waiting_since_s: float | None = None
        self._answered_s = float("-inf")
        self._woke_s: float | None = None
        self.problem = ""
        """What is in its sentinel's pool and should not be; empty when nothing is."""
        self.doubt = ""
        """Why it has no identifier; empty when it just lists no sentinel, and while it has one."""
        self._host = ip_address(RegistrarAddress.parse(address).host)

    def link(self, up: bool, now: float) -> None:
        """The association came up or was lost; with it goes all that is known about the registrar's life."""
        self.link_up = up
        self.link_since_s = now
        self._life += 1
        self._listed.clear()
        self._has_told = False
        self.identifier = None
        self._waiting_since_s = None
        self._woke_s = None

    def answered(self, now: float) -> bool:
        """It answered something. Return whether that was waited for."""
        if self._is_silent(now):
            self._woke_s = now
        was_waiting = self._waiting_since_s is not None
        self._waiting_since_s = None
        self._answered_s = now
        return was_waiting

    def unanswered(self, asked_at_s: float) -> None:
        """A question of `asked_at_s` has no answer yet and is given up."""
        if self.link_up and asked_at_s > self._answered_s and asked_at_s >= self.link_since_s:
            waiting_s = self._waiting_since_s
            self._waiting_since_s = asked_at_s if waiting_s is None else min(waiting_s, asked_at_s)

    def sentinels(self, elements: Sequence[PoolElement], now: float) -> None:
        """It answered who is in its sentinel pool."""
        self._has_told = True
        own = [element for element in elements if element.user_transport.addresses == (self._host,)]
        homes = {element.identifier: element.home_registrar for element in own if element.home_registrar}
        for identifier in self._listed.keys() - homes.keys():
            del self._listed[identifier]
        for identifier, home in homes.items():
            listed = self._listed.get(identifier)
            if listed is None or listed.home != home:
                fresh = self._seen.setdefault(identifier, (home, self._life)) == (home, self._life)
                self._listed[identifier] = _Sentinel(home, now, fresh)
            elif now >= listed.listed_since_s + OLD_SENTINEL_TRUSTED_AFTER_S:
                listed.is_trusted = True
        while len(self._seen) > _REMEMBERED_SENTINELS:
            del self._seen[next(iter(self._seen))]
        strangers = [element for element in elements if element.user_transport.addresses != (self._host,)]
        self.problem = self._misplaced(strangers, is_own_there=bool(own))

    def _misplaced(self, strangers: Sequence[PoolElement], *, is_own_there: bool) -> str:
        """Words about pool elements in its sentinel's pool that are not at its host."""
        if not strangers:
            return ""
        where = min((str(one) for each in strangers for one in each.user_transport.addresses), default="none")
        pool = sentinel_handle(self.number)
        if is_own_there:
            return f"Something at {where} registers in its sentinel's pool, {pool}, too: that does not count"
        return (
            f"Its sentinel's pool, {pool}, lists {where}, which is not its own host, {self._host}: either "
            "the order of `registrars` is not that of the numbers given to rspdns-registrar, or somebody "
            "forges sentinels, and its own does not run"
        )

    def own_identifier(self) -> int | None:
        """The identifier its trusted sentinels name; one that is known already wins over others."""
        homes = {sentinel.home for sentinel in self._listed.values() if sentinel.is_trusted}
        if self.identifier in homes:
            return self.identifier
        return homes.pop() if len(homes) == 1 else None

    def why_unidentified(self) -> str:
        """Why no sentinel names it; empty when none is listed at its own host."""
        homes = {sentinel.home for sentinel in self._listed.values() if sentinel.is_trusted}
        if not self._has_told:
            return "it has not told yet which sentinels it lists"
        if len(homes) > 1:
            named = " and ".join(f"{home:08x}" for home in sorted(homes))
            return (
                f"sentinels at its host name different registrars, {named}: two run there, or one is forged"
            )
        if self._listed and not homes:
            return (
                "the sentinel that it lists is of a former life or was taken over; it counts after "
                f"{OLD_SENTINEL_TRUSTED_AFTER_S:.0f} s on the list"
            )
        return ""

    def is_awaited(self, now: float) -> bool:
        """True while it has not told its sentinels yet, and may."""
        return self.link_up and not self._has_told and not self._is_silent(now)

    def identify(self, identifier: int | None, now: float) -> None:
        """Set what it is taken for from now on."""
        if identifier != self.identifier:
            self.identifier = identifier
            self.identified_s = now

    def standing(self, now: float) -> Standing:
        """How far it is believed."""
        if not self.link_up:
            return Standing.DOWN
        if self._is_silent(now):
            return Standing.SILENT
        if self._woke_s is not None and now < self._woke_s + WAKING_S:
            return Standing.WAKING
        return Standing.STARTING if self.identifier is None else Standing.SETTLED

    def next_deadline_s(self, now: float) -> float | None:
        """When time alone may change its standing."""
        times = [sentinel.listed_since_s + OLD_SENTINEL_TRUSTED_AFTER_S for sentinel in self._listed.values()]
        if self._waiting_since_s is not None:
            times.append(self._waiting_since_s + SILENT_AFTER_S)
        if self._woke_s is not None:
            times.append(self._woke_s + WAKING_S)
        return min((time_s for time_s in times if time_s > now), default=None)

    def steady_until_s(self, now: float) -> float:
        """Until when neither its standing nor its identifier changes, unless something is told; infinity for
        never."""
        times = (self.next_deadline_s(now), self.identified_s + OLD_SENTINEL_TRUSTED_AFTER_S)
        return min((time_s for time_s in times if time_s is not None and time_s > now), default=float("inf"))

    def _is_silent(self, now: float) -> bool:
        return self._waiting_since_s is not None and now >= self._waiting_since_s + SILENT_AFTER_S


def identify_all(registrars: Sequence[RegistrarBelief], now: float) -> None:
    """Give each registrar its identifier; no two have the same."""
    awaited = [registrar.number for registrar in registrars if registrar.is_awaited(now)]
    wanted = [registrar.own_identifier() for registrar in registrars]
    for registrar, identifier in zip(registrars, wanted, strict=True):
        others = [one for one, other in zip(registrars, wanted, strict=True) if other == identifier]
        is_alone = len(others) == 1
        if identifier is not None and identifier == registrar.identifier:
            fits = is_alone or now >= registrar.identified_s + OLD_SENTINEL_TRUSTED_AFTER_S
        else:
            fits = is_alone and not awaited
        registrar.identify(identifier if fits else None, now)
        if identifier is None:
            registrar.doubt = registrar.why_unidentified()
        elif fits:
            registrar.doubt = ""
        elif not is_alone:
            numbers = ", ".join(str(other.number) for other in others if other is not registrar)
            registrar.doubt = f"its sentinel names {identifier:08x}, as that of registrar {numbers} does"
        else:
            numbers = ", ".join(map(str, awaited))
            registrar.doubt = f"registrar {numbers} has not told yet which sentinels it lists"


class Standings:
    """The registrars at these `addresses`, named by their index in the list, from 0.

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

    def link(self, index: int, up: bool, now: float) -> None:
        """The association with a registrar came up or was lost."""
        self._registrars[index].link(up, now)
        self._steady_until_s = now

    def answered(self, index: int, now: float) -> None:
        """A registrar answered something."""
        if self._registrars[index].answered(now):
            self._steady_until_s = now

    def unanswered(self, index: int, asked_at_s: float, now: float) -> None:
        """A question of `asked_at_s` was given up."""
        self._registrars[index].unanswered(asked_at_s)
        self._steady_until_s = now

    def sentinels(self, index: int, handle: str, elements: Sequence[PoolElement], now: float) -> None:
        """A registrar answered who is in a pool of sentinels; that of another tells nothing."""
        registrar = self._registrars[index]
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
        changed = [index for index, old in enumerate(before) if old != standings[index]]
        for index in changed:
            self._since_s[index] = now
            self._tell_standing(index, now)
        self.court = _court(standings, now)
        return [index for index in changed if standings[index][0] is Standing.SETTLED]

    # What is known

    def is_of_this_life(self, index: int, asked_at_s: float) -> bool:
        """Whether a question of `asked_at_s` went over the association that there is now."""
        registrar = self._registrars[index]
        return registrar.link_up and asked_at_s >= registrar.link_since_s

    def is_own_word(self, index: int, sender: int) -> bool:
        """Whether what comes from `sender` is known to be this registrar's word."""
        registrar = self._registrars[index]
        return registrar.link_up and registrar.identifier == sender

    def next_deadline_s(self, now: float) -> float | None:
        """When time alone may change a standing."""
        times = (registrar.next_deadline_s(now) for registrar in self._registrars)
        return min((time_s for time_s in times if time_s is not None), default=None)

    def states(self) -> tuple[RegistrarView, ...]:
        """Every registrar, for status and metrics."""
        return tuple(
            RegistrarView(
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

    def _tell_standing(self, index: int, now: float) -> None:
        registrar, (standing, own) = self._registrars[index], self._standings[index]
        identifier = f", identifier {own:08x}" if own is not None else ""
        words = f"registrar {registrar.number} ({registrar.address}) is {standing.value}{identifier}"
        self._tell(BeliefEvent(now, "registrar", "", registrar.number, words))


def _court(standings: Sequence[tuple[Standing, int | None]], now: float) -> Court:
    settled = {index for index, (standing, _) in enumerate(standings) if standing is Standing.SETTLED}
    return Court(
        answering=frozenset(index for index, (standing, _) in enumerate(standings) if standing.answers),
        settled=frozenset(settled),
        homes={
            identifier: index
            for index, (_, identifier) in enumerate(standings)
            if index in settled and identifier is not None
        },
        since_s=now,
    )
