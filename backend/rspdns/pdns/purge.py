"""Purges changed names from the caches of every PowerDNS this backend serves, over their control sockets.

One command per connection, since PowerDNS reads no second one. Each control socket has its own task: one that
hangs or is missing never delays another. A socket with nothing to purge is asked for a sign of life once a
second, so that the status knows whether PowerDNS is there before a purge has to find out.

`PurgeSchedule` says what to purge at one PowerDNS, and when. It is pure: no clock, no socket.

A changed name is purged three times: at once, and again 10 and 50 ms later. A look-up that was under way
during a purge puts the old answer back into PowerDNS's caches; the repeats remove that.

Each command is a connection of its own, for which PowerDNS clears a megabyte: that costs more than the
purges. So names that change while a command is under way go together into the next one, with repeats that are
due soon. When changes come all the time, commands are `SPACING_S` apart and take along what gathered
meanwhile. A name is then purged twice only, since each purge makes PowerDNS ask for it again. Repeats wait
for a change to go along with, but not for longer than `SPACING_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from daemon_kit.logs import get_logger

GAPS_S = (0.0, 0.010, 0.040)
"""Time from a change to its first purge, and from each purge to the next."""
EARLY_S = 0.003
"""A repeat that is due within this time goes along with a command that is made anyway."""
SPACING_S = 0.020
"""Time between two commands while changes come all the time: the longest that a change waits then."""
BURST = 10
"""Commands that may come one right after the other: changes that come now and then never wait."""
RETRY_S = 0.25
"""Time until a command that did not get through is sent again."""
MAX_NAMES = 2000
"""The most names in one command. PowerDNS needs about 30 ms for these, and reads a line of at most 1 MB."""
_RETRY = len(GAPS_S)


@dataclass(frozen=True, slots=True)
class Command:
    """Names to purge now; `turns` says for each which of its purges it is, from 0."""

    turns: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """The names."""
        return tuple(self.turns)


class PurgeSchedule:
    """Each name waits in one queue, of its first, second or third purge, or of its retry.

    All names of a queue wait for the same time, so each queue is in the order of its times.
    """

    def __init__(self) -> None:
        self._queues: tuple[dict[str, float], ...] = tuple({} for _ in (*GAPS_S, RETRY_S))
        self._spaced_until_s = float("-inf")
        """When the next command would come if all were `SPACING_S` apart; up to `BURST` may come sooner."""

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def add(self, names: Iterable[str], now: float) -> None:
        """These names changed: all their purges begin anew."""
        first, *later = self._queues
        for name in names:
            for queue in later:
                queue.pop(name, None)
            first.setdefault(name, now)

    @property
    def next_due_s(self) -> float | None:
        """When the next command is due, None when there is nothing to purge."""
        first, *later, retry = (next(iter(queue.values())) if queue else None for queue in self._queues)
        free_at_s = self.free_at_s
        due = [max(at_s, free_at_s) for at_s in (first, retry) if at_s is not None]
        due += [at_s if at_s >= free_at_s else free_at_s + SPACING_S for at_s in later if at_s is not None]
        return min(due, default=None)

    @property
    def free_at_s(self) -> float:
        """From when on a command may be made."""
        return self._spaced_until_s - BURST * SPACING_S

    def take(self, now: float) -> Command | None:
        """Return what is due, to be told its end by `done()` or `failed()`."""
        due_s = self.next_due_s
        if due_s is None or due_s > now:
            return None
        self._spaced_until_s = max(self._spaced_until_s, now) + SPACING_S
        turns: dict[str, int] = {}
        for turn, queue in enumerate(self._queues):
            for name, due_s in queue.items():
                if due_s > now + EARLY_S or len(turns) == MAX_NAMES:
                    break
                turns[name] = 0 if turn == _RETRY else turn
            for name in turns.keys() & queue.keys():
                del queue[name]
        return Command(turns)

    def done(self, command: Command, now: float) -> None:
        """PowerDNS purged them: the next turn of each, unless it changed again meanwhile."""
        turns = 2 if self.free_at_s > now else 1  # the second purge is left out where commands are spaced
        for name, turn in command.turns.items():
            following = turn + 1 if turn else turns
            if following < len(GAPS_S) and name not in self._queues[0]:
                self._queues[following][name] = now + GAPS_S[following]

    def failed(self, command: Command, now: float) -> None:
        """It is not known to have got through: all purges of these names begin anew after a pause."""
        for name in command.turns:
            if name not in self._queues[0]:
                self._queues[_RETRY][name] = now + RETRY_S

    def clear(self) -> None:
        """Nothing is to be purged any more."""
        for queue in self._queues:
            queue.clear()


TIMEOUT_S = 1.0
"""How long one command may take. PowerDNS serves one client after the other; an idle client holds up all."""
SIGN_OF_LIFE = "RPING"
"""A command that PowerDNS answers within microseconds, without a line in its log."""
REDISCOVER = "REDISCOVER"
"""The command that has PowerDNS read its list of zones again."""
SIGN_OF_LIFE_EVERY_S = 1.0
"""Time from the last command to the next sign of life."""
NOT_THERE = "no PowerDNS is there"
_MAX_REPLY_BYTES = 4096


@dataclass(slots=True)
class PurgeCounts:
    """The work at one control socket since the start."""

    commands: int = 0
    names: int = 0
    repeats: int = 0
    """The number of these names that were purged for the second or third time."""
    failures: int = 0


OnPurged = Callable[[str, Collection[str] | None, float], None]
"""Told the control socket, the names purged there for the first time since they changed (None: whatever they
are, nothing is cached there), and when the command was made (monotonic)."""


class Purger:
    """Purges at the control sockets `paths`."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        timeout_s: float = TIMEOUT_S,
        sign_of_life_every_s: float = SIGN_OF_LIFE_EVERY_S,
        on_purged: OnPurged = lambda path, names, taken_s: None,
    ) -> None:
        self.sockets = tuple(
            ControlSocket(path, timeout_s, sign_of_life_every_s, on_purged) for path in paths
        )

    def start(self) -> None:
        """Begin to work; must run in an event loop. Purges that were asked for before are done then."""
        for control in self.sockets:
            control.start()

    async def close(self) -> None:
        """Stop; what is due is left undone."""
        await asyncio.gather(*(control.close() for control in self.sockets))

    def purge(self, names: Collection[str]) -> None:
        """Purge these names at once, and again 10 and 50 ms later; "zone$" means a zone and all below it."""
        for control in self.sockets:
            control.purge(names)

    @property
    def free_at_s(self) -> float:
        """From when on (monotonic) a change is purged at once; in the past unless they come all the time."""
        return max((control.free_at_s for control in self.sockets), default=float("-inf"))

    def rediscover(self) -> None:
        """Let PowerDNS read the list of zones again."""
        for control in self.sockets:
            control.rediscover()


