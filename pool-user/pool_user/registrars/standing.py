"""How far a registrar is believed: does it answer, is it settled, what is its identifier (rule 1). Sans-IO.

`RegistrarLife` is about one registrar; `identify_all` gives no two the same identifier; `SettledRegistrars`
says whose word counts.

A registrar is **settled** while it answers and lists its own sentinel, the PE in the pool
`rspdns-sentinel-N`. The sentinel's home is the registrar's identifier, which no reply carries otherwise.
Not every listed sentinel is to be trusted, though:

- **Whoever may register could forge sentinels.** The sentinel's one address is that of the registrar's own
  host: a registrar takes a pool element only at an address of its association. All others in the pool are
  ignored, and told of.
- **A restarted registrar lists the sentinel of its former life** for a second or two, since it copies the
  handlespace from a peer. It has a new identifier by then, and the sentinel's home is the old one, or the
  registrar that took the sentinel over. Each registration of a sentinel has a fresh PE identifier. So, when
  the link to the registrar was lost, an unseen PE identifier counts at once. An identifier that was seen
  before counts again only when it has been listed for 10 s in answer after answer: then only the network
  was lost.
- In one life of the link, **a sentinel that changes its home was taken over**: not its own any more, the same
  10 s hold.
- **A registrar that is known keeps its identifier until its link is lost**: a process never changes it. It is
  known once it has pushed or told something under it, or has had it for 10 s. So registrars that take others'
  sentinels over, delete them or put forged ones beside them unsettle nobody who answers. Its sentinel may be
  missing from its list for 10 s: by then one that lives has registered again.
- **Two registrars never have the same identifier**: where two list the same as their own, only the one that
  has had it for 10 s keeps it, else neither is settled.

A registrar whose link stays up while it answers nothing for 500 ms is **silent** (frozen, cut off). When it
answers again it is **waking** for 1 s, since what it missed is still on its way to it. It may take the loss
of an association for the loss of a member that moved away long ago. A waking registrar is not settled.

A limit: a backend that starts within the two seconds after a registrar's restart takes the former sentinel
for the present one. The registrar has copied the members with it, so little can go wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address

from rserpool import PoolElement, RegistrarAddress, sentinel_handle

SILENT_AFTER_S = 0.5
"""How long a registrar may leave a question unanswered. After that it is silent, and others speak for its
pool elements."""
WAKING_S = 1.0
"""How long a registrar is not settled after a silence: it first hears what it missed."""
OLD_SENTINEL_TRUSTED_AFTER_S = 10.0
"""How long a sentinel that was known before the link was lost must be listed until it counts again. A
restarted registrar may list the sentinel of its former life, copied from a peer, until it is purged (about 2
s)."""
SENTINEL_MISSED_S = 10.0
"""How long a registrar that is known stays settled although it lists no sentinel that ever named it."""
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
        """The meaning of the standing, for the person who reads the status."""
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
    handlespace: str = ""
    """The name of its handlespace; empty: there is one, without a name."""

    @property
    def called(self) -> str:
        """Its number and address, with the name of its handlespace."""
        words = f"{self.number} ({self.address})"
        return f"{self.handlespace} {words}" if self.handlespace else words

    @property
    def why(self) -> str:
        """The meaning of its standing, and its problem if there is any."""
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


class RegistrarLife:
    """The facts about one registrar that its answers, and their absence, tell; `number` counts from 1."""

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
        self._is_proven = False
        """Whether it has spoken under its identifier."""
        self._naming: set[int] = set()
        """Sentinels that named it in this life, and when the last of them was listed."""
        self._named_s = float("-inf")
        self._seen: dict[int, tuple[int, int]] = {}
        self._waiting_since_s: float | None = None
        self._answered_s = float("-inf")
        self._woke_s: float | None = None
        self.problem = ""
        """The elements in its sentinel's pool that should not be there; empty when there are none."""
        self.doubt = ""
        """Why it has no identifier; empty when it just lists no sentinel, and while it has one."""
        self._host = ip_address(RegistrarAddress.parse(address).host)

    def link(self, up: bool, now: float) -> None:
        """The association came up or was lost; with it goes all that is known about the registrar's life."""
        self.link_up = up
        self.link_since_s = now
        self._life += 1
        self._listed.clear()
        self._has_told = self._is_proven = False
        self._naming.clear()
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
        self._note_names(now)
        while len(self._seen) > _REMEMBERED_SENTINELS:
            del self._seen[next(iter(self._seen))]
        strangers = [element for element in elements if element.user_transport.addresses != (self._host,)]
        self.problem = self._misplaced(strangers, is_own_there=bool(own))

    def _misplaced(self, strangers: Sequence[PoolElement], *, is_own_there: bool) -> str:
        """Words about pool elements in its sentinel's pool that are not at its host."""
        if not strangers:
            return ""
        where = min(
            (str(address) for element in strangers for address in element.user_transport.addresses),
            default="none",
        )
        pool = sentinel_handle(self.number)
        if is_own_there:
            return f"Something at {where} registers in its sentinel's pool, {pool}, too: that does not count"
        return (
            f"Its sentinel's pool, {pool}, lists {where}, which is not its own host, {self._host}: either "
            "the order of `registrars` is not that of the numbers given to rspdns-registrar, or somebody "
            "forges sentinels, and its own does not run"
        )

    def is_of(self, asked_at_s: float) -> bool:
        """Whether a question of `asked_at_s` went over the association that there is now."""
        return self.link_up and asked_at_s >= self.link_since_s

    def has_spoken(self, sender: int) -> bool:
        """It said something under the identifier `sender`. Return whether that is known to be its own."""
        is_own = self.link_up and self.identifier == sender
        self._is_proven |= is_own
        return is_own

    def _note_names(self, now: float) -> None:
        """Take note of the sentinels that name it, and that one of them is listed."""
        for identifier, sentinel in self._listed.items():
            if sentinel.is_trusted and sentinel.home == self.identifier:
                self._naming.add(identifier)
        if len(self._naming) > _REMEMBERED_SENTINELS:
            self._naming &= self._listed.keys()
        if self._naming & self._listed.keys():
            self._named_s = now

    def own_identifier(self, now: float) -> int | None:
        """Its identifier of before if it is known, else what its trusted sentinels name; of several the
        former."""
        is_known = self._is_proven or now >= self.identified_s + OLD_SENTINEL_TRUSTED_AFTER_S
        if self.identifier is not None and is_known and now < self._named_s + SENTINEL_MISSED_S:
            return self.identifier
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
            self._is_proven = False
            self._naming.clear()
        self._note_names(now)

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


