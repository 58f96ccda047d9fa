"""The backend's own probe of SCTP members."""

import sys

import pytest

from tests.integration import probe_sctp
from tests.support.namespaces import REPOSITORY, Namespace


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_listener_is_alive_and_a_closed_port_is_not(namespace: Namespace, loop: str) -> None:
    result = namespace.run(
        *("env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", probe_sctp.__name__, loop), sctp=True
    )
    assert result.stdout.split() == ["alive", "failed", "alive"], result.stderr
