"""The asyncio clients and real registrars; what each scenario asserts stands in rserpool_scenarios.py."""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import pytest
from registrar_config.options import arguments, embedded_settings

from tests.integration import rserpool_scenarios as scenarios
from tests.integration.rserpool_host import SECOND_ADDRESS
from tests.support.namespaces import REPOSITORY, Namespace

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
    deadline_s = time.monotonic() + 20
    while not all("is ready" in log.read_text() for log in logs):
        assert time.monotonic() < deadline_s, "\n".join(log.read_text() for log in logs)
        time.sleep(0.05)
    time.sleep(3)  # until they have heard of each other
    return Registrars(namespace, str(ip_address(ADDRESSES[version])), processes, logs)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registrars]:
    """Registrars for scenarios that do them no harm."""
    namespace = Namespace(f"rspdns-pool-{time.monotonic_ns() % 10**9}")
    try:
        yield start(namespace, tmp_path_factory.mktemp("registrars"))
    finally:
        namespace.close()


@pytest.fixture
def own(namespace: Namespace, tmp_path: Path) -> Registrars:
    """Registrars for one scenario that kills or freezes them."""
    return start(namespace, tmp_path)


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


@pytest.mark.parametrize(
    "scenario", ["killed_registrar", "frozen_registrar", "woken_registrar", "taken_over", "pinned"]
)
def test_faults(own: Registrars, scenario: str) -> None:
    own.play(scenario)


def test_ipv6(namespace: Namespace, tmp_path: Path) -> None:
    start(namespace, tmp_path, version=6).play("found_by_all")
