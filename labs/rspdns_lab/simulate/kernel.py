"""The clock, the chance, and the processes of one scenario.

`Kernel` owns the one heap of events. `SimulatedProcess` is an event loop of asyncio on it: the product's own
coroutines run in it, on the clock of their host. Time passes between events only, so a scenario is a function
of its seed: there is no sleep, no thread, no real clock, and nothing is iterated in an order that Python
leaves open.

A process can be killed (none of its callbacks runs any more), frozen (what is due waits), and slowed down
(each turn takes it some time).
"""

import asyncio
import contextvars
import errno
import heapq
import math
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Final

from rspdns_lab.simulate import determinism
from rspdns_lab.simulate.determinism import EPOCH_S

MOST_TURNS_AT_ONCE: Final = 20_000
"""Turns of all processes at one moment: more are a loop without end."""
DISK_S: Final = 0.001
"""How long a read or write of a file takes."""
_BEGAN_S: Final = 1000.0
"""The monotonic clock of a host at the beginning of a scenario."""

Work = Any
"""A callable; in the heap of events also a timer."""


class EndlessLoopError(Exception):
    """Something in the chain goes on and on without time passing."""


class SimulatedClock:
    """The clocks of one host. `rate` is how fast they run, `step_s` by how much its wall clock was set."""

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self.offset_s = _BEGAN_S
        self.rate = 1.0
        self.step_s = 0.0

    def monotonic_s(self) -> float:
        """The monotonic clock."""
        return self.offset_s + self._kernel.now * self.rate

    def wall_s(self) -> float:
        """The time of day."""
        return EPOCH_S + self._kernel.now * self.rate + self.step_s

    def drift(self, rate: float) -> None:
        """Run this fast from now on."""
        self.offset_s = self.monotonic_s() - self._kernel.now * rate
        self.rate = rate

    def kernel_time_s(self, monotonic_s: float) -> float:
        """When this clock shows `monotonic_s`, never sooner."""
        at_s = max(self._kernel.now, (monotonic_s - self.offset_s) / self.rate)
        while self.offset_s + at_s * self.rate < monotonic_s:
            at_s = math.nextafter(at_s, math.inf)
        return at_s


class Kernel:
    """One scenario's time. `random` decides all that is left to chance in the models."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = random.Random(seed)  # noqa: S311 - a scenario, no secret
        self.events = 0
        """How many were done."""
        self.running: SimulatedProcess | None = None
        self._heap: list[tuple[float, int, SimulatedProcess | None, Work, Sequence[Any]]] = []
        self._sequence = 0
        self._turns_at_once = 0
        determinism.use(self, seed)

    # The clocks of the process that is running, for `determinism`

    def monotonic_s(self) -> float:
        """The monotonic clock where the work is done."""
        if self.running is None:
            return _BEGAN_S + self.now
        clock = self.running.clock
        return clock.offset_s + self.now * clock.rate  # without another call: it is asked most of all

    def wall_s(self) -> float:
        """The time of day where the work is done."""
        return EPOCH_S + self.now if self.running is None else self.running.clock.wall_s()

    def at(self, at_s: float, work: Work, *arguments: Any) -> None:
        """Do this at that time, after all that was given before for the same time."""
        self.push(at_s, None, work, arguments)

    def after(self, delay_s: float, work: Work, *arguments: Any) -> None:
        """Do this once so much time has passed."""
        self.push(self.now + delay_s, None, work, arguments)

    def push(
        self, at_s: float, process: "SimulatedProcess | None", work: Work, arguments: Sequence[Any]
    ) -> None:
        """Do this in a process, None: outside of all."""
        self._sequence += 1
        heapq.heappush(self._heap, (at_s, self._sequence, process, work, arguments))

    def run(self, until_s: float) -> None:
        """Let time pass until then."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            at_s, _, process, work, arguments = heapq.heappop(heap)
            if type(work) is _Timer and work._cancelled:
                continue
            if at_s > self.now:
                self.now = at_s
                self._turns_at_once = 0
            self._turns_at_once += 1
            if self._turns_at_once > MOST_TURNS_AT_ONCE:
                raise EndlessLoopError(f"at {self.now:.6f} s: {work}")
            if process is None:
                self.events += 1
                work(*arguments)
            elif process.takes(at_s, work, arguments):
                self.events += 1
                process.enter(work, arguments)
        self.now = until_s

    def close(self) -> None:
        """The scenario is over: nothing happens any more."""
        self._heap.clear()
        determinism.use(None)


