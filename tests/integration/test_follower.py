"""The follower at real registrars with their sentinels; what must hold stands in follower_scenarios.py."""

import subprocess
import sys
from pathlib import Path

import pytest
from registrar_config.embedded import embedded_commands

from tests.integration import follower_scenarios as scenarios
from tests.integration.follower_stage import REREGISTRATION_MS
from tests.support.namespaces import REPOSITORY, Namespace

ADDRESS = "10.66.0.1"

pytestmark = pytest.mark.timeout(110)


def start(namespace: Namespace, directory: Path) -> list[subprocess.Popen[str]]:
    """Start three supervised registrars and their sentinels on an address that is not loopback."""
    for command in (
        "ip link add outside type veth peer name inside",
        f"ip address add {ADDRESS}/24 dev inside",
        "ip link set inside up",
        "ip link set outside up",
    ):
        result = namespace.run(*command.split())
        assert result.returncode == 0, result.stderr
    interval = f"--agent-reregistration-ms={REREGISTRATION_MS}"
    return [
        namespace.start(*command, interval, sctp=True, log=directory / f"registrar-{number}.log")
        for number, command in enumerate(embedded_commands(ADDRESS), start=1)
    ]


@pytest.mark.parametrize("scenario", scenarios.SCENARIOS)
def test_scenario(scenario: str, namespace: Namespace, tmp_path: Path) -> None:
    supervisors = start(namespace, tmp_path)
    result = namespace.run(
        *("env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", scenarios.__name__),
        *(scenario, ADDRESS, *(str(process.pid) for process in supervisors)),
        sctp=True,
        timeout_s=100,
    )
    print(result.stdout)
    logs = "\n".join(log.read_text()[-1500:] for log in sorted(tmp_path.glob("*.log")))
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}\n{logs}"
