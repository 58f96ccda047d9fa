"""The tcp, http and SIP-over-TCP checks on real servers."""

import asyncio
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from daemon_kit.finding import Finding, Life
from daemon_kit.sip import ResponseStream
from ppe_agent.checks.base import Check, CheckState, PeriodicCheck, Timing
from ppe_agent.checks.http import HttpCheck
from ppe_agent.checks.sip import SipOptionsCheck
from ppe_agent.checks.tcp import TcpCheck, TcpHoldCheck

from tests.ppe_agent.servers import free_port, http_server, kamailio, sipp, tcp_server
from tests.ppe_agent.watching import TIMING, watching

LOCALHOST = ip_address("127.0.0.1")
PATIENT = Timing(interval_ms=250, timeout_ms=5000, fall=2, rise=2)


async def test_a_tcp_check_is_up_while_connections_are_accepted() -> None:
    port = free_port()
    async with watching(TcpCheck(LOCALHOST, port, TIMING)) as watcher:
        await watcher.until_state(CheckState.DOWN)
        assert watcher.last == f"nothing listens on port {port}"
        with tcp_server(port, idle_timeout_s=0):
            await watcher.until_state(CheckState.UP)
            assert watcher.last == "accepts connections"
        await watcher.until_state(CheckState.DOWN)


