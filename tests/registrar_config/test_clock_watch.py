"""A stepped clock is noticed, and nothing else is taken for one; the program is then started anew."""

import asyncio

import pytest
from daemon_kit.logs import get_logger
from registrar_config.supervisor import ClockWatch, Supervisor

from tests.support.waiting import until_async


class Clocks:
    """Both clocks of a machine."""

    def __init__(self) -> None:
        self.monotonic_s = 1000.0
        self.wall_s = 1_700_000_000.0
        self.reading_takes_s = 0.0

    def watch(self) -> ClockWatch:
        return ClockWatch(self._wall, lambda: self.monotonic_s)

    def _wall(self) -> float:
        self.monotonic_s += self.reading_takes_s
        self.wall_s += self.reading_takes_s
        return self.wall_s

    def pass_(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds


@pytest.mark.parametrize("step_s", [3600.0, -3600.0, 0.3, -0.3])
def test_a_step_is_told_once_with_its_size(step_s: float) -> None:
    clocks = Clocks()
    watch = clocks.watch()
    assert watch.look() is None
    clocks.pass_(0.1)
    clocks.wall_s += step_s
    assert watch.look() == pytest.approx(step_s)
    clocks.pass_(0.1)
    assert watch.look() is None


def test_slewing_and_a_busy_machine_are_no_steps() -> None:
    clocks = Clocks()
    watch = clocks.watch()
    for _ in range(20_000):
        clocks.pass_(0.1)
        clocks.wall_s += 0.00005  # 500 ppm, the fastest the kernel slews
        assert watch.look() is None
    clocks.pass_(20)
    assert watch.look() is None, "it was not let run for a while"
    clocks.reading_takes_s = 0.4
    assert watch.look() is None, "it was held up between the two readings"


def test_a_step_during_a_reading_that_was_held_up_is_told_at_the_next_reading() -> None:
    clocks = Clocks()
    watch = clocks.watch()
    watch.look()
    clocks.wall_s += 3600
    clocks.reading_takes_s = 0.4
    assert watch.look() is None
    clocks.reading_takes_s = 0
    assert watch.look() == pytest.approx(3600)


async def test_a_stepped_clock_starts_the_program_anew() -> None:
    clocks = Clocks()
    supervisor = Supervisor(["sleep", "60"], get_logger("test"), clock=clocks.watch())
    stop = asyncio.Event()
    task = asyncio.create_task(supervisor.run(stop))
    try:
        await until_async(lambda: supervisor.pid)
        first = supervisor.pid
        await asyncio.sleep(0.5)
        assert supervisor.pid == first
        clocks.wall_s -= 3600
        await until_async(lambda: supervisor.pid not in (None, first))
    finally:
        stop.set()
        await asyncio.wait_for(task, 10)


def test_the_real_clocks_agree() -> None:
    watch = ClockWatch()
    assert [watch.look() for _ in range(3)] == [None, None, None]
