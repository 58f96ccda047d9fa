"""A part of the service that fails at start or later ends it with one line, not silently."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_kit.errors import FatalError
from pool_user import BeliefChange, BeliefEvent, Cause, Code
from rspdns.configuration import BackendConfig
from rspdns.service import Backend
from structlog.testing import capture_logs


def backend(folder: Path) -> Backend:
    return Backend(
        BackendConfig.model_validate(
            {
                "registrars": ["127.0.0.1"],
                "pdns": {"connector": f"unix:{folder}/remote.sock", "control": []},
                "admin": {"socket": str(folder / "admin.sock")},
                "state": {"path": str(folder / "state")},
            }
        )
    )


async def test_a_socket_that_cannot_be_opened_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = backend(tmp_path)

    def refused() -> None:
        raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr(served.pool_user, "start", refused)
    with pytest.raises(FatalError, match="Address family not supported"):
        await asyncio.wait_for(served.run(asyncio.Event()), 10)


async def test_other_name_servers_are_told_before_the_page_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its libraries take a third of the start, and seconds on a busy machine."""
    served, begun = backend(tmp_path), list[str]()

    async def load_page(_: object) -> None:
        begun.append("page")
        stop.set()

    stop = asyncio.Event()
    monkeypatch.setattr(served.pool_user, "start", lambda: None)
    monkeypatch.setattr(served, "_start_admin", load_page)
    for part, start in (
        (served.caches.resolvers, "set"),
        (served.paths.secondaries, "start"),
        (served.paths.publications, "start"),
    ):
        monkeypatch.setattr(part, start, lambda _, part=part: begun.append(type(part).__name__))
    await asyncio.wait_for(served.run(stop), 30)
    assert begun == ["Resolvers", "Secondaries", "Publications", "page"]


@pytest.mark.parametrize("part", ["keeper", "prober"])
async def test_a_part_that_breaks_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    served = backend(tmp_path)

    async def breaks() -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(served.pool_user, "start", lambda: None)
    monkeypatch.setattr(getattr(served, part), "run", breaks)
    with pytest.raises(FatalError, match=part):
        await asyncio.wait_for(served.run(asyncio.Event()), 10)


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("part", ["keeper", "prober"])
async def test_a_part_ends_also_when_news_come_in_the_same_moment(
    tmp_path: Path, part: str, turns: int
) -> None:
    served = backend(tmp_path)
    running = asyncio.create_task(getattr(served, part).run())
    await asyncio.sleep(0.05)
    if part == "keeper":
        served.keeper.changed({})
    else:
        served.prober.changed()
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=5)
    assert done


async def test_members_are_kept_and_probed_also_when_their_answers_cannot_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, told = backend(tmp_path), []

    def fail(_: BeliefChange) -> None:
        raise ValueError("no answers")

    monkeypatch.setattr(parts.publisher, "publish", fail)
    monkeypatch.setattr(parts.keeper, "changed", lambda views: told.append("keeper"))
    monkeypatch.setattr(parts.prober, "changed", lambda: told.append("prober"))
    with pytest.raises(ValueError, match="no answers"):
        parts._take_change(BeliefChange({}, {}))
    assert told == ["keeper", "prober"]


def test_answers_wait_for_no_library_of_the_live_page_and_the_metrics() -> None:
    """These take as long to load as a third of the start. In a process of its own: here they are loaded."""
    program = "import sys, rspdns.cli, rspdns.service; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "rspdns.answers.publisher" in loaded.split()
    assert {"aiohttp", "prometheus_client"}.isdisjoint(loaded.split())


async def test_answers_change_before_what_happened_is_written_to_the_log(tmp_path: Path) -> None:
    """To write a line may take as long as all that the change needs."""
    served = backend(tmp_path)
    with capture_logs() as lines:
        served._happened([BeliefEvent(0.0, "left", "sip", 1, Cause(Code.REMOVED))])
        assert [event.number for event in served.events.statuses()] == [1]
        assert not lines
        await asyncio.sleep(0.05)
    assert lines[0]["event"] == "left"
