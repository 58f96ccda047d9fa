"""The faults of the fast path: its daemon fails, alone and while a server dies. The kernel must not go on to
name that server."""

import time
from collections.abc import Callable
from typing import Final

from rspdns_lab.chain.hosts import NameServerHost
from rspdns_lab.chaos.scene import ChaosFault, ChaosScene, Strike, all_live, server_dead
from rspdns_lab.chaos.summary import Bounds

_PAUSE_S: Final = 1.0
"""The server dies at some moment of this time after the daemon: a lease lasts for that."""


def _kill_daemon(server: NameServerHost) -> float:
    return server.fastpath.kill()


def _freeze_daemon(server: NameServerHost) -> float:
    return server.fastpath.freeze()


def _kill_and_start(scene: ChaosScene) -> Strike:
    at_s = _kill_daemon(scene.name_server)
    time.sleep(0.2)
    scene.name_server.start_fastpath()
    return all_live(scene, at_s)


def _freeze(scene: ChaosScene) -> Strike:
    return all_live(scene, _freeze_daemon(scene.name_server))


def _before_the_server(fail: Callable[[NameServerHost], float]) -> Callable[[ChaosScene], Strike]:
    def strike(scene: ChaosScene) -> Strike:
        fail(scene.name_server)
        scene.pause(_PAUSE_S)
        return server_dead(scene, scene.server.sip.kill())

    return strike


def _bring_back(scene: ChaosScene) -> None:
    """Take back what any of these faults did."""
    if scene.name_server.fastpath.is_running:
        scene.name_server.fastpath.thaw()
    else:
        scene.name_server.start_fastpath()
    if not scene.server.sip.is_running:
        scene.server.start_sip()


_FROZEN: Final = (Bounds(p50_ms=60, p99_ms=100), Bounds(p50_ms=35, p99_ms=80))
"""As when nothing but the server dies, and the 20 ms for which a change is waited for."""

FASTPATH_FAULTS: Final = (
    ChaosFault(
        "fastpath-killed",
        "SIGKILL to one rspdns-fastpath, started again 0.2 s later",
        _kill_and_start,
        Bounds(max_ms=0),
        fastpath=True,
    ),
    ChaosFault(
        "fastpath-frozen",
        "SIGSTOP to one rspdns-fastpath, woken later",
        _freeze,
        Bounds(max_ms=0),
        _bring_back,
        watch_s=3,
        fastpath=True,
    ),
    ChaosFault(
        "as-killed-after-fastpath",
        "SIGKILL to one rspdns-fastpath, and within 1 s to the SIP server",
        _before_the_server(_kill_daemon),
        Bounds(p50_ms=40, p99_ms=80),
        _bring_back,
        enrp=Bounds(p50_ms=15, p99_ms=60),
        fastpath=True,
    ),
    ChaosFault(
        "as-killed-while-fastpath-frozen",
        "SIGSTOP to one rspdns-fastpath, and within 1 s SIGKILL to the SIP server",
        _before_the_server(_freeze_daemon),
        _FROZEN[0],
        _bring_back,
        enrp=_FROZEN[1],
        fastpath=True,
    ),
)
