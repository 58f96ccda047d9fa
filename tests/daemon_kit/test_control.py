"""The control socket, with friendly clients and with garbage."""

import asyncio
import contextlib
import os
import pwd
import socket
import stat
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from daemon_kit import control
from daemon_kit.control import ControlCommand, ControlError, ControlServer, request
from daemon_kit.errors import FatalError


async def _status(question: dict[str, Any]) -> dict[str, Any]:
    return {"asked": question.get("what")}


async def _refuse(question: dict[str, Any]) -> dict[str, Any]:
    raise ControlError("no AS named 'x'")


async def _break(question: dict[str, Any]) -> dict[str, Any]:
    raise ZeroDivisionError


@contextlib.asynccontextmanager
async def running(path: Path) -> AsyncIterator[ControlServer]:
    server = ControlServer(
        path,
        {
            "status": ControlCommand(_status, {"what": str, "wait": bool, "share": float}),
            "refuse": _refuse,
            "break": _break,
        },
    )
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def ask(path: Path, command: str, **arguments: Any) -> dict[str, Any]:
    return await asyncio.to_thread(request, path, command, **arguments)


async def raw(path: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    with contextlib.suppress(OSError):
        await writer.drain()
    answer = await asyncio.wait_for(reader.readline(), 5)
    writer.close()
    return answer


async def test_a_command_gets_its_answer(tmp_path: Path) -> None:
    async with running(tmp_path / "s"):
        assert await ask(tmp_path / "s", "status", what="all") == {"asked": "all"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            {"whta": "all"},
            "does not know the key 'whta'; it takes: share, wait, what; nothing was done",
        ),
        ({"what": 3}, "'what' of status is a text; nothing was done"),
        ({"wait": 1}, "'wait' of status is true or false"),
        ({"wait": "false"}, "'wait' of status is true or false"),
        ({"share": True}, "'share' of status is a number"),
        ({"what": ["all"]}, "'what' of status is a text"),
    ],
)
async def test_an_unknown_key_of_a_command_refuses_the_request(
    tmp_path: Path, wrong: dict[str, Any], told: str
) -> None:
    async with running(tmp_path / "s"):
        with pytest.raises(ControlError, match=told):
            await ask(tmp_path / "s", "status", **wrong)
        with pytest.raises(ControlError, match="refuse does not know the key 'what'; it takes no other keys"):
            await ask(tmp_path / "s", "refuse", what="all")
        assert await ask(tmp_path / "s", "status", what=None, share=1) == {"asked": None}


async def test_errors_are_told_in_words(tmp_path: Path) -> None:
    async with running(tmp_path / "s"):
        with pytest.raises(ControlError, match="no AS named 'x'"):
            await ask(tmp_path / "s", "refuse")
        with pytest.raises(ControlError, match="break failed inside the service"):
            await ask(tmp_path / "s", "break")
        with pytest.raises(ControlError, match="unknown command 'stauts'; known: break, refuse, status"):
            await ask(tmp_path / "s", "stauts")
    with pytest.raises(ControlError, match="is the service running"):
        await ask(tmp_path / "s", "status")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\n",
        b"\xff\xfe\n",
        b"[]\n",
        b"3\n",
        b'{"command": 3}\n',
        b"{" * 60_000 + b"\n",
        b"[" * 60_000 + b"\n",
        b"x" * 200_000,
        b'{"a":' * 10_000 + b"\n",
    ],
)
async def test_garbage_is_answered_by_an_error_and_the_service_goes_on(
    tmp_path: Path, garbage: bytes
) -> None:
    async with running(tmp_path / "s"):
        assert b'"error"' in await raw(tmp_path / "s", garbage)
        assert await ask(tmp_path / "s", "status") == {"asked": None}


async def test_clients_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path / "s"):
        idle = [await asyncio.open_unix_connection(tmp_path / "s") for _ in range(control.MAX_CLIENTS)]
        await asyncio.sleep(0.05)
        with pytest.raises(ControlError, match="clients at once"):
            await ask(tmp_path / "s", "status")
        for _, writer in idle:
            writer.close()
        await asyncio.sleep(0.05)
        assert await ask(tmp_path / "s", "status") == {"asked": None}


async def test_a_refusal_is_read_even_when_it_came_before_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "MAX_CLIENTS", 0)
    connect = socket.socket.connect

    def connect_slowly(self: socket.socket, address: str) -> None:
        connect(self, address)
        time.sleep(0.1)

    async with running(tmp_path / "s"):
        monkeypatch.setattr(socket.socket, "connect", connect_slowly)
        with pytest.raises(ControlError, match="clients at once"):
            await ask(tmp_path / "s", "status")


async def test_the_control_socket_is_for_owner_and_group_and_is_removed_at_the_end(tmp_path: Path) -> None:
    async with running(tmp_path / "s"):
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o660
    assert not (tmp_path / "s").exists()


async def test_the_socket_of_a_dead_process_is_taken_over_that_of_a_live_process_is_not(
    tmp_path: Path,
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "s"))
    async with running(tmp_path / "s"):
        with pytest.raises(FatalError, match="another process already answers"):
            await ControlServer(tmp_path / "s", {}).start()
        assert await ask(tmp_path / "s", "status") == {"asked": None}


async def test_commands_wait_for_a_service_that_has_the_socket_and_is_not_ready(tmp_path: Path) -> None:
    server = ControlServer(tmp_path / "control", {"status": _status})
    await server.claim()
    try:
        early = asyncio.create_task(ask(tmp_path / "control", "status"))
        with pytest.raises(FatalError, match="another process"):
            await ControlServer(tmp_path / "control", {}).claim()
        done, _ = await asyncio.wait([early], timeout=0.2)
        assert not done
        await server.start()
        assert await early == {"asked": None}
    finally:
        await server.close()


async def test_paths_where_no_socket_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(FatalError, match="no socket is there"):
        await ControlServer(tmp_path / "file", {}).start()
    assert (tmp_path / "file").read_text() == "precious"
    with pytest.raises(FatalError, match="No such file or directory"):
        await ControlServer(tmp_path / "absent" / "too" / "s", {}).start()


async def test_the_directory_of_the_socket_is_made(tmp_path: Path) -> None:
    async with running(tmp_path / "run" / "s"):
        assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o750
        assert await ask(tmp_path / "run" / "s", "status") == {"asked": None}


async def test_a_service_that_ends_before_it_answers(tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    async with await asyncio.start_unix_server(hang_up, tmp_path / "s"):
        with pytest.raises(ControlError, match="ended before it answered"):
            await ask(tmp_path / "s", "reload")


async def test_a_directory_of_users_that_hangs_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name comes from files as a rule, and from a server on the network where one is configured."""
    goes_on = threading.Event()

    def hang(number: int) -> None:
        goes_on.wait(30)
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", hang)

    async def who(_: dict[str, Any]) -> dict[str, Any]:
        return {"user": await control.peer_user()}

    server = ControlServer(tmp_path / "control", {"who": who, "status": _status})
    await server.start()
    try:
        asked = asyncio.create_task(ask(tmp_path / "control", "who"))
        assert await asyncio.wait_for(ask(tmp_path / "control", "status"), 5) == {"asked": None}
        assert (await asked)["user"] == f"user {os.getuid()}"
    finally:
        goes_on.set()
        await server.close()
