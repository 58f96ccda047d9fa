"""Runs the main coroutine of a service: signals, clear fatal errors, exit codes, reloads."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from structlog.typing import FilteringBoundLogger

from daemon_kit import notify
from daemon_kit.config_file import ConfigurationErrors
from daemon_kit.errors import FatalError

__all__ = [
    "EXIT_FAILED",
    "EXIT_OK",
    "FatalError",
    "Parts",
    "Reloading",
    "check_fixed",
    "end_process",
    "run_service",
]

EXIT_OK = 0
EXIT_FAILED = 1
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_service(
    main: Callable[[asyncio.Event], Awaitable[None]],
    *,
    fatal: tuple[type[Exception], ...] = (),
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> int:
    """Run `main(stop)` until it returns, and return the exit code of the program.

    SIGTERM and SIGINT set `stop`; `main` then ends cleanly. A second one cancels it. FatalError,
    ConfigurationErrors and the exceptions of `fatal` are printed as they are, without a traceback.
    """
    explained: tuple[type[Exception], ...] = (FatalError, *fatal)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(_supervise(main))
    except explained as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED
    except ConfigurationErrors as errors:
        print(errors, file=sys.stderr)
        return EXIT_FAILED
    except (asyncio.CancelledError, KeyboardInterrupt):  # the latter: Ctrl-C while we end or begin
        print("error: stopped before it had finished", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def end_process(code: int) -> NoReturn:
    """End the process at once with this exit code, after what was printed is written.

    Python's own end, module by module, takes a sixth as long as its start. A service whose successor waits
    for it has closed everything by then.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


async def _supervise(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    task = asyncio.ensure_future(main(stop))
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            task.cancel()
        else:
            notify.stopping()
            stop.set()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        await task
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


class Parts:
    """The tasks that a service consists of: when one of them fails, so does the service.

    It needs a running event loop. `failed` is done once a task has failed: it raises what that one raised.
    """

    def __init__(self) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a part of the service, to be cancelled by the caller at the end."""
        task = asyncio.create_task(part)
        task.add_done_callback(self._on_done)
        return task

    def fail(self, problem: BaseException) -> None:
        """Have the service fail with this, unless something else was first."""
        if not self.failed.done():
            self.failed.set_exception(problem)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.fail(problem)


class Reloading:
    """Has `reload` take the configuration over again at every SIGHUP, whole or not at all.

    `reload` returns what the log is to say of the configuration. It raises FatalError, ConfigurationErrors or
    one of `refused` where that is wrong: then the one before goes on, and `problem` has the words.
    """

    def __init__(
        self,
        reload: Callable[[], Awaitable[Mapping[str, Any]]],
        log: FilteringBoundLogger,
        refused: tuple[type[Exception], ...] = (),
    ) -> None:
        self.problem: str | None = None
        self._reload = reload
        self._log = log
        self._refused: tuple[type[Exception], ...] = (FatalError, ConfigurationErrors, *refused)
        self._wanted = asyncio.Event()

    @contextmanager
    def at_hangup(self) -> Iterator[None]:
        """Note each SIGHUP while this lasts, for `run`; a reload that is not run any more is left out."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._wanted.set)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    async def run(self) -> None:
        """Reload whenever it is wanted, until cancelled. systemd is told of each beginning and end."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            notify.reloading()
            try:
                self._log.info("reloaded", **await self._reload())
                self.problem = None
            except self._refused as problem:
                self.problem = str(problem)
                self._log.error("reload_refused", problem=str(problem), hint="the former one goes on")
            except Exception as problem:  # a fault of our own must not end what serves
                self.problem = repr(problem)
                self._log.exception("reload_refused", problem=repr(problem), hint="the former one goes on")
            notify.ready()


def check_fixed(before: object, after: object, keys: Iterable[str]) -> None:
    """Raise FatalError when one of these keys differs between two configurations."""
    for key in keys:
        if getattr(after, key) != getattr(before, key):
            raise FatalError(f"{key} can't change while the agent runs: restart it for that")
