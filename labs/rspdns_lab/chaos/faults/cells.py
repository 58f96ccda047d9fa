"""The faults of one of two handlespaces, each with half of the application servers."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rspdns_lab.chain.hosts import START_TIMEOUT_S, ApplicationServerHost, RegistrarHost, wait_until
from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import CELLS
from rspdns_lab.chaos.scene import ChaosFault, ChaosScene, Strike, server_dead
from rspdns_lab.chaos.summary import Bounds

LOST, OTHER = CELLS
_NOTICED_S: Final = 3.0
"""By then every name server serves the lost handlespace from memory, and probes it."""


def _registrars(lab: Lab) -> list[RegistrarHost]:
    return [lab.registrars[name] for name in CELLS[LOST]]


def _servers(lab: Lab, cell: str) -> list[ApplicationServerHost]:
    return [server for name, server in lab.application_servers.items() if lab.setting.cell_of(name) == cell]


def _lose_handlespace(cell: str) -> Callable[[ChaosScene], Strike]:
    """Kill the registrars of one handlespace for good, and later a server of this cell."""

    def strike(scene: ChaosScene) -> Strike:
        began_s = time.monotonic()
        for registrar in _registrars(scene.lab):
            registrar.program.kill()
        time.sleep(_NOTICED_S)
        scene.server = scene.draw.choice(_servers(scene.lab, cell))
        return replace(server_dead(scene, scene.server.sip.kill()), counted_from_s=began_s)

    return strike


def _restore_handlespace(scene: ChaosScene) -> None:
    _start_registrars(scene.lab)
    scene.server.start_sip()
    _wait_until_registered(scene.lab)


def _lose_cell(scene: ChaosScene) -> Strike:
    """Kill the registrars, sidecars and servers of one cell."""
    servers = _servers(scene.lab, LOST)
    dead = frozenset(server.host.address for server in servers)
    at_s = time.monotonic()
    for registrar in _registrars(scene.lab):
        registrar.program.kill()
    for server in servers:
        server.agent.kill()
        server.sip.kill()
    return Strike(at_s, scene.lab.addresses - dead, dead)


def _restore_cell(scene: ChaosScene) -> None:
    _start_registrars(scene.lab)
    servers = _servers(scene.lab, LOST)
    for server in servers:
        server.start()
    for server in servers:
        server.wait_for_sip()
    _wait_until_registered(scene.lab)


def _wait_until_registered(lab: Lab) -> None:
    """Wait for the sidecars: until they register, name servers answer from memory, and all looks well."""
    servers = _servers(lab, LOST)
    wait_until(
        lambda: all(server.registrar_address() for server in servers),
        "servers that are registered again",
        2 * START_TIMEOUT_S,
    )


def _start_registrars(lab: Lab) -> None:
    for registrar in _registrars(lab):
        registrar.start()
    for registrar in _registrars(lab):
        registrar.wait()


# An answer shows 7 of 8 servers: while a dead one is among them, a live one is not.
CELL_FAULTS: Final = (
    ChaosFault(
        "handlespace-lost",
        "all registrars of one of two handlespaces killed for good; 3 s later a server of the other killed",
        _lose_handlespace(OTHER),
        Bounds(p50_ms=40, p99_ms=80),
        _restore_handlespace,
        enrp=Bounds(p50_ms=15, p99_ms=60),
        sizes=(8,),
        cells=True,
    ),
    ChaosFault(
        "handlespace-lost-server-killed",
        "the same, and 3 s later a server of the lost handlespace killed: probes find it",
        _lose_handlespace(LOST),
        Bounds(max_ms=3000, missing_ms=None),
        _restore_handlespace,
        watch_s=4.0,
        sizes=(8,),
        cells=True,
    ),
    ChaosFault(
        "cell-lost",
        "registrars, sidecars and servers of one of two cells killed",
        _lose_cell,
        Bounds(max_ms=3500, missing_ms=None),
        _restore_cell,
        watch_s=5.0,
        sizes=(8,),
        cells=True,
    ),
)
