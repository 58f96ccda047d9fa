"""One zone's pools at one name server: which RRsets are there, which should be, and which message is next.

A message is an UPDATE (RFC 2136). Its prerequisites say what is there now, as far as is known; so nothing
that somebody else changed is overwritten unseen. Three kinds of messages are enough:

- CheckStep: prerequisites alone. The server compares, nothing changes, no serial moves.
- ReadStep: questions, after prerequisites that failed.
- SendStep: prerequisites, and the whole RRset of each name that changed.

The difference between there and wanted is the queue: it has at most as many RRsets as the pools have, however
long the server is away. Sans-IO; `now` is monotonic.

A site is spoken for while all its pools are vouched for. A publisher that has lost its registrars says
nothing about them, so that it can't overwrite one that has not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import NamedTuple

from rspdns.fitting import RECORD, name_size
from rspdns.publish.rrsets import ABSENT, ADDRESS_TYPES, SERVICE_TYPES, Rrset, RrsetKey, RRsets, targets_of

LEAST_S = 0.05
"""Least time between two messages that change something: each moves the server's serial."""
LIGHT_EVERY_S = 0.5
"""Least time before a message that only moves weights, or addresses by load."""
SPEAK_AFTER_S = 0.5
"""How long a site must be vouched for until it is spoken for: its answers may follow the views later."""
CHECK_EVERY_S = 60.0
"""Time between two checks that nobody else edited the records."""
CONTESTED_S = 0.2
"""Time before RRsets that somebody else changed are repaired. Another publisher may know of a change a moment
earlier."""
FIRST_PAUSE_S, MOST_PAUSE_S = 1.0, 60.0
"""Pause after a failed message: the first one, and after doubling; jitter takes up to half of it."""
MOST_BYTES = 50_000
"""The most bytes of records in a message; over TCP it may have 65,535."""
MOST_READ = 64
"""The most questions side by side."""
MOST_CONTRADICTIONS = 3
"""After so many messages in a row whose prerequisites failed, the next has none: what is read is not what the
server compares with, by a wildcard say."""
_LABEL = re.compile(r"[0-9a-f]{8}(-[a-z0-9-]+)?")


class ExchangeState(Enum):
    """The exchange with the server that is under way."""

    READY = auto()
    """Nothing."""
    CHECKING = auto()
    READING = auto()
    SENDING = auto()
    PAUSED = auto()
    """The last message failed."""


class ExchangeEvent(Enum):
    """The end of a state."""

    BEGIN_CHECK = auto()
    BEGIN_READ = auto()
    BEGIN_SEND = auto()
    DONE = auto()
    CONTRADICTED = auto()
    """A prerequisite failed."""
    FAILED = auto()
    OVER = auto()
    """The pause."""


TRANSITIONS: Mapping[tuple[ExchangeState, ExchangeEvent], ExchangeState] = {
    (ExchangeState.READY, ExchangeEvent.BEGIN_CHECK): ExchangeState.CHECKING,
    (ExchangeState.READY, ExchangeEvent.BEGIN_READ): ExchangeState.READING,
    (ExchangeState.READY, ExchangeEvent.BEGIN_SEND): ExchangeState.SENDING,
    (ExchangeState.CHECKING, ExchangeEvent.DONE): ExchangeState.READY,
    (ExchangeState.CHECKING, ExchangeEvent.CONTRADICTED): ExchangeState.READY,
    (ExchangeState.CHECKING, ExchangeEvent.FAILED): ExchangeState.PAUSED,
    (ExchangeState.READING, ExchangeEvent.DONE): ExchangeState.READY,
    (ExchangeState.READING, ExchangeEvent.FAILED): ExchangeState.PAUSED,
    (ExchangeState.SENDING, ExchangeEvent.DONE): ExchangeState.READY,
    (ExchangeState.SENDING, ExchangeEvent.CONTRADICTED): ExchangeState.READY,
    (ExchangeState.SENDING, ExchangeEvent.FAILED): ExchangeState.PAUSED,
    (ExchangeState.PAUSED, ExchangeEvent.OVER): ExchangeState.READY,
}


