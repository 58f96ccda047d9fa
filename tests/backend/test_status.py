"""The values of `rspdns status`; every name of them is recorded."""

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from daemon_kit.control import ControlError
from daemon_kit.metrics import exposition, registry
from pool_user import BeliefEvent, Cause, Code, Departure, PoolView, RememberedPool, Standing
from rspdns.admin.access import Access
from rspdns.admin.openapi import description
from rspdns.answers.snapshot import Snapshot
from rspdns.configuration import BackendConfig
from rspdns.metrics import BackendMetrics
from rspdns.service import Backend
from rspdns.status import OtherVersionError, Status, build, dumped, read
from rspdns.status.model import PoolStatus
from rspdns.status.view import view as view_of

from rserpool import LeastUsed, Protocol
from tests.backend.making import NOW, TCP, UDP, answered, member, view, views, zone
from tests.backend.statuses import member_status, pool_status, registrar_status, status, valid
from tests.support.json_schema import differences


def the_pool(when_empty: str, *of_pool: PoolView) -> PoolStatus:
    pool = f'{UDP}when_empty = "{when_empty}"\n'
    (told,) = build.zones([zone(pool)], Snapshot(), {view.handle: view for view in of_pool}, NOW)
    (found,) = told.pools
    return found


def text(*pools: PoolStatus, **other: Any) -> str:
    return view_of(valid(status(*pools, **other)), 200).plain


@pytest.mark.parametrize(
    ("when_empty", "words"),
    [
        ("last-good", "no server is alive; answering with who was in last (when_empty = last-good)"),
        ("nodata", "no server is alive; answering without records (NODATA) (when_empty = nodata)"),
        ("static", "no server is alive; answering with the zone file's records (when_empty = static)"),
        ("servfail", "no server is alive; answering SERVFAIL (when_empty = servfail)"),
    ],
)
def test_an_empty_pool_says_what_is_answered_instead(when_empty: str, words: str) -> None:
    pool = the_pool(when_empty, view(recent=(member(1),)))
    assert pool.answered_instead == words
    assert words in text(pool)


def test_a_pool_that_never_had_a_member_has_no_last_one_to_show() -> None:
    assert "nobody was in before" in str(the_pool("last-good", view()).answered_instead)


def test_nothing_is_answered_instead_of_living_members_or_of_not_knowing() -> None:
    assert the_pool("last-good", view(member(1))).answered_instead is None
    assert the_pool("last-good", PoolView("sip-udp")).answered_instead is None
    assert the_pool("last-good").answered_instead is None


def test_a_member_registered_for_another_transport_is_out_with_the_reason() -> None:
    pool = the_pool("last-good", view(member(1), member(2, protocol=Protocol.TCP)))
    assert [shown.identifier for shown in pool.members] == ["00000001"]
    ((identifier, reason),) = [(out.identifier, out.reason) for out in pool.out]
    assert identifier == "00000002"
    assert reason == "registered for tcp; this pool's service is _sip._udp"
    assert reason in text(pool)


def test_members_of_two_shards_with_one_identifier_have_weights_of_their_own() -> None:
    of_zone = zone(UDP.replace('handle = "sip-udp"', 'handles = ["a", "b"]'))
    of_pools = views(
        view(member(1, policy=LeastUsed(0.0)), handle="a"),
        view(member(1, "10.0.0.9", policy=LeastUsed(0.8)), handle="b"),
    )
    (told,) = build.zones([of_zone], answered(of_zone, of_pools), of_pools, NOW)
    first, second = (shown.weight or 0 for shown in told.pools[0].members)
    assert first > second > 0


def test_registrars_stand_by_number() -> None:
    down = registrar_status(3, standing=Standing.DOWN)
    said = text(registrars=[down, registrar_status(1), registrar_status(2)])
    assert said.index("10.0.0.1") < said.index("10.0.0.2") < said.index("10.0.0.3")


def test_registrars_that_are_all_well_stand_in_a_line() -> None:
    said = text(registrars=[registrar_status(number) for number in (3, 1, 2)])
    (line,) = (line for line in said.splitlines() if line.startswith("registrars "))
    assert re.match(r"registrars .*1.*2.*3: settled, follow enrp", line)


def test_a_registrar_s_standing_is_explained() -> None:
    registrar = registrar_status(
        standing=Standing.STARTING,
        why="it does not list its own sentinel",
        follow="poll",
        follow_problem="no answer, or refused",
    )
    assert "it does not list its own sentinel" in text(registrars=[registrar])
    assert "pushes no changes: no answer, or refused" in text(registrars=[registrar])


