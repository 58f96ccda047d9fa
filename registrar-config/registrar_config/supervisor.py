"""Keeps rspregistrar running: starts it again within a second whenever it ends, stops it cleanly.

`ClockWatch` notices that the time of day was stepped. rspregistrar's timers go by the time of day.
When that is set forward, it takes every foreign pool element and every peer for expired at once. When it is
set back, it sends no keep-alive for as long. So it has to be started again."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from daemon_kit.child import die_with_parent
from daemon_kit.errors import FatalError
from structlog.typing import FilteringBoundLogger

LOOK_EVERY_S: Final = 0.1
SMALLEST_STEP_S: Final = 0.25
"""Half the keep-alive timeout: less changes nothing that rspregistrar decides. Slewing, as time daemons do
it, moves the clock by less than 0.0001 s between two looks."""
_LONGEST_READING_S: Final = 0.05


class ClockWatch:
    """Compares the time of day with the monotonic clock. Both are functions that return seconds."""

    def __init__(
        self, wall_s: Callable[[], float] = time.time, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s
        self._offset_s: float | None = None

    def look(self) -> float | None:
        """Return by how many seconds the time of day was stepped since the last look; None when it wasn't.

        A machine that slept counts as stepped forward: its peers did not sleep.
        """
        before_s = self._monotonic_s()
        wall_s = self._wall_s()
        if self._monotonic_s() - before_s > _LONGEST_READING_S:
            return None  # held up between the two clocks: this says nothing about either
        offset_s = wall_s - before_s
        step_s = 0.0 if self._offset_s is None else offset_s - self._offset_s
        self._offset_s = offset_s
        return step_s if abs(step_s) >= SMALLEST_STEP_S else None

    async def run(self, on_step: Callable[[float], object]) -> None:
        """Call `on_step` with the seconds of each step, until cancelled."""
        while True:
            if (step_s := self.look()) is not None:
                on_step(step_s)
            await asyncio.sleep(LOOK_EVERY_S)


FIRST_RESTART_MS: Final = 100
LAST_RESTART_MS: Final = 250
STOP_TIMEOUT_S: Final = 2.0
STABLE_AFTER_S: Final = 10.0
_START_WATCH_S: Final = 1.0
_MAX_LINE_CHARACTERS: Final = 500
_LAST_WORDS_S: Final = 1.0
"""Lines that were printed longer before the end have nothing to do with it."""
_READY: Final = "The registrar is ready!"


class Supervisor:
    """Runs the command `argv` again and again until told to stop, and anew when the `clock` was stepped.

    `on_start` is called after each start, `on_ready` when the program says that it has the handlespace. Its
    output goes to `log`. `environment`: instead of our own. It inherits `descriptors`.
    """

    def __init__(
        self,
        argv: Sequence[str],
        log: FilteringBoundLogger,
        on_start: Callable[[], object] = lambda: None,
        on_ready: Callable[[], object] = lambda: None,
        clock: ClockWatch | None = None,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        self._environment = environment
        self._descriptors = tuple(descriptors)
        self._argv = list(argv)
        self._log = log
        self._on_start = on_start
        self._on_ready = on_ready
        self._clock = clock or ClockWatch()
        self._last_line = ""
        self._last_line_at_s = 0.0
        self.starts = 0
        self.pid: int | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the program running until `stop` is set, then end it.

        Raises FatalError when it can't be started, or gives up at once at its very first start (wrong
        options, say): starting that again would help nobody.
        """
        watching = asyncio.create_task(self._clock.run(self._on_step))
        try:
            await self._keep_running(stop)
        finally:
            watching.cancel()

    async def _keep_running(self, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            started_s = time.monotonic()
            code = await self._run_once(stop)
            if stop.is_set():
                return
            ended_s = time.monotonic()
            lived_s = ended_s - started_s
            if self.starts == 1 and code > 0 and lived_s < _START_WATCH_S:
                raise FatalError(f"{self._argv[0]} gave up at once: {self._last_line or f'exit {code}'}")
            failures = 0 if lived_s >= STABLE_AFTER_S else failures + 1
            pause_ms = restart_ms(failures)
            self._log.warning(
                "registrar_died",
                how=describe_exit(code),
                lived_s=round(lived_s, 1),
                last_words=self._last_line if ended_s - self._last_line_at_s <= _LAST_WORDS_S else "",
                restart_in_ms=pause_ms,
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await stop.wait()

    def _on_step(self, seconds: float) -> None:
        """Kill the program at once: its timers go by the time of day and are all wrong now."""
        self._log.warning("clock_stepped", by_s=round(seconds, 1), pid=self.pid)
        self.kill()

    def kill(self) -> None:
        """Kill the program, if it runs: it is started anew."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _run_once(self, stop: asyncio.Event) -> int:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
                pass_fds=self._descriptors,
                preexec_fn=die_with_parent(signal.SIGKILL),  # no registrar runs on unsupervised
            )
        except OSError as error:
            raise FatalError(f"{self._argv[0]} can't be started: {error.strerror or error}") from None
        self.starts += 1
        self.pid, self._process = process.pid, process
        self._last_line = ""
        self._log.info("registrar_started", pid=process.pid, start=self.starts)
        self._on_start()
        reading = asyncio.ensure_future(self._read(process))
        stopping = asyncio.ensure_future(stop.wait())
        ending = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait({ending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await _end(process)
            self.pid = self._process = None
            await reading
        code: int = await ending
        return code

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Log the program's lines until it closes its output, however long they are."""
        assert process.stdout is not None  # noqa: S101 - it was started with a pipe
        rest = b""
        while data := await process.stdout.read(65536):
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[-_MAX_LINE_CHARACTERS:]
            for line in lines:
                self._say(line)
        self._say(rest)

    def _say(self, line: bytes) -> None:
        text = line.decode(errors="replace").strip()[:_MAX_LINE_CHARACTERS]
        if not text:
            return
        self._last_line, self._last_line_at_s = text, time.monotonic()
        if _READY in text:
            self._log.info("registrar_ready", pid=self.pid)
            self._on_ready()
        else:
            self._log.debug("registrar_says", line=text)


async def run_together(parts: Sequence[Coroutine[Any, Any, None]], stop: asyncio.Event) -> None:
    """Run `parts` until all have ended; when one fails, `stop` is set for the others and its error raised."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        stop.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def then_set(part: Coroutine[Any, Any, None], event: asyncio.Event) -> None:
    """Run `part`, and set `event` when it has ended, however it did."""
    try:
        await part
    finally:
        event.set()


def restart_ms(failures: int) -> int:
    """Return the pause in ms before the next start, after this many short lives in a row. Below a second."""
    doublings = min(max(failures - 1, 0), 10)
    return min(LAST_RESTART_MS, FIRST_RESTART_MS << doublings)


def describe_exit(code: int) -> str:
    """Return in words how a process with this return code ended."""
    if code >= 0:
        return f"exit {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


async def _end(process: asyncio.subprocess.Process) -> None:
    """Stop the program if it still runs: politely, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
