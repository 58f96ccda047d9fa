"""The last-known-good file: written whole, refused when damaged, harmless when the disk is full."""

import asyncio
import errno
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from daemon_kit.files import replace_file
from daemon_kit.finding import Finding, Life
from pool_user import Cause, Code
from pool_user import memory as last_known_good
from pool_user.belief import Belief, PoolRules
from pool_user.memory import (
    AFTER_A_CHANGE_S,
    FILE_NAME,
    DamagedFileError,
    Encoded,
    LastKnownGood,
    decode,
    encode,
    load,
)
from pool_user.views import Departure, Member, PoolView
from rserpool.policies import Priority

from rserpool import LeastUsed, Policy, Protocol, RoundRobin

NOW, WALL = 5000.0, 1_700_000_000.0


def member(identifier: int, policy: Policy | None = None, *addresses: str) -> Member:
    found = tuple(ip_address(address) for address in addresses or (f"10.0.0.{identifier}",))
    return Member(identifier, 0xA1, found, 5060, Protocol.SCTP, policy or LeastUsed(1.0), NOW - 30, False)


def view(*members: Member, **changes: Any) -> PoolView:
    return replace(PoolView("pool", members=members, known=True), **changes)


def data(*members: Member, **changes: Any) -> bytes:
    return encode({"pool": view(*members, **changes)}, NOW, WALL)


def test_members_that_were_written_are_read_after_a_reboot() -> None:
    members = (
        member(1),
        member(2, Priority(7), "10.0.0.2", "fd00::2"),
        member(0xFFFFFFFF, RoundRobin(), "fd00::1"),
    )
    written = data(*members, recent=(member(9),))
    (pool,) = decode(written, now=3.0, wall_s=WALL + 100, max_stale_s=3600)
    assert pool.handle == "pool"
    assert pool.stale_since_s == pytest.approx(3.0 - 100)
    assert [member.identifier for member in pool.recent] == [9]
    for before, after in zip(members, pool.members, strict=True):
        assert after == replace(before, since_s=after.since_s, stale=True)
        assert after.since_s == pytest.approx(3.0 - 130)


def test_a_file_encoded_with_kept_parts_equals_one_encoded_anew() -> None:
    encoded = Encoded()
    views = {"a": view(member(1), recent=(member(2),)), "b": view(member(2)), "c": view(stale_since_s=NOW)}
    steps: list[tuple[float, dict[str, PoolView]]] = [
        (0.0, {}),
        (0.01, {"a": view(member(1, LeastUsed(0.5)))}),
        (0.0, {"b": view(member(2), known=False)}),
        (3600.0, {"c": view(member(3), stale_since_s=NOW - 1)}),  # the clock was set
        (3600.01, {"b": view(member(2))}),
    ]
    for step_s, changes in steps:
        views |= changes
        again, anew = (
            decode(encode(views, NOW, WALL + step_s, kept), NOW, WALL + step_s, 3600)
            for kept in (encoded, None)
        )
        assert [pool.handle for pool in again] == [pool.handle for pool in anew]
        for kept, other in zip(again, anew, strict=True):
            assert kept.stale_since_s is not None
            assert kept.stale_since_s == pytest.approx(other.stale_since_s, abs=0.02)
            for pair in zip((*kept.members, *kept.recent), (*other.members, *other.recent), strict=True):
                assert replace(pair[0], since_s=0.0) == replace(pair[1], since_s=0.0)
                assert pair[0].since_s == pytest.approx(pair[1].since_s, abs=0.02)


def test_an_unknown_pool_is_not_written() -> None:
    assert decode(data(member(1), known=False), NOW, WALL, 3600) == ()


def test_restarts_do_not_make_a_stale_pool_fresh() -> None:
    written = data(member(1), stale_since_s=NOW - 3000)
    (pool,) = decode(written, NOW, WALL + 500, 3600)
    assert pool.stale_since_s == pytest.approx(NOW - 3500)
    (too_old,) = decode(written, NOW, WALL + 700, 3600)
    assert (too_old.members, too_old.stale_since_s) == ((), None)


def test_a_clock_that_was_set_back_does_not_make_it_fresh_either() -> None:
    (old,) = decode(data(member(1)), NOW, WALL - 86400, 3600)
    assert old.stale_since_s is None
    (fresh,) = decode(data(member(1)), NOW, WALL - 2, 3600)
    assert fresh.stale_since_s is not None


