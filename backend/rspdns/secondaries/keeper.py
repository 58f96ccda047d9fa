"""Tells the secondaries of changes over UDP, and asks them which serial they have. The schedule decides."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import dns.tsig
from daemon_kit.logs import get_logger

from rspdns.answers.change import Change, ZoneChange
from rspdns.answers.snapshot import Snapshot, ZoneAnswers
from rspdns.rrset import Record
from rspdns.secondaries import messages
from rspdns.secondaries.configuration import SecondaryConfig, read_tsig
from rspdns.secondaries.schedule import ASK_EVERY_S, NotifyState, PurgedZones, ZoneUpkeep
from rspdns.status.model import SecondaryStatus, SecondaryZoneStatus

BATCH = 8
"""The most messages between two turns of the event loop: a signed one takes 0.2 ms."""
QUESTIONS_PER_S = 20
"""The most questions for serials a second on the average, while all are right."""
MOST_SHOWN = 100
"""Zones of a secondary in the status, those with a problem first."""
_MOST_PENDING = 256
"""Questions to one secondary whose answers are awaited; of more, the oldest is given up."""
_MOST_REPLIES_PER_S = 2000
"""Datagrams that are read from a secondary in a second; more wait, and the kernel drops them."""
_READ_AT_ONCE = 16
_MAX_REPLY_BYTES = 4096
_IDLE_S = 3600.0
_SPARE_ENTRIES = 1000


@dataclass(frozen=True, slots=True)
class _Pending:
    zone: str
    is_notify: bool
    mac: bytes = b""


@dataclass(slots=True)
class _ZoneMessages:
    """The messages about a zone at its present serial, made once for all secondaries."""

    serial: int
    notify: bytes
    question: bytes


class Secondary:
    """One secondary: its socket, and the upkeep of each of its zones. `on_reply` is told of each answer;
    `current` gives the present serial of a zone."""

    def __init__(
        self,
        config: SecondaryConfig,
        on_reply: Callable[[Secondary, str], None],
        current: Callable[[str], int],
    ) -> None:
        self.config = config
        self.zones: dict[str, ZoneUpkeep] = {}
        self._on_reply = on_reply
        self._current = current
        self._pending: dict[int, _Pending] = {}
        self._socket: socket.socket | None = None
        self._key: dns.tsig.Key | None = None
        self._key_problem = "its key was not read yet"
        self._second_s, self._replies = 0.0, 0
        self._logged: dict[str, str] = {}
        """By zone, the problem that the log has."""
        self._log = get_logger("secondaries")

    def close(self) -> None:
        """Tell it no more."""
        if self._socket is not None:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def read_key(self) -> None:
        """Read the key again. Waits for the disk."""
        if self.config.tsig is not None:
            try:
                self._key = read_tsig(self.config.tsig)
            except ValueError as problem:
                self._key, self._key_problem = None, str(problem)

    def send(self, zone: str, asked: NotifyState, soa: Record, ready: _ZoneMessages) -> None:
        """Send the question that is due."""
        upkeep = self.zones[zone]
        try:
            self._send(zone, asked, soa, ready)
        except (OSError, ValueError) as problem:
            upkeep.unsent(getattr(problem, "strerror", None) or str(problem))
            self.close()
        else:
            upkeep.sent()

    def _send(self, zone: str, asked: NotifyState, soa: Record, ready: _ZoneMessages) -> None:
        """Raises OSError, and ValueError for a key that could not be read."""
        connected = self._socket or self._connect()
        number = secrets.randbelow(2**16)
        while number in self._pending:
            number = (number + 1) % 2**16
        if asked is NotifyState.ASK:
            pending, wire = _Pending(zone, is_notify=False), messages.with_number(ready.question, number)
        elif self.config.tsig is None:
            pending, wire = _Pending(zone, is_notify=True), messages.with_number(ready.notify, number)
        else:
            if self._key is None:
                raise ValueError(self._key_problem)
            made = messages.signed(messages.notify(zone, soa), number, self._key)
            pending, wire = _Pending(zone, is_notify=True, mac=made.mac), made.wire
        while len(self._pending) >= _MOST_PENDING:
            del self._pending[next(iter(self._pending))]
        self._pending[number] = pending
        with contextlib.suppress(BlockingIOError):  # as lost on the way
            try:
                connected.send(wire)
            except ConnectionRefusedError:  # the host's word on a message before this one
                self._lose_socket()
                self._connect().send(wire)

    def _connect(self) -> socket.socket:
        address, port = self.config.endpoint
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            if self.config.source is not None:
                made.bind((self.config.source, 0))
            made.connect((str(address), port))
        except OSError:
            made.close()
            raise
        self._socket = made
        asyncio.get_running_loop().add_reader(made.fileno(), self._read)
        return made

    def _read(self) -> None:
        """Read what came. Above the limit nothing is read for a moment."""
        now = time.monotonic()
        if now - self._second_s >= 1.0:
            self._second_s, self._replies = now, 0
        for _ in range(_READ_AT_ONCE):
            if self._socket is None:
                return
            if self._replies >= _MOST_REPLIES_PER_S:
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._socket.fileno())
                loop.call_later(self._second_s + 1.0 - now, self._read_again, self._socket)
                return
            try:
                data = self._socket.recv(_MAX_REPLY_BYTES)
            except BlockingIOError:
                return
            except OSError:
                self._lose_socket()
                return
            self._replies += 1
            self._take(data, now)

    def _lose_socket(self) -> None:
        """The host said that nothing listens there (ICMP). uvloop reads no more from a socket that had an
        error, so the next message goes by another one."""
        self.close()
        for upkeep in self.zones.values():
            upkeep.unreachable()

    def _read_again(self, limited: socket.socket) -> None:
        if self._socket is limited:
            asyncio.get_running_loop().add_reader(limited.fileno(), self._read)

    def _take(self, data: bytes, now: float) -> None:
        """Take one datagram; whatever it holds, nothing is raised."""
        number = messages.answer_number(data)
        pending = self._pending.get(number) if number is not None else None
        upkeep = self.zones.get(pending.zone) if pending is not None else None
        if number is None or pending is None or upkeep is None:
            return
        if pending.is_notify:
            rcode = messages.notify_answer(data, self._key if pending.mac else None, pending.mac)
            if rcode is None:
                return
            upkeep.notify_answered(rcode, now)
        else:
            answer = messages.soa_answer(data, pending.zone)
            if answer is None:
                return
            upkeep.soa_answered(*answer, self._current(pending.zone), now)
        del self._pending[number]
        self._on_reply(self, pending.zone)

    def log(self, zone: str, now: float) -> None:
        """Log a problem that is new, or has ended."""
        problem, before = self.zones[zone].problem(now), self._logged.get(zone)
        if problem is None:
            if before is not None and self.zones[zone].is_right:
                del self._logged[zone]
                self._log.info("secondary_follows_again", secondary=self.config.name, zone=zone)
        elif problem.trouble.value != before:
            self._logged[zone] = problem.trouble.value
            self._log.warning("secondary_fails", secondary=self.config.name, zone=zone, problem=problem.words)

    def status(self, now: float) -> SecondaryStatus:
        """The secondary for the status."""
        zones = [_zone_status(zone, upkeep, now) for zone, upkeep in self.zones.items()]
        zones.sort(key=lambda status: (status.problem is None, status.zone))
        upkeeps = self.zones.values()
        return SecondaryStatus(
            name=self.config.name,
            address=self.config.address,
            notifies=sum(upkeep.notifies for upkeep in upkeeps),
            repeats=sum(upkeep.repeats for upkeep in upkeeps),
            right=sum(upkeep.is_right for upkeep in upkeeps),
            of_zones=len(self.zones),
            zones=zones[:MOST_SHOWN],
        )


def _zone_status(zone: str, upkeep: ZoneUpkeep, now: float) -> SecondaryZoneStatus:
    problem = upkeep.problem(now)
    right_s = None if upkeep.right_s is None else round(max(0.0, now - upkeep.right_s), 3)
    words = None if problem is None else problem.words
    return SecondaryZoneStatus(zone, upkeep.there, upkeep.behind(), right_s, words)


class Secondaries:
    """All secondaries. `control` are the sockets at which each PowerDNS purges."""

    def __init__(self, control: Sequence[str], snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._purged = PurgedZones(control)
        self._secondaries: dict[str, Secondary] = {}
        self._ready: dict[str, _ZoneMessages] = {}
        self._serials: dict[str, int] = {}
        """By zone, the serial from which on its content is right."""
        self._due: list[tuple[float, int, str, str]] = []
        """A heap: when, a tie-break, secondary, zone. An entry is old if its time is not the upkeep's."""
        self._order = itertools.count()
        self._are_keys_due = False
        """Whether the keys are to be read again."""
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger("secondaries")

    def start(self, configs: Sequence[SecondaryConfig]) -> None:
        """Begin to tell: each secondary of each zone, since nobody knows what it was told before."""
        self._task = asyncio.get_running_loop().create_task(self._work())
        self.set(configs)

    async def close(self) -> None:
        """Tell no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for secondary in self._secondaries.values():
            secondary.close()

    def set(self, configs: Sequence[SecondaryConfig]) -> None:
        """Let these be the secondaries from now on; those that stay as they are go on."""
        if self._task is None:
            return  # it begins with the configuration of then
        for name, secondary in list(self._secondaries.items()):
            if secondary.config not in configs:
                secondary.close()
                del self._secondaries[name]
        for config in configs:
            if config.name not in self._secondaries:
                self._secondaries[config.name] = Secondary(config, self._answered, self._current)
        self._are_keys_due = True
        self._news.set()
        answers = self._snapshot().zone_answers
        self._serials = {name: zone.serial % 2**32 for name, zone in answers.items() if is_whole(zone)}
        now = time.monotonic()
        for name, secondary in self._secondaries.items():
            for zone in self._serials.keys() - secondary.zones.keys():
                self._add(name, zone, now)

    def changed(self, change: Change, now: float) -> None:
        """The answers changed at `now`, and their purge was begun."""
        if not self._secondaries:
            return
        for name in [name for name, zone in change.zones.items() if zone.after is None]:
            self._drop(name)
        moved = [name for name, zone in change.zones.items() if has_other_content(zone)]
        for name in moved:
            self._serials[name] = change.after.zone_answers[name].serial % 2**32
        self._tell(self._purged.changed(moved, now), now)
        self._news.set()

    def purged(self, path: str, names: Collection[str] | None, taken_s: float) -> None:
        """PowerDNS purged `names`; see `Purger`."""
        if zones := self._purged.purged(path, names, taken_s):
            self._tell(zones, time.monotonic())

    def statuses(self) -> list[SecondaryStatus]:
        """Every secondary for the status."""
        now = time.monotonic()
        return [secondary.status(now) for secondary in self._secondaries.values()]

    def _add(self, name: str, zone: str, now: float) -> None:
        """Begin with a zone at a secondary, if it is to have it."""
        secondary = self._secondaries[name]
        if not secondary.config.zones or zone in secondary.config.zones:
            most = len(self._serials) * len(self._secondaries)
            ask_every_s = max(ASK_EVERY_S, most / QUESTIONS_PER_S)
            secondary.zones[zone] = ZoneUpkeep(
                self._serials[zone], now, ask_every_s, signs=secondary.config.signs
            )
            self._schedule(name, zone)

    def _drop(self, zone: str) -> None:
        """The zone is served no more."""
        self._serials.pop(zone, None)
        self._ready.pop(zone, None)
        for secondary in self._secondaries.values():
            secondary.zones.pop(zone, None)

    def _tell(self, zones: Iterable[str], now: float) -> None:
        """Tell the secondaries of these zones."""
        for zone in zones:
            serial = self._serials.get(zone)
            if serial is None:
                continue
            for name, secondary in self._secondaries.items():
                if (upkeep := secondary.zones.get(zone)) is not None:
                    upkeep.changed(serial, now)
                    self._schedule(name, zone)
                else:
                    self._add(name, zone, now)

    def _schedule(self, name: str, zone: str) -> None:
        due_s = self._secondaries[name].zones[zone].due_s
        is_next = not self._due or due_s < self._due[0][0]
        heapq.heappush(self._due, (due_s, next(self._order), name, zone))
        if len(self._due) > _SPARE_ENTRIES + 4 * len(self._serials) * len(self._secondaries):
            self._schedule_all()
        if is_next:
            self._news.set()

    def _schedule_all(self) -> None:
        """Make the heap anew, without old entries."""
        self._due = [
            (upkeep.due_s, next(self._order), name, zone)
            for name, secondary in self._secondaries.items()
            for zone, upkeep in secondary.zones.items()
        ]
        heapq.heapify(self._due)

    def _answered(self, secondary: Secondary, zone: str) -> None:
        self._schedule(secondary.config.name, zone)
        secondary.log(zone, time.monotonic())

    def _current(self, zone: str) -> int:
        answers = self._snapshot().zone_answers.get(zone)
        return 0 if answers is None else answers.serial % 2**32

    async def _work(self) -> None:
        while True:
            try:
                await self._turn()
            except Exception:
                self._log.error("secondaries_fault", exc_info=True)
                await asyncio.sleep(1.0)
                self._schedule_all()

    async def _turn(self) -> None:
        """Send what is due, a little at a time, and wait for what is due next."""
        if self._are_keys_due:
            self._are_keys_due = False
            await asyncio.to_thread(_read_keys, list(self._secondaries.values()))
        now = time.monotonic()
        self._tell(self._purged.overdue(now), now)
        for name, zone in itertools.islice(self._taken(now), BATCH):
            self._ask(self._secondaries[name], zone, now)
        next_s = min(self._due[0][0] if self._due else now + _IDLE_S, self._purged.next_due_s)
        if (wait_s := next_s - time.monotonic()) <= 0:
            await asyncio.sleep(0)
            return
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(wait_s, _IDLE_S)):
                await self._news.wait()

    def _taken(self, now: float) -> Iterator[tuple[str, str]]:
        """The secondaries and zones that are due, out of the heap."""
        while self._due and self._due[0][0] <= now:
            due_s, _, name, zone = heapq.heappop(self._due)
            secondary = self._secondaries.get(name)
            upkeep = secondary.zones.get(zone) if secondary is not None else None
            if upkeep is not None and upkeep.due_s == due_s:
                yield name, zone

    def _ask(self, secondary: Secondary, zone: str, now: float) -> None:
        answers = self._snapshot().zone_answers.get(zone)
        if answers is None:
            self._drop(zone)
            return
        for asked in secondary.zones[zone].take(now):
            secondary.send(zone, asked, answers.soa, self._messages(zone, answers))
        secondary.log(zone, now)
        self._schedule(secondary.config.name, zone)

    def _messages(self, zone: str, answers: ZoneAnswers) -> _ZoneMessages:
        serial = answers.serial % 2**32
        ready = self._ready.get(zone)
        if ready is None or ready.serial != serial:
            ready = self._ready[zone] = _ZoneMessages(
                serial,
                messages.notify(zone, answers.soa).to_wire(),
                messages.soa_question(zone).to_wire(),
            )
        return ready


def _read_keys(secondaries: Iterable[Secondary]) -> None:
    for secondary in secondaries:
        secondary.read_key()


def is_whole(zone: ZoneAnswers) -> bool:
    """Whether the zone can be transferred: each of its pools is known."""
    return not any(state.failure for site in zone.sites for state in site.states)


def has_other_content(change: ZoneChange) -> bool:
    """Whether a transfer of the zone now holds other records than before: not where only chance drew anew."""
    before, after = change.before, change.after
    if after is None or not is_whole(after):
        return False
    if before is None or change.sites is None:
        return True
    return before.serial != after.serial and any(
        not new_state.gives_the_records_of(old_state)
        for old, new in change.moved_sites
        for old_state, new_state in zip(old.states, new.states, strict=True)
    )
