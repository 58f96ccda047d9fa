"""The follower at real registrars with their sentinels; what must hold stands in follower_scenarios.py."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_kit.control import request

from tests.integration import follower_scenarios as scenarios
from tests.support.members import wait_for_control
from tests.support.namespaces import REPOSITORY, own_namespace
from tests.support.registrars import Registrars

ADDRESS = "10.66.0.1"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """One follower at the same registrars for all scenarios: its control socket and its log."""
    folder = tmp_path_factory.mktemp("follower")
    control, log = folder / "stage.sock", folder / "stage.log"
    with own_namespace() as namespace:
        namespace.give_address(ADDRESS)
        interval_ms = scenarios.REREGISTRATION_MS
        registrars = Registrars(namespace, folder, ADDRESS, supervised=True, reregistration_ms=interval_ms)
        pids = [str(process.pid) for process in registrars.programs]
        program = namespace.start(
            *(sys.executable, "-m", scenarios.__name__, "serve", str(control), ADDRESS, *pids),
            sctp=True,
            log=log,
            environment={"PYTHONPATH": str(REPOSITORY)},
        )
        wait_for_control(control, program, log)
        yield control, log


@pytest.mark.parametrize("scenario", scenarios.SCENARIOS)
def test_the_follower_does_right_in_each_scenario(scenario: str, stage: tuple[Path, Path]) -> None:
    control, log = stage
    try:
        request(control, "play", scenario=scenario, timeout_s=scenarios.SCENARIO_TIMEOUT_S + 5)
    finally:
        print(log.read_text().rpartition("\n--- ")[2])
        for path in sorted(log.parent.glob("registrar-*.log")):
            print(path.read_text()[-1500:])
