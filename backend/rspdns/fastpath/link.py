"""Keeps rspdns-fastpath up to date: changes before PowerDNS's caches are purged, the lease 4 times a second.

A change is told in two parts: first what the snapshot shows, at once; then the variants that chance draws,
bit by bit while nothing else is to be done. So are the networks of `near`, before any answer by these.

The lease stands in memory that is shared with the BPF program. So it ends at once when the daemon breaks off,
and within `COMMITTED_WITHIN_S` when the daemon does not make a change visible.

A connection that breaks is made anew, and everything is told again. While there is none, or the lease is not
renewed, PowerDNS answers everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping

import orjson
from daemon_kit.logs import get_logger

from rspdns.answers.change import Change
from rspdns.answers.snapshot import Snapshot
from rspdns.fastpath import messages
from rspdns.fastpath.configuration import LimitConfig
from rspdns.fastpath.connection import DaemonConnection
from rspdns.fastpath.near import MOST_BLOCKS, NumberedClasses
from rspdns.fastpath.ready import Answer, Question, ReadyAnswers, depths
from rspdns.fastpath.status import AskedStatus, DaemonStatus
from rspdns.zones.zone import Zone

LEASE_S = 1.0
"""Time from the last renewal of the lease to its end."""
RENEW_EVERY_S = 0.25
COMMITTED_WITHIN_S = 0.02
"""The daemon makes a change visible within this time; or PowerDNS answers, until it has."""
ASK_EVERY_S = 1.0
"""Time between two questions to the daemon: which names were asked about, and what was decided."""
DRAW_AGAIN_EVERY_S = 10.0
"""The time until random choices among many records are drawn again, for names that are asked about; it
needs no purge."""
DRAWN_AT_ONCE_S = 0.0005
"""How long drawing goes on at a time. A change waits for it no longer than that, and for one draw."""
DRAW_PAUSE_S = 0.001
"""The least pause after drawing; it is as long as the drawing took."""
RETRY_S = 1.0
MOST_ASKED = 1000
LATE = "it does not take the changes: is it stopped?"
_log = get_logger("fastpath")


class FastPath:
    """The link to the daemon at the socket `path`. All of it lives in one event loop.

    `asked` is told, once a second, the names that the kernel answered about.
    """

    def __init__(
        self,
        path: str,
        udp_payload: int,
        asked: Callable[[Iterable[str]], None] = lambda names: None,
        draw: random.Random | None = None,
        limit: LimitConfig | None = None,
        *,
        client_subnet: bool = False,
    ) -> None:
        self.path = path
        self.problem: str | None = "not connected yet"
        """Why nothing is answered from the kernel; None: the daemon has all answers."""
        self.daemon: DaemonStatus | None = None
        """The daemon's latest report of itself."""
        self.asked: dict[Question, AskedStatus] = {}
        """The questions asked since the daemon began."""
        self.refused = 0
        """Names for which it has no room."""
        self._hello = messages.hello(udp_payload, client_subnet=client_subnet)
        self._limit = limit
        self._depths: Mapping[str, int] = {}
        self._on_asked = asked
        self._ready = ReadyAnswers(draw or random.Random())  # noqa: S311 - spreads load, no secret
        self._classes = NumberedClasses()
        self._drawing: asyncio.TimerHandle | None = None
        self._connection = DaemonConnection(path, self._take, self._drop)
        self._is_welcome = False
        self._commits = 0
        self._committed = 0
        self._awaiting: asyncio.TimerHandle | None = None
        self._late: int | None = None
        """The commit that PowerDNS answers instead of, until the daemon has made it visible."""
        self._drawn_at_s = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_answering(self) -> bool:
        """Whether changes are visible in the kernel's answers as soon as they are told."""
        return self._is_welcome and self._late is None

    @property
    def names(self) -> int:
        """How many questions have ready answers."""
        return len(self._ready)

    def start(self) -> None:
        """Begin to connect; must run in an event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="fastpath")

    async def close(self) -> None:
        """Nothing is answered from the kernel any more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._drop("closed")

    def set_zones(self, zones: Collection[Zone]) -> None:
        """These zones are served from now on: the limit and the classes of askers are told before their
        answers come."""
        self._classes.want(zones)
        self._tell_changed(self._ready.learn(self._classes.known))
        if self._limit is None or not self._limit.deep_per_s:
            return
        before, self._depths = self._depths, depths(zones)
        if zones and not self._depths:
            _log.warning("fastpath_depth_unknown", zones=len(zones))
        gone = dict.fromkeys(before.keys() - self._depths.keys(), 0)
        if self._is_welcome:
            self._tell_depths(
                gone | {zone: depth for zone, depth in self._depths.items() if before.get(zone) != depth}
            )

    def apply(self, change: Change, signed: Collection[str]) -> None:
        """Answer as this change says, but for `signed` zones: on its way when this returns."""
        self._tell_changed(self._ready.apply(change, signed))

    def take(self, snapshot: Snapshot, signed: Collection[str]) -> None:
        """Answer as this snapshot says, but for `signed` zones, which may be others than before."""
        self._tell_changed(self._ready.take(snapshot, signed))

    def _tell_changed(self, changed: Mapping[Question, tuple[Answer, ...]]) -> None:
        if changed and self._is_welcome:
            self._tell(changed)
        self._draw_later(DRAW_PAUSE_S)

    def _draw_later(self, pause_s: float) -> None:
        """Go on drawing, unless nothing is left to be drawn, or nobody is there to be told."""
        is_done = self._ready.is_drawn and self._classes.is_told
        if self._drawing is None and self._is_welcome and not is_done:
            self._drawing = asyncio.get_running_loop().call_later(pause_s, self._draw_some)

    def _draw_some(self) -> None:
        self._drawing = None
        began_s = time.monotonic()
        drawn: dict[Question, tuple[Answer, ...]] = {}
        while time.monotonic() - began_s < DRAWN_AT_ONCE_S:
            if not self._classes.is_told:
                drawn |= self._tell_classes()
            elif not self._ready.is_drawn:
                drawn |= self._ready.draw_next()
            else:
                break
        if drawn and self._is_welcome:
            self._tell(drawn)
        self._draw_later(max(DRAW_PAUSE_S, time.monotonic() - began_s))

    def _tell_classes(self) -> Mapping[Question, tuple[Answer, ...]]:
        """Tell some blocks of classes of askers. Return the answers that the daemon may have after them."""
        known, too_large = self._classes.known, len(self._classes.too_large)
        self._connection.send(self._classes.next_message())
        if len(self._classes.too_large) > too_large:
            _log.warning("fastpath_near_too_large", most_blocks=MOST_BLOCKS)
        return self._ready.learn(self._classes.known) if self._classes.known is not known else {}

    def _tell_depths(self, by_zone: Mapping[str, int]) -> None:
        self._connection.send(b"".join(messages.zone_depth(zone, depth) for zone, depth in by_zone.items()))

    def _tell(self, answers: Mapping[Question, tuple[Answer, ...]]) -> None:
        self._commits += 1
        puts = (
            messages.put(question, variants, self._ready.number_of(question))
            for question, variants in answers.items()
        )
        self._connection.send(b"".join((*puts, messages.commit(self._commits))))
        self._await_commit()

    def _await_commit(self) -> None:
        if self._awaiting is None and self._is_welcome and self._committed < self._commits:
            loop = asyncio.get_running_loop()
            self._awaiting = loop.call_later(COMMITTED_WITHIN_S, self._look_for_commit, self._commits)

    def _look_for_commit(self, number: int) -> None:
        """By now this change should be visible."""
        self._awaiting = None
        self._connection.read()  # what says so may have come while this process did something else
        if self._is_welcome and self._committed < number:
            self._late = self._commits
            self._connection.lease.end()
        else:
            self._await_commit()  # those that were told since

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        renewed_s = asked_s = float("-inf")
        looked_s = loop.time()
        while True:
            if not self._connection.is_open:
                self._connect()
            now = loop.time()
            if now - looked_s > LEASE_S:
                renewed_s = now  # this process stood still: it hears first what it missed
            looked_s = now
            if self._is_welcome:
                if now - asked_s >= ASK_EVERY_S:
                    asked_s = now
                    self._connection.send(messages.STATUS_OF_ASKED)
                    if forgotten := self._classes.forget_all_but(self._ready.numbers):
                        self._connection.send(forgotten)
                        self._ready.learn(self._classes.known)
                if now - renewed_s >= RENEW_EVERY_S * 0.9:
                    renewed_s = now
                    self._renew()
                    self._set_problem(None if self._late is None else LATE)
            await asyncio.sleep(RENEW_EVERY_S if self._connection.is_open else RETRY_S)

    def _renew(self) -> None:
        """Renew the lease, unless nothing is known, or a change is not visible that should be."""
        if len(self._ready) and self._late is None:
            self._connection.lease.renew()

    def _connect(self) -> None:
        try:
            self._connection.open()
        except OSError as error:
            why = {
                FileNotFoundError: "no rspdns-fastpath is there",
                ConnectionRefusedError: "no rspdns-fastpath is there",
                PermissionError: "not allowed to use it: the backend's user must be in the socket's group",
            }.get(type(error), error.strerror or str(error))
            self._set_problem(why)
        else:
            self._connection.send(self._hello)

    def _take(self, message: messages.DaemonMessage) -> None:
        match message.kind:
            case "h":
                self._connection.lease.number = messages.welcomed(message.body)
                if not self._connection.lease.is_shared:
                    raise messages.MessageError("a welcome without a lease")
                self._is_welcome = True
                self.asked.clear()
                self._set_problem(None)
                if self._limit is not None:
                    self._connection.send(messages.limit(self._limit))
                    self._tell_depths(self._depths)
                self._classes.start_over()
                self._ready.learn(self._classes.known)
                self._tell(self._ready.all)
                self._late = self._commits  # until all answers are there
                self._draw_later(DRAW_PAUSE_S)
            case "c":
                self._committed, refused = messages.committed(message.body)
                if self._late is not None and self._committed >= self._late:
                    self._late = None
                    self._renew()
                    self._await_commit()
                self.refused += refused
                if refused:
                    _log.warning("fastpath_full", names=refused, socket=self.path)
            case "s":
                self._take_status(message.body)
            case "e":
                self._drop(message.body.decode(errors="replace"))
            case "d":
                self._drop("it was told to detach")
            case _:
                raise messages.MessageError(f"an unknown message {message.kind!r}")

    def _take_status(self, body: bytes) -> None:
        try:
            self.daemon = DaemonStatus.read(orjson.loads(body))
        except (ValueError, KeyError, TypeError) as error:
            raise messages.MessageError(f"a status that can't be read: {error}") from None
        self.asked |= {Question(asked.name, asked.type): asked for asked in self.daemon.asked}
        if len(self.asked) > MOST_ASKED + 2 * self.names:
            self.asked.clear()  # of names that are no more
        names = {asked.name for asked in self.daemon.asked}
        if names:
            self._on_asked(names)
        now = time.monotonic()
        if names and now - self._drawn_at_s >= DRAW_AGAIN_EVERY_S:
            self._drawn_at_s = now
            self._ready.draw_again(names)
            self._draw_later(DRAW_PAUSE_S)

    def _drop(self, why: str) -> None:
        """The connection is over: the daemon ends the lease at once when it sees that."""
        self._is_welcome = False
        for timer in (self._drawing, self._awaiting):
            if timer is not None:
                timer.cancel()
        self._drawing = self._awaiting = None
        self.daemon = None
        if self._connection.close():
            self._set_problem(why)

    def _set_problem(self, problem: str | None) -> None:
        if problem != self.problem:
            if problem is None:
                _log.info("fastpath_connected", socket=self.path)
            else:
                _log.warning("fastpath_not_used", socket=self.path, problem=problem)
        self.problem = problem
