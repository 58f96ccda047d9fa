"""Missing servers stay known: by `expect`, or of the last day; across restarts; until they are forgotten."""

import asyncio
import errno
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daemon_kit.control import ControlError
from daemon_kit.finding import Finding, Life
from pool_user import (
    BeliefEvent,
    Cause,
    Code,
    Departure,
    Member,
    OutMember,
    PoolProbing,
    ProbePlan,
    RememberedPool,
)
from rspdns.answers.snapshot import Snapshot
from rspdns.event_log import EventLog
from rspdns.examiner import AT_ONCE, Examiner
from rspdns.missing import FORGOTTEN_AFTER_S, ServerNames, missing
from rspdns.service import Backend
from rspdns.status import build
from rspdns.status.build import Known
from rspdns.status.model import PoolStatus
from rspdns.status.nagios import Level, check
from rspdns.status.view import view as view_of
from structlog.testing import capture_logs

from tests.backend.making import NOW, UDP, member, view, zone
from tests.backend.statuses import status

HANDLE = "sip-udp"
DAY_S = 86_400.0
NAMED = UDP + 'expect = {"10.0.0.1:5060" = "sip-1", "10.0.0.2:5060" = "sip-2", "10.0.0.3:5060" = "sip-3"}\n'
BY_HOME = Cause(Code.REMOVED)
REMOVED = f"{BY_HOME.words}, registrar 00000001"


def departures(*numbers: int, left_s: float = NOW - 3600) -> tuple[Departure, ...]:
    """These members left at `left_s`."""
    return tuple(Departure(member(number), left_s, BY_HOME) for number in numbers)


def status_of(pools: str, departed: tuple[Departure, ...], *members: Member, now: float = NOW) -> PoolStatus:
    of_zone = zone(pools)
    known = Known(ServerNames([of_zone]))
    of_pool = {HANDLE: view(*members, departures=departed)}
    (of_zone_status,) = build.zones([of_zone], Snapshot(), of_pool, now, known)
    return of_zone_status.pools[0]


def out(pool: PoolStatus) -> dict[str | None, str]:
    return {out_status.address: out_status.reason for out_status in pool.out}


def shown(pool: PoolStatus) -> str:
    """The line that tells how many are in."""
    return view_of(status(pool), 200).plain.splitlines()[3]


def test_two_of_three_gone_for_an_hour_are_still_shown() -> None:
    pool = status_of(UDP, departures(2, 3), member(1))
    assert (pool.expected, pool.missing) == (3, 2)
    assert out(pool) == {"10.0.0.2": REMOVED, "10.0.0.3": REMOVED}
    assert {out_status.since_s for out_status in pool.out} == {3600.0}
    assert all(out_status.missing and out_status.look_at for out_status in pool.out)
    assert shown(pool).endswith(", 1 of 3 in")


def test_without_expect_a_day_is_remembered() -> None:
    pool = status_of(UDP, departures(2), member(1), now=NOW - 3600 + FORGOTTEN_AFTER_S)
    assert (pool.expected, pool.missing, pool.out) == (1, 0, [])
    assert shown(pool).endswith(", 1 in")


def test_a_number_is_expected_however_long_ago() -> None:
    pools = UDP + "expect = 4\n"
    pool = status_of(pools, departures(2, 3), member(1), now=NOW + 40 * DAY_S)
    assert (pool.expected, pool.missing, len(pool.out)) == (4, 3, 2), "the third was never seen"
    replaced = status_of(pools.replace("4", "3"), departures(2, 3), *map(member, (1, 7, 8)))
    assert (replaced.missing, replaced.out) == (0, [])
    assert shown(status_of(pools.replace("4", "2"), (), *map(member, (1, 7, 8)))).endswith(
        ", 2 of 2 in, and 1 not expected"
    )


def test_named_servers_are_missed_by_name_also_when_never_seen() -> None:
    pool = status_of(NAMED, departures(2), member(1), member(9))
    assert (pool.expected, pool.missing) == (3, 2)
    assert [shown_member.name for shown_member in pool.members] == ["sip-1", None]
    assert {out_status.name: out_status.reason for out_status in pool.out} == {
        "sip-2": REMOVED,
        "sip-3": "expected, and never seen by this name server",
    }
    assert shown(pool).endswith(", 1 of 3 in, and 1 not expected")


