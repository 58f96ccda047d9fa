"""DNS Push Notifications over TLS, beside a control socket that answers as the backend's does."""

import asyncio
import contextlib
import resource
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from daemon_kit.errors import FatalError
from rspdns.news.push import server
from rspdns.next_records import KEPT
from structlog.testing import capture_logs

from tests.backend.making import ZONE, member
from tests.backend.push_client import RETRY_DELAY, dso, keepalive, subscribe
from tests.backend.push_served import OWNER, Served
from tests.support.certificates import certificate_of
from tests.support.waiting import until_async


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(server, "END_WITHIN_S", 0.5)
    made = Served(tmp_path, sessions=2, sessions_per_address=3)
    made.backend.members(member(1), member(2))
    await made.start()
    try:
        yield made
    finally:
        made.stop.set()
        if made.running is not None:
            await asyncio.gather(made.running, return_exceptions=True)
        await made.backend.stop()


async def test_records_of_now_and_each_change_reach_a_client_as_dns_answers_them(served: Served) -> None:
    client = await served.connect()
    await client.say(keepalive(1), subscribe(2, OWNER, "SRV"), subscribe(3, f"00000002.u.as.{ZONE}", "ANY"))
    assert [(await client.hear()).identifier for _ in range(2)] == [1, 2]
    push = await client.hear()
    targets = {text.split()[3] for *_, text in push.changes}
    assert targets == {f"0000000{number}.u.as.{ZONE}." for number in (1, 2)}
    assert (await client.hear()).identifier == 3
    assert (await client.hear()).changes == [(f"00000002.u.as.{ZONE}", "A", 1, "10.0.0.2")]
    served.backend.members(member(1))
    push = await client.hear()
    assert sorted((name, kind) for name, kind, ttl, _ in push.changes if ttl > 2**31) == [
        (f"00000002.u.as.{ZONE}", "A"),
        (OWNER, "SRV"),
    ]
    await client.say(
        subscribe(4, f"_dns-push-tls._tcp.{ZONE}", "SRV"),
        subscribe(5, f"a.sub.{ZONE}", "A"),
        subscribe(6, "example.org", "A"),
        subscribe(7, ZONE, "SOA"),
    )
    told = [await client.hear() for _ in range(6)]
    assert [(each.identifier, each.rcode) for each in told] == [
        (4, 0),
        (0, 0),
        (5, 9),
        (6, 9),
        (7, 0),
        (0, 0),
    ]
    served.backend.members(member(1), member(3))
    kinds = {kind for _, kind, _, _ in (await client.hear()).changes}
    assert kinds == {"SRV", "SOA"}


async def test_client_goes_on_after_a_restart_of_the_backend_and_hears_what_changed(served: Served) -> None:
    client = await served.connect()
    await client.say(subscribe(2, OWNER, "SRV"))
    await client.hear()
    await client.hear()
    await served.backend.stop()
    await client.say(subscribe(3, f"as.{ZONE}", "A"))
    assert (await client.hear()).rcode == 2, "nobody can be asked"
    await served.backend.restart()
    for number in range(KEPT + 2):
        served.backend.members(member(1), *([member(2)] if number % 2 else []))
    served.backend.members(member(2))
    push = await client.hear()
    while not any(ttl > 2**31 and "00000001" in text for _, _, ttl, text in push.changes):
        push = await client.hear()


async def test_too_many_clients_are_told_to_come_again_and_more_are_closed(served: Served) -> None:
    with capture_logs() as lines:
        first, second, surplus = [await served.connect() for _ in range(3)]
        for client in (first, second):
            await client.say(keepalive(1))
            await client.hear()
        await surplus.say(keepalive(1))
        assert [(await surplus.hear()).rcode for _ in range(2)] == [0, 2]
        with pytest.raises((OSError, ssl.SSLError)):
            await served.connect()
    [told] = [line for line in lines if line["event"] == "push_refused"]
    assert (told["limit"], told["most"]) == ("news.push.sessions", 2), "told once a minute"
    surplus.writer.close()
    await until_async(lambda: "2 push clients" in served.server.status, told=lambda: served.server.status)
    await (await served.connect()).say(keepalive(1))


async def test_rule_breaker_is_reset_and_others_are_told_of_the_end(served: Served) -> None:
    breaker, client = await served.connect(), await served.connect()
    await breaker.say(dso(0, (0xF801, b"")))
    with contextlib.suppress(OSError):  # a reset, which TLS may tell as the end
        assert await breaker.reader.read() == b""
    await client.say(subscribe(1, OWNER, "SRV"))
    await client.hear()
    await client.hear()
    ending = asyncio.create_task(served.end())
    told = await client.hear()
    assert (told.identifier, told.rcode) == (0, 0)
    assert 1000 <= told.value(RETRY_DELAY)[0] <= server.LATEST_RETURN_MS
    client.writer.close()
    await ending


async def test_client_that_does_not_read_is_cut_off_and_costs_little(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "UNREAD_S", 0.5)
    loop = asyncio.get_running_loop()
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    await loop.sock_connect(raw, ("127.0.0.1", served.port))
    reader, writer = await asyncio.open_connection(sock=raw, ssl=served.tls, server_hostname="127.0.0.1")
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    del reader
    question = struct.pack(">HHHHHHH", 12, 3, 5 << 11, 0, 0, 0, 0)
    for _ in range(300):
        writer.write(question * 100)
        await asyncio.sleep(0)
    await until_async(lambda: "0 push clients" in served.server.status, told=lambda: served.server.status)
    writer.transport.abort()


async def test_certificate_that_was_renewed_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LOOK_FOR_CERTIFICATE_S", 0.05)
    served = Served(tmp_path)
    await served.start()
    try:
        before = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", served.port))
        certificate_of(tmp_path, tmp_path / "ca.pem", 30)

        async def shown() -> bool:
            now = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", served.port))
            return now != before

        await until_async(shown)
    finally:
        await served.end()
        await served.backend.stop()


async def test_more_sessions_than_files_are_told(tmp_path: Path) -> None:
    served = Served(tmp_path, sessions=10_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
        with pytest.raises(FatalError, match=r"news\.push\.sessions: 10000 sessions need 10300 open files"):
            await served.server.run(asyncio.Event())


async def test_address_that_is_taken_is_told(tmp_path: Path) -> None:
    served = Served(tmp_path)
    words = r"news\.push\.listen: can't listen at 127\.0\.0\.1:"
    with socket.create_server(("127.0.0.1", served.port)), pytest.raises(FatalError, match=words):
        await served.server.run(asyncio.Event())
