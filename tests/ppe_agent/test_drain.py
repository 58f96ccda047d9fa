"""Drained by the operator: in which order things are done, and what a disk can do to it."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from daemon_kit.control import ControlError
from ppe_agent import cli, servers
from ppe_agent import registration as registration_module
from ppe_agent.agent import Agent
from ppe_agent.configuration import load_configuration
from ppe_agent.state import KeptServer, StateDirectory

from rserpool import PoolElement, RegistrarAddress, Resolution, drained_life_ms
from tests.ppe_agent.fakes import PaperPool, Stay, settle
from tests.ppe_agent.whole_agent import patch, registered, write
from tests.support.waiting import until_async


@pytest.fixture
async def joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Agent, PaperPool]]:
    """An agent whose two ASes are in their pool."""
    pool = PaperPool()
    patch(monkeypatch.setattr, pool)
    write(tmp_path, 5060, 5070)
    agent = Agent(load_configuration(tmp_path / "agent.toml"))
    registrations = [server.registration for server in agent._servers.running]
    for registration in registrations:
        registration.want(True)
    await settle()
    yield agent, pool
    for registration in registrations:
        await registration.close()


@pytest.mark.parametrize(
    "wrong",
    ['"as": 5', '"as": "sip-5060"', '"names": ["sip-5060"]', '"name": 5', '"name": true', '"wait": 1'],
)
async def test_a_request_with_a_key_that_is_not_known_drains_nobody(
    joined: tuple[Agent, PaperPool], wrong: str
) -> None:
    agent, pool = joined
    for command in ("drain", "undrain"):
        answer = await agent._control.answer(f'{{"command": "{command}", {wrong}}}\n'.encode())
        assert "nothing was done" in answer["error"]
    assert [stay.calls for stay in pool.stays] == [["register"], ["register"]]


async def test_every_registrar_is_told_before_the_disk_is_asked(
    joined: tuple[Agent, PaperPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, pool = joined
    saved: list[tuple[str, bool, list[list[str]]]] = []

    def save(_: StateDirectory, name: str, state: KeptServer) -> None:
        saved.append((name, state.drained, [stay.calls[:] for stay in pool.stays[:2]]))

    monkeypatch.setattr(StateDirectory, "save", save)
    await agent._drain({"command": "drain"})
    told = [["register", "deregister"], ["register", "deregister"]]
    assert [calls[:2] for _, _, found in saved for calls in found] == told * 2
    assert [(name, drained) for name, drained, _ in saved] == [("sip-5060", True), ("sip-5070", True)]


async def test_a_slow_disk_holds_up_nothing_but_the_answer(
    joined: tuple[Agent, PaperPool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands are written in the order in which they were given, so the last one counts."""
    agent, pool = joined
    disk_goes_on = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _: disk_goes_on.wait(5))
    commands = [
        asyncio.create_task(agent._drain({})),
        asyncio.create_task(agent._undrain({"name": "sip-5060"})),
        asyncio.create_task(agent._drain({"name": "sip-5060"})),
        asyncio.create_task(agent._undrain({"name": "sip-5070"})),
    ]
    await settle()
    assert not any(command.done() for command in commands)
    assert [server.is_drained for server in agent._servers.running] == [True, False]
    assert [stay.calls[:2] for stay in pool.stays[:2]] == [["register", "deregister"]] * 2
    commands[1].cancel()  # whoever asked is gone: it is written none the less, in its turn
    disk_goes_on.set()
    await asyncio.gather(*commands, return_exceptions=True)
    assert [command.cancelled() for command in commands] == [False, True, False, False]
    again = StateDirectory(tmp_path / "state")
    assert [again.load(name).drained for name in ("sip-5060", "sip-5070")] == [True, False]


