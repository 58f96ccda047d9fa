"""The mechanisms of the agent together: one transaction for a death, and reloads that one of them refuses."""

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest
from daemon_kit.errors import FatalError
from ppu_agent.configuration import PpuConfig, load_configuration
from ppu_agent.destinations import Destination
from ppu_agent.kernel import PaceError, Pacing
from ppu_agent.mechanisms.ending import COPY_AGAIN_AFTER_S, copied
from ppu_agent.mechanisms.pace import PaceMechanism
from ppu_agent.mechanisms.repeat import RepeatMechanism
from ppu_agent.mechanisms.via import ViaMechanism
from ppu_agent.plan import PoolPolicy, plan
from ppu_agent.relay import TcpRelay
from ppu_agent.rules import NftCommand, TableCommands
from ppu_agent.service import PpuService
from ppu_agent.via import Channels, DatagramFront
from ppu_agent.writer import NftablesError, Writer
from structlog.testing import capture_logs

from rserpool import DATA_CHANNEL_PORT, Protocol
from tests.ppu_agent.making import (
    POOL,
    REFUSED,
    destination,
    ending_of,
    let_all_be_heard,
    make_agent,
    policy,
    show,
    view,
)

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


async def test_refused_reload_changes_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ppu-agent.toml"
    write(path, 60, "10.0.0.0/8")
    service = PpuService(load_configuration(path), path)
    agent = service.agent
    *_, via, repeat = agent.mechanisms
    assert isinstance(via, ViaMechanism)
    assert isinstance(repeat, RepeatMechanism)
    limits = load_configuration(path).relay.limits
    front = DatagramFront(FRONT, lambda *_: None, lambda *_: None, itertools.count(), limits)
    channels, relay = Channels(lambda *_: None, ipv6=False), TcpRelay(lambda *_: None, limits=limits)
    via._fronts, via._channels, repeat._relay = {FRONT: front}, channels, relay

    def used() -> list[object]:
        return [via._idle_s, front.limits.idle_s, relay.limits.idle_s, channels.has_v6]

    write(path, 90, "fd00::/8")
    monkeypatch.setattr(agent, "mechanisms", (via, repeat, Refusing()))
    with pytest.raises(FatalError, match="no room"):
        await service._reload()
    assert used() == [60, 60, 60, False]
    monkeypatch.setattr(agent, "mechanisms", (via, repeat))
    await service._reload()
    assert used() == [90, 90, 90, True]


async def test_metrics_address_that_is_taken_is_a_problem_of_the_status(tmp_path: Path) -> None:
    path = tmp_path / "ppu-agent.toml"
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        write(path, 60, "10.0.0.0/8")
        path.write_text(f'{path.read_text()}[metrics]\nlisten = "{address}"\n')
        service = PpuService(load_configuration(path))
        assert service.status()["metrics_problem"] is None
        async with contextlib.AsyncExitStack() as cleanup:
            await service._start_metrics(cleanup)
            problem = service.status()["metrics_problem"]
    assert problem is not None
    assert problem.startswith(f"can't listen at {address}: another program listens there")


class PlayedNftables:
    """Stands in for a kernel, which refuses transactions with these words in them."""

    def __init__(self, refused: str = "nothing") -> None:
        self.transactions: list[str] = []
        self.owned: set[str] = set()
        self.tried = 0
        self.refused = refused

    def own(self, family: str, table: str) -> None:
        self.owned.add(table)

    def remove(self, family: str, table: str) -> None:
        self.owned.remove(table)

    def commit(self, commands: Sequence[NftCommand]) -> str:
        words = str(list(commands))
        self.tried += 1
        if self.refused in words:
            raise NftablesError(self.refused)
        self.transactions.append(words)
        return ""


def written(nftables: PlayedNftables) -> Writer:
    """A writer to this kernel."""
    made = Writer()
    made._nftables = nftables  # type: ignore[assignment]
    return made


async def test_death_is_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the dead server's connections are copied and end, and where it had a front."""
    path = tmp_path / "ppu-agent.toml"
    path.write_text(
        f'registrars = ["127.0.0.1"]\n[[pool]]\nhandle = "{POOL}"\naccept = ["10.0.0.0/8"]\nalso = ["tcp"]\n'
        f'on_dead = "redirect"\nsteer = "10.9.9.9:5060"\n[state]\npath = "{tmp_path}"\n'
    )
    agent = make_agent(path)
    let_all_be_heard(agent)
    nftables = PlayedNftables()
    monkeypatch.setattr(agent.writer, "_nftables", nftables)
    monkeypatch.setattr(agent.writer, "is_claimed", True)
    copying = agent.mechanisms[4]
    monkeypatch.setattr(type(copying.copies), "is_open", True)  # type: ignore[attr-defined]
    show(agent, {POOL: view(1, 2, 3)})
    show(agent, {POOL: view(1, 2)})
    (left,) = agent.deaths.due(time.monotonic())
    agent.deaths.take_finding(left.destination, REFUSED, time.monotonic())
    nftables.transactions.clear()
    agent.conclude(time.monotonic())
    (transaction,) = nftables.transactions
    for words in (
        "10.0.0.3",
        "'ppu_agent_copy'",
        "'ppu_agent_claim'",
        "'passing4'",
        "'established'",
        "steer",
    ):
        assert words in transaction


