"""The asyncio clients and real registrars; what each scenario asserts stands in rserpool_scenarios.py."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import pytest
from registrar_config.options import arguments, embedded_settings

from tests.integration import rserpool_scenarios as scenarios
from tests.integration.rserpool_host import SECOND_ADDRESS
from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.whole_chain import own_namespace

ADDRESSES = {4: "10.66.0.1", 6: "fd66::1"}
"""Not loopback: rspregistrar refuses pool elements with such addresses."""


@dataclass
class Registrars:
    """Three registrars in a namespace of their own."""

    namespace: Namespace
    address: str
    processes: list[subprocess.Popen[str]]
    logs: list[Path]

    def play(self, scenario: str, loop: str = "asyncio") -> None:
        pids = (str(process.pid) for process in self.processes)
        result = self.namespace.run(
            *("env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", scenarios.__name__),
            *(scenario, loop, self.address, *pids),
            sctp=True,
            timeout_s=150,
        )
        tails = "\n".join(log.read_text()[-2000:] for log in self.logs)
        assert result.returncode == 0, f"{result.stdout}\n{result.stderr}\n{tails}"


def start(namespace: Namespace, directory: Path, version: int = 4) -> Registrars:
    for command in (
        "ip link add outside type veth peer name inside",
        f"ip address add {ADDRESSES[4]}/24 dev inside",
        f"ip address add {SECOND_ADDRESS}/24 dev inside",
        f"ip address add {ADDRESSES[6]}/64 dev inside nodad",
        "ip link set inside up",
        "ip link set outside up",
    ):
        result = namespace.run(*command.split())
        assert result.returncode == 0, result.stderr
    settings = embedded_settings(ADDRESSES[version])
    logs = [directory / f"registrar-{position}.log" for position in range(len(settings))]
    processes = [
        namespace.start(*arguments(each), sctp=True, log=log)
        for each, log in zip(settings, logs, strict=True)
    ]
    deadline_s = time.monotonic() + 60
    while not all("is ready" in log.read_text() for log in logs):
        assert time.monotonic() < deadline_s, "\n".join(log.read_text() for log in logs)
        time.sleep(0.05)
    time.sleep(3)  # until they have heard of each other
    return Registrars(namespace, str(ip_address(ADDRESSES[version])), processes, logs)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registrars]:
    """Registrars for scenarios that do them no harm."""
    with own_namespace() as namespace:
        yield start(namespace, tmp_path_factory.mktemp("registrars"))


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
def test_harmless(shared: Registrars, scenario: str, loop: str) -> None:
    shared.play(scenario, loop)


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
            start(namespace, folder, version=6 if scenario == IPV6 else 4).play(scenario)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    with ThreadPoolExecutor(AT_ONCE) as executor:
        yield Own(tmp_path_factory.mktemp("own"), executor)


@pytest.mark.parametrize("scenario", FAULTS)
def test_faults(own: Own, scenario: str) -> None:
    own.play(scenario)


def test_ipv6(own: Own) -> None:
    own.play(IPV6)
