"""A page over HTTP for whoever asks, and nothing but that for whoever means ill."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from daemon_kit import page_server
from daemon_kit.addresses import ListenAddress
from daemon_kit.errors import FatalError
from daemon_kit.page_server import MAX_HEAD_BYTES, PageServer

GET = b"GET /metrics HTTP/1.1\r\n\r\n"


def free_address() -> ListenAddress:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return ListenAddress.parse(f"127.0.0.1:{listening.getsockname()[1]}")


@asynccontextmanager
async def serving(
    page: Callable[[], bytes] = lambda: b"up 1\n", connections: int = 8
) -> AsyncIterator[ListenAddress]:
    address = free_address()
    server = PageServer(address, "/metrics", "text/plain", page, connections=connections)
    await server.start()
    try:
        yield address
    finally:
        await server.close()


async def raw(address: ListenAddress, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(str(address.address), address.port)
    writer.write(request)
    answer = await rest_of(reader)
    writer.close()
    return answer


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the end; nothing when the connection is reset."""
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def test_clients_get_the_page_by_get_and_its_size_by_head() -> None:
    async with serving() as address, aiohttp.ClientSession() as session:
        url = f"http://{address.address}:{address.port}/metrics"
        for _ in range(3):
            async with session.get(url, params={"name[]": "up"}) as response:
                assert (response.status, await response.read()) == (200, b"up 1\n")
                assert response.headers["Content-Type"] == "text/plain"
        async with session.head(url) as response:
            assert (response.status, response.headers["Content-Length"]) == (200, "5")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"\x00\xff\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nA: " + b"x" * MAX_HEAD_BYTES, b"431 Request Header Fields Too Large"),
    ],
)
async def test_all_else_is_refused(request_bytes: bytes, status: bytes) -> None:
    async with serving() as address:
        assert (await raw(address, request_bytes)).startswith(b"HTTP/1.1 " + status + b"\r\n")
        assert b"up 1" in await raw(address, GET)


async def test_a_page_that_cannot_be_made_is_an_error_of_this_request_only() -> None:
    def broken() -> bytes:
        raise ValueError("broken")

    async with serving(page=broken) as address:
        assert b" 500 " in await raw(address, GET)


async def test_silent_connections_are_few_and_do_not_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "REQUEST_S", 0.5)
    async with serving(connections=2) as address:
        silent = [await asyncio.open_connection(str(address.address), address.port) for _ in range(2)]
        assert await raw(address, GET) == b"", "one too many"
        for reader, _ in silent:
            assert await rest_of(reader) == b"", "it said nothing for too long"
        assert b"up 1" in await raw(address, GET)
        for _, writer in silent:
            writer.close()


async def test_an_address_that_is_taken_is_told() -> None:
    async with serving() as address:
        with pytest.raises(
            FatalError, match=r"can't listen at 127\.0\.0\.1:\d+: another program listens there"
        ):
            await PageServer(address, "/", "text/plain", bytes).start()
