"""The metrics of a backend as Prometheus reads them, and promtool."""

import subprocess

from daemon_kit.metrics import exposition, registry
from rspdns.event_log import EventLog
from rspdns.metrics import BackendMetrics
from rspdns.status import Status
from rspdns.status.model import PoolStatus, RefusedStatus

from tests.backend.making import event
from tests.backend.statuses import member_status, pdns_status, pool_status, registrar_status, status, valid

MEMBER = member_status(10, name="sip-1", addresses=["2001:db8::1"], weight=500, load=0.5)
POOL = pool_status(members=[MEMBER], expected=3, missing=2, refused=RefusedStatus(3, 0))


def told(*pools: PoolStatus) -> Status:
    return valid(status(*pools, registrars=[registrar_status()], pdns=[pdns_status(control="/run/x")]))


def exposed(*pools: PoolStatus) -> str:
    log = EventLog([])
    log.happened([event()])
    log.published({"x"})
    metrics = BackendMetrics(lambda: told(*(pools or (POOL,))), log, lambda: {"host": 1}, lambda: 0)
    return exposition(registry(metrics)).decode()


def promtool(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments], input=text, capture_output=True, text=True, timeout=100, check=False
    )