def test_server_that_left_several_shards_is_missing_once() -> None:
    sharded = UDP.replace('handle = "sip-udp"', 'handles = ["sip-1", "sip-2"]')
    config = zone(sharded).sites[0].pools[0].config
    views = [
        view(departures=departures(1, 2, left_s=NOW - 3600), handle="sip-1"),
        view(departures=departures(1, left_s=NOW - 60), handle="sip-2"),
    ]
    lacked = missing(config, [member(3)], views, NOW)
    assert (lacked.count, lacked.expected) == (2, 3)
    assert {(handle, gone.member.identifier) for handle, gone in lacked.departed} == {
        ("sip-1", 2),
        ("sip-2", 1),
    }


def test_server_that_is_not_missing_is_shown_for_a_minute() -> None:
    pool = status_of(NAMED, departures(9, left_s=NOW - 59), *map(member, (1, 2, 3)))
    assert (pool.missing, out(pool)) == (0, {"10.0.0.9": REMOVED})
    assert status_of(NAMED, departures(9, left_s=NOW - 60), *map(member, (1, 2, 3))).out == []


def test_unreached_server_is_shown_once() -> None:
    cause = Cause(Code.UNREACHED, finding=Finding(Life.SILENT, waited_ms=300))
    unreached = OutMember(2, member(2).addresses[0], 5060, cause, NOW - 5)
    departure = Departure(member(2), NOW - 5, cause)
    views = {HANDLE: view(member(1), out=(unreached,), departures=(departure,))}
    (of_zone,) = build.zones([zone(UDP)], Snapshot(), views, NOW)
    (only,) = of_zone.pools[0].out
    assert (only.missing, only.since_s) == (True, 5.0)
    assert only.reason == f"{Cause(Code.UNREACHED).words}; it said: no answer within 300 ms"
    assert only.look_at.startswith("the way from here to 10.0.0.2")


def test_whom_accept_refuses_now_is_not_missed() -> None:
    assert status_of(UDP.replace("10.0.0.0/8", "10.0.0.1/32"), departures(2, 3), member(1)).missing == 0


def test_timeline_and_log_name_the_server() -> None:
    log = EventLog([], ServerNames([zone(NAMED)]).of)
    happened = BeliefEvent(NOW, "left", HANDLE, 2, BY_HOME, member(2))
    with capture_logs() as lines:
        log.happened([happened.explained({"00000001": "2 (10.0.0.12)"})])
    (event,) = log.statuses()
    assert (event.name, event.address) == ("sip-2", "10.0.0.2:5060")
    assert event.words == "removed by its home registrar, registrar 2 (10.0.0.12)"
    assert (lines[0]["name"], lines[0]["address"]) == ("sip-2", "10.0.0.2:5060")


@pytest.mark.parametrize(
    ("finding", "words", "look_at"),
    [
        (
            Finding(Life.ALIVE, "answers OPTIONS with 200 OK"),
            "withdrawn by its sidecar",
            "ppe-agent status on 10.0.0.2",
        ),
        (
            Finding(Life.REFUSED, error=errno.ECONNREFUSED),
            "nothing listens at its port",
            "the server's process and log",
        ),
        (Finding(Life.SILENT, waited_ms=300), "host or network down", "ping 10.0.0.2"),
        (
            Finding(Life.UNWELL, "answers OPTIONS with 503 Busy"),
            "says: answers OPTIONS with 503 Busy",
            "ppe-agent status",
        ),
    ],
)
async def test_a_server_that_left_is_looked_at_once(finding: Finding, words: str, look_at: str) -> None:
    """Killed, drained and cut off differ in nothing that registrars tell."""
    noted: list[Finding] = []
    probed: list[Member] = []
    events: list[BeliefEvent] = []

    async def method(server: Member, plan: ProbePlan) -> Finding:
        probed.append(server)
        return finding

    def examined(handle: str, server: Member, found: Finding) -> bool:
        noted.append(found)
        return True

    pools = {HANDLE: PoolProbing(ProbePlan("sip-options"), HANDLE)}
    examiner = Examiner(examined, pools, events.extend, method=method)
    examiner.happened([BeliefEvent(NOW, "left", HANDLE, 2, BY_HOME, member(2))])
    async with asyncio.timeout(5):
        while not events:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.001)
    assert probed == [member(2)]
    assert (events[0].kind, events[0].identifier) == ("examined", 2)
    assert words in events[0].words
    (departure,) = departures(2)
    departure = replace(departure, cause=replace(BY_HOME, finding=noted[0]))
    (missing,) = status_of(UDP, (departure,), member(1)).out
    assert f"; {REMOVED}" in missing.reason, "the cause comes first"
    assert words in missing.reason
    assert missing.look_at.startswith(look_at)


