"""Keys and metadata outlive restarts and crashes, and nobody else can read them."""

import asyncio
import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from daemon_kit.errors import FatalError
from rspdns.dnssec.store import FILE_NAME, MAX_KEYS, MAX_TEXT, DnssecStore, WriteRefused

Make = Callable[[], DnssecStore]
ZONE = "ims.example.net"


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[DnssecStore] = []

    def maker() -> DnssecStore:
        made.append(DnssecStore(tmp_path))
        return made[-1]

    yield maker
    for store in made:
        store.close()


async def test_keys_metadata_and_tsig_keys_are_there_after_a_restart(make: Make) -> None:
    first = make()
    key = await first.add_key(ZONE, 257, True, False, "Private-key-format: v1.2\nAlgorithm: 13\n")
    other = await first.add_key(ZONE, 256, False, True, "x")
    await first.set_key(ZONE, other, active=True)
    await first.set_key(ZONE, key, published=True)
    await first.set_metadata(ZONE, "NSEC3PARAM", ["1 0 0 -"])
    await first.set_metadata(ZONE, "ALSO-NOTIFY", ["192.0.2.1", "192.0.2.2"])
    await first.set_metadata(ZONE, "ALSO-NOTIFY", ["192.0.2.3", "192.0.2.2"])
    await first.set_tsig("transfer", "hmac-sha256", "c2VjcmV0")
    first.close()
    second = make()
    assert second.keys(ZONE) == first.keys(ZONE)
    assert [(key.active, key.published) for key in second.keys(ZONE)] == [(True, True), (True, True)]
    assert second.metadata(ZONE) == {
        "NSEC3PARAM": ("1 0 0 -",),
        "ALSO-NOTIFY": ("192.0.2.3", "192.0.2.2"),
    }
    assert second.tsig("transfer") == first.tsig("transfer")
    assert second.signed_zones() == (ZONE,)


async def test_identifiers_are_never_used_again(make: Make) -> None:
    store = make()
    first = await store.add_key(ZONE, 257, True, True, "a")
    assert await store.remove_key(ZONE, first)
    assert not await store.remove_key(ZONE, first)
    assert not await store.set_key(ZONE, first, active=True)
    store.close()
    assert await make().add_key(ZONE, 257, True, True, "b") > first > 0


def _modes(folder: Path) -> set[int]:
    found = set()
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a journal that is done with
            found.add(stat.S_IMODE(path.stat().st_mode))
    return found


async def test_the_file_of_keys_and_its_journal_are_readable_by_their_owner_alone(
    tmp_path: Path, make: Make
) -> None:
    os.umask(os.umask(0) | 0o022)
    store = make()
    assert not (tmp_path / FILE_NAME).exists(), "made when there is something to keep"
    seen: set[int] = set()
    writing = asyncio.create_task(store.add_key(ZONE, 257, True, True, "x" * MAX_TEXT))
    while not writing.done():
        seen |= _modes(tmp_path)
        await asyncio.sleep(0)
    assert _modes(tmp_path) == {0o600}
    assert seen <= {0o600}
    (tmp_path / FILE_NAME).chmod(0o644)
    store.close()
    make()
    assert _modes(tmp_path) == {0o600}, "a careless copy is mended"


async def test_a_removed_key_is_not_left_in_the_file(tmp_path: Path, make: Make) -> None:
    store = make()
    key = await store.add_key(ZONE, 257, True, True, "PrivateKey: very-secret-indeed")
    assert b"very-secret" in (tmp_path / FILE_NAME).read_bytes()
    await store.remove_key(ZONE, key)
    store.close()
    assert b"very-secret" not in (tmp_path / FILE_NAME).read_bytes()


async def test_each_change_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    store = DnssecStore(tmp_path, told.append)
    key = await store.add_key(ZONE, 257, True, True, "x")
    await store.set_key(ZONE, key, active=False)
    await store.set_metadata("other.example", "X", ["1"])
    await store.remove_key(ZONE, key)
    store.close()
    assert told == [ZONE, ZONE, "other.example", ZONE]


async def test_a_damaged_file_stops_the_start_with_a_clear_word(tmp_path: Path, make: Make) -> None:
    await make().add_key(ZONE, 257, True, True, "x")
    content = (tmp_path / FILE_NAME).read_bytes()
    for damaged in (b"no database at all, but long enough to be taken for one" * 40, content[:700]):
        (tmp_path / FILE_NAME).write_bytes(damaged)
        with pytest.raises(FatalError, match="restore the file"):
            make()


async def test_a_file_of_a_newer_version_is_not_touched(tmp_path: Path, make: Make) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(FatalError, match="newer version"):
        make()


async def test_metadata_that_can_not_be_written_change_nothing(tmp_path: Path, make: Make) -> None:
    store = make()
    await store.add_key(ZONE, 257, True, True, "x")
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute("DROP TABLE metadata")
    database.close()
    with pytest.raises(WriteRefused, match="can't be written"):
        await store.set_metadata(ZONE, "X", ["1"])
    assert store.metadata(ZONE) == {}


async def test_keys_and_metadata_of_zones_are_limited(make: Make) -> None:
    store = make()
    with pytest.raises(WriteRefused):
        await store.add_key(ZONE, 257, True, True, "x" * (MAX_TEXT + 1))
    with pytest.raises(WriteRefused):
        await store.set_metadata(ZONE, "a\0b", ["1"])
    with pytest.raises(WriteRefused):
        await store.set_metadata(ZONE, "X", ["1"] * 1000)
    for _ in range(MAX_KEYS):
        await store.add_key(ZONE, 257, True, True, "x")
    with pytest.raises(WriteRefused):
        await store.add_key(ZONE, 257, True, True, "x")


async def test_the_event_loop_goes_on_while_the_disk_is_slow(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make()
    run = store._run

    def slow(statements: object) -> int:
        time.sleep(0.5)
        return run(statements)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "_run", slow)
    writing = asyncio.create_task(store.add_key(ZONE, 257, True, True, "x"))
    turns = 0
    while not writing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10, "blocked while the disk was written"
    assert await writing == 1
