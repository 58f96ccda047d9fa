"""Which member to probe when, and what the outcomes mean: pure, no clock and no socket.

All probes together stay below a rate, so that thousands of members make no storm: each is then simply asked
less often, and who failed or is coming back goes first. Times are spread by chance.

A member is unreachable after `fall` failed probes in a row and reachable again after `rise` good ones. It
starts as reachable: only what was tried can fall. And it falls only beside a **witness**: a member of the
same pool that answered a probe that began after its own failing did. When nobody answers, the probe's own way
is a better explanation than a pool of which all died while registrars go on listing it: nothing follows from
it. Two or more, and more than half of a pool, falling within 500 ms are a crowd: it takes twice as
many failures, or 1 s.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from daemon_kit.finding import Life
from daemon_kit.sip import SIP_PORT

from pool_user.belief.rules import CROWD_QUESTIONED_S, CROWD_WINDOW_S
from pool_user.views import Member

MAX_PROBES_PER_S = 1000
"""The most probes of all members together, unless configured: a pool of as many that others empty is whole
again after 1.2 s."""
BURST_S = 0.1
"""The part of a second's probes that may start at once."""
MAX_UNDER_WAY = 200
ATTEMPTS = 3
"""Attempts of one probe, spread evenly over its timeout: a lost packet or two mean nothing."""
JITTER = 0.1
"""Intervals differ by up to this part, so that probes spread by themselves."""
WITNESSES = 2
"""How many others of the pool are probed at once when a member begins to fail."""
SUSPECT_REPEAT_S = 0.05
"""A suspect that failed is probed again after this, and any member while its registrars are lost."""
REMEMBERED_S = 60.0
"""A verified member that is gone and comes back within this time is still unreachable, if it was."""

Method = Literal["tcp", "sip-options", "connect", "auto"]


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """How the members of one pool are probed.

    `method` "connect" is TCP or SCTP by connecting, as the member's transport says; "auto" is SIP OPTIONS
    over UDP, over TCP where the member speaks SIP, else connecting: a server that hangs still accepts.
    `is_sip` tells "auto" whether members speak SIP; None: those at port 5060. `verified`: all the time; else
    only while no registrar can vouch for the pool, or the home registrar of a member is lost. `report`:
    registrars are told of the unreachable.
    """

    method: Method = "connect"
    interval_s: float = 1.0
    timeout_s: float = 0.3
    fall: int = 2
    rise: int = 2
    verified: bool = False
    report: bool = False
    mark: int = 0
    """SO_MARK of the probe's sockets (needs CAP_NET_ADMIN): packet filters know the probe by it.
    0: none."""
    is_sip: bool | None = None

    def speaks_sip(self, port: int) -> bool:
        """Whether a member at this port speaks SIP."""
        return port == SIP_PORT if self.is_sip is None else self.is_sip


@dataclass(frozen=True, slots=True)
class PoolProbing:
    """The plan for one handle's members, and the pool they are witnesses for each other in."""

    plan: ProbePlan
    group: str


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """One member of one pool; with another address, port or plan it is another target.

    `group` is the pool it belongs to, where several handles shard one; its handle if not given. A
    `is_suspected` one is probed at once, and again soon.
    """

    handle: str
    member: Member
    plan: ProbePlan = ProbePlan()
    group: str = ""
    is_suspected: bool = False
    is_vanished: bool = False
    """No registrar lists it there: it counts as unreachable until it answers once. The first conclusion is
    told whatever it is, and no witness is needed."""

    @property
    def key(self) -> tuple[object, ...]:
        """The values that make it the same target."""
        member = self.member
        return (
            self.handle,
            member.identifier,
            member.addresses,
            member.port,
            member.protocol,
            self.plan,
            self.is_vanished,
        )


@dataclass(frozen=True, slots=True)
class ReachChange:
    """A target fell, or rose again; `forgotten`: it counts as reachable since it is no target any more."""

    target: ProbeTarget
    reachable: bool
    forgotten: bool = False


@dataclass(slots=True, eq=False)
class _Record:
    target: ProbeTarget
    group: _Group
    due_s: float
    reachable: bool = True
    streak: int = 0
    """Outcomes in a row that contradict `reachable`, or any while it `is_unsure`."""
    began_s: float = float("-inf")
    """When the probe under way began, or the last one."""
    failing_since_s: float = float("inf")
    """When the first of the failed probes in a row began; infinity while it answers."""
    answered_s: float = float("-inf")
    """When the last probe that was answered began."""
    under_way: bool = False
    is_unsure: bool = False
    """Whether nothing was concluded of a vanished member: an answer of before may hold it in."""
    gone_at_s: float | None = None

    @property
    def wants_to_fall(self) -> bool:
        return self.reachable and self.streak >= self.target.plan.fall


