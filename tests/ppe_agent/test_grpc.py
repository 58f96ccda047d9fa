"""The check `grpc` on grpcio's own server, and what a server that is none may send it."""

import asyncio
import os
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from daemon_kit.finding import Life
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from hypothesis import given
from hypothesis import strategies as st
from ppe_agent.checks.base import CheckState, PeriodicCheck
from ppe_agent.checks.configuration import GrpcConfig
from ppe_agent.checks.make import make_check
from ppe_agent.grpc_call import STATUS, CallEnded, GrpcCall, NoGrpc
from ppe_agent.protocol_buffers import field, fields
from pydantic import ValidationError

from tests.ppe_agent.servers import free_port, tcp_server
from tests.ppe_agent.watching import watching
from tests.support.certificates import NAME, authority, certificate_of
from tests.support.grpc_server import NOT_SERVING, SERVING, GrpcServer, grpc_server

HERE = ip_address("127.0.0.1")


def check_of(port: int, **keys: object) -> PeriodicCheck:
    config = GrpcConfig.model_validate({"type": "grpc", "timeout_ms": 10_000, **keys})
    check = make_check(config, HERE, port, "tcp")
    assert isinstance(check, PeriodicCheck)
    return check


async def attempt(port: int, **keys: object) -> tuple[Life, str]:
    finding = await check_of(port, **keys).attempt()
    return finding.life, finding.words


@pytest.fixture(scope="module")
def server() -> Iterator[GrpcServer]:
    with grpc_server() as made:
        yield made


async def test_status_of_the_server_and_of_each_service_is_found(server: GrpcServer) -> None:
    server.health.set("sip.Proxy", NOT_SERVING)
    assert await attempt(server.port) == (Life.ALIVE, "answered SERVING")
    assert await attempt(server.port, service="sip.Proxy") == (Life.UNWELL, "answered NOT_SERVING")
    server.health.set("sip.Proxy", SERVING)
    assert await attempt(server.port, service="sip.Proxy") == (Life.ALIVE, "answered SERVING")
    unknown = "SERVICE_UNKNOWN: its health service knows no 'sip.Other'"
    assert await attempt(server.port, service="sip.Other") == (Life.UNWELL, unknown)


async def test_server_without_the_health_service_is_unwell_and_told_so() -> None:
    with grpc_server(has_services=False) as bare:
        words = "UNIMPLEMENTED: it has no health service (grpc.health.v1.Health)"
        assert await attempt(bare.port) == (Life.UNWELL, words)


async def test_server_that_stops_serving_is_out_and_comes_back(server: GrpcServer) -> None:
    server.health.set("a", SERVING)
    async with watching(check_of(server.port, service="a", interval_ms=50)) as watcher:
        await watcher.until_state(CheckState.UP)
        server.health.set("a", NOT_SERVING)
        await watcher.until_state(CheckState.DOWN)
        server.health.set("a", SERVING)
        await watcher.until_state(CheckState.UP)


async def test_server_over_tls_is_asked_by_name_and_its_certificate_is_checked(tmp_path: Path) -> None:
    files = certificate_of(tmp_path, authority(tmp_path, "ca"), 50)
    authority(tmp_path, "other")
    trusted = {"tls": True, "ca_file": str(tmp_path / "ca.pem")}
    with grpc_server(files) as made:
        assert await attempt(made.port, host=NAME, **trusted) == (Life.ALIVE, "answered SERVING")
        assert (await attempt(made.port, **trusted))[0] is Life.ALIVE, "the certificate has the address, too"
        life, words = await attempt(made.port, host="other.example", **trusted)
        assert life is Life.UNWELL
        assert words.startswith("its certificate is refused: Hostname mismatch")
        untrusted = {"tls": True, "ca_file": str(tmp_path / "other.pem")}
        assert (await attempt(made.port, **untrusted))[0] is Life.UNWELL
        assert (await attempt(made.port, timeout_ms=1000))[0] in (Life.SILENT, Life.UNWELL), "without TLS"
    missing = {"tls": True, "ca_file": str(tmp_path / "no.pem")}
    assert (await attempt(1, **missing))[0] is Life.UNKNOWN


async def test_port_without_a_server_and_silent_server_are_told_apart(tmp_path: Path) -> None:
    port = free_port()
    assert await attempt(port) == (Life.REFUSED, f"nothing listens on port {port}")
    with tcp_server(port):
        words = f"no answer on port {port} within 200 ms"
        assert await attempt(port, timeout_ms=200) == (Life.SILENT, words)
    with tcp_server(port := free_port(), idle_timeout_s=0.1):
        assert (await attempt(port))[0] is Life.SILENT


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def answered_by(answer: Answer) -> tuple[Life, str]:
    listener = await asyncio.start_server(answer, str(HERE), 0)
    async with listener:
        async with asyncio.timeout(20):
            return await attempt(listener.sockets[0].getsockname()[1], timeout_ms=2000)


