"""`rspdns status --nagios`: how bad it is, as monitoring systems of the Nagios family ask."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from daemon_kit.control import ControlServer
from pool_user import Standing
from rspdns.status import Status, dumped
from rspdns.status.model import ReloadStatus
from rspdns.status.nagios import Level, check

from tests.backend.statuses import (
    OWNER,
    member_status,
    out_status,
    pdns_status,
    pool_status,
    registrar_status,
    secondary_status,
    status,
    valid,
)

REGISTRARS = [registrar_status(1), registrar_status(2), registrar_status(3)]
MEMBERS = [member_status(1), member_status(2), member_status(3)]
DOWN = registrar_status(2, standing=Standing.DOWN)
MISSING = out_status(name="sip-9", missing=True)


def state(*pools: Any, **other: Any) -> Status:
    return valid(status(*(pools or (pool_status(members=MEMBERS),)), **{"registrars": REGISTRARS, **other}))


@pytest.mark.parametrize(
    ("given", "level", "words"),
    [
        (state(), Level.OK, "3 members in 1 pool, 3 registrars settled"),
        (state(pool_status(known=False)), Level.CRITICAL, "SERVFAIL"),
        (state(pool_status(answered_instead="last good")), Level.CRITICAL, f"no server is alive in {OWNER}"),
        (state(pool_status(members=MEMBERS, expected=4, missing=1, out=[MISSING])), Level.WARNING, "sip-9"),
        (state(pool_status(members=MEMBERS[:2], expected=4, missing=2)), Level.CRITICAL, "2 of 4"),
        (state(pool_status(members=MEMBERS, stale_s=12.0)), Level.WARNING, "from memory since 12 s"),
        (state(registrars=[REGISTRARS[0], DOWN]), Level.WARNING, "registrar 2 (10.0.0.2) is down"),
        (state(registrars=[DOWN]), Level.CRITICAL, "registrar 2 (10.0.0.2) is down"),
        (state(pdns=[pdns_status(problem="refused")]), Level.CRITICAL, "can't be purged: refused"),
        (state(secondaries=[secondary_status()]), Level.OK, "3 members"),
        (state(secondaries=[secondary_status("is mute")]), Level.WARNING, "nsd-1: ims.example.net: is mute"),
        (state(problems=["the disk | is full"]), Level.WARNING, "the disk / is full"),
        (state(reload=ReloadStatus("refused", 1.0, 0, 0, 0, "line 3")), Level.WARNING, "refused: line 3"),
    ],
)  # fmt: skip
def test_nagios_level_and_words_follow_the_status(given: Status, level: Level, words: str) -> None:
    found, text = check(given)
    assert found is level
    first = text.splitlines()[0]
    assert first.startswith(f"RSPDNS {level.name} - ")
    assert words in first.split(" | ")[0]
    assert text.count("|") == 1, "it parts words from values, once"
    assert " | pools=1;;;0 members=" in first


def test_the_worst_comes_first_and_the_others_below() -> None:
    level, text = check(state(pool_status(known=False), registrars=[REGISTRARS[0], DOWN]))
    assert level is Level.CRITICAL
    lines = text.splitlines()
    assert "(and 1 more)" in lines[0]
    assert [line.split(":")[0] for line in lines[1:]] == ["CRITICAL", "WARNING"]


def ask(config: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rspdns.cli", "status", "--nagios", "-c", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def test_the_command_exits_with_the_level(tmp_path: Path) -> None:
    config = tmp_path / "rspdns.toml"
    config.write_text(f'registrars = ["10.0.0.1"]\n[admin]\nsocket = "{tmp_path}/admin.sock"\n')
    stopped = await asyncio.to_thread(ask, config)
    assert (stopped.returncode, stopped.stdout[:19]) == (Level.CRITICAL, "RSPDNS CRITICAL - n")
    said: list[dict[str, Any]] = [
        dumped(state(registrars=[REGISTRARS[0], DOWN])),
        {"of": "another version"},
    ]

    async def answer(asked: dict[str, Any]) -> dict[str, Any]:
        return said.pop(0)

    server = ControlServer(tmp_path / "admin.sock", {"status": answer})
    await server.start()
    try:
        warned = await asyncio.to_thread(ask, config)
        other = await asyncio.to_thread(ask, config)
    finally:
        await server.close()
    assert (warned.returncode, warned.stdout[:16]) == (Level.WARNING, "RSPDNS WARNING -")
    assert (other.returncode, other.stdout[:16]) == (Level.UNKNOWN, "RSPDNS UNKNOWN -")
    missing = await asyncio.to_thread(ask, tmp_path / "nowhere.toml")
    assert (missing.returncode, missing.stdout[:16]) == (Level.UNKNOWN, "RSPDNS UNKNOWN -")