async def test_kernel_that_copies_nothing_does_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that can't load nft_log: the chains are taken, their rule is not."""
    path = tmp_path / "ppu-agent.toml"
    path.write_text(
        f'registrars = ["127.0.0.1"]\n[[pool]]\nhandle = "{POOL}"\naccept = ["10.0.0.0/8"]\nalso = ["tcp"]\n'
        f'[state]\npath = "{tmp_path}"\n'
    )
    agent = make_agent(path)
    let_all_be_heard(agent)
    nftables = PlayedNftables("'log'")
    monkeypatch.setattr(agent.writer, "_nftables", nftables)
    show(agent, {POOL: view(1, 2, 3)})
    show(agent, {POOL: view(1, 2)})
    (left,) = agent.deaths.due(time.monotonic())
    agent.deaths.take_finding(left.destination, REFUSED, time.monotonic())
    nftables.tried = 0
    agent.conclude(time.monotonic())
    assert nftables.tried == 1
    assert "10.0.0.3" in nftables.transactions[-1]
    kernel = agent.status()["kernel"]
    assert kernel["problem"] is None
    assert kernel["copies_problem"] == "nftables refused to copy packets (Linux 5.12): 'log'"
    assert nftables.owned == set()
    ending_of(agent).copying(copied(agent.plan), (), time.monotonic() + COPY_AGAIN_AFTER_S)
    assert nftables.tried == 2, "it is tried again"


def test_part_that_the_kernel_refuses_keeps_no_other_from_it() -> None:
    nftables = PlayedNftables("bad")
    writer = written(nftables)
    parts = [TableCommands([{"add": "good"}], [{"add": "own"}]), TableCommands(own=[{"add": "bad"}])]
    writer.write(parts, is_idle=False)
    assert [("good" in words, "own" in words) for words in nftables.transactions] == [
        (True, False),
        (False, True),
    ]
    assert writer.has_rules
    assert writer.problem == "nftables refused the rules: bad"
    nftables.refused = "nothing"
    writer.write(parts, is_idle=False)
    assert len(nftables.transactions) == 3
    assert writer.problem is None


def test_table_of_an_agent_before_stays_until_there_is_news() -> None:
    nftables = PlayedNftables()
    writer = written(nftables)
    writer.is_kept = True
    writer.write([TableCommands([{"add": "keeping"}])], is_idle=True)
    assert nftables.transactions == []
    writer.write([TableCommands([{"add": "front"}])], is_idle=False)
    writer.write([], is_idle=True)
    writer.write([], is_idle=True)
    assert len(nftables.transactions) == 2, "an empty table is not written again"


class WaitingConnection:
    """A relayed connection whose request waits for its answer until the agent stops."""

    is_waiting = True
    is_leaving = False
    server = None


@pytest.mark.parametrize("via", ["", 'via = "sctp"\n'])
async def test_relay_serves_by_the_last_plan_while_the_agent_stops(tmp_path: Path, via: str) -> None:
    """A server may end within the second that others have to answer: its request is repeated."""
    path = tmp_path / "ppu-agent.toml"
    on_dead = "" if via else 'on_dead = { tcp = "repeat" }\n'
    path.write_text(
        f'registrars = ["127.0.0.1"]\n[[pool]]\nhandle = "{POOL}"\naccept = ["10.0.0.0/8"]\nalso = ["tcp"]\n'
        f'steer = "203.0.113.7:5060"\n{on_dead}{via}[state]\npath = "{tmp_path}"\n'
    )
    agent = make_agent(path)
    *_, embedding, repeat = agent.mechanisms
    assert isinstance(embedding, ViaMechanism)
    assert isinstance(repeat, RepeatMechanism)
    relay = TcpRelay(repeat._choose, embedding.dial, repeat._is_repeated)
    repeat._relay = relay
    waiting = WaitingConnection()
    relay.connections.add(waiting)  # type: ignore[arg-type]
    show(agent, {POOL: view(1, 2)})
    asked = Destination(FRONT.address, Protocol.TCP, FRONT.port)
    tried = [destination(1, Protocol.TCP)]

    def chosen() -> list[object]:
        return [
            relay._choose(asked, ip_address("10.1.1.1"), tried),
            relay._repeats(asked),
            embedding._port_of(asked),
        ]

    before = chosen()
    assert before == [destination(2, Protocol.TCP), not via, DATA_CHANNEL_PORT if via else None]
    stopping = asyncio.create_task(agent.close())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    assert chosen() == before
    waiting.is_waiting = False
    await stopping


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
            mechanism.commands(plan(pools, {POOL: view(number)}, {}, {}))
            endpoints = [] if problem else [(destination(number).address, 5060)]
            assert list(pacer.members) == endpoints
            assert [each["endpoint"] for each in mechanism.status()["pace"]] == ["10.0.0.1:5060"]
    assert [line["problem"] for line in lines] == ["full", "no right", "full"]
