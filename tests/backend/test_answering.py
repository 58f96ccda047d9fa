"""No work of the main loop delays an answer."""

import asyncio
import socket
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from daemon_kit.errors import FatalError
from rspdns.pdns.answering import AnsweringThread, LookedUp
from rspdns.pdns.connector_unix import UnixConnector

from tests.support.waiting import until_async

BUSY_S = 1.5


def busy(seconds: float) -> None:
    """Compute, as a belief of thousands of members would."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        sum(range(1000))


class Client(threading.Thread):
    """Asks all the while."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self.times_s: list[float] = []
        self.is_over = False

    def run(self) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._path))
            while not self.is_over:
                began_s = time.monotonic()
                connection.sendall(b"hello\n")
                assert connection.recv(100) == b"HELLO\n"
                self.times_s.append(time.monotonic() - began_s)
                time.sleep(0.002)


async def test_answers_go_on_while_the_main_loop_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "remote.sock"
    answering = AnsweringThread(UnixConnector(path, lambda line: line.upper() + b"\n"))
    await answering.start()
    client = Client(path)
    client.start()
    await asyncio.sleep(0.1)
    before = len(client.times_s)
    busy(BUSY_S)
    during = client.times_s[before:]
    client.is_over = True
    client.join()
    await answering.close()
    assert len(during) > 20
    assert sorted(during)[len(during) // 2] < BUSY_S / 10


async def test_work_is_done_between_two_answers_and_its_result_told_in_the_callers_thread(
    tmp_path: Path,
) -> None:
    answering = AnsweringThread(UnixConnector(tmp_path / "remote.sock", lambda line: line))
    told: list[tuple[object, threading.Thread]] = []

    def tell(result: object) -> None:
        told.append((result, threading.current_thread()))

    answering.do(lambda: 0, tell)
    assert told == [(0, threading.main_thread())], "before it starts"
    await answering.start()
    for number in range(1, 4):
        answering.do(partial(lambda number: (number, threading.current_thread().name), number), tell)
    await until_async(lambda: len(told) == 4)
    assert told[1:] == [((number, "answers"), threading.main_thread()) for number in (1, 2, 3)]
    await answering.close()
    assert not any(thread.name == "answers" for thread in threading.enumerate())


async def test_work_that_fails_is_told_in_the_callers_loop(tmp_path: Path) -> None:
    answering = AnsweringThread(UnixConnector(tmp_path / "remote.sock", lambda line: line))
    await answering.start()
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: problems.append(context.get("exception"))
    )
    answering.do(lambda: 1 // 0, lambda result: None)
    await until_async(lambda: bool(problems))
    assert isinstance(problems[0], ZeroDivisionError)
    await answering.close()


async def test_a_stuck_answer_does_not_hold_up_the_main_loop(tmp_path: Path) -> None:
    answering = AnsweringThread(UnixConnector(tmp_path / "remote.sock", lambda line: line))
    await answering.start()
    is_free, told = threading.Event(), asyncio.Event()
    answering.do(lambda: is_free.wait(30), lambda result: told.set())
    began_s = time.monotonic()
    answering.do(lambda: None, lambda result: None)
    assert time.monotonic() - began_s < 10
    assert not told.is_set()
    is_free.set()
    await told.wait()
    await answering.close()


async def test_a_connector_that_cannot_start_leaves_no_thread(tmp_path: Path) -> None:
    answering = AnsweringThread(UnixConnector(tmp_path / "none" / "remote.sock", lambda line: line))
    with pytest.raises(FatalError):
        await answering.start()
    await answering.close()
    assert not any(thread.name == "answers" for thread in threading.enumerate())


async def test_lookups_are_handed_on_a_few_times_a_second_and_not_each_time() -> None:
    taken: list[str] = []
    times = 0

    def take(handles: object) -> None:
        nonlocal times
        times += 1
        taken.extend(sorted(handles))  # type: ignore[call-overload]

    lookups = LookedUp(take)
    lookups.note(["early"])
    lookups.start()
    for turn in range(1000):
        await asyncio.to_thread(lookups.note, ["sip-udp", f"pool-{turn % 3}"])
        if turn % 100 == 0:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    assert set(taken) == {"early", "sip-udp", "pool-0", "pool-1", "pool-2"}
    assert times < 500
    lookups.close()
    lookups.note(["late"])
    await asyncio.sleep(0.02)
    assert "late" not in taken
