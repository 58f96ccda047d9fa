"""The faults of application servers and name servers, with the bounds they have to keep."""

import time
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from rspdns_lab.chain.hosts import START_TIMEOUT_S, wait_until
from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import NAME_SERVERS, SRV_QUESTION
from rspdns_lab.chaos.scene import ChaosFault, ChaosScene, Strike, all_live, server_dead
from rspdns_lab.chaos.summary import Bounds
from rspdns_lab.chaos.verdict import left_out_s
from rspdns_lab.net.network import Host, join_again, keep_apart

_OTHERS: Final = tuple(range(1, len(NAME_SERVERS)))
_FROZEN_S: Final = 3.0
_OUT_S: Final = 8.0, 12.0
_WRITTEN_S: Final = 1.0
"""The journal of `rspdns report` is written within this time."""


def _kill_server(scene: ChaosScene) -> Strike:
    return server_dead(scene, scene.server.sip.kill())


def _start_server(scene: ChaosScene) -> None:
    scene.server.start_sip()


def _hang_server(scene: ChaosScene) -> Strike:
    return server_dead(scene, scene.server.sip.freeze())


def _wake_server(scene: ChaosScene) -> None:
    scene.server.sip.thaw()


def _drain_server(scene: ChaosScene) -> Strike:
    return server_dead(scene, scene.server.drain())


def _undrain_server(scene: ChaosScene) -> None:
    scene.server.undrain()


def _cut_server(scene: ChaosScene) -> Strike:
    at_s = time.monotonic()
    scene.lab.network.cut(scene.server.host)
    return server_dead(scene, at_s)


def _plug_server_in(scene: ChaosScene) -> None:
    scene.lab.network.restore(scene.server.host)


def _bring_server_back(scene: ChaosScene) -> Strike:
    """Kill it, wait until nobody is told of it, start it: judged from when it answers."""
    scene.server.sip.kill()
    address = scene.server.host.address
    wait_until(lambda: not is_shown(scene.lab, address), f"{address} to leave DNS", START_TIMEOUT_S)
    scene.pause(1.0)
    return all_live(scene, scene.server.start_sip())


def _look_back(scene: ChaosScene) -> Strike:
    """Kill it for some seconds, and start it; compare `rspdns report` with the time that DNS left it out."""
    address = scene.server.host.address
    name_servers = tuple(scene.lab.name_servers.values())
    before_s = [name_server.reported_down_s(address) for name_server in name_servers]
    killed_at_s = scene.server.sip.kill()
    time.sleep(scene.draw.uniform(*_OUT_S))
    at_s = scene.server.start_sip()
    wait_until(lambda: are_all_showing(scene.lab, address), f"{address} to be in DNS", START_TIMEOUT_S)
    time.sleep(_WRITTEN_S)
    observations = scene.lab.recorder.since(killed_at_s)
    off = 0.0
    for number, name_server in enumerate(name_servers):
        reported_s = name_server.reported_down_s(address) - before_s[number]
        clock_s = left_out_s(observations, number, address)
        off = max(off, abs(reported_s - clock_s) / clock_s if clock_s else 1.0)
    return replace(all_live(scene, at_s), report_off=off)


def are_all_showing(lab: Lab, address: str) -> bool:
    """Whether the latest answer of every name server names `address`."""
    readings = [lab.recorder.latest.get((number, SRV_QUESTION)) for number in range(len(NAME_SERVERS))]
    return all(reading is not None and address in reading.names for reading in readings)


def is_shown(lab: Lab, address: str) -> bool:
    """Whether any name server's latest answer names `address`."""
    readings = [lab.recorder.latest.get((number, SRV_QUESTION)) for number in range(len(NAME_SERVERS))]
    return any(reading is not None and address in reading.names for reading in readings)


def _kill_agent(scene: ChaosScene) -> Strike:
    return server_dead(scene, scene.server.agent.kill())


def _start_agent(scene: ChaosScene) -> None:
    scene.server.agent.start()


def _kill_backend(scene: ChaosScene) -> Strike:
    """Kill it and start it again, as its unit does; judged from when it is up, or SERVFAIL would count."""
    killed_at_s = scene.name_server.backend.kill()
    time.sleep(0.2)
    strike = all_live(scene, scene.name_server.start_backend())
    return replace(strike, counted_from_s=killed_at_s)


def _freeze_backend_and_kill_server(scene: ChaosScene) -> Strike:
    """Freeze a backend, kill a server, wake the backend; judged from then. The backend hears nothing
    meanwhile."""
    frozen_at_s = scene.name_server.backend.freeze()
    scene.server.sip.kill()
    time.sleep(_FROZEN_S)
    at_s = time.monotonic()
    scene.name_server.backend.thaw()
    return replace(server_dead(scene, at_s), counted_from_s=frozen_at_s)


