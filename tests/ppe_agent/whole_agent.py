"""A whole agent without SCTP: its servers are always well, its registrars are fakes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from daemon_kit.finding import Finding, Life
from ppe_agent import configuration, lookup, server
from ppe_agent.agent import Agent
from ppe_agent.configuration import load_configuration
from ppe_agent.lookup import RegistrarWatch

from tests.ppe_agent.fakes import FakeRegistrarClient, PaperPool
from tests.rserpool.paper_sockets import install
from tests.support.waiting import until_async

PATIENCE_S = 20
AGENT = """\
registrars = ["10.20.0.1"]
[state]
path = "{directory}/state"
[control]
path = "{directory}/control.sock"
"""
SERVER = """\
[[as]]
name = "{name}"
handle = "sip"
transport = "udp"
address = "10.20.0.5"
port = {port}
policy = "round-robin"
[[as.check]]
type = "tcp"
"""


def patch(set_to: Callable[[Any, str, Any], None], pool: PaperPool) -> None:
    """Put fakes in the place of all that would need a network."""
    set_to(configuration, "is_on_this_host", lambda address: True)
    install(set_to, pool)
    set_to(server, "make_check", lambda *_: SimpleNamespace(kind="fake", target="here", run=_always_well))
    watch = partial(RegistrarWatch, make_client=cast(Any, FakeRegistrarClient))
    set_to(lookup, "RegistrarWatch", watch)


@contextlib.asynccontextmanager
async def running(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *ports: int
) -> AsyncIterator[tuple[Agent, PaperPool, Callable[[], None]]]:
    """Run an agent with a server at each port until the block ends or the third item is called."""
    pool = PaperPool()
    patch(monkeypatch.setattr, pool)
    write(directory, *ports)
    agent = Agent(load_configuration(directory / "agent.toml"), directory / "agent.toml")
    stop = asyncio.Event()
    task = asyncio.create_task(agent.run(stop))
    try:
        await until_async(lambda: task.done() or registered(agent) == len(ports))
        yield agent, pool, stop.set
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await task


def registered(agent: Agent) -> int:
    return sum(server.registration.is_registered for server in agent._servers.running)


def write(directory: Path, *ports: int) -> None:
    """Write agent.toml with the servers sip-PORT."""
    text = AGENT.format(directory=directory)
    text += "".join(SERVER.format(name=f"sip-{port}", port=port) for port in ports)
    (directory / "agent.toml").write_text(text)


async def _always_well(report: Callable[[Any], bool]) -> None:
    while True:
        while report(Finding(Life.ALIVE, "it is a fake")):
            pass
        await asyncio.sleep(0.05)
