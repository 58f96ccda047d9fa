"""The names in `rspdns status --json`, /v1/ and /metrics are a promise: those of version 1 stay."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from daemon_kit.control import ControlError
from daemon_kit.metrics import exposition, registry
from pool_user import BeliefEvent
from rspdns.admin.access import Access
from rspdns.admin.openapi import description
from rspdns.configuration import BackendConfig
from rspdns.metrics import BackendMetrics
from rspdns.service import Backend
from rspdns.status import Status, dumped, read

from tests.backend.making import TCP, UDP, member, zone
from tests.support.json_schema import differences

NAMES = """
connector: connections failures queries
events[]: address at_s converged_ms handle identifier kind name number words
pdns[]: commands control failures names problem repeats waiting
registrars[]: address follow follow_problem identifier number round_trip_ms since_s standing why
reload: files of_files problem records since_s state
snapshot: age_s builds
zones[]: pools serial zone
zones[].pools[]: answered_instead expected handles known members missing name out owner refused stale_s
zones[].pools[]: verify when_empty
zones[].pools[].members[]: addresses handle home_registrar identifier load name policy port priority
zones[].pools[].members[]: protocol since_s stale weight
zones[].pools[].out[]: address handle identifier look_at missing name port reason since_s
zones[].pools[].refused: foreign too_many
"""
"""As the status of a backend had them before its models were written."""
TOP = "connector events fastpath host pdns problems registrars reload snapshot uptime_s version zones"
METRICS = """
rspdns_changes_total rspdns_connector_connections rspdns_convergence_seconds rspdns_event_streams
rspdns_member_in rspdns_member_load_ratio rspdns_member_priority rspdns_member_weight
rspdns_members_not_shown rspdns_pool_expected_members rspdns_pool_known rspdns_pool_members
rspdns_pool_missing_members rspdns_pool_refused_total rspdns_pool_stale_seconds rspdns_problems
rspdns_purge_commands_total rspdns_purge_failures_total rspdns_purge_repeats_total rspdns_purge_waiting
rspdns_purge_works rspdns_purged_names_total rspdns_queries_total rspdns_query_failures_total
rspdns_refusals_total rspdns_registrar_link_up rspdns_registrar_pushes rspdns_registrar_round_trip_seconds
rspdns_registrar_standing rspdns_snapshot_age_seconds rspdns_snapshot_builds_total rspdns_uptime_seconds
rspdns_zone_serial
"""


async def a_backend(folder: Path) -> Backend:
    """A backend with two members, a missing one, an event, a control socket and a refused reload."""
    config = BackendConfig.model_validate(
        {
            "registrars": ["127.0.0.1"],
            "pdns": {"connector": f"unix:{folder}/remote.sock", "control": [f"{folder}/control"]},
            "admin": {"socket": f"{folder}/admin.sock"},
            "state": {"path": str(folder / "state")},
        }
    )
    backend = Backend(config.with_files((zone(UDP + TCP),), Access()))
    now = time.monotonic()
    backend.belief.remember("sip-udp", [member(1), member(2)], [], now, now)
    backend.roster.roster.joined("sip-udp", member(3))
    backend.roster.roster.left("sip-udp", member(3), "gone", time.time())
    backend.events.happened([BeliefEvent(now, "joined", "sip-udp", 1, "it joined", member(1))])
    with contextlib.suppress(ControlError):
        await backend.reload()
    return backend


async def the_status(folder: Path) -> Status:
    backend = await a_backend(folder)
    try:
        return backend.status()
    finally:
        backend.store.close()


def named(told: Any, at: str = "") -> Iterator[str]:
    """Every key of `told` with the way to it; those of `queries` are PowerDNS's."""
    if isinstance(told, dict) and not at.endswith("queries"):
        for key, value in told.items():
            yield f"{at}.{key}".lstrip(".")
            yield from named(value, f"{at}.{key}".lstrip("."))
    elif isinstance(told, list):
        for value in told:
            yield from named(value, f"{at}[]")


def recorded() -> set[str]:
    """The keys of NAMES and TOP, each with the way to it."""
    found = set(TOP.split())
    for line in NAMES.strip().splitlines():
        where, keys = line.split(": ")
        found |= {f"{where}.{key}" for key in keys.split()}
    return found


async def test_every_name_of_the_status_stays(tmp_path: Path) -> None:
    told = dumped(await the_status(tmp_path))
    assert set(named(told)) == recorded()
    assert list(named(told["zones"][0]["pools"][0]["members"][0]))[:3] == ["handle", "name", "identifier"]


async def test_the_status_is_as_described_and_reads_back(tmp_path: Path) -> None:
    """However it is written: for the control socket, or for the admin API."""
    status = await the_status(tmp_path)
    document = description()
    for told in (dumped(status), orjson.loads(orjson.dumps(status))):
        assert differences(told, {"$ref": "#/components/schemas/Status"}, document) == []
        assert read(told) == status


async def test_every_name_of_the_metrics_stays(tmp_path: Path) -> None:
    backend = await a_backend(tmp_path)
    metrics = BackendMetrics(backend.status, backend.events, lambda: {"host": 1}, lambda: 0)
    said = exposition(registry(metrics)).decode().splitlines()
    backend.store.close()
    names = {line.split()[2] for line in said if line.startswith("# TYPE rspdns_")}
    never_asked = {"rspdns_snapshot_age_seconds"}
    assert {name for name in names if not name.endswith("_created")} | never_asked == set(METRICS.split())


def test_openapi_keeps_the_names_of_its_schemas() -> None:
    found = set(description()["components"]["schemas"])
    recorded_names = (
        "Connector Description Error Event Events Member Out Pdns Pool PoolOfZone Pools Purge Purged"
    )
    recorded_names += " Registrar Registrars Reloaded Snapshot Status Text Zone Zones"
    assert set(recorded_names.split()) <= found
