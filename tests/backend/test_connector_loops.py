"""The unix connector under both event loops it may run in."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from rspdns.pdns.connector_unix import UnixConnector


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
