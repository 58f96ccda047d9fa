"""The mechanisms of the agent: a configuration that one of them refuses changes none of the others."""

import itertools
from ipaddress import ip_address
from pathlib import Path

import pytest
from daemon_kit.errors import FatalError
from ppu_agent.agent import PpuAgent
from ppu_agent.configuration import PpuConfig, load_configuration
from ppu_agent.destinations import Destination
from ppu_agent.kernel import PaceError, Pacing
from ppu_agent.mechanisms.base import Situation
from ppu_agent.mechanisms.pace import PaceMechanism
from ppu_agent.mechanisms.repeat import RepeatMechanism
from ppu_agent.mechanisms.via import ViaMechanism
from ppu_agent.relay import Relay
from ppu_agent.responder import Responder
from ppu_agent.steering import PoolPolicy
from ppu_agent.via import Channels, DatagramFront
from structlog.testing import capture_logs

from rserpool import Protocol
from tests.ppu_agent.making import POOL, destination, policy, view

FILE = """registrars = ["10.0.0.1"]
[control]
path = "{folder}/control"
[state]
path = "{folder}/state"
[relay]
idle_s = {idle_s}
[[pool]]
handle = "p"
accept = ["{accept}"]
steer = "203.0.113.7:5060"
via = "sctp"
"""
FRONT = Destination(ip_address("203.0.113.7"), Protocol.UDP, 5060)


def write(path: Path, idle_s: int, accept: str) -> None:
    path.write_text(FILE.format(folder=path.parent, idle_s=idle_s, accept=accept))


class Refusing(PaceMechanism):
    async def configure(self, config: PpuConfig) -> None:
        raise FatalError("no room")


async def test_refused_reload_changes_no_limit(tmp_path: Path) -> None:
    path = tmp_path / "ppu-agent.toml"
    write(path, 60, "10.0.0.0/8")
    agent = PpuAgent(load_configuration(path), path)
    agent.responder = Responder()
    _, _, via, repeat = mechanisms = agent._mechanisms
    assert isinstance(via, ViaMechanism)
    assert isinstance(repeat, RepeatMechanism)
    limits = agent.config.relay.limits
    front = DatagramFront(FRONT, lambda *_: None, lambda *_: None, itertools.count(), limits)
    channels, relay = Channels(lambda *_: None, ipv6=False), Relay(lambda *_: None, limits=limits)
    via._fronts, via._channels, repeat._relay = {FRONT: front}, channels, relay

    def used() -> list[object]:
        return [via._idle_s, front.limits.idle_s, relay.limits.idle_s, channels.has_v6]

    write(path, 90, "fd00::/8")
    agent._mechanisms = (*mechanisms, Refusing())
    with pytest.raises(FatalError, match="no room"):
        await agent._reload()
    assert used() == [60, 60, 60, False]
    agent._mechanisms = mechanisms
    config = load_configuration(path)
    await agent._start_parts(config)
    agent._take(config)
    assert used() == [90, 90, 90, True]


class PlayedPacer:
    """Stands in for a kernel that refuses."""

    def __init__(self) -> None:
        self.problem = ""
        self.members: dict[object, object] = {}

    def set(self, members: dict[object, object]) -> None:
        self.members = {}
        if self.problem:
            raise PaceError(self.problem)
        self.members = members

    def round_trip_ms(self, address: object, port: int) -> None:
        return None


def test_pacing_that_the_kernel_refused_is_tried_again_and_logged_once_for_each_reason() -> None:
    pacing = Pacing(500, 2000, learns=False)
    pools = [PoolPolicy(POOL, policy().on_dead, (Protocol.TCP,), pacing)]
    mechanism, pacer = PaceMechanism(), PlayedPacer()
    mechanism._pacer = pacer  # type: ignore[assignment]
    with capture_logs() as lines:
        for problem, number in (("", 1), ("full", 2), ("full", 2), ("no right", 2), ("", 1), ("full", 3)):
            pacer.problem = problem
            mechanism.commands(Situation(pools, {POOL: view(number)}))
            endpoints = [] if problem else [(destination(number).address, 5060)]
            assert list(pacer.members) == endpoints
            assert [each["endpoint"] for each in mechanism.status()["pace"]] == ["10.0.0.1:5060"]
    assert [line["problem"] for line in lines] == ["full", "no right", "full"]
