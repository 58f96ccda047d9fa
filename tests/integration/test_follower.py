"""The follower at real registrars with their sentinels; what must hold stands in follower_scenarios.py."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_kit.control import request
from registrar_config.embedded import embedded_commands

from tests.integration import follower_scenarios as scenarios
from tests.integration.follower_stage import REREGISTRATION_MS
from tests.support.members import wait_for_control
from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.whole_chain import own_namespace

ADDRESS = "10.66.0.1"


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


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """One follower at the same registrars for all scenarios: its control socket and its log."""
    folder = tmp_path_factory.mktemp("follower")
    control, log = folder / "stage.sock", folder / "stage.log"
    with own_namespace() as namespace:
        pids = [str(process.pid) for process in start(namespace, folder)]
        program = namespace.start(
            *(sys.executable, "-m", scenarios.__name__, str(control), ADDRESS, *pids),
            sctp=True,
            log=log,
            environment={"PYTHONPATH": str(REPOSITORY)},
        )
        wait_for_control(control, program, log)
        yield control, log


@pytest.mark.parametrize("scenario", scenarios.SCENARIOS)
def test_scenario(scenario: str, stage: tuple[Path, Path]) -> None:
    control, log = stage
    try:
        request(control, "play", scenario=scenario, timeout_s=scenarios.SCENARIO_TIMEOUT_S + 5)
    finally:
        print(log.read_text().rpartition("\n--- ")[2])
        for one in sorted(log.parent.glob("registrar-*.log")):
            print(one.read_text()[-1500:])
