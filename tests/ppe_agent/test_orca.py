"""The load source `orca` on grpcio's own server, and what a load report may hold."""

import struct
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ppe_agent.load_config import LoadConfig
from ppe_agent.load_sources import LoadSource, LoadUnknown, make_source, read_within
from ppe_agent.orca import reported
from ppe_agent.protocol_buffers import field
from pydantic import ValidationError

from tests.ppe_agent.servers import free_port, tcp_server
from tests.support.certificates import NAME, authority, certificate_of
from tests.support.grpc_server import GrpcServer, grpc_server

HERE = ip_address("127.0.0.1")


@pytest.fixture(scope="module")
def server() -> Iterator[GrpcServer]:
    with grpc_server() as made:
        yield made


@asynccontextmanager
async def source(port: int, **keys: object) -> AsyncIterator[LoadSource]:
    config = LoadConfig.model_validate({"source": "orca", **keys})
    made = make_source(config, HERE, port, "tcp")
    assert made is not None
    yield made
    await made.close()


async def load(port: int, **keys: object) -> float:
    async with source(port, **keys) as made:
        return await read_within(made, 5000)


async def problem(port: int, timeout_ms: int = 5000, **keys: Any) -> str:
    async with source(port, **keys) as made:
        with pytest.raises(LoadUnknown) as caught:
            await read_within(made, timeout_ms)
        return str(caught.value)


@pytest.mark.parametrize(
    ("report", "keys", "expected"),
    [
        ({"cpu_utilization": 0.25, "mem_utilization": 0.9}, {}, 0.25),
        ({"cpu_utilization": 0.25, "application_utilization": 0.5}, {}, 0.5),
        ({"cpu_utilization": 1.75}, {}, 1.0),
        ({"mem_utilization": 0.9}, {"field": "mem_utilization"}, 0.9),
        ({}, {"field": "cpu_utilization"}, 0.0),
        ({"rps_fractional": 30.0}, {"field": "rps_fractional", "capacity": 120}, 0.25),
        ({"eps": 2.0}, {"field": "eps", "capacity": 1}, 1.0),
        ({"utilization": {"gpu": 0.75, "disk": 0.1}}, {"field": "utilization.gpu"}, 0.75),
        ({"named_metrics": {"calls": 500.0}}, {"field": "named_metrics.calls", "capacity": 2000}, 0.25),
        ({"named_metrics": {"calls": 0.0}}, {"field": "named_metrics.calls"}, 0.0),
        (
            {"named_metrics": {"a.b c": 0.5}, "request_cost": {"a": 9.0}},
            {"field": "named_metrics.a.b c"},
            None,
        ),
    ],
)
async def test_number_of_the_report_is_the_load(
    server: GrpcServer, report: dict[str, Any], keys: dict[str, Any], expected: float | None
) -> None:
    server.loads.report = report
    if expected is None:
        with pytest.raises(ValidationError, match="a field of an ORCA load report"):
            await load(server.port, **keys)
    else:
        assert await load(server.port, **keys) == pytest.approx(expected)


async def test_each_reading_is_of_now_and_asks_for_a_report_each_second(server: GrpcServer) -> None:
    async with source(server.port) as made:
        for expected in (0.1, 0.9, 0.4):
            server.loads.report = {"cpu_utilization": expected}
            assert await read_within(made, 5000) == pytest.approx(expected)
    assert server.loads.intervals_s[-3:] == [1.0, 1.0, 1.0]


async def test_report_without_the_number_is_unknown_and_says_which(server: GrpcServer) -> None:
    server.loads.report = {"mem_utilization": 0.5, "named_metrics": {"calls": 3.0}}
    assert await problem(server.port) == (
        "ORCA: the report has no application_utilization, nor cpu_utilization"
    )
    words = "ORCA: the report has no utilization.gpu"
    assert await problem(server.port, field="utilization.gpu") == words
    assert "from 0 to 1" in await problem(server.port, field="named_metrics.calls")


async def test_server_without_reports_and_without_an_answer_say_so() -> None:
    with grpc_server(has_services=False) as bare:
        words = "it has no load reports (xds.service.orca.v3.OpenRcaService)"
        assert await problem(bare.port) == words
    port = free_port()
    assert await problem(port) == f"ORCA: nothing listens on port {port}"
    with tcp_server(port):
        assert "within 200 ms" in await problem(port, timeout_ms=200)
        assert "within 100 ms" in await problem(port, 100)


async def test_server_over_tls_is_asked_by_name(tmp_path: Path) -> None:
    files = certificate_of(tmp_path, authority(tmp_path, "ca"), 50)
    trusted: dict[str, Any] = {"tls": True, "ca_file": str(tmp_path / "ca.pem")}
    with grpc_server(files) as made:
        made.loads.report = {"cpu_utilization": 0.5}
        assert await load(made.port, host=NAME, **trusted) == 0.5
        assert "certificate is refused" in await problem(made.port, host="other.example", **trusted)


async def test_missing_library_is_named(server: GrpcServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ppe_agent.grpc_call", raising=False)
    monkeypatch.setitem(sys.modules, "h2", None)
    monkeypatch.setitem(sys.modules, "h2.config", None)
    assert "the Python package h2 is missing" in await problem(server.port)


@pytest.mark.parametrize("keys", [{"metric": "x"}, {"field": "rps"}, {"field": "named_metrics."}])
def test_key_that_is_wrong_for_it_is_refused(keys: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        LoadConfig.model_validate({"source": "orca", **keys})


@given(st.binary(max_size=200), st.sampled_from([None, "eps", "named_metrics.a"]))
def test_any_bytes_are_a_number_or_no_report(data: bytes, name: str | None) -> None:
    try:
        number = reported(data, name)
    except ValueError:
        return
    assert number is None or isinstance(number, float)


def test_number_that_is_none_and_field_of_another_type_are_no_report() -> None:
    of_double = bytes([1 << 3 | 1])
    for message in (of_double + struct.pack("<d", float("nan")), field(1, 7), of_double + b"1234"):
        with pytest.raises(ValueError, match=r"number|double|end"):
            reported(message, "cpu_utilization")
