"""An agent that can't start leaves nothing behind."""

import asyncio
import socket
from pathlib import Path

import pytest
from daemon_kit.errors import FatalError
from ppe_agent import configuration
from ppe_agent.agent import Agent
from ppe_agent.configuration import load_configuration


async def test_a_busy_metrics_port_leaves_no_control_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "is_on_this_host", lambda address: True)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (tmp_path / "agent.toml").write_text(f"""\
registrars = ["10.20.0.1"]
[state]
path = "{tmp_path}/state"
[control]
path = "{tmp_path}/control.sock"
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
""")
        agent = Agent(load_configuration(tmp_path / "agent.toml"))
        with pytest.raises(FatalError, match=f"can't listen at 127.0.0.1:{port}: "):
            await agent.run(asyncio.Event())
    assert not (tmp_path / "control.sock").exists()
