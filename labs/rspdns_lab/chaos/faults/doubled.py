"""A server dies while registrars fail: how long does DNS name it, when those who should tell are gone too."""

import time
from collections.abc import Callable
from typing import Final

from rspdns_lab.chaos.faults.registrars import join_registrars, part_registrars, two_sides
from rspdns_lab.chaos.scene import ChaosFault, ChaosScene, Strike, server_dead
from rspdns_lab.chaos.summary import Bounds

PAUSE_S: Final = 3.0
"""The server dies at some moment of this time: while registrars, agents and backends find together again."""


def _kill_server(scene: ChaosScene) -> float:
    return scene.server.sip.kill()


def _cut_server(scene: ChaosScene) -> float:
    at_s = time.monotonic()
    scene.lab.network.cut(scene.server.host)
    return at_s


def _bring_back(scene: ChaosScene) -> None:
    """Take back what any of these faults did."""
    join_registrars(scene.lab)
    scene.lab.network.restore(scene.server.host)
    if not scene.server.sip.is_running:
        scene.server.start_sip()


def _kill_home(scene: ChaosScene) -> None:
    scene.home.kill_registrar()


def _kill_all(scene: ChaosScene) -> None:
    for registrar in scene.lab.registrars.values():
        registrar.kill_registrar()


def _part(scene: ChaosScene) -> None:
    part_registrars(scene.lab, two_sides(scene))
    time.sleep(4)


def _dies_after(
    registrars_fail: Callable[[ChaosScene], None], server_dies: Callable[[ChaosScene], float]
) -> Callable[[ChaosScene], Strike]:
    def strike(scene: ChaosScene) -> Strike:
        registrars_fail(scene)
        scene.pause(PAUSE_S)
        return server_dead(scene, server_dies(scene))

    return strike


def _cut_server_and_kill_home(scene: ChaosScene) -> Strike:
    home = scene.home
    at_s = _cut_server(scene)
    home.kill_registrar()
    return server_dead(scene, at_s)


def _cut_server_and_freeze_home(scene: ChaosScene) -> Strike:
    home = scene.home
    at_s = _cut_server(scene)
    home.freeze_registrar()
    time.sleep(8)
    home.thaw_registrar()
    return server_dead(scene, at_s)


_PROBED: Final = Bounds(p50_ms=1500, max_ms=2500)
"""The backends probe it: neither a takeover is waited for, nor a registrar that can be believed."""
_PROBED_LATER: Final = Bounds(p50_ms=2000, max_ms=3000)
"""First they have to notice that a registrar is silent."""

DOUBLE_FAULTS: Final = (
    ChaosFault(
        "as-and-home-registrar-killed",
        "the AS's cable pulled and SIGKILL to its home registrar",
        _cut_server_and_kill_home,
        _PROBED,
        _bring_back,
        watch_s=8,
    ),
    ChaosFault(
        "as-and-home-registrar-silent",
        "the AS's cable pulled and SIGSTOP to its home registrar, woken 8 s later",
        _cut_server_and_freeze_home,
        _PROBED_LATER,
        _bring_back,
        watch_s=4,
    ),
    ChaosFault(
        "as-killed-after-registrars",
        "SIGKILL to all three registrars, and within 3 s to the SIP server",
        _dies_after(_kill_all, _kill_server),
        _PROBED,
        _bring_back,
        watch_s=8,
    ),
    ChaosFault(
        "as-link-cut-after-home-registrar",
        "SIGKILL to the home registrar, and within 3 s the AS's cable pulled",
        _dies_after(_kill_home, _cut_server),
        _PROBED,
        _bring_back,
        watch_s=8,
    ),
    ChaosFault(
        "as-link-cut-after-registrars",
        "SIGKILL to all three registrars, and within 3 s the AS's cable pulled",
        _dies_after(_kill_all, _cut_server),
        _PROBED,
        _bring_back,
        watch_s=8,
    ),
    ChaosFault(
        "as-killed-while-parted",
        "SIGKILL to the SIP server while {1,2} | {3}",
        _dies_after(_part, _kill_server),
        Bounds(max_ms=1000),
        _bring_back,
        watch_s=4,
    ),
    ChaosFault(
        "as-link-cut-while-parted",
        "the AS's cable pulled while {1,2} | {3}",
        _dies_after(_part, _cut_server),
        _PROBED,
        _bring_back,
        watch_s=4,
    ),
)
