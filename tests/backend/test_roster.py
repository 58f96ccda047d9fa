"""Missing servers stay known: by `expect`, or of the last day; across restarts; until they are forgotten."""

import asyncio
import errno
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from daemon_kit.control import ControlError
from daemon_kit.finding import Finding, Life
from pool_user import BeliefEvent, Cause, Code, Member, OutMember, PoolProbing, ProbePlan
from rspdns.answers.snapshot import Snapshot
from rspdns.event_log import EventLog
from rspdns.examiner import AT_ONCE, Examiner
from rspdns.roster import FILE_NAME, FORGOTTEN_AFTER_S, MAX_ABSENT, Roster, RosterKeeper
from rspdns.service import Backend
from rspdns.status import build
from rspdns.status.build import Known
from rspdns.status.model import PoolStatus
from rspdns.status.view import view as view_of
from structlog.testing import capture_logs

from tests.backend.making import NOW, UDP, member, view, zone
from tests.backend.statuses import status

HANDLE = "sip-udp"
DAY_S = 86_400.0
NAMED = UDP + 'expect = {"10.0.0.1:5060" = "sip-1", "10.0.0.2:5060" = "sip-2", "10.0.0.3:5060" = "sip-3"}\n'
BY_HOME, WHILE_STOPPED = Cause(Code.REMOVED), Cause(Code.WHILE_STOPPED)


def after(*left: int, joined: tuple[int, ...] = (1, 2, 3), at_s: float = DAY_S) -> Roster:
    """Three were in, and some left at `at_s`."""
    roster = Roster()
    for number in joined:
        roster.joined(HANDLE, member(number))
    for number in left:
        roster.left(HANDLE, member(number), BY_HOME, at_s)
    return roster


def told(pools: str, roster: Roster, *members: Member, at_s: float = DAY_S + 3600) -> PoolStatus:
    of_zone = zone(pools)
    keeper = RosterKeeper("/nonexistent", [of_zone])
    known = Known(roster.absent, at_s, keeper.name_at)
    (one,) = build.zones([of_zone], Snapshot(), {HANDLE: view(*members)}, NOW, known)
    return one.pools[0]


def out(pool: PoolStatus) -> dict[str | None, str]:
    return {one.address: one.reason for one in pool.out}


def shown(pool: PoolStatus) -> str:
    """The line that tells how many are in."""
    return view_of(status(pool), 200).plain.splitlines()[3]


def test_two_of_three_gone_for_an_hour_are_still_shown() -> None:
    pool = told(UDP, after(2, 3), member(1))
    assert (pool.expected, pool.missing) == (3, 2)
    assert out(pool) == {"10.0.0.2": BY_HOME.words, "10.0.0.3": BY_HOME.words}
    assert {one.since_s for one in pool.out} == {3600.0}
    assert all(one.missing and one.look_at for one in pool.out)
    assert shown(pool).endswith(", 1 of 3 in")


def test_without_expect_a_day_is_remembered() -> None:
    pool = told(UDP, after(2), member(1), at_s=DAY_S + FORGOTTEN_AFTER_S)
    assert (pool.expected, pool.missing, pool.out) == (1, 0, [])
    assert shown(pool).endswith(", 1 in")


def test_a_number_is_expected_however_long_ago() -> None:
    pools = UDP + "expect = 4\n"
    pool = told(pools, after(2, 3), member(1), at_s=40 * DAY_S)
    assert (pool.expected, pool.missing, len(pool.out)) == (4, 3, 2), "the third was never seen"
    replaced = told(pools.replace("4", "3"), after(2, 3, joined=(1, 2, 3)), *map(member, (1, 7, 8)))
    assert (replaced.missing, replaced.out) == (0, [])
    assert shown(told(pools.replace("4", "2"), after(), *map(member, (1, 7, 8)))).endswith(
        ", 2 of 2 in, and 1 not expected"
    )


def test_named_servers_are_missed_by_name_also_when_never_seen() -> None:
    pool = told(NAMED, after(2, joined=(1, 2)), member(1), member(9))
    assert (pool.expected, pool.missing) == (3, 2)
    assert [one.name for one in pool.members] == ["sip-1", None]
    assert {one.name: one.reason for one in pool.out} == {
        "sip-2": BY_HOME.words,
        "sip-3": "expected, and never seen by this name server",
    }
    assert shown(pool).endswith(", 1 of 3 in, and 1 not expected")


