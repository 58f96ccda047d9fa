"""Reloads of the running backend: accepted at once, read beside the answering, all or nothing."""

import asyncio
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from daemon_kit.control import ControlError, request
from rspdns import reloading
from rspdns.cli import main
from rspdns.configuration import load_configuration
from rspdns.reading import read_configuration
from rspdns.reloading import Reload, Reloads
from rspdns.service import Backend
from rspdns.zones.loading import Progress

from tests.backend.making import FIXED, UDP, ZONE
from tests.support.waiting import until_async

OTHER = "other.example.net"


@pytest.fixture
async def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Backend]:
    """A running backend with files of two zones, without registrars."""
    (tmp_path / "zones.d").mkdir()
    for zone in (ZONE, OTHER):
        write(tmp_path, zone)
    path = tmp_path / "rspdns.toml"
    path.write_text(
        f'registrars = ["10.0.0.1"]\n[pdns]\nconnector = "unix:{tmp_path}/remote.sock"\ncontrol = []\n'
        f'[admin]\nsocket = "{tmp_path}/admin.sock"\nlisten = "off"\n[state]\npath = "{tmp_path}/state"\n'
    )
    served = Backend(load_configuration(path), partial(read_configuration, path))
    monkeypatch.setattr(served.pool_user, "start", served.pool_user.look)
    stop = asyncio.Event()
    before = signal.getsignal(signal.SIGHUP)
    running = asyncio.create_task(served.run(stop))
    async with asyncio.timeout(20):
        # The last thing it does is to listen for the signal.
        while signal.getsignal(signal.SIGHUP) is before:  # noqa: ASYNC110 - none tells
            await asyncio.sleep(0.01)
    yield served
    stop.set()
    await running


def write(folder: Path, zone: str, more: str = "") -> None:
    pool = UDP if zone == ZONE else ""
    (folder / "zones.d" / f"{zone}.toml").write_text(f'zone = "{zone}"\nstatic = "{zone}.zone"\n{pool}')
    (folder / "zones.d" / f"{zone}.zone").write_text(FIXED + more)


async def run(folder: Path, *arguments: str) -> Result:
    whole = ["reload", "-c", str(folder / "rspdns.toml"), *arguments]
    return await asyncio.to_thread(CliRunner().invoke, main, whole)


def served(running: Backend) -> list[str]:
    return [zone.name for zone in running.publisher.snapshot.zones()]


async def until_reloaded(served: Backend, state: str) -> str:
    """Until the last reload has come to an end; what it says is wrong."""
    async with asyncio.timeout(30):
        while (told := served.status().reload) is None or told.state != state:  # noqa: ASYNC110 - none tells
            await asyncio.sleep(0.01)
    return str(told.problem)


async def hang_up(served: Backend, state: str) -> str:
    os.kill(os.getpid(), signal.SIGHUP)
    return await until_reloaded(served, state)


@pytest.mark.parametrize("missing", [".toml", ".zone"])
async def test_a_file_that_is_missing_at_a_signal_changes_nothing(
    backend: Backend, tmp_path: Path, missing: str
) -> None:
    """It may be written anew at this moment; and REFUSED is no answer to give for a slip."""
    (tmp_path / "zones.d" / f"{OTHER}{missing}").unlink()
    write(tmp_path, ZONE, "new A 10.0.0.1\n")
    problem = await hang_up(backend, "refused")
    assert OTHER in problem
    assert served(backend) == [ZONE, OTHER]
    assert f"new.{ZONE}" not in backend.publisher.snapshot.nodes[ZONE]
    write(tmp_path, OTHER)
    await hang_up(backend, "done")
    assert f"new.{ZONE}" in backend.publisher.snapshot.nodes[ZONE]


async def test_the_command_takes_a_zone_out(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "zones.d" / f"{OTHER}.toml").unlink()
    assert (await run(tmp_path)).output.endswith(f"serving {ZONE}\n")
    assert served(backend) == [ZONE]


async def test_no_zone_at_all_is_an_error(backend: Backend, tmp_path: Path) -> None:
    for zone in (ZONE, OTHER):
        (tmp_path / "zones.d" / f"{zone}.toml").unlink()
    done = await run(tmp_path)
    assert done.exit_code == 1
    assert "nothing was changed: there is no zone any more in zones.d; rspdns reload --force" in done.output
    assert served(backend) == [ZONE, OTHER]
    assert (await run(tmp_path, "--force")).output.endswith("serving no zone\n")
    assert served(backend) == []