async def test_a_full_disk_is_told_to_who_drains(
    joined: tuple[Agent, PaperPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, _ = joined

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ControlError, match=r"^done, but lost should the agent restart now: .*No space left"):
        await agent._drain({})
    assert all(server.is_drained for server in agent._servers.running)


async def test_a_server_drained_while_a_reload_moves_it_stays_drained(
    joined: tuple[Agent, PaperPool], tmp_path: Path
) -> None:
    agent, pool = joined
    agent._path = tmp_path / "agent.toml"
    agent._path.write_text(agent._path.read_text().replace("5070\n", "5080\n"))
    pool.stays[1].hold()
    reload = asyncio.create_task(agent._reload())
    await settle()
    assert pool.stays[1].calls == ["register", "deregister"]
    await agent._drain({})
    pool.stays[1].release()
    await reload
    assert [(server.config.port, server.is_drained) for server in agent._servers.running] == [
        (5060, True),
        (5080, True),
    ]
    await asyncio.gather(*(server.close() for server in agent._servers.running))


async def test_drain_of_a_server_that_a_second_sidecar_has_in_says_so(
    joined: tuple[Agent, PaperPool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, _ = joined
    first = agent._servers.running[0]
    upkeep, element = first.registration.upkeep, first.registration.element
    registrar = first.registration.registrar
    assert registrar is not None
    twin = replace(element, identifier=9)

    def hear(*elements: PoolElement) -> None:
        for later_s in (1.0, 10.0):
            now = time.monotonic() + later_s
            answer = Resolution(first.registration.handle, True, None, elements, now, now)
            upkeep.check_listed(registrar, answer, now)

    hear(element, twin)
    assert first.describe([])["twin"] == "00000009"
    with pytest.raises(
        ControlError, match=r"not out of its pool: sip-5060: another sidecar has .* 00000009; drain it"
    ):
        await agent._drain({"name": "sip-5060", "wait": True})
    hear(twin)
    drained = await agent._drain({"name": "sip-5060"})
    words = "drained, but another sidecar has this server in as 00000009: drain it there, too"
    assert [(server["state"], server["reason"]) for server in drained["as"]] == [("drained", words)]
    monkeypatch.setattr(cli, "request", lambda *_, **__: drained)
    shown = CliRunner().invoke(cli.main, ["drain", "-c", str(tmp_path / "agent.toml")])
    assert words in shown.output
    hear()
    assert await agent._drain({"name": "sip-5060", "wait": True})


async def test_a_reload_does_not_make_it_gone(
    joined: tuple[Agent, PaperPool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left unconfirmed, and is moved to another port then: its identifier may be listed still."""
    monkeypatch.setattr(servers, "_SEEN_GONE_S", 0.05)
    agent, pool = joined
    pool.stays[1].is_refused = True
    await agent._drain({})
    agent._path = tmp_path / "agent.toml"
    agent._path.write_text(agent._path.read_text().replace("5070\n", "5080\n"))
    await agent._reload()
    with pytest.raises(ControlError, match=r"no registrar confirmed that sip-5070 left: "):
        await agent._drain({"wait": True})
    seen_without_it(agent, 1)
    assert await agent._drain({"wait": True})
    await asyncio.gather(*(server.close() for server in agent._servers.running))


def seen_without_it(agent: Agent, position: int) -> None:
    """Have a registrar list nobody in the pool of this AS."""
    now = time.monotonic()
    gone = Resolution(b"sip", False, None, (), now, now)
    agent._servers.running[position].registration.check_listed(agent._servers.registrars[0], gone)


async def test_a_drain_that_waits_fails_when_no_registrar_confirmed_that_the_server_left(
    joined: tuple[Agent, PaperPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until one of them is seen without it."""
    monkeypatch.setattr(servers, "_SEEN_GONE_S", 0.05)
    agent, pool = joined
    pool.stays[1].is_refused = True
    for _ in range(2):
        with pytest.raises(ControlError, match=r"^drained, but no registrar confirmed that sip-5070 left: "):
            await agent._drain({"wait": True})
    assert all(server.is_drained for server in agent._servers.running)
    drained = await agent._drain({"name": "sip-5060", "wait": True})
    assert [server["state"] for server in drained["as"]] == ["drained"]
    seen_without_it(agent, 1)
    assert [server["state"] for server in (await agent._drain({"wait": True}))["as"]] == ["drained"] * 2


async def test_a_drain_that_waits_ends_once_the_registrars_were_seen_without_the_server(
    joined: tuple[Agent, PaperPool],
) -> None:
    agent, pool = joined
    pool.stays[1].is_refused = True
    waiting = asyncio.create_task(agent._drain({"wait": True}))
    await until_async(lambda: pool.stays[1].calls == ["register", "deregister", "close"])
    assert not waiting.done()
    seen_without_it(agent, 1)
    assert [server["state"] for server in (await waiting)["as"]] == ["drained"] * 2


@pytest.mark.parametrize("registrars", ['["10.20.0.1"]', '"multicast"'])
async def test_a_server_that_an_earlier_run_may_have_left_registered_is_not_taken_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registrars: str
) -> None:
    """An agent that was killed and started again, and reaches no registrar; the AS 5070 is new."""
    monkeypatch.setattr(servers, "_SEEN_GONE_S", 0.05)
    patch(monkeypatch.setattr, PaperPool())
    write(tmp_path, 5060)
    Agent(load_configuration(tmp_path / "agent.toml"))
    write(tmp_path, 5060, 5070)
    config = (tmp_path / "agent.toml").read_text().replace('["10.20.0.1"]', registrars)
    multicast = '[multicast]\naccept = ["10.20.0.0/24"]\n' if registrars == '"multicast"' else ""
    (tmp_path / "agent.toml").write_text(config + multicast)
    agent = Agent(load_configuration(tmp_path / "agent.toml"))
    with pytest.raises(ControlError, match=r"no registrar confirmed that sip-5060 left: "):
        await agent._drain({"wait": True})
    if agent._servers.running:
        seen_without_it(agent, 0)
        assert await agent._drain({"wait": True})


async def test_a_server_can_be_drained_before_the_first_registrar_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = PaperPool()
    patch(monkeypatch.setattr, pool)
    write(tmp_path, 5060, 5070)
    config = (tmp_path / "agent.toml").read_text().replace('["10.20.0.1"]', '"multicast"')
    (tmp_path / "agent.toml").write_text(config + '[multicast]\naccept = ["10.20.0.0/24"]\n')
    agent = Agent(load_configuration(tmp_path / "agent.toml"), tmp_path / "agent.toml")
    answer = await agent._drain({"name": "sip-5060", "wait": True})
    assert [(server["name"], server["state"]) for server in answer["as"]] == [("sip-5060", "drained")]
    assert [server["state"] for server in agent._describe()["waiting"]] == ["drained", "unknown"]
    assert StateDirectory(tmp_path / "state").load("sip-5060").drained
    await agent._reload()
    agent._on_registrars([RegistrarAddress("10.20.0.1")])
    await until_async(lambda: registered(agent) == 1)
    assert [server.describe([])["state"] for server in agent._servers.running] == ["drained", "in"]
    await asyncio.gather(*(server.close() for server in agent._servers.running))


async def test_its_home_registrar_is_told_for_how_long_before_it_leaves(
    joined: tuple[Agent, PaperPool],
) -> None:
    agent, pool = joined
    pool.stays[0].hold()
    await agent._drain({"name": "sip-5060", "for_s": 3600.0, "reason": "new kernel"})
    first, _, farewell = pool.stays
    assert farewell.element.life_ms == drained_life_ms(3600)
    assert farewell.element.user_transport == first.element.user_transport
    assert farewell.element.identifier != first.element.identifier
    assert first.calls == ["register", "deregister"], "it leaves once that is taken"
    first.release()
    await agent._servers.until_left(["sip-5060"])
    (server,) = agent._servers.describe_these(["sip-5060"])
    assert server["reason"] == (
        "drained by this service 0 s ago, for another 59 min 59 s: new kernel; undrain lets it in again"
    )


async def test_it_leaves_also_when_nobody_takes_its_farewell(
    joined: tuple[Agent, PaperPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration_module, "FAREWELL_SAID_S", 0.05)
    agent, pool = joined

    def silent(**options: object) -> Stay:
        stay = PaperPool.socket(pool, **options)
        stay.hold()
        return stay

    monkeypatch.setattr(pool, "socket", silent)
    await agent._drain({"name": "sip-5060", "wait": True})
    assert pool.stays[0].calls == ["register", "deregister", "close"]


async def test_a_drain_with_an_end_ends_by_itself_also_after_a_restart(
    joined: tuple[Agent, PaperPool], tmp_path: Path
) -> None:
    agent, _ = joined
    await agent._drain({"name": "sip-5060", "for_s": 0.3})
    first, second = agent._servers.running
    kept = StateDirectory(tmp_path / "state").load("sip-5060").drain
    assert kept is not None
    assert kept.until_s is not None
    assert first.is_drained
    await until_async(lambda: not first.is_drained)
    await until_async(lambda: not StateDirectory(tmp_path / "state").load("sip-5060").drained)
    StateDirectory(tmp_path / "state").save("sip-5060", KeptServer(7, kept))
    again = Agent(load_configuration(tmp_path / "agent.toml"))._servers.running[0]
    again._decide()
    assert not again.is_drained
    assert not second.is_drained


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"for_s": 0.0}, "lasts for up to 30 days"),
        ({"for_s": -1.0}, "lasts for up to 30 days"),
        ({"for_s": float("nan")}, "lasts for up to 30 days"),
        ({"for_s": 31 * 86_400.0}, "lasts for up to 30 days"),
        ({"reason": "two\nlines"}, "a reason is a line"),
        ({"reason": "x" * 201}, "a reason is a line"),
    ],
)
async def test_a_wrong_time_or_reason_drains_nobody(
    joined: tuple[Agent, PaperPool], wrong: dict[str, Any], words: str
) -> None:
    agent, pool = joined
    with pytest.raises(ControlError, match=words):
        await agent._drain(wrong)
    assert [stay.calls for stay in pool.stays] == [["register"], ["register"]]


def idling(loads: list[float | None], source: str | None = "file") -> Any:
    """Answers of an agent whose server reads these loads, one after the other."""
    left = list(loads)

    def answer(_: object, command: str, **__: object) -> dict[str, Any]:
        read = loads[0] if command == "drain" else left.pop(0)
        server = {"name": "sip-5060", "state": "drained", "load": 0.5, "load_source": source}
        return {"as": [{**server, "load_read": read, "load_problem": None, "twin": None}]}

    return answer


def drained_until_idle(tmp_path: Path, *more: str) -> Any:
    write(tmp_path, 5060)
    words = ["drain", "-c", str(tmp_path / "agent.toml"), "--until-idle", *more]
    return CliRunner().invoke(cli.main, words)


def test_until_idle_waits_for_a_load_of_0_and_shows_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_IDLE_LOOK_S", 0.01)
    monkeypatch.setattr(cli, "request", idling([0.5, 0.5, None, 0.02, 0.0]))
    done = drained_until_idle(tmp_path)
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "sip-5060: drained",
        "sip-5060: load 50.0%",
        "sip-5060: load not known (not read yet)",
        "sip-5060: load 2.0%",
        "idle",
    ]


