"""The metrics of a backend as Prometheus reads them, and promtool."""

import subprocess
from dataclasses import replace
from typing import Any

from daemon_kit.metrics import exposition, registry
from ppe_agent import metrics as agent_metrics
from ppe_agent.metrics import AgentCollector
from ppu_agent import metrics as client_metrics
from ppu_agent.gateway import COUNTERS as GATEWAY_COUNTERS
from ppu_agent.metrics import PpuCollector
from rspdns.event_log import EventLog
from rspdns.metrics import BackendMetrics
from rspdns.status import Status
from rspdns.status.model import (
    FastPathInterfaceStatus,
    FastPathNameStatus,
    FastPathStatus,
    PoolStatus,
    RefusedStatus,
)

from tests.backend.making import event
from tests.backend.statuses import (
    member_status,
    pdns_status,
    pool_status,
    publication_status,
    registrar_status,
    resolver_status,
    secondary_status,
    status,
    valid,
)

MEMBER = member_status(10, name="sip-1", addresses=["2001:db8::1"], weight=500, load=0.5)
POOL = pool_status(members=[MEMBER], expected=3, missing=2, refused=RefusedStatus(3, 0, 2))


FAST = FastPathStatus(
    socket="/run/fast",
    problem=None,
    names=3,
    refused=0,
    mode="tc",
    interfaces=[FastPathInterfaceStatus("eth0", True, None)],
    decisions={"answered": 5},
    asked=[FastPathNameStatus("as.example.", "A", 4, 5, 1, 2)],
)
COUNTS = dict.fromkeys([*map(str, agent_metrics._COUNTERS), *map(str, client_metrics._COUNTERS)], 0)
SERVER = {
    **COUNTS,
    "name": "sip-1",
    "handle": "sip",
    "state": "in",
    "load": 0.5,
    "load_problem": None,
    "state_problem": None,
    "listed_by": ["10.0.0.1"],
    "check": [{"type": "tls", "target": "port 5061", "state": "up", "expires_at_s": 1.9e9}],
}
REGISTRAR = {
    "address": "10.0.0.1",
    "handlespace": "",
    "up": True,
    "round_trip_ms": 1.0,
    "standing": "settled",
}
SIDECAR: Any = {  # the values that metrics are made of
    "as": [SERVER],
    "registrars": [REGISTRAR],
    "loop": {"lag_ms": 1.0, "stall_count": 0},
    "reload_problem": None,
}
SIDECAR_OF_A_CLIENT: Any = {
    **COUNTS,
    "pool": [{"handle": "sip", "members": [], "stale_s": None}],
    "treated": [],
    "departed": [],
    "registrars": [REGISTRAR],
    "suspended": False,
    "kernel": {"problem": None, "copies_problem": None},
    "gateway": {
        "interfaces": [{"name": "eth0", "problem": None}],
        "pending": 0,
        "memory_bytes": 1,
        **{f"{name}_count": 0 for name in GATEWAY_COUNTERS},
    },
}


def exposed_by_all() -> str:
    """The metrics of a backend with fast path, of a sidecar and of a client's sidecar."""
    collectors = (AgentCollector(lambda: SIDECAR), PpuCollector(lambda: SIDECAR_OF_A_CLIENT))
    return exposed(fast=FAST) + "".join(exposition(registry(collector)).decode() for collector in collectors)


def status_of(*pools: PoolStatus, fast: FastPathStatus | None = None) -> Status:
    found = valid(status(*pools, registrars=[registrar_status()], pdns=[pdns_status(control="/run/x")]))
    return replace(
        found,
        fastpath=fast,
        resolvers=[resolver_status()],
        secondaries=[secondary_status()],
        publications=[publication_status()],
    )


def exposed(*pools: PoolStatus, fast: FastPathStatus | None = None) -> str:
    log = EventLog([])
    log.happened([event()])
    log.published({"x"})
    metrics = BackendMetrics(
        lambda: status_of(*(pools or (POOL,)), fast=fast), log, lambda: {"host": 1}, lambda: 0
    )
    return exposition(registry(metrics)).decode()


def promtool(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments], input=text, capture_output=True, text=True, timeout=100, check=False
    )