def test_a_server_that_comes_back_under_another_identifier_is_missed_no_longer() -> None:
    roster = after(2, 3)
    roster.joined(HANDLE, member(22, "10.0.0.2"))
    assert list(out(told(UDP, roster, member(1), member(22, "10.0.0.2")))) == ["10.0.0.3"]


def test_a_server_that_left_a_moment_ago_is_shown_once() -> None:
    left = view(member(1)).members[0]
    gone = OutMember(2, member(2).addresses[0], 5060, BY_HOME, NOW - 5)
    of_zone = zone(UDP)
    known = Known(after(2).absent, DAY_S + 5)
    views = {HANDLE: view(left, out=(gone,))}
    (one,) = build.zones([of_zone], Snapshot(), views, NOW, known)
    (only,) = one.pools[0].out
    assert (only.missing, only.since_s) == (True, 5.0)


def test_whom_accept_refuses_now_is_not_missed() -> None:
    assert told(UDP.replace("10.0.0.0/8", "10.0.0.1/32"), after(2, 3), member(1)).missing == 0


def test_a_restart_forgets_nobody() -> None:
    read = Roster.decode(after(2).encode(DAY_S + 60))
    assert {one.address: (one.left_s, one.cause) for one in read.absent[HANDLE].values()} == {
        "10.0.0.2": (DAY_S, BY_HOME),
        "10.0.0.1": (DAY_S + 60, WHILE_STOPPED),
        "10.0.0.3": (DAY_S + 60, WHILE_STOPPED),
    }
    read.joined(HANDLE, member(1))
    assert list(out(told(UDP, read, member(1)))) == ["10.0.0.2", "10.0.0.3"]


def test_file_of_the_former_version_is_read() -> None:
    """It had sentences where the cause is now."""
    one = {
        "address": "10.0.0.2",
        "port": 5060,
        "identifier": 2,
        "left_s": DAY_S,
        "reason": "left",
        "found": "",
    }
    former = {"format": "rspdns-roster-1", "written_at_s": DAY_S + 60, "pools": {HANDLE: [one]}}
    (seen,) = Roster.decode(orjson.dumps(former)).absent[HANDLE].values()
    assert (seen.address, seen.left_s, seen.cause) == ("10.0.0.2", DAY_S, Cause(Code.GONE))


def test_cause_with_its_finding_outlives_a_restart() -> None:
    roster = after(2)
    roster.examined(HANDLE, member(2), Finding(Life.REFUSED, error=errno.ECONNREFUSED))
    (seen,) = [
        one for one in Roster.decode(roster.encode(DAY_S + 60)).absent[HANDLE].values() if one.identifier == 2
    ]
    assert "nothing listens at its port any more (connection refused)" in seen.cause.words
    assert seen.cause.look_at(seen.address) == "the server's process and log on 10.0.0.2"


def test_any_number_that_comes_and_goes_is_bounded() -> None:
    roster = Roster()
    for number in range(MAX_ABSENT + 10):
        one = member(number, f"10.1.{number // 250}.{number % 250}")
        roster.joined(HANDLE, one)
        roster.left(HANDLE, one, BY_HOME, float(number))
    assert len(roster.absent[HANDLE]) == MAX_ABSENT
    assert not roster.present[HANDLE]