@dataclass(slots=True, eq=False)
class _Group:
    records: dict[tuple[object, ...], _Record] = field(default_factory=dict)
    fell_s: list[float] = field(default_factory=list)

    @property
    def present(self) -> Iterator[_Record]:
        return (record for record in self.records.values() if record.gone_at_s is None)

    def is_blind(self, now: float) -> bool:
        """Whether somebody fails for long and nobody of the pool answers who could witness it."""
        return any(
            record.wants_to_fall and now > record.failing_since_s + CROWD_QUESTIONED_S
            for record in self.present
        )


class ProbeBook:
    """Keeps what is known about every target. `now` is monotonic seconds throughout."""

    def __init__(self, *, max_per_s: float = MAX_PROBES_PER_S, draw: random.Random | None = None) -> None:
        self.max_per_s = max_per_s
        self.under_way = 0
        self._draw = draw or random.Random()  # noqa: S311 - spreads load, no secret
        self._records: dict[tuple[object, ...], _Record] = {}
        self._groups: dict[str, _Group] = {}
        self._allowed_at_s = float("-inf")
        self._queues: tuple[list[tuple[float, int, _Record]], ...] = ([], [])
        """The members that wait for a probe: those in which something changes, and all others. Outdated
        entries stay in until their time comes."""
        self._count = 0

    def set_targets(self, targets: Iterable[ProbeTarget], now: float) -> list[ReachChange]:
        """Take who is to be probed from now on.

        Return what does not hold any longer: unreachable members that were gone for too long are forgotten.
        """
        by_key = {target.key: target for target in targets}
        for key, target in by_key.items():
            record = self._records.get(key)
            if record is None:
                self._add(key, target, now)
            else:
                is_news = target.is_suspected and not record.target.is_suspected
                record.target = target
                if is_news and not record.under_way:
                    self._queue(record, now, urgent=True)
                if record.gone_at_s is not None:
                    record.gone_at_s = None
                    self._queue(record, now, urgent=True)
        changes = []
        for key in self._records.keys() - by_key.keys():
            record = self._records[key]
            target = record.target
            if record.gone_at_s is None:
                record.gone_at_s = now
            keep = record.target.plan.verified and not record.reachable and not target.is_vanished
            if not keep or now - record.gone_at_s >= REMEMBERED_S:
                self._remove(key, record)
                if not record.reachable and not target.is_vanished:
                    changes.append(ReachChange(target, True, forgotten=True))
        return changes

    def due(self, now: float) -> list[ProbeTarget]:
        """Return who is to be probed now; each must be told of by `result()` once."""
        room = self._room(now)
        urgent, others = self._queues
        begun = self._take(urgent, -(-room // 2), now)
        begun += self._take(others, room - len(begun), now)
        begun += self._take(urgent, room - len(begun), now)
        return [record.target for record in begun]

    @property
    def next_due_s(self) -> float:
        """When `due()` has somebody, or may have; infinity for never."""
        due_s = min((queue[0][0] for queue in self._queues if queue), default=float("inf"))
        if self.under_way >= MAX_UNDER_WAY:
            return float("inf")
        return max(due_s, self._allowed_at_s + 1 / self.max_per_s)

    def result(self, target: ProbeTarget, life: Life, now: float) -> list[ReachChange]:
        """Take what a probe found. Return who fell or rose by it: a witness can let others fall."""
        record = self._records.get(target.key)
        if record is None or not record.under_way:
            return []
        record.under_way = False
        self.under_way -= 1
        plan = record.target.plan
        began_to_fail = self._note(record, life)
        changing = record.streak > 0
        factor = 1 + JITTER * (2 * self._draw.random() - 1)
        pause_s = plan.interval_s / (2 if changing else 1)
        if changing and (record.target.is_suspected or not (plan.verified or record.wants_to_fall)):
            pause_s = min(pause_s, SUSPECT_REPEAT_S)
        self._queue(record, now + factor * pause_s, urgent=changing)
        changes = []
        rise = 1 if record.target.is_vanished else plan.rise
        if life is Life.ALIVE and not record.reachable and record.streak >= rise:
            record.reachable, record.streak, record.is_unsure = True, 0, False
            changes.append(ReachChange(record.target, True))
        if life.is_failure and record.is_unsure and record.streak >= plan.fall:
            record.streak, record.is_unsure = 0, False
            changes.append(ReachChange(record.target, False))
        if began_to_fail:
            self._call_witnesses(record, now)
        if life.is_failure and record.wants_to_fall and _may_fall(record, now):
            record.reachable, record.streak = False, 0
            record.group.fell_s.append(now)
            changes.append(ReachChange(record.target, False))
        return changes

    def blind(self, now: float) -> list[str]:
        """The pools of which no member answers, so that nobody is dropped."""
        return [name for name, group in self._groups.items() if group.is_blind(now)]

    def _note(self, record: _Record, life: Life) -> bool:
        """Count an outcome. Return True when the member answered until now and does not any more."""
        began_to_fail = life.is_failure and record.failing_since_s == float("inf")
        if not life.is_failure:
            record.failing_since_s = float("inf")
        elif began_to_fail:
            record.failing_since_s = record.began_s
        if life is Life.ALIVE:
            record.answered_s = record.began_s
        is_news = record.is_unsure or (life is Life.ALIVE) != record.reachable
        contradicts = life is not Life.UNKNOWN and is_news
        record.streak = record.streak + 1 if contradicts else 0
        return began_to_fail and record.reachable

    def _call_witnesses(self, failing: _Record, now: float) -> None:
        """Have some others of the pool probed as soon as that proves something."""
        due_s = max(now, failing.failing_since_s + failing.target.plan.timeout_s / ATTEMPTS)
        others = [
            other
            for other in failing.group.present
            if other.reachable and not other.under_way and other.failing_since_s == float("inf")
        ]
        for witness in heapq.nsmallest(WITNESSES, others, key=lambda other: other.answered_s):
            self._queue(witness, min(witness.due_s, due_s), urgent=True)

    def _add(self, key: tuple[object, ...], target: ProbeTarget, now: float) -> None:
        group = self._groups.setdefault(target.group or target.handle, _Group())
        is_vanished = target.is_vanished
        record = _Record(target, group, now, reachable=not is_vanished, is_unsure=is_vanished)
        self._records[key] = group.records[key] = record
        delay_s = 0.0 if target.is_suspected else self._draw.random() * target.plan.interval_s
        self._queue(record, now + delay_s, urgent=target.is_suspected)

    def _remove(self, key: tuple[object, ...], record: _Record) -> None:
        self.under_way -= record.under_way
        record.under_way, record.due_s = False, float("inf")
        del self._records[key], record.group.records[key]
        name = record.target.group or record.target.handle
        if not record.group.records:
            self._groups.pop(name, None)

    def _queue(self, record: _Record, due_s: float, *, urgent: bool) -> None:
        record.due_s = due_s
        self._count += 1
        heapq.heappush(self._queues[0 if urgent else 1], (due_s, self._count, record))

    def _take(self, queue: list[tuple[float, int, _Record]], most: int, now: float) -> list[_Record]:
        taken: list[_Record] = []
        while queue and queue[0][0] <= now and len(taken) < most:
            due_s, _, record = heapq.heappop(queue)
            if record.under_way or record.due_s != due_s or record.gone_at_s is not None:
                continue
            record.under_way, record.began_s, record.due_s = True, now, float("inf")
            self.under_way += 1
            self._allowed_at_s += 1 / self.max_per_s
            taken.append(record)
        return taken

    def _room(self, now: float) -> int:
        """How many probes may start now: a tenth of a second's worth at once, no more."""
        self._allowed_at_s = max(self._allowed_at_s, now - max(BURST_S, 1 / self.max_per_s))
        room = int((now - self._allowed_at_s) * self.max_per_s + 1e-6)
        return max(0, min(MAX_UNDER_WAY - self.under_way, room))


def _may_fall(record: _Record, now: float) -> bool:
    """Whether a member whose probe just failed, as often as it takes, is to be left out."""
    group, plan = record.group, record.target.plan
    if record.target.is_vanished:
        return True
    # A way that broke while the probe was under way lets no later probe of another through.
    since_s = record.failing_since_s + plan.timeout_s / ATTEMPTS
    if not any(other.reachable and other.answered_s >= since_s for other in group.present):
        return False
    group.fell_s = [at_s for at_s in group.fell_s if at_s > now - CROWD_WINDOW_S]
    gone = len(group.fell_s) + sum(other.wants_to_fall for other in group.present)
    if gone < 2 or 2 * gone <= sum(1 for _ in group.present):
        return True
    return record.streak >= 2 * plan.fall or now >= record.failing_since_s + CROWD_QUESTIONED_S
