"""The unix connector: many clients, broken clients, and the socket file."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from rspdns.pdns.connector_unix import (
    MAX_CONNECTIONS,
    MAX_REQUEST_BYTES,
    UnixConnector,
    inherited_listener,
    unix_path,
)


def respond(line: bytes) -> bytes:
    return line.upper() + b"\n"


@pytest.fixture
async def path(tmp_path: Path) -> AsyncIterator[Path]:
    connector = UnixConnector(tmp_path / "remote.sock", respond)
    await connector.start()
    yield tmp_path / "remote.sock"
    await connector.close()
    assert not (tmp_path / "remote.sock").exists()


async def exchange(path: Path, data: bytes, replies: int) -> list[bytes]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(data)
    try:
        return [await asyncio.wait_for(reader.readline(), 5) for _ in range(replies)]
    finally:
        writer.close()


async def test_each_line_has_a_reply_whatever_pieces_it_comes_in(path: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path))
    for piece in (b"o", b"ne\ntwo", b"\n\nfo", b"ur\n"):
        writer.write(piece)
        await asyncio.sleep(0.01)
    assert [await asyncio.wait_for(reader.readline(), 5) for _ in range(4)] == [
        b"ONE\n",
        b"TWO\n",
        b"\n",
        b"FOUR\n",
    ]
    writer.close()


async def test_fifty_clients_are_answered_at_once(path: Path) -> None:
    said = await asyncio.gather(*(exchange(path, f"c{number}\n".encode(), 1) for number in range(50)))
    assert said == [[f"C{number}\n".encode()] for number in range(50)]


async def test_a_request_that_never_ends_ends_its_connection_only(path: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"x" * (MAX_REQUEST_BYTES + 1))
    assert await asyncio.wait_for(reader.read(), 5) == b"{}\n"
    writer.close()
    assert await exchange(path, b"fine\n", 1) == [b"FINE\n"]


async def test_a_client_that_does_not_read_is_not_read(path: Path) -> None:
    deaf = socket.socket(socket.AF_UNIX)
    deaf.setblocking(False)
    deaf.connect(str(path))
    sent = 0
    idle = 0
    while idle < 10:
        try:
            sent += deaf.send(b"y" * 999 + b"\n")
            idle = 0
        except BlockingIOError:
            idle += 1
            await asyncio.sleep(0.01)
        assert sent < 50_000_000, "replies pile up without end"
    assert await exchange(path, b"fine\n", 1) == [b"FINE\n"]
    deaf.close()


async def test_too_many_clients_are_turned_away_and_the_others_served(path: Path) -> None:
    clients = [await asyncio.open_unix_connection(str(path)) for _ in range(MAX_CONNECTIONS)]
    for reader, writer in clients:
        writer.write(b"x\n")
        assert await asyncio.wait_for(reader.readline(), 5) == b"X\n"
    with contextlib.suppress(ConnectionResetError):
        assert await exchange(path, b"late\n", 1) == [b""]
    reader, writer = clients[0]
    writer.write(b"early\n")
    assert await asyncio.wait_for(reader.readline(), 5) == b"EARLY\n"
    for _, writer in clients:
        writer.close()
    await asyncio.sleep(0.1)
    assert await exchange(path, b"again\n", 1) == [b"AGAIN\n"]


async def test_clients_that_never_ask_keep_nobody_out(path: Path) -> None:
    clients = [await asyncio.open_unix_connection(str(path)) for _ in range(MAX_CONNECTIONS + 50)]
    assert await exchange(path, b"late\n", 1) == [b"LATE\n"]
    for _, writer in clients:
        writer.close()


async def test_the_socket_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "remote.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    connector = UnixConnector(path, respond)
    await connector.start()
    assert await exchange(path, b"a\n", 1) == [b"A\n"]
    await connector.close()


def test_descriptors_meant_for_another_process_are_not_inherited(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    descriptors = os.listdir("/proc/self/fd")
    for environment in (
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_PID": "1", "LISTEN_FDS": "1"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "-1"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "many"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "99999999"},
    ):
        assert inherited_listener(path, environment) is None
    assert os.listdir("/proc/self/fd") == descriptors


def test_the_inherited_socket_is_found_by_its_path(tmp_path: Path) -> None:
    program = """
import os, socket, sys
from pathlib import Path
from rspdns.pdns.connector_unix import inherited_listener
listeners = []
for number, name in enumerate(("other", "ours")):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{sys.argv[1]}/{name}")
    listener.listen()
    listeners.append(os.dup2(listener.fileno(), 53 + number))
for fd in (3, 4):
    os.dup2(50 + fd, fd)
found = inherited_listener(
    Path(sys.argv[1]) / "ours", {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2"}
)
print(found.getsockname())
"""
    said = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert said.stdout.strip() == str(tmp_path / "ours"), said.stderr


def test_a_connector_by_path_is_told_from_one_by_http() -> None:
    assert unix_path("unix:/run/x") == Path("/run/x")
    assert unix_path("http:127.0.0.1:80") is None


async def test_the_lines_behind_one_that_takes_its_time_wait(tmp_path: Path) -> None:
    going_on = asyncio.Event()
    asked: list[bytes] = []

    async def later(line: bytes) -> bytes:
        await going_on.wait()
        return line + b" later\n"

    def respond(line: bytes) -> bytes | Awaitable[bytes]:
        asked.append(line)
        return later(line) if line.startswith(b"write") else line + b" now\n"

    connector = UnixConnector(tmp_path / "remote.sock", respond)
    await connector.start()
    try:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "remote.sock"))
        _, other = await asyncio.open_unix_connection(str(tmp_path / "remote.sock"))
        writer.write(b"a\nwrite1\nb\nwrite2\nc\n")
        assert await reader.readline() == b"a now\n"
        other.write(b"other\n")
        while b"other" not in asked:  # noqa: ASYNC110 - none tells
            await asyncio.sleep(0.001)
        writer.write(b"d\n")
        assert asked == [b"a", b"write1", b"other"]
        going_on.set()
        said = [await reader.readline() for _ in range(5)]
        assert said == [b"write1 later\n", b"b now\n", b"write2 later\n", b"c now\n", b"d now\n"]
        writer.close()
        other.close()
    finally:
        await connector.close()


async def test_a_client_that_does_not_read_is_not_worked_for(tmp_path: Path) -> None:
    answered = 0

    def respond(line: bytes) -> bytes:
        nonlocal answered
        answered += 1
        return b"x" * 100_000 + b"\n"

    connector = UnixConnector(tmp_path / "remote.sock", respond)
    await connector.start()
    try:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "remote.sock"), limit=2**20)
        writer.write(b"?\n" * 2000)
        while not answered:  # noqa: ASYNC110 - none tells
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.2)
        assert answered < 100
        for _ in range(2000):
            assert len(await reader.readline()) == 100_001
        assert answered == 2000
        writer.close()
    finally:
        await connector.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_request_is_answered_and_a_long_one_ends_its_connection(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def ask() -> tuple[bytes, bytes]:
        connector = UnixConnector(tmp_path / "remote.sock", lambda line: line.upper() + b"\n")
        await connector.start()
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "remote.sock"))
        writer.write(b"hello\n")
        answer = await reader.readline()
        writer.write(b"x" * 70_000)
        rest = await reader.read()
        writer.close()
        await connector.close()
        return answer, rest

    with asyncio.Runner(loop_factory=new_loop) as runner:
        answer, rest = runner.run(ask())
    assert answer == b"HELLO\n"
    assert rest == b"{}\n"