class _Handle(asyncio.Handle):
    """Work of an event loop that is ready. It has no context of its own: nothing in a scenario uses one."""

    __slots__ = ()
    _callback: Work
    _args: Sequence[Any]

    def __init__(self, callback: Work, args: Sequence[Any]) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        """Don't do it."""
        self._cancelled = True


class _Timer(asyncio.TimerHandle):
    """Work of an event loop at a time of its clock."""

    __slots__ = ()

    def __init__(self, when: float, callback: Work, args: Sequence[Any]) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._scheduled = True

    def cancel(self) -> None:
        """Don't do it."""
        self._cancelled = True


class SimulatedProcess(asyncio.AbstractEventLoop):
    """A process of a host, as an event loop. Its sockets are the models'; there is no thread.

    `on_end` are called when it ends, however it ends: the host's kernel closes its sockets.
    """

    def __init__(self, kernel: Kernel, name: str, clock: SimulatedClock) -> None:
        self.kernel = kernel
        self.name = name
        self.clock = clock
        self.is_alive = True
        self.is_frozen = False
        self.turn_s = 0.0
        """How long a turn takes it."""
        self.messages = self.datagrams = 0
        """How many it sent, over SCTP and UDP."""
        self.failures: list[str] = []
        """Exceptions that nobody caught."""
        self.on_end: list[Callable[[], None]] = []
        self._busy_until_s = -math.inf
        self._waiting: list[tuple[Work, Sequence[Any]]] = []
        self._ready: deque[_Handle] = deque()
        self._readers: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        """All that were made: the collector must not end one at a moment of its own choice."""
        self._is_in_turn = False

    # Life

    def kill(self) -> None:
        """End it at once: SIGKILL."""
        if self.is_alive:
            self.is_alive = self.is_frozen = False
            self._ready.clear()
            self._waiting.clear()
            self._readers.clear()
            for end in self.on_end:
                end()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.is_frozen = self.is_alive

    def wake(self) -> None:
        """SIGCONT: what became due meanwhile is done now, in its order."""
        self.is_frozen = False
        waiting, self._waiting = self._waiting, []
        for work, arguments in waiting:
            self.kernel.push(self.kernel.now, self, work, arguments)

    def takes(self, at_s: float, work: Work, arguments: Sequence[Any]) -> bool:
        """Whether it does this now; what it can't do now it does later, unless it is dead."""
        if not self.is_alive:
            return False
        if self.is_frozen:
            self._waiting.append((work, arguments))
            return False
        if self._busy_until_s > at_s:
            self.kernel.push(self._busy_until_s, self, work, arguments)
            return False
        return True

    def enter(self, work: Work, arguments: Sequence[Any]) -> None:
        """Do this, and all that it makes ready."""
        kernel = self.kernel
        before = kernel.running
        kernel.running = self
        if before is not self:
            events._set_running_loop(self)
        self._is_in_turn = True
        if type(work) is _Timer:
            work, arguments = work._callback, work._args
        try:
            ready = self._ready
            turns = 0
            while True:
                try:
                    work(*arguments)
                except Exception as problem:  # as an event loop does: the others go on
                    self.call_exception_handler({"exception": problem})
                while ready and ready[0]._cancelled:
                    ready.popleft()
                if not ready or not self.is_alive:
                    break
                handle = ready.popleft()
                work, arguments = handle._callback, handle._args
                turns += 1
                if turns > MOST_TURNS_AT_ONCE:
                    raise EndlessLoopError(f"{self.name} at {kernel.now:.6f} s: {work}")
        finally:
            self._is_in_turn = False
            events._set_running_loop(before)
            kernel.running = before
        if self.turn_s:
            self._busy_until_s = kernel.now + self.turn_s

    def do(self, work: Work, *arguments: Any) -> None:
        """Have it do this as soon as it can: something of the outside arrived."""
        now = self.kernel.now
        if self.kernel.running is not None:
            self.kernel.push(now, self, work, arguments)
        elif self.takes(now, work, arguments):
            self.enter(work, arguments)

    @property
    def is_responsive(self) -> bool:
        """Whether it does everything at once."""
        return self.is_alive and not self.is_frozen and not self.turn_s

    def _turn(self) -> None:
        """Do what is ready."""

    # asyncio's interface

    def get_debug(self) -> bool:  # noqa: D102
        return False

    def time(self) -> float:  # noqa: D102
        return self.clock.monotonic_s()

    def is_running(self) -> bool:  # noqa: D102
        return self._is_in_turn

    def is_closed(self) -> bool:  # noqa: D102
        return not self.is_alive

    def call_soon(  # type: ignore[override] # noqa: D102
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        del context
        handle = _Handle(callback, args)
        if self.is_alive:
            self._ready.append(handle)
            if not self._is_in_turn and len(self._ready) == 1:
                self.kernel.push(self.kernel.now, self, self._turn, ())
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override] # noqa: D102
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.clock.monotonic_s() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override] # noqa: D102
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        del context
        timer = _Timer(when, callback, args)
        self.kernel.push(self.clock.kernel_time_s(when), self, timer, ())
        return timer

    def create_future(self) -> "asyncio.Future[Any]":  # noqa: D102
        return asyncio.Future(loop=self)

    def create_task(  # noqa: D102
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **_: Any,
    ) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=str(name or ""), context=context)
        self._tasks[id(task)] = task
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(id(task), None)

    def run_in_executor(  # type: ignore[override] # noqa: D102
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        done = self.create_future()
        self.call_later(DISK_S, self._execute, done, func, args)
        return done

    def _execute(self, done: "asyncio.Future[Any]", func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if done.cancelled():
            return
        try:
            result = func(*args)
        except Exception as problem:
            done.set_exception(problem)
        else:
            done.set_result(result)

    def call_exception_handler(self, context: dict[str, Any]) -> None:  # noqa: D102
        problem = context.get("exception")
        if problem is not None and self.is_alive:
            self.failures.append(f"{self.kernel.now:.3f} s {self.name}: {problem!r}")

    def default_exception_handler(self, context: dict[str, Any]) -> None:  # noqa: D102
        self.call_exception_handler(context)

    # Sockets: the models'

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override] # noqa: D102
        self._readers[_number(fd)] = callback, args
        self.readable(_number(fd))

    def remove_reader(self, fd: Any) -> bool:  # noqa: D102
        return self._readers.pop(_number(fd), None) is not None

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override] # noqa: D102
        raise OSError(errno.ENOSYS, "a socket of a model never blocks")

    def remove_writer(self, fd: Any) -> bool:  # noqa: D102
        return False

    def readable(self, number: int) -> None:
        """Something can be read from a socket."""
        if number in self._readers:
            self.do(self._read, number)

    def _read(self, number: int) -> None:
        reader = self._readers.get(number)
        if reader is not None:
            callback, args = reader
            callback(*args)

    async def sock_connect(self, sock: Any, address: Any) -> None:  # noqa: D102
        await sock.connected(address)

    async def sock_recv(self, sock: Any, nbytes: int) -> bytes:  # noqa: D102
        data: bytes = await sock.received(nbytes)
        return data

    async def sock_sendall(self, sock: Any, data: Any) -> None:  # noqa: D102
        sock.send(bytes(data))

    async def create_datagram_endpoint(  # type: ignore[override] # noqa: D102
        self, protocol_factory: Callable[[], Any], *, sock: Any, **_: Any
    ) -> tuple[Any, Any]:
        protocol = protocol_factory()
        return sock.transport(protocol), protocol


def _number(fd: Any) -> int:
    return fd if isinstance(fd, int) else int(fd.fileno())
