"""Name servers that answer otherwise than they should: a line says so, nothing else happens."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import dns.opcode
import dns.rcode
import pytest
from rspdns.publish import primary, publication

from tests.backend.making import ZONE, member, view
from tests.support.primaries import KEY
from tests.support.publisher import Publisher, config_of
from tests.support.waiting import until_async

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


def framed(wire: bytes) -> bytes:
    return struct.pack("!H", len(wire)) + wire


def header(asked: bytes, rcode: int = 0, records: int = 0) -> bytes:
    return asked[:2] + bytes([0xA8, rcode]) + struct.pack("!HHHH", 0, records, 0, 0)


async def of_another(asked: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(header(bytes([asked[0] ^ 1, asked[1]]))))


async def unsigned(asked: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(header(asked)))


async def refused(asked: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(header(asked, 5)))


async def garbage(asked: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(asked[:2] + bytes(range(256)) * 255))


async def many_records(asked: bytes, writer: asyncio.StreamWriter) -> None:
    record = b"\0" + struct.pack("!HHIH", 1, 1, 0, 0)
    writer.write(framed(header(asked, 0, 5000) + record * 5000))


async def short(asked: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(b"ab"))


async def closed(asked: bytes, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def cut(asked: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack("!H", 500) + b"half")
    writer.close()


async def drop_by_drop(asked: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack("!H", 60_000))
    for _ in range(1000):
        writer.write(b"x")
        await asyncio.sleep(0.05)


async def silent(asked: bytes, writer: asyncio.StreamWriter) -> None:
    pass


async def contradicting(asked: bytes, writer: asyncio.StreamWriter) -> None:
    """Each prerequisite fails, those of an UPDATE without any, too."""
    is_update = asked[2] >> 3 & 0xF == dns.opcode.UPDATE
    answer = header(asked, dns.rcode.NXRRSET) if is_update else asked[:2] + b"\x84\0" + bytes(8)
    writer.write(framed(answer))


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[str]:
    """A server that answers every message so; its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack("!H", await reader.readexactly(2))
                await answer(await reader.readexactly(size), writer)
        except (EOFError, OSError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (of_another, "its answer is of another message"),
        (unsigned, "it answers NOERROR, and its answer is not signed"),
        (refused, "it answers REFUSED, and its answer is not signed"),
        (garbage, "its answer makes no sense"),
        (many_records, "not signed"),
        (short, "its answer is of another message"),
        (closed, "closed the connection without an answer"),
        (cut, "closed the connection without an answer"),
        (drop_by_drop, "no answer within 0.3 s"),
        (silent, "no answer within 0.3 s"),
    ],
)
async def test_hostile_answer_is_a_line_and_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, words: str
) -> None:
    monkeypatch.setattr(primary, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(publication, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(publication, "MOST_PAUSE_S", 0.05)
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    async with listening(answer) as server, Publisher(config_of(server, key)) as publisher:
        publisher.believe(view(member(1), member(2)))
        await until_async(lambda: publisher.status.failed >= 3, told=lambda: str(publisher.status))
        assert publisher.status.problem is not None
        assert words in publisher.status.problem
        assert (publisher.status.state, publisher.status.sent) == ("failing", 0)
        assert publisher.publications.problems[0].startswith(f"publish lab: {server}: ")
        began_s = asyncio.get_running_loop().time()
        await publisher.publications.close()
        assert asyncio.get_running_loop().time() - began_s < 2, "its end waits for nobody"
    assert publisher.status.zone == ZONE


async def test_server_that_contradicts_itself_is_a_line_and_no_flood(tmp_path: Path) -> None:
    unsigned_config = config_of("127.0.0.1:53", tmp_path).model_copy(update={"key": None})
    messages = 0

    async def counted(asked: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal messages
        messages += 1
        await contradicting(asked, writer)

    async with listening(counted) as server:
        publisher = Publisher(unsigned_config.model_copy(update={"server": server}))
        async with publisher:
            publisher.believe(view(member(1), member(2)))
            await publisher.until_failing("is an alias (CNAME) there")
            assert publisher.status.state == "failing"
            before = messages
            await asyncio.sleep(0.3)
            assert messages == before, "it is tried again after a pause"
