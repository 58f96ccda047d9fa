"""A service's HTTP address, the clients that it answers, and its bounds on those that connect."""

import asyncio
import logging
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiohttp import ClientSession, web
from daemon_kit.addresses import ListenAddress
from daemon_kit.errors import FatalError
from daemon_kit.http_server import HttpServer, host_is_own, one_page, origin_is_own, own_names
from daemon_kit.metrics import BucketCounts, exposition, registry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from tests.support.waiting import until_async

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.mark.parametrize(
    ("text", "loopback"),
    [("127.0.0.1:8054", True), ("[::1]:8054", True), ("10.0.0.1:80", False), ("0.0.0.0:1", False)],
)
def test_an_address_is_read_and_written_alike(text: str, loopback: bool) -> None:
    address = ListenAddress.parse(text)
    assert str(address) == text
    assert address.is_loopback is loopback


@pytest.mark.parametrize(
    "text",
    ["", "8054", "localhost:8054", "::1:8054", "[127.0.0.1]:1", "1.2.3.4:0", "1.2.3.4:65536", "1.2.3:4"],
)
def test_a_text_that_is_no_address_to_listen_at_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ListenAddress.parse(text)


LOOPBACK = own_names(ListenAddress.parse("127.0.0.1:8054"))
OUTSIDE = own_names(ListenAddress.parse("192.0.2.1:8054"), ["NS1.example.net."])


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8054", "localhost:9000", "localhost", "[::1]:8054", "LOCALHOST:1"]
)
def test_names_of_a_loopback_service(host: str) -> None:
    assert host_is_own(host, LOOPBACK)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:8054",
        "localhost.evil.example",
        "127.0.0.1@x",
        "a b",
        "[",
        "10.0.0.1",
    ],
)
def test_a_foreign_name_that_leads_here_is_not_ours(host: str | None) -> None:
    assert not host_is_own(host, LOOPBACK)


def test_names_of_a_service_for_others() -> None:
    assert host_is_own("ns1.example.net:8054", OUTSIDE)
    assert host_is_own("192.0.2.1:8054", OUTSIDE)
    assert not host_is_own("localhost:8054", OUTSIDE)


def test_pages_of_other_sites_are_told_from_ours_and_from_programs() -> None:
    host = "127.0.0.1:8054"
    assert origin_is_own(None, None, "http", host)
    assert origin_is_own(f"http://{host}", "same-origin", "http", host)
    assert origin_is_own(None, "none", "http", host)
    for origin in ("null", "http://evil.example", "https://127.0.0.1:8054", "http://127.0.0.1:8055"):
        assert not origin_is_own(origin, None, "http", host)
    for site in ("cross-site", "same-site", ""):
        assert not origin_is_own(None, site, "http", host)
    assert not origin_is_own("http://x", None, "http", None)


def free_address() -> ListenAddress:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return ListenAddress.parse(f"127.0.0.1:{probe.getsockname()[1]}")


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


@pytest.fixture
async def address() -> AsyncIterator[ListenAddress]:
    app = web.Application()
    app.router.add_get("/", hello)
    address = free_address()
    server = HttpServer(app, address, connections=3, first_request_s=0.5)
    await server.start()
    yield address
    await server.close()


async def test_a_server_answers_at_its_address(address: ListenAddress) -> None:
    async with ClientSession() as client, client.get(f"http://{address}/") as answer:
        assert await answer.text() == "hello"


async def test_too_many_connections_and_silent_connections_are_closed(address: ListenAddress) -> None:
    silent = [await asyncio.open_connection(str(address.address), address.port) for _ in range(4)]
    try:
        for reader, _ in silent:
            async with asyncio.timeout(20):
                assert await reader.read() == b""
    finally:
        for _, writer in silent:
            writer.close()
    async with asyncio.timeout(20), ClientSession() as client, client.get(f"http://{address}/") as answer:
        assert answer.status == 200


RUN = [asyncio.run, uvloop.run]
"""The event loops of the sidecars and of the backend."""


