"""The agent's state for Prometheus, over HTTP at /metrics.

The HTTP here is the little that a scraper needs, in the agent's own loop: no thread, and not aiohttp's
server, which would cost more memory than all the rest.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from daemon_kit.errors import FatalError
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_MAX_HEAD_BYTES: Final = 8 * 1024
_MAX_CLIENTS: Final = 8
_TIMEOUT_S: Final = 5.0
STATES: Final = ("in", "joining", "leaving", "drained", "held", "down", "unknown")

_COUNTERS: Final = {
    "fall_count": ("falls", "How often the server went from well to not well."),
    "missing_count": ("missing", "How often a registrar did not list the server though it should."),
    "moved_count": ("moves", "How often another registrar took over from the one before."),
    "rejected_count": ("rejections", "How often a registrar refused the server."),
    "collision_count": ("collisions", "How often another host was found to have the same PE identifier."),
}


class AgentCollector(Collector):
    """Turns the answer of `status` into metrics."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        status = self._status()
        yield from _server_metrics(status["as"])
        up = GaugeMetricFamily(
            "ppe_agent_registrar_up", "1: the registrar can be asked.", labels=["registrar"]
        )
        trip = GaugeMetricFamily(
            "ppe_agent_registrar_round_trip_seconds", "Time of the last question.", labels=["registrar"]
        )
        for registrar in status["registrars"]:
            up.add_metric([registrar["address"]], float(registrar["up"]))
            if registrar["round_trip_ms"] is not None:
                trip.add_metric([registrar["address"]], registrar["round_trip_ms"] / 1000)
        yield up
        yield trip
        loop = status["loop"]
        yield GaugeMetricFamily(
            "ppe_agent_loop_lag_seconds", "How late the event loop is.", value=loop["lag_ms"] / 1000
        )
        yield CounterMetricFamily(
            "ppe_agent_loop_stalls", "How often the event loop stood still.", value=loop["stall_count"]
        )
        yield GaugeMetricFamily(
            "ppe_agent_reload_refused",
            "1: the configuration file has errors and was not taken.",
            value=float(status["reload_problem"] is not None),
        )


def _server_metrics(servers: list[dict[str, Any]]) -> Iterator[Metric]:
    names = ["as", "handle"]
    state = GaugeMetricFamily("ppe_agent_as_state", "1 for the state it is in.", labels=[*names, "state"])
    load = GaugeMetricFamily("ppe_agent_as_load", "The load as reported, 0 to 1.", labels=names)
    known = GaugeMetricFamily("ppe_agent_as_load_source_up", "1: the load source works.", labels=names)
    listed = GaugeMetricFamily("ppe_agent_as_listed_by", "So many registrars list it.", labels=names)
    check_up = GaugeMetricFamily("ppe_agent_check_up", "1: the check passes.", labels=[*names, "type", "of"])
    counters = {
        key: CounterMetricFamily(f"ppe_agent_as_{name}", words, labels=names)
        for key, (name, words) in _COUNTERS.items()
    }
    for server in servers:
        labels = [server["name"], server["handle"]]
        for one in STATES:
            state.add_metric([*labels, one], float(server["state"] == one))
        if server["load"] is not None:
            load.add_metric(labels, server["load"])
            known.add_metric(labels, float(server["load_problem"] is None))
        listed.add_metric(labels, len(server["listed_by"]))
        for check in server["check"]:
            check_up.add_metric([*labels, check["type"], check["target"]], float(check["state"] == "up"))
        for key, counter in counters.items():
            counter.add_metric(labels, server[key])
    yield from (state, load, known, listed, check_up, *counters.values())


class MetricsServer:
    """Answers GET /metrics at `host`:`port`."""

    def __init__(self, host: str, port: int, status: Callable[[], dict[str, Any]]) -> None:
        self._at = (host, port)
        self._registry = CollectorRegistry()
        self._registry.register(AgentCollector(status))
        ProcessCollector(registry=self._registry)
        self._server: asyncio.Server | None = None
        self._clients = 0

    async def start(self) -> None:
        """Listen. Raises FatalError when that can't be."""
        try:
            self._server = await asyncio.start_server(self._serve, *self._at, limit=_MAX_HEAD_BYTES)
        except OSError as error:
            where = f"{self._at[0]} port {self._at[1]}"
            raise FatalError(f"metrics can't be served at {where}: {error.strerror or error}") from None

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            with contextlib.suppress(
                OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
            ):
                async with asyncio.timeout(_TIMEOUT_S):
                    writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        finally:
            self._clients -= 1
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, path, *_ = [*head.split(b"\r\n", 1)[0].split(b" "), b"", b""]
        if self._clients > _MAX_CLIENTS:
            return _response("503 Service Unavailable", b"too many clients at once\n")
        if method != b"GET":
            return _response("405 Method Not Allowed", b"only GET\n")
        if path.split(b"?")[0] != b"/metrics":
            return _response("404 Not Found", b"it is /metrics\n")
        return _response("200 OK", generate_latest(self._registry))


def _response(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body
