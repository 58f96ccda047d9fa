"""Drained by the operator: in which order things are done."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from ppe_agent import configuration, server
from ppe_agent.agent import Agent
from ppe_agent.configuration import load_configuration
from ppe_agent.registration import Registration
from ppe_agent.state import ServerState, StateDirectory

from tests.ppe_agent.fakes import FakePool
from tests.ppe_agent.test_registration import settle

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
[[as.check]]
type = "tcp"
"""


async def test_every_registrar_is_told_before_the_disk_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = FakePool()
    saved: list[tuple[str, bool, list[list[str]]]] = []

    def save(_: StateDirectory, name: str, state: ServerState) -> None:
        saved.append((name, state.drained, [stay.calls[:] for stay in pool.stays]))

    monkeypatch.setattr(configuration, "is_on_this_host", lambda address: True)
    monkeypatch.setattr(server, "Registration", partial(Registration, make_client=pool.make))
    text = AGENT.format(directory=tmp_path)
    text += "".join(SERVER.format(name=f"sip-{port}", port=port) for port in (5060, 5070))
    (tmp_path / "agent.toml").write_text(text)
    agent = Agent(load_configuration(tmp_path / "agent.toml"))
    registrations = [one.registration for one in agent._servers]
    running = [asyncio.create_task(one.run()) for one in registrations]
    try:
        for one in registrations:
            one.want(True)
        await settle()
        monkeypatch.setattr(StateDirectory, "save", save)
        await agent._drain({"command": "drain"})
        told = [["start", "deregister"], ["start", "deregister"]]
        assert [calls[:2] for _, _, found in saved for calls in found] == told * 2
        assert [(name, drained) for name, drained, _ in saved] == [("sip-5060", True), ("sip-5070", True)]
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
