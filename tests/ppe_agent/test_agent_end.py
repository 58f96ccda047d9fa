"""How the whole agent ends, and what must not end it."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from ppe_agent import state
from ppe_agent.agent import Agent
from ppe_agent.metrics import AgentCollector
from ppe_agent.state import StateDirectory

from rserpool import CauseCode, ErrorCause
from tests.ppe_agent.servers import ended
from tests.ppe_agent.whole_agent import running, write
from tests.support.waiting import until_async

HELD_UP = """
import os, socket, sys, threading, time
import rserpool
from ppe_agent.cli import main
from tests.ppe_agent import whole_agent
from tests.ppe_agent.fakes import PaperPool

def never(what):
    print(what, flush=True)
    time.sleep(90)

fsync = os.fsync
def slow_fsync(descriptor):
    never("disk asked") if threading.current_thread() is not threading.main_thread() else fsync(descriptor)

rserpool.check_available = lambda: None  # the pool is played
whole_agent.patch(setattr, PaperPool())
socket.getaddrinfo = lambda *_, **__: never("name asked")
os.fsync = slow_fsync
main(["run", "-c", sys.argv[1]])
"""


async def test_a_server_that_a_reload_was_about_to_begin_is_not_left_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM while a reload waits for the former server to leave."""
    async with running(tmp_path, monkeypatch, 5060) as (_, pool, stop):
        pool.stays[0].hold()
        write(tmp_path, 5070)
        signal.raise_signal(signal.SIGHUP)
        await until_async(lambda: "deregister" in pool.stays[0].calls)
        await asyncio.sleep(0.1)  # the deregistration times out, and the reload would go on, 0.4 s later
        stop()
    assert [stay.calls for stay in pool.stays] == [["register", "deregister", "close"]]


def unsaved(agent: Agent) -> dict[str, float]:
    """The metric of each server's unsaved state."""
    families = {family.name: family for family in AgentCollector(agent._describe).collect()}
    return {sample.labels["as"]: sample.value for sample in families["ppe_agent_as_state_unsaved"].samples}


async def test_a_full_disk_and_another_host_with_the_same_identifier_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fresh identifier counts at once; the disk gets it when it has room."""
    monkeypatch.setattr(state, "_RETRY_FIRST_S", 0.05)
    monkeypatch.setattr(state, "_RETRY_CEILING_S", 0.05)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with running(tmp_path, monkeypatch, 5060, 5070) as (agent, pool, _):
        with monkeypatch.context() as disk:
            disk.setattr(os, "fsync", full)
            pool.stays[0].rejects = (ErrorCause(CauseCode.NON_UNIQUE_PE_IDENTIFIER),)
            agent._servers.running[0].registration.register_again("")
            await until_async(lambda: agent._describe()["as"][0]["state_problem"] is not None)
            told, other = agent._describe()["as"]
            assert "No space left on device" in str(told["state_problem"])
            assert (other["state_problem"], other["state"]) == (None, "in")
            assert unsaved(agent) == {"sip-5060": 1, "sip-5070": 0}
            await until_async(lambda: agent._describe()["as"][0]["state"] == "in")
            assert len(pool.stays) == 3
        await until_async(lambda: agent._describe()["as"][0]["state_problem"] is None)
        assert unsaved(agent) == {"sip-5060": 0, "sip-5070": 0}
        kept = StateDirectory(tmp_path / "state").load("sip-5060")
        assert kept.identifier == pool.stays[-1].element.identifier == int(told["identifier"], 16)
    assert [stay.calls[-2:] for stay in pool.stays[1:]] == [["deregister", "close"]] * 2


async def test_a_slow_disk_is_asked_once_for_many_identifiers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    async with running(tmp_path, monkeypatch, 5060) as (agent, _, _):
        monkeypatch.setattr(StateDirectory, "save", lambda _, __, state: saved.append(state.identifier))
        taken = [agent._servers.kept["sip-5060"].renumber() for _ in range(100)]
        await until_async(lambda: len(saved) > 1)
        await asyncio.sleep(0.1)
    assert saved == [taken[0], taken[-1]]


def test_the_agents_end_is_not_delayed_by_a_silent_name_server_or_a_hanging_disk(tmp_path: Path) -> None:
    write(tmp_path, 5060)
    text = (tmp_path / "agent.toml").read_text().replace("round-robin", "least-used")
    source = '[as.load]\nsource = "http-json"\nurl = "http://load.example/"\npointer = "/load"\n'
    (tmp_path / "agent.toml").write_text(text + source)
    agent = subprocess.Popen(
        [sys.executable, "-c", HELD_UP, str(tmp_path / "agent.toml")],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with ended(agent), socket.socket(socket.AF_UNIX) as operator:
        assert agent.stdout is not None
        assert any(line == "name asked\n" for line in agent.stdout)
        operator.connect(str(tmp_path / "control.sock"))
        operator.sendall(b'{"command": "drain"}\n')
        assert any(line == "disk asked\n" for line in agent.stdout)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(timeout=30) == 0
