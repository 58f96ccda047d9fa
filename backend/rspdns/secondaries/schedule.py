"""When a secondary is told of a change of one zone, when it is asked which serial it has, and what is wrong
there. Sans-IO: `now` comes in (monotonic seconds), questions go out.

    NOTIFY ──due──► NOTIFIED ──it took the NOTIFY──► ASK ──due──► ASKED ──right──► ASK, a minute later
      ▲ ▲               │ no answer                   ▲             │ behind, no zone, no answer
      │ └───────────────┴───── after a pause that grows ────────────┘
      └───────────────── a change, at any time ───────┘

A secondary takes a NOTIFY and says nothing of what becomes of it: PowerDNS may have given it an old SOA, the
transfer may have failed. So it is asked for its SOA a moment after the last NOTIFY, and told again if it is
behind; where changes never cease, it is asked now and then beside a NOTIFY. A lost NOTIFY is repeated (RFC
1996 section 3.6).

The state is one value for each zone and secondary, whatever comes: changes that come faster than they may be
told become one NOTIFY, of the last serial. Serials are compared by RFC 1982.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

PACE_S = 0.1
"""The least time between two NOTIFYs of a zone to a secondary; the first one goes at once."""
PACE_FAILING_S = 1.0
"""The same for one that doesn't answer, or doesn't follow."""
FAILING_TRIES = 4
"""Tries without success after which a secondary counts as one that doesn't."""
ASK_AFTER_S = 0.1
"""Time from the last NOTIFY until the secondary is asked for its serial: PowerDNS's last purge is 50 ms after
the first one."""
ASK_EVERY_S = 60.0
"""Time between two questions to a secondary that was right."""
ASK_AT_LEAST_EVERY_S = 5.0
"""Time after which it is asked about a zone that changes all the time, too."""
FIRST_PAUSE_S, MOST_PAUSE_S = 0.25, 30.0
"""The pause before a repeat: the first one, and after doubling."""
SILENT_S = 2.0
"""A secondary that answered nothing for this time is called silent."""
BEHIND_S = 5.0
"""A secondary that lacks for this time what it was told is called behind."""
NOERROR = "NOERROR"
_REFUSALS = {
    "BADKEY": "it does not know the key, or does not take it for NOTIFY",
    "BADSIG": "its key of this name has another secret or algorithm",
    "BADTIME": "its clock and that of this host differ",
}
_HALF = 2**31


class NotifyState(Enum):
    """The next step for a zone at a secondary, or the answer that is awaited."""

    NOTIFY = "notify"
    NOTIFIED = "notified"
    ASK = "ask"
    ASKED = "asked"


class NotifyInput(Enum):
    """Something that happened; `DUE` after a question means that no answer came."""

    CHANGED = "changed"
    DUE = "due"
    TAKEN = "taken"
    REFUSED = "refused"
    RIGHT = "right"
    BEHIND = "behind"
    AHEAD = "ahead"
    ABSENT = "absent"


TRANSITIONS: Mapping[tuple[NotifyState, NotifyInput], NotifyState] = {
    **{(state, NotifyInput.CHANGED): NotifyState.NOTIFY for state in NotifyState},
    (NotifyState.NOTIFY, NotifyInput.DUE): NotifyState.NOTIFIED,
    (NotifyState.NOTIFIED, NotifyInput.DUE): NotifyState.NOTIFY,
    (NotifyState.NOTIFIED, NotifyInput.TAKEN): NotifyState.ASK,
    (NotifyState.NOTIFIED, NotifyInput.REFUSED): NotifyState.ASK,
    (NotifyState.ASK, NotifyInput.DUE): NotifyState.ASKED,
    (NotifyState.ASKED, NotifyInput.DUE): NotifyState.NOTIFY,
    (NotifyState.ASKED, NotifyInput.RIGHT): NotifyState.ASK,
    (NotifyState.ASKED, NotifyInput.BEHIND): NotifyState.NOTIFY,
    (NotifyState.ASKED, NotifyInput.AHEAD): NotifyState.ASK,
    (NotifyState.ASKED, NotifyInput.ABSENT): NotifyState.NOTIFY,
}
"""An answer that is not in the table came late: the state stays, what it says counts."""


class Trouble(Enum):
    """The reason why a secondary does not follow."""

    UNSENT = "unsent"
    SILENT = "silent"
    REFUSED = "refused"
    ABSENT = "absent"
    AHEAD = "ahead"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class SecondaryProblem:
    """A trouble with its facts: a response code, or serials, or the system's words."""

    trouble: Trouble
    detail: str = ""

    @property
    def words(self) -> str:
        """The problem for people: one line, with what to look at."""
        match self.trouble:
            case Trouble.UNSENT:
                return f"can't be told: {self.detail}"
            case Trouble.SILENT:
                return f"does not answer{self.detail}; it is told again and again"
            case Trouble.REFUSED:
                why = _REFUSALS.get(self.detail, "allow it from this name server there")
                return f"refuses NOTIFY ({self.detail}): {why}"
            case Trouble.ABSENT:
                return f"does not serve the zone ({self.detail}): configure it there, or let it transfer"
            case Trouble.AHEAD:
                return (
                    f"has a later serial ({self.detail}), and takes nothing: transfer the zone anew there; "
                    "if it signs, say signs = true"
                )
            case Trouble.BEHIND:
                return f"was told and does not transfer ({self.detail}): is it in PowerDNS's allow-axfr-ips?"


