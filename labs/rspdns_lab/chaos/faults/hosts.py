"""The faults of admitted hosts: they speak for what is not their own."""

import sys
import time
from typing import Final

from rspdns_lab.chain.plan import HANDLE, REGISTRARS, SIP_PORT
from rspdns_lab.chaos.scene import ChaosFault, Scene, Strike
from rspdns_lab.chaos.summary import Bounds
from rspdns_lab.errors import LabError
from rspdns_lab.net.processes import Program

_STRANGER: Final = ("stranger", "10.53.0.66")
_TAKING_S: Final = 4.0


def _take_identifiers(scene: Scene) -> Strike:
    """Let a host that may register take every identifier that it sees, for some seconds."""
    network = scene.lab.network
    host = network.hosts.get(_STRANGER[0]) or network.add_host(*_STRANGER)
    words = [host.address, str(SIP_PORT), HANDLE, *REGISTRARS.values()]
    command = scene.lab.sctp.command([sys.executable, "-m", "rspdns_lab.chaos.identifier_thief", *words])
    at_s = time.monotonic()
    thief = Program("thief", host, command, scene.lab.folder / "thief.log", scene.lab.sctp.environment)
    try:
        thief.start()
        time.sleep(_TAKING_S)
    finally:
        thief.kill()
    if not thief.log_end(1):
        raise LabError("the host that takes identifiers took none")
    return Strike(at_s, scene.lab.addresses, frozenset({host.address}))


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
)
