"""The sources of the load: every source against something real, and its words when there is none."""

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from ppe_agent.load_config import LoadConfig
from ppe_agent.load_sources import (
    FileLoad,
    HttpJsonLoad,
    LoadSource,
    LoadUnknown,
    PrometheusLoad,
    follow,
    make_source,
    read_within,
    scaled,
)

from tests.ppe_agent.servers import free_port, http_server

LOCALHOST = ip_address("127.0.0.1")


@contextlib.asynccontextmanager
async def source(**settings: Any) -> AsyncIterator[LoadSource]:
    config = LoadConfig.model_validate(settings)
    made = make_source(config, LOCALHOST, 5060, "udp")
    assert made is not None
    try:
        yield made
    finally:
        await made.close()


async def problem_of(of: LoadSource, timeout_ms: int = 5000) -> str:
    with pytest.raises(LoadUnknown) as caught:
        await read_within(of, timeout_ms)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["cpu", "load-average"])
async def test_load_of_this_host_is_read(kind: str) -> None:
    async with source(source=kind) as load:
        for _ in range(3):
            assert 0 <= await load.read() <= 1


async def test_a_load_is_read_from_a_file_against_a_capacity(tmp_path: Path) -> None:
    file = tmp_path / "load"
    file.write_text("0.25\n")
    async with source(source="file", path=str(file)) as load:
        assert await load.read() == 0.25
    file.write_text("30")
    async with source(source="file", path=str(file), capacity=120) as load:
        assert await load.read() == 0.25


@pytest.mark.parametrize("text", ["", "high", "-0.1", "1.1", "nan", "inf", "0.5 0.6", "\xff"])
async def test_a_file_without_a_load_is_an_unknown_load(tmp_path: Path, text: str) -> None:
    (tmp_path / "load").write_text(text)
    with pytest.raises(LoadUnknown, match="holds no number from 0 to 1"):
        await FileLoad(tmp_path / "load", 10_000).read()


async def test_files_that_are_missing_old_or_no_files(tmp_path: Path) -> None:
    with pytest.raises(LoadUnknown, match="No such file"):
        await FileLoad(tmp_path / "absent", 10_000).read()
    old = tmp_path / "old"
    old.write_text("0.5")
    os.utime(old, (time.time() - 60, time.time() - 60))
    with pytest.raises(LoadUnknown, match="was not written for 1 min 0 s"):
        await FileLoad(old, 10_000).read()
    os.utime(old, (time.time() + 61, time.time() + 61))
    with pytest.raises(LoadUnknown, match=r"was written 1 min [01] s from now: the clock was set back"):
        await FileLoad(old, 10_000).read()
    os.utime(old, (time.time() + 5, time.time() + 5))  # another host's clock
    assert await FileLoad(old, 10_000).read() == 0.5
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LoadUnknown, match="no ordinary file"):  # and the agent must not hang on it
        await FileLoad(tmp_path / "pipe", 10_000).read()


