"""The simulated pool elements of `rspdns-lab bench --only registrars`, at one real and patient registrar."""

import contextlib
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from daemon_kit.control import ControlError, request
from registrar_config import KEEP_ALIVE, TIMERS_MS, RegistrarSettings, SctpEndpoint, arguments, sctp_wrapper
from rspdns_lab.net.network import Host, LabNetwork, processes_in
from rspdns_lab.net.preconditions import find_sctp
from rspdns_lab.net.processes import Program, end_programs

from tests.support.waiting import until

pytestmark = pytest.mark.integration

ADDRESS = "10.79.1.1"
ELEMENTS = 100
FEW_DESCRIPTORS = 64
PATIENT = {**TIMERS_MS, "endpointkeepalivetimeoutinterval": 600_000}


class Elements:
    """Simulated elements, one to an association, registered at a registrar that gives none of them up."""

    def __init__(self, network: LabNetwork, folder: Path, programs: list[Program]) -> None:
        self._folder, self._programs = folder, programs
        self.host = network.add_host("one", ADDRESS)
        registrar = SctpEndpoint.parse(ADDRESS, 3863), SctpEndpoint.parse(ADDRESS, 9901)
        self._start("registrar", arguments(RegistrarSettings(*registrar, timers_ms=PATIENT)))
        self._control = folder / "elements.sock"
        limited = ["sh", "-c", f'ulimit -S -n {FEW_DESCRIPTORS} && exec "$@"', "sh"]
        simulation = [
            sys.executable,
            "-m",
            "rspdns_lab.bench.kept_alive",
            ADDRESS,
            str(ELEMENTS),
            "1",
            "1000",
        ]
        self.program = self._start("elements", [*limited, *simulation, str(self._control), ADDRESS])

    def _start(self, name: str, command: list[str]) -> Program:
        sctp = find_sctp()
        log = self._folder / f"{name}.log"
        program = Program(name, self.host, sctp.command(command), log, sctp.environment)
        program.start()
        self._programs.append(program)
        return program

    def state(self) -> dict[str, Any]:
        return request(self._control, "state", timeout_s=5.0)

    def are_registered(self) -> bool:
        self.program.expect_running()
        with contextlib.suppress(ControlError):
            return bool(self.state()["registered"] == ELEMENTS)
        return False


@pytest.fixture
def elements(tmp_path: Path) -> Iterator[Elements]:
    with LabNetwork(f"rspdns-test-{os.getpid()}-{uuid.uuid4().hex[:4]}") as network:
        programs: list[Program] = []
        try:
            started = Elements(network, tmp_path, programs)
            until(started.are_registered, told=started.program.log)
            yield started
        finally:
            end_programs(programs)


def test_many_associations_fit_and_no_acknowledgement_waits_for_sctpd(elements: Elements) -> None:
    """With more associations than descriptors allowed at first; keep-alives that came are acknowledged while
    sctpd has no processor: a process that waited for it at each of them was up to 500 ms late."""
    if not sctp_wrapper():
        return  # the kernel carries SCTP: there is no sctpd to wait for
    daemon, simulation = daemon_of(elements.host), elements.program.pid
    until(lambda: acknowledged_meanwhile(elements, daemon, simulation), 20, "it waits for sctpd")


def daemon_of(host: Host) -> int:
    return next(pid for pid in processes_in(host.path) if psutil.Process(pid).name() == "sctpd")


def acknowledged_meanwhile(elements: Elements, daemon: int, simulation: int) -> bool:
    """Let keep-alives come while the simulation stands still; then sctpd stands still, and it goes on."""
    before = elements.state()["keep_alives"]
    os.kill(simulation, signal.SIGSTOP)
    try:
        time.sleep(2 * TIMERS_MS[KEEP_ALIVE] / 1000)
        os.kill(daemon, signal.SIGSTOP)
        os.kill(simulation, signal.SIGCONT)
        with contextlib.suppress(ControlError):
            return bool(elements.state()["keep_alives"] > before + 1)
        return False
    finally:
        os.kill(daemon, signal.SIGCONT)
        os.kill(simulation, signal.SIGCONT)
