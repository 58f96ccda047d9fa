"""The example that `make install` puts into /etc/ppe-agent."""

from pathlib import Path

from ppe_agent.configuration import load_configuration


def test_the_installed_example_is_right() -> None:
    found = load_configuration(Path(__file__).resolve().parents[2] / "ppe-agent" / "examples" / "agent.toml")
    assert [server.name for server in found.servers] == ["sip-1"]
    assert len(found.registrars) == 3
