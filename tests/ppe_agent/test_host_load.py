"""How busy this host is: each server of an agent has the same, whoever reads first."""

from collections import namedtuple
from ipaddress import ip_address

import psutil
import pytest
from ppe_agent.load_config import LoadConfig
from ppe_agent.load_sources import LoadSource, make_source

# Those of Linux.
Times = namedtuple("Times", "user nice system idle iowait irq softirq steal guest guest_nice")


class Processors:
    """Times of processors that a test lets pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = Times(100.0, 10.0, 50.0, 1000.0, 20.0, 0.0, 0.0, 0.0, 30.0, 5.0)
        monkeypatch.setattr(psutil, "cpu_times", lambda percpu=False: self.times)

    def spend(self, **seconds: float) -> None:
        self.times = self.times._replace(
            **{key: getattr(self.times, key) + passed for key, passed in seconds.items()}
        )


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> Processors:
    return Processors(monkeypatch)


def cpu() -> LoadSource:
    made = make_source(LoadConfig(source="cpu"), ip_address("127.0.0.1"), 5060, "udp")
    assert made is not None
    return made


async def test_several_servers_have_the_same_load(processors: Processors) -> None:
    sources = [cpu() for _ in range(3)]
    for source in sources:
        await source.read()
    for busy in (0.75, 0.25):
        processors.spend(user=busy, idle=1 - busy)
        assert [await source.read() for source in sources] == [pytest.approx(busy)] * 3


async def test_waiting_is_not_busy_and_guests_count_once(processors: Processors) -> None:
    source = cpu()
    await source.read()
    processors.spend(user=1.5, nice=0.25, system=0.25, idle=1, iowait=1, guest=1.5, guest_nice=0.25)
    assert await source.read() == pytest.approx(0.5)


async def test_the_last_load_stays_while_no_time_passes(processors: Processors) -> None:
    source = cpu()
    first = await source.read()
    assert await source.read() == first
    processors.spend(user=0.5, idle=0.5)
    assert [await source.read(), await source.read()] == [pytest.approx(0.5)] * 2


async def test_a_counter_that_goes_back_is_no_time(processors: Processors) -> None:
    source = cpu()
    await source.read()
    processors.spend(user=0.5, idle=0.5, iowait=-0.75)
    assert await source.read() == pytest.approx(0.5)
