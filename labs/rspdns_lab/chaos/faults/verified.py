"""The faults that only the backends' own probes can see (`verify`), with the bounds they have to keep."""

import time
from collections.abc import Collection
from typing import Final

from rspdns_lab.chaos.scene import ChaosFault, Scene, Strike, all_live, server_dead
from rspdns_lab.chaos.summary import Bounds
from rspdns_lab.net.network import Host, join_again, keep_apart


def _hide(scene: Scene, servers: Collection[Host]) -> float:
    """Have the name servers hear nothing of these servers, which everybody else reaches."""
    at_s = time.monotonic()
    for name_server in scene.lab.name_servers.values():
        keep_apart(name_server.host, list(servers))
    return at_s


def _hide_one(scene: Scene) -> Strike:
    return server_dead(scene, _hide(scene, [scene.server.host]))


def _hide_all(scene: Scene) -> Strike:
    return all_live(scene, _hide(scene, [one.host for one in scene.lab.application_servers.values()]))


def _show(scene: Scene) -> None:
    for name_server in scene.lab.name_servers.values():
        join_again(name_server.host)


VERIFIED_FAULTS: Final = (
    ChaosFault(
        "as-unreachable-from-name-servers",
        "the name servers hear nothing of an AS that its registrar reaches, in a pool with `verify`",
        _hide_one,
        Bounds(p50_ms=500, max_ms=1000),
        _show,
        verified=True,
    ),
    ChaosFault(
        "all-unreachable-from-name-servers",
        "the name servers hear nothing of any AS, in a pool with `verify`: nobody is dropped",
        _hide_all,
        Bounds(max_ms=0),
        _show,
        watch_s=4,
        verified=True,
    ),
)
