"""The connections of the unix connector outlive it, in the hands of the service manager."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import uvloop
from rspdns.pdns.connector_unix import CONNECTION, MAX_REQUEST_BYTES, UnixConnector, inherited_connections
from rspdns_lab.net.service_manager import ServiceManager


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceManager]:
    with closing(ServiceManager(tmp_path / "remote.sock", tmp_path / "notify")) as made:
        for key, value in made.environment.items():
            monkeypatch.setenv(key, value)
        yield made


@contextmanager
def inherited(manager: ServiceManager, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process was just started by the manager."""
    first = 700
    descriptors = manager.descriptors
    for index, descriptor in enumerate(descriptors):
        os.dup2(descriptor, first + index, inheritable=False)
    names = ["rspdns.socket", *[CONNECTION] * (len(descriptors) - 1)]
    with monkeypatch.context() as patch:
        patch.setattr("rspdns.pdns.connector_unix._FIRST_FD", first)
        patch.setenv("LISTEN_PID", str(os.getpid()))
        patch.setenv("LISTEN_FDS", str(len(descriptors)))
        patch.setenv("LISTEN_FDNAMES", ":".join(names))
        yield
    os.close(first)


def upper(line: bytes) -> bytes:
    return line.upper() + b"\n"


async def connector_at(path: Path, respond: Callable[[bytes], bytes | Awaitable[bytes]]) -> UnixConnector:
    made = UnixConnector(path, respond)
    await made.start()
    return made


LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
NewLoop = Callable[[], asyncio.AbstractEventLoop]


@LOOPS
@pytest.mark.parametrize("ends", ["politely", "killed"])
def test_a_question_asked_during_a_restart_is_answered(
    new_loop: NewLoop, ends: str, manager: ServiceManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "remote.sock"

    async def first_life() -> socket.socket:
        with inherited(manager, monkeypatch):
            connector = await connector_at(path, upper)
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(10)
        client.connect(str(path))
        await asyncio.to_thread(client.sendall, b"one\n")
        assert await asyncio.to_thread(client.recv, 100) == b"ONE\n"
        if ends == "politely":
            await connector.close()
        else:
            for connection in connector.connections:
                connection.is_stored = False  # a killed process says nothing
                connection.close()
        return client

    async def second_life(client: socket.socket) -> None:
        with inherited(manager, monkeypatch):
            connector = await connector_at(path, upper)
        assert connector.open_connections == 1
        assert await asyncio.to_thread(client.recv, 100) == b"TWO\n"
        await asyncio.to_thread(client.sendall, b"three\n")
        assert await asyncio.to_thread(client.recv, 100) == b"THREE\n"
        client.close()
        while connector.open_connections:  # noqa: ASYNC110 - none tells
            await asyncio.sleep(0.001)
        await connector.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        client = runner.run(first_life())
    client.sendall(b"two\n")
    assert manager.stored == 1
    assert path.exists()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(second_life(client))
    assert manager.stored == 0


@LOOPS
def test_questions_that_were_read_are_answered_first_and_half_a_question_is_not_handed_over(
    new_loop: NewLoop, manager: ServiceManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "remote.sock"

    async def later(line: bytes) -> bytes:
        await asyncio.sleep(0.1)
        return upper(line)

    async def play() -> None:
        with inherited(manager, monkeypatch):
            connector = await connector_at(path, later)
        (reader, writer), (half_reader, half) = [
            await asyncio.open_unix_connection(str(path)) for _ in range(2)
        ]
        writer.write(b"one\ntwo\n")
        half.write(b"thr")
        while not any(connection.is_busy for connection in connector.connections):  # noqa: ASYNC110 - none tells
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        await connector.close()
        assert await reader.readexactly(8) == b"ONE\nTWO\n"
        assert await asyncio.wait_for(half_reader.read(), 10) == b"", "it must learn that it has to ask again"
        assert manager.stored == 1
        writer.close()
        half.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(play())


@LOOPS
def test_a_connection_that_we_end_is_ended_although_the_manager_has_it(
    new_loop: NewLoop, manager: ServiceManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "remote.sock"

    async def play() -> None:
        with inherited(manager, monkeypatch):
            connector = await connector_at(path, upper)
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"x" * (MAX_REQUEST_BYTES + 1))
        assert await asyncio.wait_for(reader.read(), 10) == b"{}\n"
        async with asyncio.timeout(10):
            while manager.stored or not any(words.startswith("FDSTORE=1") for words in manager.notified):  # noqa: ASYNC110 - none tells
                await asyncio.sleep(0.001)
        writer.close()
        await connector.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(play())


def test_descriptors_that_are_no_connections_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.dup2(reader, 701)
    environment = {
        "LISTEN_PID": str(os.getpid()),
        "LISTEN_FDS": "3",
        "LISTEN_FDNAMES": f"other:{CONNECTION}:{CONNECTION}",
    }
    monkeypatch.setattr("rspdns.pdns.connector_unix._FIRST_FD", 700)
    assert inherited_connections(environment) == []
    for descriptor in (reader, writer, 701):
        os.close(descriptor)
