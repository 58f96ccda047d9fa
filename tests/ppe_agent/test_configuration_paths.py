"""Paths in agent.toml that no system call takes."""

from pathlib import Path

import pytest
from ppe_agent.configuration import AgentConfig, control_path
from pydantic import ValidationError


@pytest.mark.parametrize("table", ["state", "control"])
@pytest.mark.parametrize("path", ["/run/a\0b", ""])
def test_a_path_the_system_cannot_take_is_refused(table: str, path: str) -> None:
    with pytest.raises(ValidationError, match="a path "):
        AgentConfig.model_validate({"registrars": ["10.0.0.1"], table: {"path": path}})


def test_a_command_asks_at_the_default_socket_then(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text('[control]\npath = "/run/a\\u0000b"\n')
    assert "\0" not in str(control_path(tmp_path / "agent.toml"))