def http2(*messages: bytes, headers: dict[str, str] | None = None, status: str = "0") -> Answer:
    """Answer with these bytes, and this status at the end, by HTTP/2 as it should be."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        made.initiate_connection()
        while data := await reader.read(9999):
            for event in made.receive_data(data):
                if isinstance(event, RequestReceived):
                    assert event.stream_id
                    given = {":status": "200", "content-type": "application/grpc", **(headers or {})}
                    made.send_headers(event.stream_id, list(given.items()))
                    for message in messages:
                        made.send_data(event.stream_id, message)
                    made.send_headers(event.stream_id, [("grpc-status", status)], end_stream=True)
            writer.write(made.data_to_send())

    return answer


async def test_answers_that_are_no_grpc_are_no_life() -> None:
    async def http1(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    life, words = await answered_by(http1)
    assert life is Life.UNWELL
    assert "speaks no HTTP/2" in words
    life, words = await answered_by(http2(headers={"content-type": "text/html", ":status": "404"}))
    assert (life, words.partition(": ")[2]) == (Life.UNWELL, "answered 404 text/html, no gRPC")
    life, words = await answered_by(http2(struct.pack("!BI", 0, 2**32 - 1)))
    assert (life, words.partition(": ")[2]) == (Life.UNWELL, "announces a message above 64 KiB")
    assert (await answered_by(http2(struct.pack("!BI", 1, 2) + b"\x08\x01")))[0] is Life.UNWELL
    assert (await answered_by(http2(struct.pack("!BI", 0, 3) + b"\xff\xff\xff")))[0] is Life.UNWELL
    serving = struct.pack("!BI", 0, 2) + b"\x08\x01"
    assert (await answered_by(http2(serving)))[0] is Life.ALIVE
    assert (await answered_by(http2(serving[:3], serving[3:])))[0] is Life.ALIVE
    assert await answered_by(http2(serving, status="14")) == (Life.UNWELL, "answered UNAVAILABLE")
    assert await answered_by(http2(serving, status="99")) == (Life.UNWELL, "answered UNKNOWN")
    assert await answered_by(http2()) == (Life.UNWELL, "answered OK")
    assert (await answered_by(http2(serving, serving)))[0] is Life.UNWELL


async def test_server_that_sends_without_end_is_left_in_time() -> None:
    settings = b"\0\0\0\4\0\0\0\0\0"

    async def pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(settings)
        while not writer.is_closing():
            writer.write((b"\0\0\x08\6\0\0\0\0\0" + b"12345678") * 500)
            await writer.drain()

    life, words = await answered_by(pings)
    assert life in (Life.UNWELL, Life.SILENT)
    assert "256 KiB without a message" in words or "within" in words


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    call = GrpcCall("a", "/a/b", b"", is_tls=False)
    try:
        call.receive(b"\0\0\0\4\0\0\0\0\0" + data)
    except NoGrpc:
        return
    assert call.end is None or isinstance(call.end, CallEnded)
    assert len(call.messages) <= len(data)


@given(st.binary(max_size=200))
def test_any_protocol_buffer_is_read_or_refused(data: bytes) -> None:
    try:
        found = list(fields(data))
    except ValueError:
        return
    assert all(number >= 0 for number, _ in found)


def test_fields_are_written_as_they_are_read() -> None:
    assert list(fields(field(1, b"a" * 200) + field(2, 300))) == [(1, b"a" * 200), (2, 300)]
    assert STATUS[12] == "UNIMPLEMENTED"


async def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h2.config", None)
    monkeypatch.delitem(sys.modules, "ppe_agent.grpc_call")
    life, words = await attempt(free_port())
    assert life is Life.UNKNOWN
    assert words == f"the Python package h2 is missing: {sys.prefix}/bin/python -m pip install h2"


def test_keys_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ValidationError, match="is for tls = true"):
        GrpcConfig.model_validate({"type": "grpc", "ca_file": "/etc/ca.pem"})
    with pytest.raises(ValidationError, match="without spaces"):
        GrpcConfig.model_validate({"type": "grpc", "service": "a b"})


async def test_attempts_leave_no_descriptor_open(server: GrpcServer) -> None:
    async def count() -> int:
        await asyncio.sleep(0.1)
        return len(os.listdir("/proc/self/fd"))

    await attempt(server.port)
    before = await count()
    for _ in range(20):
        await attempt(server.port)
    assert await count() <= before + 5
