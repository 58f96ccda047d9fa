"""Paths in agent.toml that no system call takes."""

import pytest
from ppe_agent.configuration import AgentConfig
from pydantic import ValidationError


@pytest.mark.parametrize("table", ["state", "control"])
@pytest.mark.parametrize("path", ["/run/a\0b", ""])
def test_a_path_the_system_cannot_take_is_refused(table: str, path: str) -> None:
    with pytest.raises(ValidationError, match="a path "):
        AgentConfig.model_validate({"registrars": ["10.0.0.1"], table: {"path": path}})