def test_a_status_of_another_version_is_refused_with_what_differs() -> None:
    told = dumped(status(pool_status(members=[member_status()])))
    assert read({**told, "more": 1}) == read(told), "a later version may tell more"
    del told["zones"][0]["pools"][0]["members"][0]["weight"]
    with pytest.raises(OtherVersionError, match=r"zones\.0\.pools\.0\.members\.0\.weight: .*restart it"):
        read(told)
    wrongs: tuple[object, ...] = (None, [], {}, {"zones": 1})
    for wrong in wrongs:
        with pytest.raises(OtherVersionError):
            read(wrong)


NAMES = """
connector: connections failures queries
events[]: address at_s cause converged_ms handle identifier kind name number words
pdns[]: commands control failures names problem repeats waiting
registrars[]: address follow follow_problem identifier number round_trip_ms since_s standing why
reload: files of_files problem records since_s state
snapshot: age_s builds
zones[]: pools serial zone
zones[].pools[]: answered_instead expected handles known members missing name out owner planned refused
zones[].pools[]: sites stale_s svcb_owner verify when_empty
zones[].pools[].members[]: addresses handle home_registrar identifier load name policy port priority
zones[].pools[].members[]: protocol share since_s site stale weight
zones[].pools[].members[]: handlespace
zones[].pools[].out[]: handlespace
zones[].pools[]: handlespaces
events[]: handlespace
registrars[]: handlespace
zones[].pools[].out[]: address cause handle identifier look_at missing name planned planned_s port reason
zones[].pools[].out[]: since_s
zones[].pools[].refused: foreign too_many unproven
"""
"""As the status of a backend had them before its models were written."""
TOP = (
    "connector events fastpath hooks host overrides pdns peers problems publications registrars reload"
    " resolvers secondaries snapshot uptime_s version zones"
)
METRICS = """
rspdns_changes_total rspdns_connector_connections rspdns_convergence_seconds rspdns_departures_total
rspdns_event_streams rspdns_hook_delivered_total rspdns_hook_failures_total rspdns_hook_lost_total
rspdns_hook_pending rspdns_hook_works
rspdns_member_changes_total rspdns_member_down_seconds_total
rspdns_member_in rspdns_member_load_ratio rspdns_member_priority rspdns_member_weight
rspdns_members_not_shown rspdns_overrides rspdns_peer_differences rspdns_peer_works
rspdns_pool_expected_members rspdns_pool_handlespace_members rspdns_pool_handlespace_stale_seconds
rspdns_pool_known rspdns_pool_members
rspdns_pool_missing_members rspdns_pool_planned_members rspdns_pool_refused_total
rspdns_pool_stale_seconds rspdns_problems
rspdns_publication_edits_total rspdns_publication_failures_total rspdns_publication_right
rspdns_publication_sent_total rspdns_publication_waiting rspdns_publication_works
rspdns_purge_commands_total rspdns_purge_failures_total rspdns_purge_repeats_total rspdns_purge_waiting
rspdns_purge_works rspdns_purged_names_total rspdns_queries_total rspdns_query_failures_total
rspdns_refusals_total rspdns_registrar_link_up rspdns_registrar_pushes rspdns_registrar_round_trip_seconds
rspdns_registrar_standing
rspdns_resolver_failures_total rspdns_resolver_flushed_names_total rspdns_resolver_flushes_total
rspdns_resolver_waiting rspdns_resolver_works rspdns_secondary_notifies_total
rspdns_secondary_repeats_total rspdns_secondary_works rspdns_secondary_zones_behind
rspdns_site_members rspdns_site_rank
rspdns_snapshot_age_seconds rspdns_snapshot_builds_total rspdns_uptime_seconds
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
    left = (Departure(member(3), now, Cause(Code.GONE)),)
    backend.belief.remember(RememberedPool("sip-udp", (member(1), member(2)), (), now, left), now)
    backend.belief.evaluate(now)
    backend.events.happened(
        [BeliefEvent(now, "joined", "sip-udp", 1, Cause(Code.REGISTERED, registrar="2"), member(1))]
    )
    with contextlib.suppress(ControlError):
        await backend.reload("alice")
    return backend


async def the_status(folder: Path) -> Status:
    backend = await a_backend(folder)
    try:
        return backend.status()
    finally:
        backend.paths.store.close()


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
    backend.paths.store.close()
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