async def test_a_crowd_is_not_looked_at_all_at_once() -> None:
    probed: list[Member] = []

    async def method(server: Member, plan: ProbePlan) -> Finding:
        probed.append(server)
        await asyncio.sleep(3600)
        return Finding(Life.ALIVE)

    pools = {HANDLE: PoolProbing(ProbePlan(), HANDLE)}
    examiner = Examiner(lambda *found: True, pools, lambda more: None, method=method)
    examiner.happened([BeliefEvent(NOW, "left", HANDLE, n, BY_HOME, member(n)) for n in range(1, 101)])
    await asyncio.sleep(0.01)
    assert len(probed) == AT_ONCE
    await examiner.close()


async def test_forgetting_takes_names_addresses_and_identifiers(backend_of: Any) -> None:
    backend: Backend = backend_of(UDP)
    remember(backend, 1, 2, 3)
    with pytest.raises(ControlError, match=r"10\.0\.0\.9: no missing server"):
        backend.forget(["10.0.0.9"], "alice")
    with pytest.raises(ControlError, match="no pool has"):
        backend.forget([], "alice", "nobody")
    assert backend.forget(["10.0.0.1:5060"], "alice") == [f"10.0.0.1 port 5060 of {HANDLE}"]
    assert backend.forget(["00000002"], "alice", HANDLE) == [f"10.0.0.2 port 5060 of {HANDLE}"]
    assert backend.forget([], "alice") == [f"10.0.0.3 port 5060 of {HANDLE}"]
    named: Backend = backend_of(NAMED)
    remember(named, 1)
    with pytest.raises(ControlError, match="sip-1: named by `expect`"):
        named.forget(["sip-1"], "alice")
    for other_word in ("10.0.0.1", "10.0.0.1:5060", "00000001"):
        with pytest.raises(ControlError, match="sip-1: named by `expect`"):
            named.forget([other_word], "alice")
    assert named.forget([], "alice") == [], "they stay missing, and so does the reason"
    assert named.belief.views[HANDLE].departures


def remember(backend: Backend, *numbers: int) -> None:
    """These servers had left before the backend was started."""
    now = time.monotonic()
    backend.belief.remember(RememberedPool(HANDLE, (), (), None, departures(*numbers, left_s=now)), now)
    backend.belief.evaluate(now)


@pytest.fixture
def backend_of(tmp_path: Path) -> Any:
    def made(pools: str) -> Backend:
        from rspdns.admin.access import Access
        from rspdns.configuration import BackendConfig

        config = BackendConfig.model_validate(
            {
                "registrars": ["127.0.0.1"],
                "pdns": {"connector": f"unix:{tmp_path}/remote.sock", "control": []},
                "admin": {"socket": str(tmp_path / "admin.sock")},
                "state": {"path": str(tmp_path / "state")},
            }
        )
        return Backend(config.with_files((zone(pools),), Access()))

    return made


def drained(number: int, for_s: float | None, left_s: float = NOW - 60) -> Departure:
    return Departure(member(number), left_s, Cause(Code.DRAINED, planned_s=for_s))


def test_a_drained_server_is_planned_until_its_time_is_over() -> None:
    departed = (drained(2, 3600.0), *departures(3))
    pool = status_of(UDP, departed, member(1))
    assert (pool.expected, pool.missing, pool.planned) == (2, 1, 1)
    (of_drained,) = [server for server in pool.out if server.cause is Code.DRAINED]
    assert (of_drained.planned, of_drained.missing) == (True, False)
    assert of_drained.planned_s == pytest.approx(3540.0)
    shown = str(view_of(status(pool), 200))
    assert "drained, 59 min 0 s left" in shown
    assert "drained by an operator of its host, for 1 h 0 min" in shown
    later = status_of(UDP, departed, member(1), now=NOW + 3600)
    assert (later.expected, later.missing, later.planned) == (3, 2, 0)


@pytest.mark.parametrize("pools", [UDP, UDP + "expect = 2\n", NAMED])
def test_a_drain_without_an_end_is_planned_for_ever(pools: str) -> None:
    pool = status_of(pools, (drained(2, None),), member(1), member(3), now=NOW + 10 * DAY_S)
    assert (pool.missing, pool.planned) == (0, 1)
    (server,) = pool.out
    assert (server.planned, server.planned_s) == (True, None)
    level, _ = check(status(pool))
    assert level is Level.OK