def test_departures_outlive_a_restart_with_their_findings() -> None:
    cause = Cause(Code.REMOVED, finding=Finding(Life.REFUSED, error=errno.ECONNREFUSED))
    written = data(member(1), departures=(Departure(member(2), NOW - 5, cause, is_confirmed=True),))
    (pool,) = decode(written, now=3.0, wall_s=WALL + 100, max_stale_s=3600)
    (departure,) = pool.departures
    assert (departure.member.identifier, departure.cause, departure.is_confirmed) == (2, cause, True)
    assert departure.left_s == pytest.approx(3.0 - 105)
    belief = Belief(["10.9.0.1"], {"pool": PoolRules((ip_network("10.0.0.0/8"),))})
    belief.remember(pool, 3.0)
    assert belief.evaluate(3.0).views["pool"].departures == (departure,)


def test_departures_of_a_file_that_does_not_tell_whether_a_home_confirmed_them_are_read() -> None:
    document = json.loads(data(departures=(Departure(member(2), NOW - 5, Cause(Code.REMOVED), True),)))
    del document["content"]["pools"]["pool"]["departures"][0]["is_confirmed"]
    document["checksum"] = last_known_good._checksum(document["content"])
    (pool,) = decode(json.dumps(document).encode(), NOW, WALL, 3600)
    assert [departure.is_confirmed for departure in pool.departures] == [False]


def test_members_of_a_file_that_is_too_old_are_departures() -> None:
    written = data(member(1), departures=(Departure(member(2), NOW - 5, Cause(Code.REMOVED)),))
    (pool,) = decode(written, now=3.0, wall_s=WALL + 7200, max_stale_s=3600)
    assert [(departure.member.identifier, departure.cause.code) for departure in pool.departures] == [
        (2, Code.REMOVED),
        (1, Code.WHILE_STOPPED),
    ]
    assert pool.departures[1].left_s == pytest.approx(3.0 - 7200)
    belief = Belief(["10.9.0.1"], {"pool": PoolRules((ip_network("10.0.0.0/8"),))})
    belief.remember(pool, 3.0)
    view = belief.evaluate(3.0).views["pool"]
    assert (view.known, view.members) == (False, ())
    assert view.departures == pool.departures
    (again,) = decode(encode({"pool": view}, 3.0, WALL + 7200), 3.0, WALL + 7200, 3600)
    assert again.stale_since_s is None
    assert [departure.member.identifier for departure in again.departures] == [2, 1]


def test_file_of_the_former_version_has_no_departures() -> None:
    document = json.loads(data(member(1)))
    del document["content"]["pools"]["pool"]["departures"]
    document["checksum"] = last_known_good._checksum(document["content"])
    (pool,) = decode(json.dumps(document).encode(), NOW, WALL, 3600)
    assert (len(pool.members), pool.departures) == (1, ())


def test_the_file_saved_last_is_loaded(tmp_path: Path) -> None:
    replace_file(tmp_path / FILE_NAME, data(member(1)))
    replace_file(tmp_path / FILE_NAME, data(member(2)))
    (pool,) = load(tmp_path, NOW, WALL, 3600)
    assert [member.identifier for member in pool.members] == [2]
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_no_file_is_no_pool(tmp_path: Path) -> None:
    assert load(tmp_path, NOW, WALL, 3600) == ()
    assert load(tmp_path / "missing", NOW, WALL, 3600) == ()


@pytest.mark.parametrize("where", range(0, 100, 7))
def test_a_file_cut_short_is_refused_with_its_name(tmp_path: Path, where: int) -> None:
    whole = data(member(1))
    (tmp_path / FILE_NAME).write_bytes(whole[: len(whole) * where // 100])
    with pytest.raises(DamagedFileError, match=FILE_NAME):
        load(tmp_path, NOW, WALL, 3600)


def test_any_changed_byte_is_noticed() -> None:
    whole = data(member(1))
    (expected,) = decode(whole, NOW, WALL, 3600)
    for offset in range(len(whole)):
        changed = whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :]
        try:
            found = decode(changed, NOW, WALL, 3600)
        except DamagedFileError:
            continue
        assert found == (expected,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "rspdns-last-known-good-9"}, "its format is 'rspdns-last-known-good-9'"),
        ({"checksum": "0"}, "checksum does not match"),
        ({"content": None}, "checksum does not match"),
    ],
)
def test_a_document_of_another_format_or_content_is_refused_in_words(
    change: dict[str, Any], words: str
) -> None:
    document = json.loads(data(member(1)))
    with pytest.raises(DamagedFileError, match=words):
        decode(json.dumps(document | change).encode(), NOW, WALL, 3600)


