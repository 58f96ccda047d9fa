"""Runs the main coroutine of a service: signals, clear fatal errors, exit codes."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

from daemon_kit import notify
from daemon_kit.config_file import ConfigurationErrors
from daemon_kit.errors import FatalError

__all__ = ["EXIT_FAILED", "EXIT_OK", "FatalError", "run_service"]

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
    told: tuple[type[Exception], ...] = (FatalError, *fatal)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(_supervise(main))
    except told as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED
    except ConfigurationErrors as errors:
        print(errors, file=sys.stderr)
        return EXIT_FAILED
    except (asyncio.CancelledError, KeyboardInterrupt):  # the latter: Ctrl-C while we end or begin
        print("error: stopped before it had finished", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


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
