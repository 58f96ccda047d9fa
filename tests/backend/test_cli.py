"""The command `rspdns`: errors are for the person who reads them."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from daemon_kit.control import ControlServer
from rspdns.cli import main
from rspdns.status import dumped

from tests.backend.making import FIXED, UDP, ZONE
from tests.backend.statuses import status

BACKEND = 'registrars = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]\n[admin]\nsocket = "{folder}/admin.sock"\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "zones.d").mkdir()
    (tmp_path / "zones.d" / f"{ZONE}.toml").write_text(f'zone = "{ZONE}"\nstatic = "{ZONE}.zone"\n{UDP}')
    (tmp_path / "zones.d" / f"{ZONE}.zone").write_text(FIXED)
    (tmp_path / "rspdns.toml").write_text(BACKEND.format(folder=tmp_path))
    return tmp_path / "rspdns.toml"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_check_says_that_all_is_well(config: Path) -> None:
    result = run("check", "--offline", "-c", config)
    assert result.exit_code == 0
    assert result.output == f"{ZONE}: 1 pool\n{config}: no errors\n"


def test_check_says_when_there_is_no_zone(config: Path) -> None:
    for file in (config.parent / "zones.d").iterdir():
        file.unlink()
    result = run("check", "--offline", "--strict", "-c", config)
    assert result.exit_code == 0, "a backend before its first zone is right"
    assert result.stderr.startswith(f"note: no zone in {config.parent}/zones.d: ")


def test_check_tells_every_error_of_every_file(config: Path) -> None:
    config.write_text(config.read_text() + "nonsense = 1\n")
    zone = config.parent / "zones.d" / f"{ZONE}.toml"
    zone.write_text(zone.read_text().replace("sip-udp", "x" * 33).replace("10.0.0.0/8", "10.0.0.1/8"))
    (config.parent / "zones.d" / f"{ZONE}.zone").write_text(FIXED + "@ NONSENSE x\n")
    for command in ("check", "serve"):
        result = run(command, "-c", config)
        assert result.exit_code == 1
        lines = result.output.splitlines()
        assert len(lines) == 4
        assert f"{config}:4: admin.nonsense" in result.output
        assert "33" in result.output
        assert "accept" in result.output


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for command in ("check", "serve", "status", "reload"):
        result = run(command, "-c", tmp_path / "missing.toml")
        assert result.exit_code == 1, command
        assert "missing.toml: can't be read" in result.output
        assert "name it: -c" not in result.output
        assert isinstance(result.exception, SystemExit)


def test_no_backend_to_ask(config: Path) -> None:
    for arguments in (["status"], ["status", "--json"], ["reload"]):
        result = run(*arguments, "-c", config)
        assert result.exit_code == 1
        assert "is the service running?" in result.output


def test_a_connector_for_everybody_is_one_clear_line(config: Path) -> None:
    config.write_text(config.read_text() + '[pdns]\nconnector = "http:192.0.2.1:8053"\n')
    command = [sys.executable, "-m", "rspdns.cli", "serve", "-c", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "must be at a loopback address" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_watching_is_for_a_terminal(config: Path, more: list[str]) -> None:
    """Into a pipe nothing would ever come."""
    result = run("status", "--watch", *more, "-c", config)
    assert result.exit_code == 2
    assert "--watch is for a terminal" in result.output


async def test_watching_goes_on_while_the_backend_restarts(config: Path) -> None:
    """In a terminal, as a person does it; Ctrl-C ends it without an error."""
    told: dict[str, Any] = dumped(status(problems=["first"]))

    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        return told

    server = ControlServer(config.parent / "admin.sock", {"status": answer})
    await server.start()
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "rspdns.cli", "status", "--watch", "-c", str(config)]
    watch = await asyncio.create_subprocess_exec(*command, stdin=its, stdout=its, stderr=its)
    os.close(its)
    try:
        await shows(ours, "first")
        await server.close()
        await shows(ours, "nothing answers")
        told["problems"] = ["second"]
        await server.start()
        await shows(ours, "second")
        watch.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            assert await watch.wait() == 0
    finally:
        os.close(ours)
        if watch.returncode is None:
            watch.kill()
        await server.close()


async def shows(terminal: int, word: str) -> None:
    seen = ""
    async with asyncio.timeout(20):
        while word not in seen:
            seen += (await asyncio.to_thread(os.read, terminal, 65536)).decode(errors="replace")