def identify_all(registrars: Sequence[RegistrarLife], now: float) -> None:
    """Give each registrar its identifier; no two have the same."""
    awaited = [registrar.number for registrar in registrars if registrar.is_awaited(now)]
    wanted = [registrar.own_identifier(now) for registrar in registrars]
    for registrar, identifier in zip(registrars, wanted, strict=True):
        others = [other for other, claimed in zip(registrars, wanted, strict=True) if claimed == identifier]
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


@dataclass(frozen=True, slots=True)
class SettledRegistrars:
    """The registrars whose word counts, and for what.

    `answering` (by index) are believed for presence, `settled` (by index) for absence too. `homes` are the
    settled ones by identifier: each decides about the PEs that it is home to. `asked` are those whose word is
    waited for when a crowd leaves: the settled ones, and those that answer and were settled a moment ago.

    `since_s` (monotonic) is when that changed last. After a home fell silent, the others are asked anew: what
    they said before `since_s` does not count, since news of the home's last moments may have been on the way.
    """

    answering: Collection[int] = ()
    settled: Collection[int] = ()
    asked: Collection[int] = ()
    homes: Mapping[int, int] = field(default_factory=dict)
    since_s: float = float("-inf")


def settled_registrars(
    standings: Sequence[tuple[Standing, int | None]], now: float, lately: Collection[int] = ()
) -> SettledRegistrars:
    """The registrars whose word counts from `now` on, by their standings and identifiers, in order. `lately`
    are those that were settled a moment ago, by index."""
    settled = {index for index, (standing, _) in enumerate(standings) if standing is Standing.SETTLED}
    answering = frozenset(index for index, (standing, _) in enumerate(standings) if standing.answers)
    return SettledRegistrars(
        answering=answering,
        settled=frozenset(settled),
        asked=frozenset(settled | (answering & set(lately))),
        homes={
            identifier: index
            for index, (_, identifier) in enumerate(standings)
            if index in settled and identifier is not None
        },
        since_s=now,
    )