def test_until_idle_goes_on_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_IDLE_LOOK_S", 0.01)
    monkeypatch.setattr(cli, "request", idling([0.5] * 1000))
    done = drained_until_idle(tmp_path, "--at-most", "0.05s")
    assert done.exit_code == 0
    assert done.output.splitlines()[-1] == "not idle after 0 s: sip-5060: load 50.0%"


def test_until_idle_needs_a_load_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "request", idling([0.5], source=None))
    done = drained_until_idle(tmp_path)
    assert done.exit_code == 1
    assert "nothing tells when sip-5060 is idle" in done.output
    assert CliRunner().invoke(cli.main, ["drain", "--at-most", "1m"]).exit_code == 2


@pytest.mark.parametrize("command", ["drain", "undrain"])
def test_the_command_waits_for_a_slow_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    patience_s: list[float] = []

    def answer(*_: Any, timeout_s: float = 5, **__: Any) -> dict[str, Any]:
        patience_s.append(timeout_s)
        return {"as": []}

    monkeypatch.setattr(cli, "request", answer)
    write(tmp_path, 5060)
    done = CliRunner().invoke(cli.main, [command, "-c", str(tmp_path / "agent.toml")])
    assert (done.exit_code, done.output) == (0, "")
    assert patience_s[0] >= 30
