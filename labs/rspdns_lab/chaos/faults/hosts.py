"""The faults of admitted hosts: they speak for what is not their own."""

import sys
import time
from typing import Final

from rspdns_lab.chain.plan import HANDLE, REGISTRARS, SIP_PORT
from rspdns_lab.chaos.scene import ChaosFault, ChaosScene, Strike
from rspdns_lab.chaos.summary import Bounds
from rspdns_lab.errors import LabError
from rspdns_lab.net.processes import Program

_STRANGER: Final = ("stranger", "10.53.0.66")
_LASTS_S: Final = 4.0


def _stranger(scene: ChaosScene, module: str, *words: str) -> Strike:
    """Let a host that may register run a program of this folder for some seconds; `words` follow its own
    address."""
    network = scene.lab.network
    host = network.hosts.get(_STRANGER[0]) or network.add_host(*_STRANGER)
    own = ["-m", f"rspdns_lab.chaos.{module}", host.address, *words, HANDLE, *REGISTRARS.values()]
    command = scene.lab.sctp.command([sys.executable, *own])
    log = scene.lab.folder / f"{module}.log"
    at_s = time.monotonic()
    program = Program("stranger", host, command, log, scene.lab.sctp.environment)
    try:
        program.start()
        time.sleep(_LASTS_S)
    finally:
        program.kill()
    if program.log_end(1) in ("", "sent 0"):
        raise LabError(f"the host that runs {module} reached nobody")
    return Strike(at_s, scene.lab.addresses, frozenset({host.address}))


def _take_identifiers(scene: ChaosScene) -> Strike:
    """Every identifier that the host sees is registered at its own address."""
    return _stranger(scene, "identifier_thief", str(SIP_PORT))


def _report_others(scene: ChaosScene) -> Strike:
    """Every server is reported as unreachable."""
    return _stranger(scene, "unreachable_reporter")


HOST_FAULTS: Final = (
    ChaosFault(
        "host-takes-identifiers",
        "an admitted host registers every identifier of a keyed pool at its own address for 4 s; "
        "no answer names it",
        _take_identifiers,
        Bounds(missing_ms=1500, dead_ms=0),
        sizes=(2, 3),
        keyed=True,
    ),
    ChaosFault(
        "host-reports-others",
        "an admitted host reports every server as unreachable to all registrars, three times, 20 times a "
        "second for 4 s",
        _report_others,
        Bounds(max_ms=0, dead_ms=0),
        sizes=(2, 3),
    ),
)