class ControlSocket:
    """One PowerDNS's control socket, and what is to be told it."""

    def __init__(self, path: str, timeout_s: float, sign_of_life_every_s: float, on_purged: OnPurged) -> None:
        self.path = path
        self._on_purged = on_purged
        self.counts = PurgeCounts()
        self.problem: str | None = None
        """Why the last command did not get through; None if it did."""
        self._timeout_s = timeout_s
        self._sign_of_life_every_s = sign_of_life_every_s
        self._told_s = float("-inf")
        """When the last command ended (monotonic)."""
        self._schedule = PurgeSchedule()
        self._under_way = 0
        self._is_waiting = False
        self._was_there = False
        """Whether a command got through since the start."""
        self._begun: _Begun | None = None
        """A command that `purge()` sent at once."""
        self._rediscover_at_s = math.inf
        """When PowerDNS is to read its list of zones again (monotonic)."""
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger("purge")

    @property
    def waiting(self) -> int:
        """How many names wait for one of their purges."""
        return len(self._schedule) + self._under_way

    @property
    def free_at_s(self) -> float:
        """See `Purger.free_at_s`."""
        return self._schedule.free_at_s

    def start(self) -> None:
        """Begin to work."""
        self._told_s = time.monotonic()
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._begun is not None:
            self._begun.exchange.close()

    def purge(self, names: Collection[str]) -> None:
        """See `Purger.purge()`. Unless another command is under way, this one is sent when this returns: what
        the caller does afterwards does not delay it."""
        now = time.monotonic()
        self._schedule.add(names, now)
        if self._is_waiting and self._begun is None and now < self._rediscover_at_s:
            self._begun = self._begin(now)
        self._news.set()

    def rediscover(self) -> None:
        """See `Purger.rediscover()`."""
        self._rediscover_at_s = time.monotonic()
        self._news.set()

    async def _work(self) -> None:
        while True:
            await self._wait()
            if time.monotonic() >= self._rediscover_at_s and self._begun is None:
                self._rediscover_at_s = math.inf
                if await self._tell(_Exchange(self.path, REDISCOVER)) is False:
                    again_s = time.monotonic() + RETRY_S  # purges don't wait for it
                    self._rediscover_at_s = min(self._rediscover_at_s, again_s)
            begun, self._begun = self._begun or self._begin(time.monotonic()), None
            if begun is None:
                if time.monotonic() >= self._sign_of_life_at_s:
                    await self._tell(_Exchange(self.path, SIGN_OF_LIFE), counts=False)
                continue
            command, taken_s = begun.command, begun.taken_s
            said = await self._tell(begun.exchange)
            self._under_way = 0
            if said is None:
                self._schedule.clear()
                self._on_purged(self.path, None, taken_s)
            elif said:
                first = [name for name, turn in command.turns.items() if turn == 0]
                self.counts.names += len(command.turns)
                self.counts.repeats += len(command.turns) - len(first)
                self._schedule.done(command, time.monotonic())
                self._on_purged(self.path, first, taken_s)
            else:
                self._schedule.failed(command, time.monotonic())

    def _begin(self, now: float) -> _Begun | None:
        """Send what is due."""
        command = self._schedule.take(now)
        if command is None:
            return None
        self._under_way = len(command.turns)
        return _Begun(command, now, _Exchange(self.path, "PURGE " + " ".join(command.names)))

    async def _wait(self) -> None:
        """Wait until there is something to do."""
        due_s = self._schedule.next_due_s
        wake_s = min(self._sign_of_life_at_s, self._rediscover_at_s, math.inf if due_s is None else due_s)
        timeout_s = wake_s - time.monotonic()
        if timeout_s <= 0:
            return
        self._news.clear()
        # uvloop rounds to milliseconds: a timer that fired too early would be set again and again.
        whole_ms_s = math.ceil(timeout_s * 1000) / 1000
        timer = asyncio.get_running_loop().call_later(whole_ms_s, self._news.set)
        self._is_waiting = True
        try:
            await self._news.wait()
        finally:
            self._is_waiting = False
            timer.cancel()

    @property
    def _sign_of_life_at_s(self) -> float:
        """When PowerDNS is to be asked for a sign of life, unless it gets a command before."""
        return self._told_s + self._sign_of_life_every_s

    async def _tell(self, exchange: _Exchange, *, counts: bool = True) -> bool | None:
        """Send a command. True: done. False: try again. None: nobody is there, nothing is cached there."""
        self.counts.commands += counts
        said = await self._outcome(exchange)
        was_there = (
            self._was_there or said is False
        )  # PowerDNS starts after us: its absence is no failure yet
        self.counts.failures += counts and not said and was_there
        self._was_there |= said is True
        self._told_s = time.monotonic()
        return said

    async def _outcome(self, exchange: _Exchange) -> bool | None:
        """See `_tell()`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await exchange.reply()
        except (FileNotFoundError, ConnectionRefusedError):
            self._failed(NOT_THERE)
            return None
        except TimeoutError:
            self._failed(f"no reply within {self._timeout_s:g} s; does another client hold the socket?")
            return False
        except PermissionError:
            self._failed("not allowed to use it; the backend's user must be in the group of the socket")
            return False
        except OSError as error:
            self._failed(f"it does not take the command: {error.strerror or error}")
            return False
        if not _is_done(exchange.command, reply.strip()):
            self._failed(f"unexpected reply {reply[:80]!r}")
            return False
        if self.problem is not None:
            self._log.info("purge_works_again", socket=self.path)
            self.problem = None
        return True

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            # PowerDNS starts after us: that it is not there at first is no reason to worry anyone.
            if problem == NOT_THERE:
                self._log.info("purge_failed", socket=self.path, problem=problem)
            else:
                self._log.warning("purge_failed", socket=self.path, problem=problem)
        self.problem = problem


def _is_done(command: str, reply: bytes) -> bool:
    """Whether PowerDNS did it. Its backends choose the words of a reply to REDISCOVER: any reply will do."""
    if command == REDISCOVER:
        return bool(reply)
    return reply == b"PONG" if command == SIGN_OF_LIFE else reply.isdigit()


class _Exchange:
    """One command to the control socket at `path`, sent when this is made as far as that needs no waiting."""

    def __init__(self, path: str, command: str) -> None:
        self.command = command
        self._rest = command.encode() + b"\n"
        self._problem: OSError | None = None
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self._socket.connect(path)
        except BlockingIOError:
            self._problem = TimeoutError()  # as many clients as it lets wait are waiting
        except OSError as problem:
            self._problem = problem
        else:
            with contextlib.suppress(OSError):  # a buffer that is full; the rest tells of all else
                self._rest = self._rest[self._socket.send(self._rest) :]

    def close(self) -> None:
        """Drop the reply."""
        if self._socket is not None:
            self._socket.close()

    async def reply(self) -> bytes:
        """The reply: a number or a word, which come in one piece. Raises OSError."""
        loop = asyncio.get_running_loop()
        try:
            if self._socket is None or self._problem is not None:
                raise self._problem or OSError("no socket")
            if self._rest:
                await loop.sock_sendall(self._socket, self._rest)
            return await loop.sock_recv(self._socket, _MAX_REPLY_BYTES)
        finally:
            self.close()


@dataclass(frozen=True, slots=True)
class _Begun:
    """A purge that was sent, and when."""

    command: Command
    taken_s: float
    exchange: _Exchange
