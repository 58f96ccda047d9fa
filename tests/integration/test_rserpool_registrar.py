"""The asyncio clients and real registrars; what each scenario asserts stands in rserpool_scenarios.py."""

import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration import rserpool_scenarios as scenarios
from tests.integration.rserpool_scenarios import SECOND_ADDRESS
from tests.support.namespaces import REPOSITORY, Namespace, own_namespace
from tests.support.registrars import Registrars

ADDRESSES = {4: "10.66.0.1", 6: "fd66::1"}
"""Not loopback: rspregistrar refuses pool elements with such addresses."""


class Played:
    """Three registrars in a namespace of their own, at which scenarios are played."""

    def __init__(self, namespace: Namespace, folder: Path, version: int = 4) -> None:
        namespace.give_address(ADDRESSES[4])
        namespace.ip("address", "add", f"{SECOND_ADDRESS}/24", "dev", "eth0")
        namespace.ip("address", "add", f"{ADDRESSES[6]}/64", "dev", "eth0", "nodad")
        self._address = ADDRESSES[version]
        self._registrars = Registrars(namespace, folder, self._address)
        self._registrars.until_ready()
        time.sleep(3)  # until they have heard of each other

    def play(self, scenario: str, loop: str = "asyncio") -> None:
        pids = (str(process.pid) for process in self._registrars.programs)
        result = self._registrars.namespace.run(
            *("env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", scenarios.__name__),
            *(scenario, loop, self._address, *pids),
            sctp=True,
            timeout_s=150,
        )
        tails = "\n".join(self._registrars.said(number)[-2000:] for number in (1, 2, 3))
        assert result.returncode == 0, f"{result.stdout}\n{result.stderr}\n{tails}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Registrars for scenarios that do them no harm."""
    with own_namespace() as namespace:
        yield Played(namespace, tmp_path_factory.mktemp("registrars"))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    "scenario",
    [
        "found_by_all",
        "deregistered",
        "rejected",
        "own_port",
        "multihomed",
        "stranger",
        "killed_element",
        "tools_find_it",
    ],
)
def test_our_codes_talk_to_a_registrar_in_each_harmless_scenario(
    shared: Played, scenario: str, loop: str
) -> None:
    shared.play(scenario, loop)


def test_registrars_list_an_element_that_nobody_should_choose(shared: Played) -> None:
    shared.play("least_wanted_elements")


FAULTS = ("killed_registrar", "frozen_registrar", "woken_registrar", "taken_over", "pinned")
IPV6 = "found_by_all"
AT_ONCE = 3
"""They wait much more than they work."""


class Own:
    """Scenarios that have registrars of their own, some at once."""

    def __init__(self, folder: Path, executor: ThreadPoolExecutor) -> None:
        self._folder, self._executor = folder, executor
        self._begun = {scenario: self._begin(scenario) for scenario in (*FAULTS, IPV6)}

    def play(self, scenario: str) -> None:
        """Wait for its end; asked for it again, play it again."""
        (self._begun.pop(scenario, None) or self._begin(scenario)).result()

    def _begin(self, scenario: str) -> Future[None]:
        return self._executor.submit(self._play, scenario, Path(tempfile.mkdtemp(dir=self._folder)))

    def _play(self, scenario: str, folder: Path) -> None:
        with own_namespace() as namespace:
            Played(namespace, folder, version=6 if scenario == IPV6 else 4).play(scenario)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    with ThreadPoolExecutor(AT_ONCE) as executor:
        yield Own(tmp_path_factory.mktemp("own"), executor)


@pytest.mark.parametrize("scenario", FAULTS)
def test_our_codes_bear_each_fault_of_a_registrar(own: Own, scenario: str) -> None:
    own.play(scenario)


def test_our_codes_talk_to_a_registrar_over_ipv6(own: Own) -> None:
    own.play(IPV6)