@asynccontextmanager
async def serving(page: Callable[[], bytes], first_request_s: float = 10) -> AsyncIterator[HttpServer]:
    """A server of one page at `server.address`."""
    server = HttpServer(
        one_page("/metrics", "text/plain", page), free_address(), first_request_s=first_request_s
    )
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def answer_to(server: HttpServer, request: bytes) -> bytes:
    """All that comes until the end; nothing when the connection is reset."""
    reader, writer = await asyncio.open_connection(str(server.address.address), server.address.port)
    writer.write(request)
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_a_request_that_never_ends_is_closed_without_a_line_in_the_log(
    run: Run, sent: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async def serve() -> None:
        async with serving(bytes, first_request_s=0.2) as server:
            assert await answer_to(server, sent) == b""
        assert server.refused == 1

    with caplog.at_level(logging.DEBUG):
        run(serve())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    "sent",
    [
        b"GET /metrics HTTP/1.1\r\nno header\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nA: " + b"x" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
def test_request_that_is_no_http_leaves_no_line_in_the_log(
    run: Run, sent: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async def serve() -> None:
        async with serving(lambda: b"up 1\n") as server:
            for _ in range(3):
                assert b"up 1" not in await answer_to(server, sent)
            assert b"up 1" in await answer_to(server, GET)

    with caplog.at_level(logging.DEBUG):
        run(serve())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("run", RUN)
def test_client_that_begins_no_tls_is_closed_as_soon_as_others(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It counted as no connection, and stayed for a minute."""
    files = ("-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate"))
    command = ("openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=x", *files)
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "certificate", tmp_path / "key")

    async def serve() -> None:
        server = HttpServer(web.Application(), free_address(), tls=tls, first_request_s=0.2)
        await server.start()
        assert await answer_to(server, b"") == b""
        await server.close()

    run(serve())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("run", RUN)
def test_client_that_reads_nothing_of_its_answer_is_closed(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    """It kept its connection for good, and a few such clients kept every other client out."""

    async def serve() -> None:
        app = one_page("/metrics", "text/plain", lambda: bytes(8_000_000))
        server = HttpServer(app, free_address(), connections=1, answer_taken_s=0.2)
        await server.start()
        with socket.create_connection((str(server.address.address), server.address.port)) as client:
            client.sendall(GET)
            await until_async(lambda: server.open_connections == 1, 10)
            await until_async(lambda: server.open_connections == 0, 10)
        assert b" 200 " in await answer_to(server, GET)
        assert server.refused == 1
        await server.close()

    run(serve())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("run", RUN)
def test_client_that_leaves_a_little_of_its_answers_is_closed(run: Run) -> None:
    """Only what was so much that writing had to pause was looked at."""

    async def serve() -> None:
        app = one_page("/metrics", "text/plain", lambda: bytes(20_000))
        server = HttpServer(app, free_address(), answer_taken_s=0.5)
        await server.start()
        connections = server._runner.server
        assert connections is not None
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            client.connect((str(server.address.address), server.address.port))

            def is_left() -> bool:
                client.sendall(GET.replace(b"close", b"keep-alive"))
                transports = [handler.transport for handler in connections.connections]
                return any(transport and transport.get_write_buffer_size() for transport in transports)

            await until_async(is_left, 20)
            await until_async(lambda: server.open_connections == 0, 10)
        assert server.refused == 1
        await server.close()

    run(serve())


@pytest.mark.parametrize("run", RUN)
def test_client_that_reads_steadily_gets_all_of_a_long_answer(run: Run) -> None:
    """It was aborted at the first look."""
    size = 16_000_000

    async def serve() -> None:
        server = HttpServer(
            one_page("/metrics", "text/plain", lambda: bytes(size)), free_address(), answer_taken_s=1
        )
        await server.start()
        reader, writer = await asyncio.open_connection(str(server.address.address), server.address.port)
        writer.write(GET)
        got = 0
        while data := await reader.read(100_000):
            got += len(data)
            await asyncio.sleep(0.02)
        assert got > size
        assert server.refused == 0
        writer.close()
        await server.close()

    run(serve())


GET = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


async def test_clients_get_the_one_page_by_get_and_its_size_by_head() -> None:
    async with serving(lambda: b"up 1\n") as server, ClientSession() as session:
        url = f"http://{server.address}/metrics"
        for _ in range(3):
            async with session.get(url, params={"name[]": "up"}) as response:
                assert (response.status, await response.read()) == (200, b"up 1\n")
                assert response.headers["Content-Type"] == "text/plain"
        async with session.head(url) as response:
            assert (response.status, response.headers["Content-Length"]) == (200, "5")
        async with session.get(f"http://{server.address}/") as response:
            assert response.status == 404
        async with session.post(url) as response:
            assert response.status == 405


async def test_a_page_that_cannot_be_made_is_an_error_of_this_request_only(
    capfd: pytest.CaptureFixture[str],
) -> None:
    pages = [b"up 1\n"]
    async with serving(lambda: pages.pop()) as server:
        assert b"up 1" in await answer_to(server, GET)
        assert b" 500 " in await answer_to(server, GET)
        pages.append(b"up 2\n")
        assert b"up 2" in await answer_to(server, GET)
    assert "page_failed" in capfd.readouterr().out


async def test_a_busy_address_is_one_clear_line(address: ListenAddress) -> None:
    with pytest.raises(FatalError, match=f"can't listen at {address}: another program listens there"):
        await HttpServer(web.Application(), address).start()


class Counts(Collector):
    def __init__(self, counts: BucketCounts) -> None:
        self.counts = counts

    def collect(self) -> list[HistogramMetricFamily]:
        family = HistogramMetricFamily("took_seconds", "How long it took", labels=["what"])
        self.counts.add_to(family, ["x"])
        return [family]


def test_counts_are_told_as_prometheus_reads_them() -> None:
    counts = BucketCounts((0.01, 0.1, 1))
    for value in (0.005, 0.01, 0.5, 7):
        counts.observe(value)
    text = exposition(registry(Counts(counts))).decode()
    assert 'took_seconds_bucket{le="0.01",what="x"} 2.0' in text
    assert 'took_seconds_bucket{le="1.0",what="x"} 3.0' in text
    assert 'took_seconds_bucket{le="+Inf",what="x"} 4.0' in text
    assert 'took_seconds_count{what="x"} 4.0' in text
    assert "process_resident_memory_bytes" in text
    assert counts.count == 4