async def test_a_load_is_read_from_a_command_or_its_failure_is_told() -> None:
    async with source(source="exec", command=["/bin/echo", "0.5"]) as load:
        assert await load.read() == 0.5
    async with source(source="exec", command=["/bin/sh", "-c", "echo 50 calls"], capacity=100) as load:
        assert await problem_of(load) == "sh holds no number from 0 on"
    async with source(source="exec", command=["/bin/sh", "-c", "echo broken; exit 3"]) as load:
        assert await problem_of(load) == "sh ended with 3: broken"
    async with source(source="exec", command=["/absent"]) as load:
        assert await problem_of(load) == "/absent can't be run: No such file or directory"
    async with source(source="exec", command=["/bin/sleep", "60"], timeout_ms=100) as load:
        assert await problem_of(load, 100) == "no answer within 100 ms"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A plain web server, and the directory it serves."""
    port = free_port()
    with http_server(port, tmp_path):
        yield port, tmp_path


METRICS = """\
# HELP calls Calls going on.
# TYPE calls gauge
calls{kind="in"} 30
calls{kind="out"} 20
calls_total 900
broken{kind="x} 3
"""


async def test_a_load_is_read_from_json_by_a_pointer_or_its_failure_is_told(web: tuple[int, Path]) -> None:
    port, directory = web
    (directory / "stats").write_text(json.dumps({"calls": [{"now": 30, "a/b": "0.5"}], "high": True}))
    url = f"http://127.0.0.1:{port}/stats"
    async with source(source="http-json", url=url, pointer="/calls/0/now", capacity=60) as load:
        assert await load.read() == 0.5
        assert await load.read() == 0.5  # over the same connection, or a new one
    async with source(source="http-json", url=url, pointer="/calls/0/a~1b") as load:
        assert await load.read() == 0.5
    async with source(source="http-json", url=url, pointer="/calls/7") as load:
        assert await problem_of(load) == f"{url} has nothing at /calls/7"
    async with source(source="http-json", url=url, pointer="/high") as load:
        assert await problem_of(load) == f"{url} holds no number from 0 to 1"
    async with source(source="http-json", url=url[:-1], pointer="/high") as load:
        assert await problem_of(load) == f"{url[:-1]} answered 404"
    (directory / "stats").write_text("{")
    async with source(source="http-json", url=url, pointer="/high") as load:
        assert await problem_of(load) == f"{url} answers no JSON"


async def test_a_page_nobody_serves() -> None:
    url = f"http://127.0.0.1:{free_port()}/stats"
    async with source(source="http-json", url=url, pointer="") as load:
        assert await problem_of(load) == f"{url}: Connection refused"


async def test_a_load_is_read_from_a_prometheus_metric_or_its_failure_is_told(web: tuple[int, Path]) -> None:
    port, directory = web
    (directory / "metrics").write_text(METRICS)
    url = f"http://127.0.0.1:{port}/metrics"
    async with source(source="prometheus", url=url, metric="calls", capacity=100) as load:
        assert await load.read() == 0.5
    async with source(
        source="prometheus", url=url, metric="calls", labels={"kind": "in"}, capacity=100
    ) as load:
        assert await load.read() == 0.3
    async with source(source="prometheus", url=url, metric="call") as load:
        assert await problem_of(load) == f"{url} has no metric call"
    async with source(source="prometheus", url=url, metric="calls", labels={"kind": "x"}) as load:
        assert await problem_of(load) == f"{url} has no metric calls with these labels"
    async with source(source="prometheus", url=url, metric="broken") as load:
        assert await problem_of(load) == f"{url} answers no Prometheus metrics"


@pytest.mark.parametrize(
    "page",
    [
        b"calls 1\n" * (1024 * 1024 // 8),
        b'calls{kind="' + b'\\"' * (512 * 1024 - 20) + b'"} 1\n',
        b"\n".join(b'calls{id="%d"} 1' % number for number in range(20_000)),
    ],
)
def test_a_page_full_of_the_metric_does_not_hold_up_the_agent(page: bytes) -> None:
    started_s = time.thread_time()
    with pytest.raises(LoadUnknown, match=r"^page has more than 64 KiB of calls$"):
        PrometheusLoad("page", "calls", {}, None).read_value(page)
    assert time.thread_time() - started_s < 3  # of the processor; it was 10 s


def test_long_pages_with_little_of_the_metric_are_read() -> None:
    page = (
        b"other 1\n" * 60_000 + b'calls{kind="a\xe2\x80\xa8b"} 2\r\ncalls\t3\n' + b"calls_total 1\n" * 30_000
    )
    assert PrometheusLoad("page", "calls", {}, None).read_value(page) == 5


@pytest.mark.parametrize("page", [b"[" * 1_000_000, b'{"a":' * 200_000, b"[" + b"1" * 1_000_000 + b"]"])
def test_hostile_json_is_refused(page: bytes) -> None:
    with pytest.raises(LoadUnknown, match=r"^page answers no JSON$"):
        HttpJsonLoad("page", "/0", None).read_value(page)


async def test_a_web_server_that_is_not_there_or_silent() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    async with source(source="http-json", url=url, pointer="") as load:
        assert "Connection refused" in await problem_of(load)
        with socket.create_server(("127.0.0.1", port)):
            assert await problem_of(load, 200) == "no answer within 200 ms"


class Counting(asyncio.DatagramProtocol):
    """Answers OPTIONS with the number of its calls in a header."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        answer = data.split(b"\r\n", 1)[1].replace(b"\r\n\r\n", b"\r\nX-Calls: 30;max=100\r\n\r\n")
        self.transport.sendto(b"SIP/2.0 200 OK\r\n" + answer, addr)


async def test_calls_in_a_sip_header() -> None:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        Counting, local_addr=("127.0.0.1", 0)
    )
    try:
        port = transport.get_extra_info("sockname")[1]
        async with source(source="sip-options", header="x-calls", port=port, capacity=120) as load:
            assert await load.read() == 0.25
        async with source(source="sip-options", header="Calls", port=port, capacity=120) as load:
            assert await problem_of(load) == "OPTIONS answered 200 OK, without a number in Calls"
    finally:
        transport.close()
    await asyncio.sleep(0.1)  # the socket is closed in the loop's next turn
    async with source(source="sip-options", header="Calls", port=port, capacity=120) as load:
        assert await problem_of(load) == f"OPTIONS to port {port}: Connection refused"


@pytest.mark.parametrize(
    ("value", "capacity", "load"), [(3, 12, 0.25), ("7.5", 10, 0.75), (40, 10, 1.0), (0.5, None, 0.5)]
)
def test_a_number_is_divided_by_the_capacity(value: object, capacity: float | None, load: float) -> None:
    assert scaled(value, capacity, "it") == load


@pytest.mark.parametrize("value", [None, True, [], {}, "", "x", -1, float("nan"), float("inf"), 10**400])
def test_a_load_that_is_no_number_is_unknown(value: object) -> None:
    for capacity in (None, 10.0):
        with pytest.raises(LoadUnknown):
            scaled(value, capacity, "it")


def test_json_pointers_lead_where_the_rfc_says() -> None:
    document = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "m~n": 8, " ": 7}
    expected = {"": document, "/foo/0": "bar", "/": 0, "/a~1b": 1, "/m~0n": 8, "/ ": 7}
    for pointer, value in expected.items():
        assert follow(document, pointer) == value
    for absent in ("/foo/2", "/foo/-", "/foo/00", "/foo/x", "/nope", "/foo/0/x"):
        with pytest.raises(LookupError):
            follow(document, absent)
