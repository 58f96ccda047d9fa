"""Kills a registrar that hangs, so that its supervisor starts it anew. `hang_watch` decides."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from registrar_config.hang_watch import LOOK_EVERY_S, HangWatch, Hung, Unreachable
from registrar_config.process_vitals import read_vitals
from registrar_config.supervisor import Supervisor


async def guard_against_hanging(
    supervisor: Supervisor,
    heard_at_s: Callable[[], float | None],
    log: FilteringBoundLogger,
    watch: HangWatch,
    stop: asyncio.Event,
) -> None:
    """Look at the registrar every second until `stop` is set. `heard_at_s` tells when it was heard last."""
    starts = 0
    while not stop.is_set():
        now = time.monotonic()
        pid = supervisor.pid
        if supervisor.starts != starts:
            starts = supervisor.starts
            watch.started(now)
        match watch.look(now, None if pid is None else read_vitals(pid), heard_at_s()):
            case Hung(problem):
                log.error("registrar_hung", pid=pid, problem=problem, action="it is killed and started anew")
                supervisor.kill()
            case Unreachable(problem):
                log.warning("registrar_unreachable", pid=pid, problem=problem)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S):
                await stop.wait()