class Move(NamedTuple):
    """An RRset that is to change. `before` is what is there, None: no prerequisite."""

    site: str
    key: RrsetKey
    before: Rrset | None
    after: Rrset

    @property
    def phase(self) -> int:
        """Its place among others: no SRV record names a target before it has an address, or after."""
        if self.key.type not in ADDRESS_TYPES or not _LABEL.fullmatch(self.key.name.partition(".")[0]):
            return 1
        return 0 if self.after.data else 2

    @property
    def is_light(self) -> bool:
        """Whether no server came or went by it."""
        if self.before is None:
            return False
        if self.key.type in SERVICE_TYPES:
            return self.after.has_the_servers_of(self.before, self.key.type)
        return self.key.type in ADDRESS_TYPES and self.key.name == self.site and bool(self.after.data)

    @property
    def is_new(self) -> bool:
        """Whether there is no such RRset yet."""
        return bool(self.after.data) and not (self.before or ABSENT).data

    @property
    def size(self) -> int:
        """The most bytes of its records."""
        alias = _size(self.key, ABSENT) if self.is_new else 0
        return _size(self.key, self.before or ABSENT) + _size(self.key, self.after) + alias


@dataclass(frozen=True, slots=True)
class CheckStep:
    """Ask whether these RRsets are there."""

    expected: Mapping[RrsetKey, Rrset]


@dataclass(frozen=True, slots=True)
class ReadStep:
    """Ask for these RRsets."""

    keys: tuple[RrsetKey, ...]


@dataclass(frozen=True, slots=True)
class SendStep:
    """Change these RRsets; `vouches`: renew the record that says until when they are vouched for."""

    moves: tuple[Move, ...] = ()
    vouches: bool = False

    @property
    def is_blind(self) -> bool:
        """Whether it says nothing about the RRsets that it replaces."""
        return all(move.before is None for move in self.moves)


@dataclass(frozen=True, slots=True)
class WaitStep:
    """Do nothing until then, or until something changes."""

    until_s: float


PublicationStep = CheckStep | ReadStep | SendStep | WaitStep


@dataclass(eq=False)
class _Site:
    """The RRsets of one site, as far as they are known. `there` is None while it is not spoken for."""

    wanted: RRsets
    fresh_since_s: float | None = None
    there: dict[RrsetKey, Rrset] | None = None
    unknown: set[RrsetKey] = field(default_factory=set)
    """The RRsets that were never compared since it is spoken for; until there is none, nothing is sent."""


