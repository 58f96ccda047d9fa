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
from ppe_agent.agent import Agent
from ppe_agent.configuration import load_configuration
from ppe_agent.state import KeptServer, StateDirectory

from rserpool import PoolElement, RegistrarAddress, Resolution
from tests.ppe_agent.fakes import PaperPool, settle
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
        saved.append((name, state.drained, [stay.calls[:] for stay in pool.stays]))

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