@pytest.mark.parametrize(
    "make",
    [
        lambda port: TcpCheck(LOCALHOST, port, PATIENT),
        lambda port: TcpHoldCheck(LOCALHOST, port, PATIENT),
        lambda port: HttpCheck(LOCALHOST, port, PATIENT),
        lambda port: HttpCheck(LOCALHOST, port, PATIENT, scheme="https"),
        lambda port: SipOptionsCheck(LOCALHOST, port, PATIENT, "tcp"),
    ],
)
async def test_a_connection_with_itself_is_no_life_and_leaves_the_port_to_the_server(
    make: Callable[[int], Check], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel's choice of a port makes one now and then, where it also chooses the server's."""

    def connect_from_there(self: socket.socket, address: tuple[str, int]) -> None:
        self.bind(address)
        super(socket.socket, self).connect(address)

    port = free_port()
    monkeypatch.setattr(socket.socket, "connect", connect_from_there)
    async with watching(make(port)) as watcher:
        await watcher.until(lambda: len(watcher.results) >= 2)
        assert {outcome.life for outcome in watcher.results} == {Life.REFUSED}
        assert "nothing listens on" in watcher.last
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))  # without SO_REUSEADDR


async def test_a_web_server_is_up_while_it_answers_in_time_and_with_the_right_text(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "health").write_text("all is well\n")
    async with watching(HttpCheck(LOCALHOST, port, TIMING, path="/health", contains="well")) as watcher:
        await watcher.until_state(CheckState.DOWN)
        assert watcher.last == f"nothing listens on port {port}"
        with http_server(port, tmp_path) as server:
            await watcher.until_state(CheckState.UP)
            assert watcher.last == "answered 200 OK"
            (tmp_path / "health").write_text("help\n")
            await watcher.until(lambda: watcher.last == "answered 200 OK, without 'well' in it")
            await watcher.until_state(CheckState.DOWN)
            (tmp_path / "health").unlink()
            await watcher.until(lambda: watcher.last.startswith("answered 404"))
            (tmp_path / "health").write_text("well again\n")
            await watcher.until_state(CheckState.UP)
            os.killpg(server.pid, signal.SIGSTOP)
            await watcher.until(lambda: watcher.last == f"no answer on port {port} within 250 ms")
            await watcher.until_state(CheckState.DOWN)


def make_certificate(directory: Path) -> tuple[Path, Path]:
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=as"),
            *("-addext", "subjectAltName=DNS:as.example", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return key, certificate


async def test_a_web_server_over_tls_is_up_only_with_a_trusted_certificate(tmp_path: Path) -> None:
    key, certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"\r\nHost: as.example\r\n" in head
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    settings: dict[str, Any] = {"scheme": "https", "host": "as.example", "status": (204, 204)}
    async with (
        server,
        watching(HttpCheck(LOCALHOST, port, PATIENT, **settings, ca_file=certificate)) as trusting,
        watching(HttpCheck(LOCALHOST, port, PATIENT, **settings)) as doubting,
        watching(HttpCheck(LOCALHOST, port, PATIENT, **settings, verify=False)) as careless,
    ):
        await trusting.until_state(CheckState.UP)
        await careless.until_state(CheckState.UP)
        await doubting.until_state(CheckState.DOWN)
        assert "its certificate is refused" in doubting.last


async def test_web_server_with_a_renewed_certificate_is_up_again(tmp_path: Path) -> None:
    """The first context was kept, so that a new certificate at the same path was refused until a restart."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    port = free_port()
    trusted = tmp_path / "certificate.pem"
    check = HttpCheck(LOCALHOST, port, PATIENT, scheme="https", host="as.example", ca_file=trusted)
    for name in ("first", "renewed"):
        (tmp_path / name).mkdir()
        key, certificate = make_certificate(tmp_path / name)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        certificate.replace(trusted)
        async with await asyncio.start_server(answer, "127.0.0.1", port, ssl=context):
            finding = await check.attempt()
            assert finding.life is Life.ALIVE, (name, finding.words)
    await check.close()


async def test_certificates_that_are_none_are_named(tmp_path: Path) -> None:
    (tmp_path / "none.pem").touch()
    for name, words in (
        ("none.pem", "it holds no certificates (PEM)"),
        ("no.pem", "No such file or directory"),
    ):
        check = HttpCheck(LOCALHOST, 443, PATIENT, scheme="https", ca_file=tmp_path / name)
        finding = await check.attempt()
        assert (finding.life, finding.words) == (Life.UNKNOWN, f"ca_file {tmp_path / name}: {words}")


async def test_a_sip_check_over_tcp_uses_a_new_connection_when_the_last_connection_ended(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with watching(SipOptionsCheck(LOCALHOST, port, PATIENT, "tcp")) as watcher:
        await watcher.until_state(CheckState.DOWN)
        assert watcher.last == f"nothing listens on TCP port {port}"
        with sipp(port, "t1") as server:
            await watcher.until_state(CheckState.UP)
            assert watcher.last == "OPTIONS answered 200 OK"
            server.kill()
            await watcher.until_state(CheckState.DOWN)
            assert watcher.last == f"nothing listens on TCP port {port}"
        with kamailio(port, tmp_path):
            await watcher.until_state(CheckState.UP)
            assert watcher.last == "OPTIONS answered 483 Too Many Hops"
            told = len(watcher.results)
            await watcher.until(lambda: len(watcher.results) > told + 5)
            assert watcher.machine.state is CheckState.UP


async def test_a_sip_server_that_hangs_over_tcp_is_down_until_it_goes_on() -> None:
    port = free_port()
    async with watching(SipOptionsCheck(LOCALHOST, port, TIMING, "tcp")) as watcher:
        with sipp(port, "t1") as server:
            await watcher.until_state(CheckState.UP)
            server.send_signal(signal.SIGSTOP)
            await watcher.until_state(CheckState.DOWN)
            assert watcher.last == f"no answer to OPTIONS on TCP port {port} within 250 ms"
            server.send_signal(signal.SIGCONT)
            await watcher.until_state(CheckState.UP)


@pytest.mark.parametrize("answer", [b"", b"x" * 100_000, b"HTTP/1.1 200 OK\r\n\r\n" * 100])
async def test_an_answer_that_is_no_sip_over_tcp_is_a_failure(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with watching(SipOptionsCheck(LOCALHOST, port, TIMING, "tcp")) as watcher:
            await watcher.until_state(CheckState.DOWN)
            assert watcher.results[-1].life is Life.SILENT


def response(sequence: int, body: bytes = b"") -> bytes:
    head = f"SIP/2.0 200 OK\r\nCall-ID: a\r\nCSeq: {sequence} OPTIONS\r\nl : {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("size", [1, 2, 7, 50, 100_000])
def test_a_stream_is_cut_into_responses_wherever_it_was_cut_before(size: int) -> None:
    data = response(1) + response(2, b"SIP/2.0 body\r\n\r\n") + b"\r\n\r\n" + response(3, b"x" * 5000)
    data += response(4)
    stream = ResponseStream()
    found = [response for at in range(0, len(data), size) for response in stream.feed(data[at : at + size])]
    assert [response.sequence for response in found] == [1, 2, 3, 4]
    assert not stream.is_garbage


def test_a_stream_without_end_is_given_up() -> None:
    stream = ResponseStream()
    for _ in range(40):
        assert stream.feed(b"x" * 1000) == []
    assert stream.is_garbage


class Stalling(PeriodicCheck):
    """Fails once, long after its timeout, as an attempt does when the agent itself stood still."""

    kind = "stalling"

    def __init__(self, stalls: int) -> None:
        super().__init__("nothing", Timing(interval_ms=10, timeout_ms=10, fall=1, rise=1))
        self._stalls = stalls

    async def attempt(self) -> Finding:
        if self._stalls:
            self._stalls -= 1
            await asyncio.sleep(0.5)
            return Finding(Life.UNWELL, "no answer in time")
        return Finding(Life.ALIVE, "answered")


async def test_a_timeout_while_the_agent_stood_still_is_not_the_servers() -> None:
    async with watching(Stalling(1)) as watcher:
        await watcher.until_state(CheckState.UP)
        assert {outcome.life for outcome in watcher.results} == {Life.ALIVE}
    async with watching(Stalling(5)) as watcher:  # but not for ever
        await watcher.until_state(CheckState.DOWN)
