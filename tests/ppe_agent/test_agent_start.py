"""An agent that can't start leaves nothing behind; what a server waits for at the start is told."""

import asyncio
import contextlib
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession
from daemon_kit import http_server
from daemon_kit.errors import FatalError
from daemon_kit.finding import Finding, Life
from ppe_agent import configuration
from ppe_agent.agent import Agent
from ppe_agent.configuration import load_configuration
from ppe_agent.state import Drain, StateDirectory

from tests.ppe_agent import whole_agent
from tests.ppe_agent.whole_agent import running, write

CONFIGURATION = """\
registrars = ["10.20.0.1"]
[state]
path = "{directory}/state"
[control]
path = "{directory}/control.sock"
[metrics]
listen = "127.0.0.1:{port}"
[[as]]
name = "sip-1"
handle = "sip"
transport = "udp"
address = "10.20.0.5"
port = 5060
[[as.check]]
type = "tcp"
"""


async def test_busy_metrics_port_keeps_no_server_out_of_its_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sidecar does its work, and serves the metrics as soon as the port is free."""
    monkeypatch.setattr(http_server, "RETRY_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        metrics = f'[metrics]\nlisten = "{address}"\n'
        monkeypatch.setattr(whole_agent, "AGENT", whole_agent.AGENT + metrics)
        async with running(tmp_path, monkeypatch, 5060) as (agent, *_):  # it has registered
            problem = agent._describe()["metrics_problem"]
            assert problem is not None
            assert problem.startswith(f"can't listen at {address}: another program listens there")
            other.close()
            async with asyncio.timeout(20), ClientSession() as session:
                while True:
                    with contextlib.suppress(ClientConnectionError):
                        async with session.get(f"http://{address}/metrics") as answer:
                            assert "ppe_agent_as_state" in await answer.text()
                            break
                    await asyncio.sleep(0.05)
            assert agent._describe()["metrics_problem"] is None


async def test_a_server_that_waits_for_its_first_load_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "is_on_this_host", lambda address: True)
    command = '[as.load]\nsource = "exec"\ncommand = ["/bin/sleep", "60"]\n'
    (tmp_path / "agent.toml").write_text(CONFIGURATION.format(directory=tmp_path, port=1) + command)
    (server,) = Agent(load_configuration(tmp_path / "agent.toml"))._servers.running
    while server._on_outcome(0, Finding(Life.ALIVE, "well")):
        pass
    told = server.describe([])
    assert (told["state"], told["reason"]) == ("joining", "waiting for the first load (exec)")


async def test_two_agents_do_not_share_a_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be one PE that one drains and the other one registers again."""
    async with running(tmp_path, monkeypatch, 5060):
        file = tmp_path / "agent.toml"
        file.write_text(file.read_text().replace("control.sock", "other.sock"))
        with pytest.raises(FatalError, match=f"^state directory {tmp_path}/state is used by another"):
            await Agent(load_configuration(file)).run(asyncio.Event())
        assert not (tmp_path / "other.sock").exists()


async def test_a_drain_that_another_agent_kept_while_this_agent_started_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It drained, and ended, after this one had read that nothing is drained."""
    monkeypatch.setattr(configuration, "is_on_this_host", lambda address: True)
    write(tmp_path, 5060)
    agent = Agent(load_configuration(tmp_path / "agent.toml"))
    states = StateDirectory(tmp_path / "state")
    states.save("sip-5060", replace(states.load("sip-5060"), drain=Drain()))
    with pytest.raises(FatalError, match=r"^state file .*/sip-5060.json has just changed: start again$"):
        await agent.run(asyncio.Event())
    assert not (tmp_path / "control.sock").exists()