def distance(of_serial: int, to_serial: int) -> int:
    """How many changes `to_serial` is after `of_serial`; negative: before it (RFC 1982)."""
    steps = (to_serial - of_serial) % 2**32
    return steps if steps < _HALF else steps - 2**32


@dataclass(slots=True)
class _Obstacles:
    """The obstacles between a secondary and its next serial; `refusal` and `absence` are its own words."""

    is_silent: bool = False
    no_port: bool = False
    unsent: str = ""
    refusal: str = ""
    absence: str = ""


class ZoneUpkeep:
    """The upkeep of one zone at one secondary. `serial` is that from which on its content is right.

    A secondary that `signs` counts serials of its own, at least one for each transfer: it has a change once
    its serial is another than before.
    """

    def __init__(
        self, serial: int, now: float, ask_every_s: float = ASK_EVERY_S, *, signs: bool = False
    ) -> None:
        self.state = NotifyState.NOTIFY
        self.due_s = now
        """When the next step is due."""
        self.serial = serial
        self.there: int | None = None
        """The serial that it had when it was asked last."""
        self._has: int | None = None
        """The same, as one of ours."""
        self._signs = signs
        self._there_before: int | None = None
        """The serial of one that signs, before the changes that it is to be told."""
        self.right_s: float | None = None
        """When it was last seen to be right."""
        self.notifies = 0
        self.repeats = 0
        """The NOTIFYs that were sent, and those of them that were for the same serial again."""
        self._ask_every_s = ask_every_s
        self._tries = 0
        """Tries since it was seen to follow."""
        self._notified_s = float("-inf")
        self._notified_serial: int | None = None
        self._asked_s = now
        self._unanswered_since_s: float | None = None
        """When the first question was sent that nothing was answered after."""
        self._goal = (serial, now)
        """A serial that it was told and lacks, and since when."""
        self._obstacles = _Obstacles()
        self._place: NotifyInput = NotifyInput.RIGHT

    def changed(self, serial: int, now: float) -> None:
        """The zone has other content since `serial`."""
        if self._has_serial():
            self._goal = (serial, now)
            self._there_before = self.there
        self.serial = serial
        pace_s = PACE_FAILING_S if self._tries >= FAILING_TRIES else PACE_S
        self._step(NotifyInput.CHANGED, max(now, self._notified_s + pace_s))

    def take(self, now: float) -> Sequence[NotifyState]:
        """Return the questions to send now: NOTIFY, and ASK for the SOA."""
        if now < self.due_s:
            return ()
        if self._unanswered_since_s is not None and now - self._unanswered_since_s >= SILENT_S:
            self._obstacles.is_silent, self._tries = True, max(self._tries, FAILING_TRIES)
        if self.state in (NotifyState.NOTIFIED, NotifyState.ASKED):  # no answer came
            self._tries += 1
            self._step(NotifyInput.DUE, now + self._pause_s)
            return ()
        questions = [self.state]
        if self.state is NotifyState.NOTIFY:
            self.notifies += 1
            self.repeats += self._notified_serial == self.serial
            self._notified_s, self._notified_serial = now, self.serial
            if self._unanswered_since_s is None and now - self._asked_s >= ASK_AT_LEAST_EVERY_S:
                questions.append(NotifyState.ASK)
        if NotifyState.ASK in questions:
            self._asked_s = now
        if self._unanswered_since_s is None:
            self._unanswered_since_s = now
        self._step(NotifyInput.DUE, now + max(FIRST_PAUSE_S, min(1.0, self._pause_s)))
        return questions

    def unsent(self, words: str) -> None:
        """The questions that `take()` returned last could not be sent."""
        self._obstacles.unsent = words

    def sent(self) -> None:
        """They could."""
        self._obstacles.unsent = ""

    def unreachable(self) -> None:
        """The secondary's host says that nothing listens at the port."""
        self._obstacles.no_port = True

    def notify_answered(self, rcode: str, now: float) -> None:
        """The secondary answered a NOTIFY by this response code, or TSIG error."""
        self._answered()
        if rcode == NOERROR:
            self._obstacles.refusal = ""
            self._step(NotifyInput.TAKEN, now + ASK_AFTER_S)
        else:
            self._obstacles.refusal = rcode
            self._tries += 1
            self._step(NotifyInput.REFUSED, now + self._pause_s)

    def soa_answered(self, rcode: str, there: int | None, current: int, now: float) -> None:
        """The secondary told the serial that it has, None: it has no SOA. `current` is the serial of now: it
        moves without other content, too."""
        self._answered()
        self.there = there
        if there is None:
            self._has = None
            self._obstacles.absence = rcode if rcode != NOERROR else "no SOA"
            self._failed(NotifyInput.ABSENT, now)
            return
        self._obstacles.absence = ""
        self._has = has = self._as_ours(there)
        if distance(current, has) > 0:
            self._failed(NotifyInput.AHEAD, now)
            return
        if distance(self._goal[0], has) >= 0:
            self._tries = 0
            self._goal = (self.serial, now)
        if distance(self.serial, has) >= 0:
            self.right_s = now
            self._place = NotifyInput.RIGHT
            self._step(NotifyInput.RIGHT, now + self._ask_every_s)
        else:
            self._failed(NotifyInput.BEHIND, now)

    def behind(self) -> int | None:
        """How many serials it was behind when it was asked last; None: it is not known."""
        return None if self._has is None else max(0, distance(self._has, self.serial))

    @property
    def is_right(self) -> bool:
        """Whether it had all that was to be told when it was asked last, and answers."""
        return self._has_serial() and self._place is NotifyInput.RIGHT and not self._obstacles.is_silent

    def problem(self, now: float) -> SecondaryProblem | None:
        """The reason why it does not follow; None: it does, as far as is known."""
        if self._obstacles.unsent:
            return SecondaryProblem(Trouble.UNSENT, self._obstacles.unsent)
        if self._obstacles.is_silent:
            return SecondaryProblem(
                Trouble.SILENT, " (nothing listens at its port)" if self._obstacles.no_port else ""
            )
        if self._obstacles.refusal:
            return SecondaryProblem(Trouble.REFUSED, self._obstacles.refusal)
        if self._place is NotifyInput.ABSENT:
            return SecondaryProblem(Trouble.ABSENT, self._obstacles.absence)
        serials = f"{self.there} there, {self.serial} here"
        if self._place is NotifyInput.AHEAD:
            return SecondaryProblem(Trouble.AHEAD, serials)
        if self._place is NotifyInput.BEHIND and now - self._goal[1] >= BEHIND_S:
            return SecondaryProblem(Trouble.BEHIND, serials)
        return None

    def _has_serial(self) -> bool:
        return self._has is not None and distance(self.serial, self._has) >= 0

    def _as_ours(self, there: int) -> int:
        """The serial of ours that a secondary with this one has, as far as that can be known."""
        if not self._signs or distance(self.serial, there) < 0:
            return there
        return self.serial - 1 if there == self._there_before else self.serial

    def _answered(self) -> None:
        self._unanswered_since_s = None
        self._obstacles.is_silent = self._obstacles.no_port = False

    def _failed(self, place: NotifyInput, now: float) -> None:
        self._tries += 1
        self._place = place
        is_first = (
            place is NotifyInput.BEHIND and self._tries == 1
        )  # PowerDNS showed it an old SOA, most likely
        self._step(place, now if is_first else now + self._pause_s)

    @property
    def _pause_s(self) -> float:
        return min(MOST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(max(0, self._tries - 1), 16))

    def _step(self, event: NotifyInput, due_s: float) -> None:
        after = TRANSITIONS.get((self.state, event))
        if after is not None:
            self.state, self.due_s = after, due_s