def _kill_pdns(scene: ChaosScene) -> Strike:
    at_s = scene.name_server.pdns.kill()
    time.sleep(0.2)
    scene.name_server.pdns.start()
    return all_live(scene, at_s)


def _kill_name_server(scene: ChaosScene) -> Strike:
    return Strike(scene.name_server.kill(), scene.lab.addresses, servers=_OTHERS)


def _start_name_server(scene: ChaosScene) -> None:
    scene.name_server.start_backend()
    scene.name_server.pdns.start()


def hide(scene: ChaosScene, servers: Collection[Host]) -> float:
    """Have the name servers hear nothing of these servers, which everybody else reaches."""
    at_s = time.monotonic()
    for name_server in scene.lab.name_servers.values():
        keep_apart(name_server.host, list(servers))
    return at_s


def _hide_server(scene: ChaosScene) -> Strike:
    return server_dead(scene, hide(scene, [scene.server.host]))


def _hide_all(scene: ChaosScene) -> Strike:
    return all_live(scene, hide(scene, [server.host for server in scene.lab.application_servers.values()]))


def show(scene: ChaosScene) -> None:
    """Have the name servers hear everybody again."""
    for name_server in scene.lab.name_servers.values():
        join_again(name_server.host)


FAULTS: Final = (
    ChaosFault(
        "as-killed",
        "SIGKILL to the SIP server",
        _kill_server,
        Bounds(p50_ms=40, p99_ms=80),
        _start_server,
        enrp=Bounds(p50_ms=15, p99_ms=60),
    ),
    ChaosFault("as-hung", "SIGSTOP to the SIP server", _hang_server, Bounds(max_ms=1000), _wake_server),
    ChaosFault(
        "as-drained", "`ppe-agent drain`", _drain_server, Bounds(p99_ms=80), _undrain_server,
        enrp=Bounds(p99_ms=60),
    ),
    ChaosFault("as-link-cut", "the AS's cable pulled", _cut_server, Bounds(p99_ms=900), _plug_server_in),
    ChaosFault(
        "as-back",
        "the SIP server started again; from its first answer on",
        _bring_server_back,
        Bounds(p99_ms=2000, missing_ms=None),
        sizes=(2, 3),
    ),
    ChaosFault(
        "as-out-and-reported",
        "the SIP server killed for 8 to 12 s; `rspdns report` is compared with the answers that lack it",
        _look_back,
        Bounds(p99_ms=2000, missing_ms=None),
        sizes=(2, 3),
    ),
    ChaosFault(
        "agent-killed", "SIGKILL to the agent", _kill_agent, Bounds(p50_ms=40, p99_ms=80), _start_agent,
        enrp=Bounds(p50_ms=15, p99_ms=60),
    ),
    ChaosFault(
        "backend-killed",
        "SIGKILL to one backend, started again 0.2 s later; times from when it is up",
        _kill_backend,
        Bounds(p99_ms=1000, servfail=True, silence=True),
    ),
    ChaosFault(
        "as-killed-while-backend-frozen",
        "SIGSTOP to one backend and SIGKILL to the SIP server; the backend woken 3 s later, times from then",
        _freeze_backend_and_kill_server,
        Bounds(p99_ms=1000, servfail=True, silence=True),
        _start_server,
    ),
    ChaosFault(
        "pdns-killed",
        "SIGKILL to one PowerDNS, started again 0.2 s later",
        _kill_pdns,
        Bounds(max_ms=0, silence=True),
    ),
    ChaosFault(
        "name-server-killed",
        "SIGKILL to PowerDNS and backend of one name server; the other one is judged",
        _kill_name_server,
        Bounds(max_ms=0),
        _start_name_server,
    ),
)  # fmt: skip

VERIFIED_FAULTS: Final = (
    ChaosFault(
        "as-unreachable-from-name-servers",
        "the name servers hear nothing of an AS that its registrar reaches, in a pool with `verify`",
        _hide_server,
        Bounds(p50_ms=500, max_ms=1000),
        show,
        verified=True,
    ),
    ChaosFault(
        "all-unreachable-from-name-servers",
        "the name servers hear nothing of any AS, in a pool with `verify`: nobody is dropped",
        _hide_all,
        Bounds(max_ms=0),
        show,
        watch_s=4,
        verified=True,
    ),
)
"""The faults that only the backends' own probes can see (`verify`)."""