@pytest.mark.parametrize("text", ["[]", "3", "null", '"x"', "{}", "[" * 5000, ""])
def test_other_documents_are_refused(text: str) -> None:
    with pytest.raises(DamagedFileError):
        decode(text.encode(), NOW, WALL, 3600)


@pytest.mark.parametrize(
    "change",
    [
        {"port": 70000},
        {"port": True},
        {"identifier": -1},
        {"addresses": []},
        {"addresses": ["nowhere"]},
        {"protocol": "CARRIER_PIGEON"},
        {"policy": "zz"},
        {"policy": "00"},
        {"since_s": "soon"},
    ],
    ids=str,
)
def test_wrong_values_with_a_right_checksum_are_refused(change: dict[str, Any]) -> None:
    document = json.loads(data(member(1)))
    document["content"]["pools"]["pool"]["members"][0] |= change
    document["checksum"] = last_known_good._checksum(document["content"])
    with pytest.raises(DamagedFileError, match="missing or of the wrong kind"):
        decode(json.dumps(document).encode(), NOW, WALL, 3600)


def test_a_crash_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    """A writer is killed again and again; what it leaves is always an old or a new file, whole."""
    replace_file(tmp_path / FILE_NAME, data(member(1)))
    program = (
        "import sys; from pathlib import Path; from daemon_kit.files import replace_file\n"
        "data = Path(sys.argv[2]).read_bytes()\n"
        "print('ready', flush=True)\n"
        "while True: replace_file(sys.argv[1], data)\n"
    )
    source = tmp_path.parent / "new.json"
    source.write_bytes(data(*(member(number % 250) for number in range(3000))))
    for delay_ms in (0, 3, 11, 29):
        writer = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / FILE_NAME), str(source)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        with writer.stdout:
            writer.stdout.readline()
            try:
                writer.wait(delay_ms / 1000)
            except subprocess.TimeoutExpired:
                writer.kill()
            writer.wait()
        assert len(load(tmp_path, NOW, WALL, 3600)) == 1
        assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME], "nothing unfinished stays"


def keeper(directory: Path) -> LastKnownGood:
    return LastKnownGood(directory, 3600, clock=lambda: NOW, wall_clock=lambda: WALL)


def test_a_full_disk_is_a_warning_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeping = keeper(tmp_path)
    keeping.changed({"pool": view(member(1))})
    assert keeping.save_now()

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    keeping.changed({"pool": view(member(2))})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert not keeping.save_now()
        assert keeping.problem is not None
        assert "No space left on device" in keeping.problem
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert [pool.members[0].identifier for pool in load(tmp_path, NOW, WALL, 3600)] == [1]
    assert keeping.save_now()
    assert keeping.problem is None


def test_a_damaged_file_is_a_warning_and_replaced_by_the_next(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("{")
    belief = Belief(["10.9.0.1"], {"pool": PoolRules((ip_network("10.0.0.0/8"),))})
    keeping = keeper(tmp_path)
    assert keeping.load_into(belief) == 0
    assert keeping.problem is not None
    assert FILE_NAME in keeping.problem
    assert not belief.evaluate(NOW).views["pool"].known
    keeping.changed({"pool": view(member(1))})
    assert keeping.save_now()
    assert keeper(tmp_path).load_into(belief) == 1
    assert [found.identifier for found in belief.evaluate(NOW).views["pool"].members] == [1]


def test_nothing_known_never_overwrites_a_file(tmp_path: Path) -> None:
    keeping = keeper(tmp_path)
    keeping.changed({"pool": view(member(1))})
    keeping.save_now()
    keeping.changed({"pool": PoolView("pool")})
    assert keeping.save_now()
    assert len(load(tmp_path, NOW, WALL, 3600)) == 1


async def test_changes_are_written_by_themselves_when_they_have_reached_dns(tmp_path: Path) -> None:
    keeping = keeper(tmp_path / "state")
    running = asyncio.create_task(keeping.run())
    began_s = time.monotonic()
    try:
        keeping.changed({"pool": view(member(1))})
        async with asyncio.timeout(10):
            while not (tmp_path / "state" / FILE_NAME).exists():  # noqa: ASYNC110 - none tells
                await asyncio.sleep(0.01)
        assert time.monotonic() - began_s >= AFTER_A_CHANGE_S
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert len(load(tmp_path / "state", NOW, WALL, 3600)) == 1