@dataclass(slots=True)
class _Awaited:
    first_s: float
    last_s: float
    paths: set[str] = field(default_factory=set)


class PurgedZones:
    """Zones that changed, until each of the control sockets `paths` has purged their apex: a secondary that
    asks before then is shown the old SOA, and does nothing."""

    WAIT_S = 1.0
    """A PowerDNS that purges nothing for this time holds up no NOTIFY."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._zones: dict[str, _Awaited] = {}

    def changed(self, zones: Iterable[str], now: float) -> list[str]:
        """These zones changed, and their purge was begun. Return those that need none."""
        if not self._paths:
            return list(zones)
        for zone in zones:
            waiting = self._zones.setdefault(zone, _Awaited(now, now))
            waiting.last_s = now
        return []

    def purged(self, path: str, names: Iterable[str] | None, taken_s: float) -> list[str]:
        """A command made at `taken_s` purged `names` at this socket (None: nothing is cached there).

        Return the zones whose apex is purged everywhere now.
        """
        if not self._zones:
            return []
        gone = None if names is None else {name.removesuffix("$") for name in names}
        done = []
        for zone, waiting in list(self._zones.items()):
            if taken_s >= waiting.first_s and (gone is None or zone in gone):
                waiting.paths.add(path)
                if waiting.paths >= self._paths:
                    done.append(zone)
                    self._forget(zone, waiting, taken_s)
        return done

    def overdue(self, now: float) -> list[str]:
        """Return the zones that were waited for long enough."""
        late = [zone for zone, waiting in self._zones.items() if now >= waiting.first_s + self.WAIT_S]
        for zone in late:
            del self._zones[zone]
        return late

    @property
    def next_due_s(self) -> float:
        """When `overdue()` has the next zone."""
        first_s = min((waiting.first_s for waiting in self._zones.values()), default=float("inf"))
        return first_s + self.WAIT_S

    def _forget(self, zone: str, waiting: _Awaited, taken_s: float) -> None:
        """The zone is told of; a change that came after the purge is waited for."""
        if taken_s >= waiting.last_s:
            del self._zones[zone]
        else:
            self._zones[zone] = _Awaited(waiting.last_s, waiting.last_s)
