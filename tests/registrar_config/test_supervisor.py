"""A supervised program comes back, and goes when it is told to. A shell stands in for rspregistrar."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger
from registrar_config import supervisor as supervision
from registrar_config.supervisor import Supervisor, describe_exit, restart_ms, run_together
from structlog.testing import capture_logs

from tests.support.waiting import until_async

LOG = get_logger("test")


@contextlib.asynccontextmanager
async def running(*argv: str) -> AsyncIterator[tuple[Supervisor, asyncio.Event, asyncio.Task[None]]]:
    supervisor = Supervisor(argv, LOG)
    stop = asyncio.Event()
    task = asyncio.create_task(supervisor.run(stop))
    try:
        yield supervisor, stop, task
    finally:
        stop.set()
        await asyncio.gather(task, return_exceptions=True)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def process_name(supervisor: Supervisor) -> str:
    try:
        return Path(f"/proc/{supervisor.pid}/comm").read_text().strip()
    except OSError:
        return ""


async def test_a_killed_program_is_back_at_once() -> None:
    async with running("sleep", "60") as (supervisor, _, _):
        await until_async(lambda: supervisor.pid)
        first = supervisor.pid
        assert first
        os.kill(first, signal.SIGKILL)
        await until_async(lambda: supervisor.pid not in (None, first), timeout_s=5)
        assert supervisor.starts == 2


@pytest.mark.parametrize(("counts_for_s", "told"), [(60.0, "what ends it"), (0.1, "")])
async def test_a_dead_registrars_last_words_are_told_unless_they_are_old(
    monkeypatch: pytest.MonkeyPatch, counts_for_s: float, told: str
) -> None:
    monkeypatch.setattr(supervision, "_LAST_WORDS_S", counts_for_s)
    with capture_logs() as said:
        async with running("sh", "-c", "echo what ends it; exec sleep 60") as (supervisor, _, _):
            await until_async(lambda: supervisor._last_line)
            await asyncio.sleep(0.2)
            supervisor.kill()
            await until_async(lambda: supervisor.starts == 2)
    assert [line["last_words"] for line in said if line["event"] == "registrar_died"] == [told]


async def test_stopping_leaves_no_process() -> None:
    async with running("sleep", "60") as (supervisor, stop, task):
        await until_async(lambda: supervisor.pid)
        pid = supervisor.pid
        assert pid
        stop.set()
        await asyncio.wait_for(task, 10)
        assert not alive(pid)


async def test_a_program_deaf_to_sigterm_is_killed() -> None:
    async with running("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done") as (supervisor, stop, task):
        await until_async(lambda: supervisor.pid)
        pid = supervisor.pid
        assert pid
        await asyncio.sleep(0.3)
        stop.set()
        await asyncio.wait_for(task, 15)
        assert not alive(pid)


async def test_endless_output_without_a_line_end_stops_nothing() -> None:
    async with running("sh", "-c", "head -c 3000000 /dev/zero; exec sleep 60") as (supervisor, _, task):
        await until_async(lambda: process_name(supervisor) == "sleep")
        assert supervisor.starts == 1
        assert not task.done()


async def test_a_program_that_gives_up_at_its_first_start_ends_the_service_with_its_own_words() -> None:
    supervisor = Supervisor(["sh", "-c", "echo 'ERROR: no such option' >&2; exit 1"], LOG)
    with pytest.raises(FatalError, match="ERROR: no such option"):
        await supervisor.run(asyncio.Event())


async def test_a_missing_program_ends_the_service() -> None:
    with pytest.raises(FatalError, match="can't be started"):
        await Supervisor(["/nonexistent/rspregistrar"], LOG).run(asyncio.Event())


async def test_when_one_part_fails_the_others_are_stopped_first() -> None:
    stop = asyncio.Event()
    stopped = []

    async def waits() -> None:
        await stop.wait()
        stopped.append(True)

    async def fails() -> None:
        raise FatalError("no")

    with pytest.raises(FatalError, match="no"):
        await run_together([waits(), fails()], stop)
    assert stopped


def test_the_pause_grows_but_stays_below_a_second() -> None:
    pauses = [restart_ms(failures) for failures in range(12)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 200
    assert pauses[-1] < 1000


def test_end_of_a_process_is_said_in_words() -> None:
    assert [describe_exit(code) for code in (1, -signal.SIGABRT, -99)] == [
        "exit 1",
        "signal SIGABRT",
        "signal 99",
    ]
