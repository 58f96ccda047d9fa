"""How busy this host is: each server of an agent has the same, whoever reads first."""

import os
from pathlib import Path

import pytest
from ppe_agent.load_sources import CpuLoad, LoadUnknown, processor_times, read_within

# proc(5), of 2006 and of today.
OLD = ("user", "nice", "system", "idle")
ALL = (*OLD, "iowait", "irq", "softirq", "steal", "guest", "guest_nice")


class Processors:
    """/proc/stat of processors that a test lets pass time."""

    def __init__(self, statistics: Path, keys: tuple[str, ...] = ALL) -> None:
        self.statistics = statistics
        self._spent = dict(zip(keys, (10000, 1000, 5000, 100000, 2000, 0, 0, 0, 3000, 500), strict=False))
        self.spend()

    def spend(self, **seconds: float) -> None:
        for key, passed in seconds.items():
            self._spent[key] += int(100 * passed)
        numbers = " ".join(map(str, self._spent.values()))
        self.statistics.write_text(f"cpu  {numbers}\ncpu0 {numbers}\nintr 6 1 2 3\nctxt 12\n")

    def load(self) -> CpuLoad:
        return CpuLoad(self.statistics)


@pytest.fixture
def processors(tmp_path: Path) -> Processors:
    return Processors(tmp_path / "stat")


def test_processor_times_of_this_host_are_read() -> None:
    with open("/proc/stat", "rb") as statistics:
        user, _, _, idle, *_ = processor_times(statistics.fileno())
    assert user > 0
    assert idle > 0


async def test_nothing_is_held_in_the_end(processors: Processors) -> None:
    source = processors.load()
    before = len(os.listdir("/proc/self/fd"))
    await source.close()
    await source.read()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    await source.close()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_several_servers_have_the_same_load(processors: Processors) -> None:
    sources = [processors.load() for _ in range(3)]
    for source in sources:
        await source.read()
    for busy in (0.75, 0.25):
        processors.spend(user=busy, idle=1 - busy)
        assert [await source.read() for source in sources] == [pytest.approx(busy)] * 3


async def test_waiting_is_not_busy_and_guests_count_once(processors: Processors) -> None:
    source = processors.load()
    await source.read()
    processors.spend(user=1.5, nice=0.25, system=0.25, idle=1, iowait=1, guest=1.5, guest_nice=0.25)
    assert await source.read() == pytest.approx(0.5)


async def test_the_last_load_stays_while_no_time_passes(processors: Processors) -> None:
    source = processors.load()
    first = await source.read()
    assert await source.read() == first
    processors.spend(user=0.5, idle=0.5)
    assert [await source.read(), await source.read()] == [pytest.approx(0.5)] * 2


async def test_a_counter_that_goes_back_is_no_time(processors: Processors) -> None:
    source = processors.load()
    await source.read()
    processors.spend(user=0.5, idle=0.5, iowait=-0.75)
    assert await source.read() == pytest.approx(0.5)


async def test_an_old_kernels_fewer_kinds_of_time_give_the_load_too(tmp_path: Path) -> None:
    processors = Processors(tmp_path / "stat", OLD)
    source = processors.load()
    await source.read()
    processors.spend(user=0.5, system=0.25, idle=0.25)
    assert await source.read() == pytest.approx(0.75)


async def test_a_host_that_does_not_tell_is_no_reason_to_end(processors: Processors) -> None:
    """The file system of a container's /proc/stat may end, and come back (lxcfs)."""
    source = processors.load()
    await source.read()
    told, held = processors.statistics.read_text(), len(os.listdir("/proc/self/fd"))
    processors.statistics.write_text("cpu  what?\n")
    with pytest.raises(LoadUnknown, match=r"^this host doesn't tell its load: "):
        await read_within(source, None)
    assert len(os.listdir("/proc/self/fd")) == held - 1, "opened anew the next time"
    processors.statistics.unlink()
    with pytest.raises(LoadUnknown, match="No such file"):
        await read_within(source, None)
    processors.statistics.write_text(told)
    assert 0 <= await read_within(source, None) <= 1
    await source.close()