class Publication:
    """The machine. `vouch_every_s` is the time between two renewals of the record of `withdraw = "expire"`;
    None: there is no such record. `draw` gives 0 to 1."""

    def __init__(self, now: float, draw: Callable[[], float], vouch_every_s: float | None = None) -> None:
        self.state = ExchangeState.READY
        self.failures = 0
        """Messages that failed since one did not."""
        self._draw = draw
        self._vouch_every_s = vouch_every_s
        self._sites: dict[str, _Site] = {}
        self._dirty: set[str] = set()
        """Sites of which something may be to be sent."""
        self._parents: frozenset[str] = frozenset()
        self._to_check: dict[RrsetKey, str] = {}
        self._to_read: dict[RrsetKey, str] = {}
        self._under_way: PublicationStep = WaitStep(now)
        self._suspects: dict[RrsetKey, Rrset] = {}
        """By RRset, what somebody else made of it."""
        self._edits: list[RrsetKey] = []
        self._contradictions = 0
        self._sent_s = self._vouched_s = float("-inf")
        self._contested_until_s = float("-inf")
        self._resume_s = now
        self._check_all_s = now + CHECK_EVERY_S

    def want(
        self, sites: Mapping[str, RRsets], fresh: Iterable[str], parents: frozenset[str], now: float
    ) -> None:
        """Let these be the wanted RRsets by site, those of before where the very same.

        `fresh` are the sites that are vouched for, `parents` the names whose targets are below.
        """
        self._parents = parents
        for name in [name for name in self._sites if name not in sites]:
            self._want_no_more(name)
        for name, rrsets in sites.items():
            site = self._sites.get(name)
            if site is None:
                self._sites[name] = _Site(rrsets)
            elif site.wanted is not rrsets:
                site.wanted = rrsets
                self._dirty.add(name)
        self._set_fresh(set(fresh), sites, now)

    def _want_no_more(self, name: str) -> None:
        """The configuration has the site no more: its records go."""
        site = self._sites[name]
        if site.there is None:
            del self._sites[name]
        elif site.wanted:
            site.wanted = {}
            self._dirty.add(name)

    def _set_fresh(self, fresh: set[str], sites: Iterable[str], now: float) -> None:
        for name in sites:
            site = self._sites[name]
            if name not in fresh:
                site.fresh_since_s, site.there = None, None
                site.unknown.clear()
            elif site.fresh_since_s is None:
                site.fresh_since_s = now

    def next(self, now: float) -> PublicationStep:
        """Return what is to be done now; anything but WaitStep has begun, and ends by `done`, `contradicted`,
        `read` or `failed`."""
        if self.state is ExchangeState.PAUSED:
            if now < self._resume_s:
                return WaitStep(self._resume_s)
            self._go(ExchangeEvent.OVER)
        if self.state is not ExchangeState.READY:
            raise RuntimeError(f"a message is under way: {self.state}")
        speaking_s = self._begin_speaking(now)
        if self._to_read:
            keys = list(islice(self._to_read, MOST_READ))
            return self._begin(ExchangeEvent.BEGIN_READ, ReadStep(tuple(keys)))
        moves = self._moves()
        send_s = self._send_s(moves)
        if now >= send_s:
            return self._begin_send(moves)
        if now >= self._check_all_s:
            self._check_all(now)
        if self._to_check:
            return self._begin(ExchangeEvent.BEGIN_CHECK, self._next_check())
        vouch_s = self._vouch_s()
        if now >= vouch_s:
            return self._begin(ExchangeEvent.BEGIN_SEND, SendStep(vouches=True))
        return WaitStep(min(speaking_s, send_s, self._check_all_s, vouch_s))

    def done(self, now: float) -> None:
        """The server took the message."""
        step = self._end(ExchangeEvent.DONE)
        self.failures = 0
        match step:
            case CheckStep(expected):
                for key, rrset in expected.items():
                    self._learn(self._to_check.pop(key, None), key, rrset)
            case SendStep(moves, vouches):
                self._contradictions = 0
                self._sent_s = now
                if vouches:
                    self._vouched_s = now
                for move in moves:
                    self._learn(move.site, move.key, move.after)
            case _:
                raise RuntimeError(f"no answer of {step}")

    def contradicted(self) -> None:
        """A prerequisite failed: something else is there than was thought."""
        step = self._end(ExchangeEvent.CONTRADICTED)
        self.failures = 0
        match step:
            case CheckStep(expected):
                self._to_read |= {key: self._to_check.pop(key) for key in expected if key in self._to_check}
            case SendStep(moves, _):
                self._contradictions += 1
                self._to_read |= {move.key: move.site for move in moves}
            case _:
                raise RuntimeError(f"no answer of {step}")

    def read(self, rrsets: RRsets, now: float) -> None:
        """These RRsets are there, of those that were asked for."""
        step = self._end(ExchangeEvent.DONE)
        self.failures = 0
        for key in step.keys if isinstance(step, ReadStep) else ():
            name = self._to_read.pop(key, None)
            site = self._sites.get(name) if name is not None else None
            if name is None or site is None or site.there is None:
                continue
            rrset, known = rrsets.get(key, ABSENT), site.there.get(key)
            if self._is_foreign(site, key, known, rrset):
                self._suspects[key] = rrset
                self._contested_until_s = now + CONTESTED_S
            self._learn(name, key, rrset)
            if key.type == "SRV":
                self._look_for_targets(name, site, rrset)

    def failed(self, now: float) -> None:
        """The message can't be delivered, or is refused. It may have been carried out all the same."""
        self._end(ExchangeEvent.FAILED)
        self.failures += 1
        longest_s = min(MOST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self.failures - 1, 16))
        self._resume_s = now + longest_s * (0.5 + self._draw() / 2)

    def take_edits(self) -> list[RrsetKey]:
        """Return the RRsets of somebody else's that were sent over since the last call."""
        edits, self._edits = self._edits, []
        return edits

    @property
    def rests_until_s(self) -> float:
        """The time before which nothing is sent, whatever changes."""
        return self._resume_s if self.state is ExchangeState.PAUSED else self._sent_s + LEAST_S

    @property
    def waiting(self) -> list[RrsetKey]:
        """The RRsets that are not there yet."""
        return [move.key for move in self._moves()]

    @property
    def published(self) -> int:
        """The RRsets that are there and ours."""
        return sum(1 for site in self._sites.values() for rrset in (site.there or {}).values() if rrset.data)

    @property
    def silent(self) -> list[str]:
        """The sites that are not spoken for."""
        return [name for name, site in self._sites.items() if site.there is None and site.wanted]

    @property
    def is_right(self) -> bool:
        """Whether every site is spoken for, and the server has all of its records, as far as is known."""
        has_all = all(site.there is not None and not site.unknown for site in self._sites.values())
        return bool(self._sites) and has_all and not self._moves()

    def _go(self, event: ExchangeEvent) -> None:
        self.state = TRANSITIONS[self.state, event]

    def _begin(self, event: ExchangeEvent, step: PublicationStep) -> PublicationStep:
        self._go(event)
        self._under_way = step
        return step

    def _end(self, event: ExchangeEvent) -> PublicationStep:
        self._go(event)
        return self._under_way

    def _begin_speaking(self, now: float) -> float:
        """Compare the sites that are vouched for long enough; return when the next one is."""
        next_s = float("inf")
        for name, site in self._sites.items():
            if site.there is not None or site.fresh_since_s is None:
                continue
            speak_s = site.fresh_since_s + SPEAK_AFTER_S
            if now < speak_s:
                next_s = min(next_s, speak_s)
                continue
            site.there = {}
            site.unknown = set(site.wanted)
            self._to_read |= dict.fromkeys(site.wanted, name)
            self._dirty.add(name)
        return next_s

    def _learn(self, name: str | None, key: RrsetKey, rrset: Rrset) -> None:
        """This RRset is there."""
        site = self._sites.get(name) if name is not None else None
        if name is None or site is None or site.there is None:
            return
        site.there[key] = rrset
        site.unknown.discard(key)
        if rrset != site.wanted.get(key, ABSENT):
            self._dirty.add(name)
        elif key not in site.wanted:
            del site.there[key]
        if not site.wanted and not site.there:
            del self._sites[name]

    def _is_foreign(self, site: _Site, key: RrsetKey, known: Rrset | None, there: Rrset) -> bool:
        """Whether somebody else changed an RRset, weights apart: another publisher may give others."""
        wanted = site.wanted.get(key, ABSENT)
        if known is None or there.has_the_data_of(known) or there.has_the_data_of(wanted):
            return False
        return key.type not in SERVICE_TYPES or not there.has_the_servers_of(wanted, key.type)

    def _look_for_targets(self, name: str, site: _Site, rrset: Rrset) -> None:
        """The targets of a former life leave their addresses with the SRV record."""
        for target in targets_of(rrset):
            label, _, parent = target.partition(".")
            if parent not in self._parents or not _LABEL.fullmatch(label):
                continue
            for kind in ADDRESS_TYPES:
                key = RrsetKey(target, kind)
                if key not in site.wanted and key not in (site.there or {}):
                    self._to_read.setdefault(key, name)

    def _moves(self) -> list[Move]:
        """The difference of all sites, those first that others refer to."""
        found: list[Move] = []
        for name in list(self._dirty):
            site = self._sites.get(name)
            moves = list(_difference(name, site)) if site is not None else []
            if not moves and (site is None or not site.unknown):
                self._dirty.discard(name)
                self._acquit(site)
            found += moves
        return sorted(found, key=lambda move: move.phase)

    def _acquit(self, site: _Site | None) -> None:
        """The server has what it should: what somebody else made of it was right, or another publisher's."""
        for key in [key for key in self._suspects if site is None or key in (site.there or ())]:
            del self._suspects[key]

    def _send_s(self, moves: list[Move]) -> float:
        """When these moves may be sent."""
        if not moves:
            return float("inf")
        pause_s = LIGHT_EVERY_S if all(move.is_light for move in moves) else LEAST_S
        soonest_s = self._sent_s + pause_s
        if any(move.key in self._suspects for move in moves):
            return max(soonest_s, self._contested_until_s)
        return soonest_s

    def _begin_send(self, moves: list[Move]) -> PublicationStep:
        """Send as many of these as fit into one message."""
        chosen: list[Move] = []
        left = MOST_BYTES
        for move in moves:
            left -= move.size
            if left < 0 and chosen:
                break
            chosen.append(move)
        for move in chosen:
            if self._suspects.pop(move.key, None) == move.before:
                self._edits.append(move.key)
        if self._contradictions >= MOST_CONTRADICTIONS:
            chosen = [move._replace(before=None) for move in chosen]
        return self._begin(ExchangeEvent.BEGIN_SEND, SendStep(tuple(chosen)))

    def _check_all(self, now: float) -> None:
        self._check_all_s = now + CHECK_EVERY_S
        for name, site in self._sites.items():
            for key in site.there or ():
                self._to_check.setdefault(key, name)

    def _next_check(self) -> CheckStep:
        """The next RRsets to compare, as many as fit into one message."""
        expected: dict[RrsetKey, Rrset] = {}
        left = MOST_BYTES
        for key, name in list(self._to_check.items()):
            site = self._sites.get(name)
            if site is None or site.there is None:
                del self._to_check[key]
                continue
            rrset = site.there.get(key) or site.wanted.get(key, ABSENT)
            left -= _size(key, rrset)
            if left < 0 and expected:
                break
            expected[key] = rrset
        return CheckStep(expected)

    def _vouch_s(self) -> float:
        """When the record of `withdraw = "expire"` is renewed: only while every record is right."""
        if self._vouch_every_s is None or not self.is_right:
            return float("inf")
        return self._vouched_s + self._vouch_every_s


def _difference(name: str, site: _Site) -> Iterable[Move]:
    """The RRsets that are to change at a site, once all that is there is known."""
    if site.there is None or site.unknown:
        return
    for key, rrset in site.wanted.items():
        there = site.there.get(key, ABSENT)
        if there != rrset:
            yield Move(name, key, _prerequisite(key, there), rrset)
    for key, there in site.there.items():
        if key not in site.wanted and there.data:
            yield Move(name, key, _prerequisite(key, there), ABSENT)


def _prerequisite(key: RrsetKey, there: Rrset) -> Rrset | None:
    """The RRset that is there; None if it is too large to be said (somebody else's)."""
    return there if _size(key, there) <= MOST_BYTES // 2 else None


def _size(key: RrsetKey, rrset: Rrset) -> int:
    """The most bytes of an RRset in a message."""
    return name_size(key.name) + RECORD + sum(RECORD + len(data) for data in rrset.data)