async def test_a_long_reload_is_accepted_at_once_and_shown(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rspdns.service.WAIT_S", 0.05)
    write(tmp_path, OTHER, "$GENERATE 1-20000 h$ A 10.0.0.1\n")
    begun = await asyncio.to_thread(request, tmp_path / "admin.sock", "reload")
    assert begun["reload"]["state"] == "running"
    seen = 0
    async with asyncio.timeout(60):
        while (last := backend.status().reload) is not None and last.state == "running":
            seen = max(seen, last.records)
            await asyncio.sleep(0.01)
    assert 0 < seen <= 20_000
    assert last is not None
    assert last.state == "done"
    told = await asyncio.to_thread(request, tmp_path / "admin.sock", "reloaded", number=begun["running"])
    assert told["zones"] == [ZONE, OTHER]
    done = await run(tmp_path)
    assert done.exit_code == 0
    assert "accepted; reading: " in done.output
    assert done.output.endswith(f"serving {ZONE}, {OTHER}\n")


async def test_a_reload_that_is_read_for_long_does_not_hold_up_the_end(
    backend: Backend, tmp_path: Path
) -> None:
    write(tmp_path, OTHER, "$GENERATE 1-60000 h$ A 10.0.0.1\n")
    os.kill(os.getpid(), signal.SIGHUP)
    await until_reloaded(backend, "running")
    began_s = time.monotonic()
    await backend._reloads.close()
    assert time.monotonic() - began_s < 10, "its process is killed"


async def test_a_process_that_ends_without_a_result_is_an_error(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rspdns.reading.sys.executable", "/bin/false")
    assert "the process that reads the zones ended with 1" in (await run(tmp_path)).output


async def test_reloads_come_one_after_another_and_are_bounded() -> None:
    under_way: list[int] = []
    go_on = asyncio.Event()

    async def work(reload: Reload) -> dict[str, object]:
        under_way.append(reload.number)
        reload.progress = Progress(0, 2, 1000)
        await go_on.wait()
        if reload.force:
            raise ControlError("refused")
        return {"number": reload.number}

    reloads = Reloads(work)
    numbers = [reloads.begin("al", force=number == 1) for number in range(reloading._KEPT)]
    with pytest.raises(ControlError, match="waiting already"):
        reloads.begin("al")
    assert await reloads.result(numbers[0], 0.01) is None
    assert under_way == numbers[:1]
    told = reloads.status(time.monotonic())
    assert told is not None
    assert (told.state, told.of_files, told.records) == ("running", 2, 1000)
    go_on.set()
    assert await reloads.result(numbers[0]) == {"number": numbers[0]}
    with pytest.raises(ControlError, match="refused"):
        await reloads.result(numbers[1])
    assert await reloads.result(numbers[-1]) == {"number": numbers[-1]}
    assert under_way == numbers
    assert await reloads.result(reloads.begin("al")) is not None
    with pytest.raises(ControlError, match="no reload 1"):
        await reloads.result(1)


async def test_answers_go_on_while_the_table_of_names_is_written(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of a large zone takes a second."""
    written_in: list[str] = []
    monkeypatch.setattr(
        "rspdns.pdns.name_table.write", lambda *_: written_in.append(threading.current_thread().name)
    )
    assert (await run(tmp_path)).exit_code == 0
    at_reload = len(written_in)  # on a busy machine also the one of the start
    assert at_reload >= 1
    backend.paths._signing_changed(ZONE)
    await asyncio.sleep(0.05)
    assert len(written_in) == at_reload + 1
    assert "answers" not in written_in


async def test_nothing_is_imported_from_the_working_directory(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may stand in a folder that others write to."""
    theirs = tmp_path / "theirs"
    (theirs / "rspdns").mkdir(parents=True)
    (theirs / "rspdns" / "__init__.py").write_text(f"open({str(tmp_path / 'was run')!r}, 'w')\n")
    monkeypatch.chdir(theirs)
    assert (await run(tmp_path)).exit_code == 0
    assert not (tmp_path / "was run").exists()


async def test_nodes_that_a_reload_does_not_change_stay_the_same_objects(
    backend: Backend, tmp_path: Path
) -> None:
    """So nothing is compared or freed for it, however large the zone is."""
    write(tmp_path, OTHER, "same A 10.0.0.1\nother A 10.0.0.2\n")
    await run(tmp_path)
    before = backend.publisher.snapshot.nodes[OTHER]
    write(tmp_path, OTHER, "same A 10.0.0.1\nother A 10.0.0.3\n")
    await run(tmp_path)
    after = backend.publisher.snapshot.nodes[OTHER]
    assert after[f"same.{OTHER}"] is before[f"same.{OTHER}"]
    assert [record.content for record in after[f"other.{OTHER}"].records] == ["10.0.0.3"]


async def test_fixed_names_of_a_zone_that_is_purged_whole_are_not_purged_singly(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    purged: list[str] = []
    monkeypatch.setattr(backend.caches.purger, "purge", purged.extend)
    write(tmp_path, OTHER, "$GENERATE 1-2000 h$ A 10.0.0.1\n")
    await run(tmp_path)
    await until_async(lambda: f"{OTHER}$" in purged)
    assert len(purged) < 100


class Knot:
    """An object that names itself: only a search for garbage finds it."""

    def __init__(self) -> None:
        self.itself = self


async def test_garbage_is_still_found_after_a_reload(backend: Backend, tmp_path: Path) -> None:
    knot = Knot()
    alive = weakref.ref(knot)
    assert (await run(tmp_path)).exit_code == 0
    del knot
    gc.collect()
    assert alive() is None