@pytest.mark.parametrize(
    "damage", [b"", b"{}", b"[]", b'{"format": "other"}', b"\xff", b'{"format":"rspdns-roster-1"}']
)
def test_a_damaged_file_is_a_problem_and_no_end(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(damage)
    keeper = RosterKeeper(tmp_path, [zone()])
    keeper.load()
    assert str(tmp_path / FILE_NAME) in (keeper.problem or "")
    keeper.save_now()
    assert keeper.problem is None
    RosterKeeper(tmp_path, [zone()]).load()


def test_pools_that_no_zone_has_are_forgotten(tmp_path: Path) -> None:
    keeper = RosterKeeper(tmp_path, [zone()])
    keeper.roster = after(1, 2)
    keeper.set_zones([zone(UDP.replace("sip-udp", "other"))])
    assert (keeper.roster.present, keeper.roster.absent) == ({}, {})


def test_timeline_and_log_name_the_server() -> None:
    keeper = RosterKeeper("/nonexistent", [zone(NAMED)])
    log = EventLog([], keeper.name_of)
    happened = BeliefEvent(NOW, "left", HANDLE, 2, BY_HOME, member(2))
    with capture_logs() as lines:
        log.happened([happened.explained({"00000001": "2 (10.0.0.12)"}, None)])
    (event,) = log.told()
    assert (event.name, event.address) == ("sip-2", "10.0.0.2:5060")
    assert event.words == "removed by its home registrar, registrar 2 (10.0.0.12)"
    assert (lines[0]["name"], lines[0]["address"]) == ("sip-2", "10.0.0.2:5060")


def test_the_words_that_the_probe_heard_stay_the_reason() -> None:
    cause = Cause(Code.UNREACHED)
    silent = Finding(Life.SILENT, waited_ms=300)
    left = BeliefEvent(NOW, "left", HANDLE, 2, cause, member(2)).explained({}, silent)
    roster = after()
    roster.left(HANDLE, member(2), left.cause, DAY_S)
    gone = OutMember(2, member(2).addresses[0], 5060, cause, NOW - 5)
    known = Known(roster.absent, DAY_S + 5)
    (one,) = build.zones([zone(UDP)], Snapshot(), {HANDLE: view(member(1), out=(gone,))}, NOW, known)
    (only,) = [out for out in one.pools[0].out if out.identifier == "00000002"]
    assert only.reason == f"{cause.words}; it said: no answer within 300 ms"
    assert only.look_at.startswith("the way from here to 10.0.0.2")


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
async def test_a_server_that_left_is_looked_at_once(
    tmp_path: Path, finding: Finding, words: str, look_at: str
) -> None:
    """Killed, drained and cut off differ in nothing that registrars tell."""
    keeper = RosterKeeper(tmp_path, [zone()])
    probed: list[Member] = []
    events: list[BeliefEvent] = []

    async def method(one: Member, plan: ProbePlan) -> Finding:
        probed.append(one)
        return finding

    pools = {HANDLE: PoolProbing(ProbePlan("sip-options"), HANDLE)}
    examiner = Examiner(keeper, pools, lambda more: events.extend(more), method=method)
    left = [BeliefEvent(NOW, "left", HANDLE, 2, BY_HOME, member(2))]
    keeper.happened(left)
    examiner.happened(left)
    async with asyncio.timeout(5):
        while not events:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.001)
    assert probed == [member(2)]
    assert (events[0].kind, events[0].identifier) == ("examined", 2)
    assert words in events[0].words
    (one,) = told(UDP, keeper.roster, member(1), at_s=time.time()).out
    assert one.reason.startswith(f"{BY_HOME.words}; ")
    assert words in one.reason
    assert one.look_at.startswith(look_at)


async def test_a_crowd_is_not_looked_at_all_at_once(tmp_path: Path) -> None:
    keeper, probed = RosterKeeper(tmp_path, [zone()]), []

    async def method(one: Member, plan: ProbePlan) -> Finding:
        probed.append(one)
        await asyncio.sleep(3600)
        return Finding(Life.ALIVE)

    examiner = Examiner(keeper, {HANDLE: PoolProbing(ProbePlan(), HANDLE)}, lambda more: None, method=method)
    examiner.happened([BeliefEvent(NOW, "left", HANDLE, n, BY_HOME, member(n)) for n in range(1, 101)])
    await asyncio.sleep(0.01)
    assert len(probed) == AT_ONCE
    await examiner.close()


def test_forgetting_takes_names_addresses_and_identifiers(backend_of: Any) -> None:
    backend: Backend = backend_of(UDP)
    backend.roster.roster = after(1, 2, 3)
    with pytest.raises(ControlError, match=r"10\.0\.0\.9: no missing server"):
        backend.forget(["10.0.0.9"])
    with pytest.raises(ControlError, match="no pool has"):
        backend.forget([], "nobody")
    assert backend.forget(["10.0.0.1:5060"]) == [f"10.0.0.1 port 5060 of {HANDLE}"]
    assert backend.forget(["00000002"], HANDLE) == [f"10.0.0.2 port 5060 of {HANDLE}"]
    assert backend.forget([]) == [f"10.0.0.3 port 5060 of {HANDLE}"]
    named: Backend = backend_of(NAMED)
    named.roster.roster = after(1)
    with pytest.raises(ControlError, match="sip-1: named by `expect`"):
        named.forget(["sip-1"])
    for other_word in ("10.0.0.1", "10.0.0.1:5060", "00000001"):
        with pytest.raises(ControlError, match="sip-1: named by `expect`"):
            named.forget([other_word])
    assert named.forget([]) == [], "they stay missing, and so does the reason"
    assert named.roster.roster.absent[HANDLE]


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
