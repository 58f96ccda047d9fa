"""The purger at control sockets that answer, hang, or are not there."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from rspdns.pdns.purge import NOT_THERE, ControlSocket, Purger

from tests.support.waiting import until_async

GENEROUS_S = 5.0


class Pdns:
    """A control socket that does what PowerDNS's does: one command per connection, one client at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commands: list[tuple[float, str]] = []
        self.reply: bytes | None = b"1"
        self._turn = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._client, str(self.path), limit=2**20)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._clients.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            async with self._turn:
                line = (await reader.readline()).decode()
                self.commands.append((time.monotonic(), line.strip()))
                if self.reply is None:
                    await asyncio.sleep(3600)
                writer.write(self.reply or b"")
                await writer.drain()
            writer.close()

    async def stop(self) -> None:
        if self._server:
            self._server.close()
        for task in self._clients:
            task.cancel()
        self.path.unlink(missing_ok=True)

    def purged(self, name: str) -> int:
        return sum(name in line.split()[1:] for _, line in self.commands)


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[[str], Pdns]]:
    made: list[Pdns] = []

    def maker(name: str) -> Pdns:
        made.append(Pdns(tmp_path / name))
        return made[-1]

    yield maker
    for pdns in made:
        await pdns.stop()


@pytest.fixture
async def purger() -> AsyncIterator[Callable[..., Purger]]:
    made: list[Purger] = []

    def maker(*paths: Path, timeout_s: float = 0.2, **more: Any) -> Purger:
        made.append(Purger([str(path) for path in paths], timeout_s=timeout_s, **more))
        made[-1].start()
        return made[-1]

    yield maker
    for one in made:
        await one.close()


def idle(control: ControlSocket) -> bool:
    return control.waiting == 0


async def test_all_names_in_one_command_three_times(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("one")
    await pdns.start()
    one = purger(pdns.path)
    one.purge(["b.example.net", "a.example.net"])
    await until_async(lambda: len(pdns.commands) == 3)
    await asyncio.sleep(0.1)
    assert len(pdns.commands) == 3
    for _, line in pdns.commands:
        command, *names = line.split()
        assert command == "PURGE"
        assert sorted(names) == ["a.example.net", "b.example.net"]
    assert pdns.commands[1][0] - pdns.commands[0][0] >= 0.009
    assert pdns.commands[2][0] - pdns.commands[1][0] >= 0.039
    assert idle(one.sockets[0])
    assert one.sockets[0].problem is None


async def test_a_stuck_socket_does_not_hold_up_another(make, purger) -> None:  # type: ignore[no-untyped-def]
    stuck, fine = make("stuck"), make("fine")
    stuck.reply = None
    await stuck.start()
    await fine.start()
    one = purger(stuck.path, fine.path, timeout_s=30)
    one.purge(["a"])
    await until_async(lambda: fine.purged("a") == 3)
    one.purge(["b"])
    await until_async(lambda: fine.purged("b") == 3)
    assert stuck.purged("b") == 0


async def test_a_socket_that_was_stuck_gets_everything_later(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("pdns")
    await pdns.start()
    _, idle_client = await asyncio.open_unix_connection(str(pdns.path))
    await asyncio.sleep(0.05)
    one = purger(pdns.path)
    one.purge(["a"])
    await until_async(lambda: one.sockets[0].problem)
    assert "within" in one.sockets[0].problem
    one.purge(["b"])
    idle_client.close()
    await until_async(lambda: idle(one.sockets[0]))
    assert pdns.purged("a") >= 3
    assert pdns.purged("b") >= 3
    assert one.sockets[0].problem is None


async def test_a_missing_socket_keeps_nothing_and_is_used_when_it_comes(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("later")
    one = purger(pdns.path)
    one.purge(["old"])
    await until_async(lambda: one.sockets[0].problem)
    assert idle(one.sockets[0]), "a PowerDNS that is not there has cached nothing"
    await pdns.start()
    one.purge(["new"])
    await until_async(lambda: pdns.purged("new") == 3)
    assert pdns.purged("old") == 0


async def test_powerdns_is_seen_to_come_and_go_while_nothing_is_purged(make, purger) -> None:  # type: ignore[no-untyped-def]
    path = make("later").path
    one = purger(path, sign_of_life_every_s=0.05).sockets[0]
    await until_async(lambda: one.problem == NOT_THERE)
    pdns = Pdns(path)
    pdns.reply = b"PONG"
    await pdns.start()
    await until_async(lambda: one.problem is None)
    assert {line for _, line in pdns.commands} == {"RPING"}
    await pdns.stop()
    await until_async(lambda: one.problem == NOT_THERE)
    assert (one.counts.commands, one.counts.failures) == (0, 0), "a sign of life is no purge"


async def test_a_dead_powerdns_leaves_its_socket_behind(tmp_path: Path, purger) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    one = purger(path)
    one.purge(["a"])
    await until_async(lambda: one.sockets[0].problem)
    assert idle(one.sockets[0])


async def test_an_unexpected_reply_is_tried_again(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("odd")
    pdns.reply = b"Unknown command: 'PURGE'"
    await pdns.start()
    one = purger(pdns.path)
    one.purge(["a"])
    await until_async(lambda: one.sockets[0].problem)
    assert "Unknown command" in one.sockets[0].problem
    pdns.reply = b"0"
    await until_async(lambda: idle(one.sockets[0]))
    assert one.sockets[0].problem is None


async def test_a_storm_goes_in_few_commands(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("storm")
    await pdns.start()
    one = purger(pdns.path)
    names = [f"{number}.u.as.ims.example.net" for number in range(1000)]
    for name in names:
        one.purge([name])
        if name.startswith("5"):
            await asyncio.sleep(0)
    await until_async(lambda: idle(one.sockets[0]))
    assert all(pdns.purged(name) in (2, 3) for name in names[:10] + names[-10:])
    assert len(pdns.commands) < len(names) / 10


async def test_zones_are_read_again_before_anything_else(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("zones")
    pdns.reply = b"Ok"
    await pdns.start()
    one = purger(pdns.path)
    one.purge(["a"])
    one.rediscover()
    await until_async(lambda: len(pdns.commands) >= 4)
    assert [line for _, line in pdns.commands][:2] == ["REDISCOVER", "PURGE a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
async def test_a_forbidden_socket_is_told(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("forbidden")
    await pdns.start()
    pdns.path.chmod(0)
    pdns.path.parent.chmod(0o711)
    try:
        os.seteuid(65534)
        one = purger(pdns.path)
        one.purge(["a"])
        await until_async(lambda: one.sockets[0].problem)
    finally:
        os.seteuid(0)
    assert "not allowed" in one.sockets[0].problem


@pytest.mark.parametrize("turns", range(5))
async def test_a_purger_closes_also_when_news_come_in_the_same_moment(tmp_path: Path, turns: int) -> None:
    nobody = Purger([str(tmp_path / "none")])
    nobody.start()
    await asyncio.sleep(0.05)
    nobody.purge({"a.example"})
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(GENEROUS_S):
        await nobody.close()
