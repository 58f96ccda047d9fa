"""The agent's state for Prometheus, over HTTP at /metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

from daemon_kit import metrics
from daemon_kit.addresses import ListenAddress
from daemon_kit.http_server import HttpServer, PageServer, one_page
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ppu_agent.gateway import COUNTERS as GATEWAY_COUNTERS
from ppu_agent.status_model import PpuStatus

ACTIONS: Final = ("redirect", "refuse", "repeat")
STATES: Final = ("out", "spared", "dead")
_CounterKey = Literal[
    "died_count",
    "returned_count",
    "connections_ended_count",
    "flows_moved_count",
    "relayed_count",
    "repeated_count",
    "answered_503_count",
]
_COUNTERS: Final[Mapping[_CounterKey, tuple[str, str]]] = {
    "died_count": ("ppu_agent_deaths", "How often a member was found dead."),
    "returned_count": ("ppu_agent_returns", "How often a dead member came back."),
    "connections_ended_count": (
        "ppu_agent_connections_ended",
        "TCP connections to dead members that were ended.",
    ),
    "flows_moved_count": (
        "ppu_agent_flows_moved",
        "Flows that were moved from a dead server to a living one.",
    ),
    "relayed_count": ("ppu_agent_relayed", "TCP connections that were relayed."),
    "repeated_count": ("ppu_agent_repeated", "SIP requests that were repeated to another server over TCP."),
    "answered_503_count": ("ppu_agent_answered_503", "SIP requests that were answered with 503."),
}


class PpuCollector(Collector):
    """Turns the answer of `status` into metrics."""

    def __init__(self, status: Callable[[], PpuStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        status = self._status()
        treated = GaugeMetricFamily(
            "ppu_agent_treated",
            "Servers (address and port) whose packets are redirected, refused, answered or relayed.",
            labels=["handle", "on_dead"],
        )
        members = GaugeMetricFamily(
            "ppu_agent_pool_members", "Living members of the pool.", labels=["handle"]
        )
        stale = GaugeMetricFamily(
            "ppu_agent_pool_stale", "1 while no registrar can be believed about the pool.", labels=["handle"]
        )
        for pool in status["pool"]:
            handle = pool["handle"]
            members.add_metric([handle], len(pool["members"]))
            stale.add_metric([handle], float(pool["stale_s"] is not None))
            for action in ACTIONS:
                count = sum(
                    server["handle"] == handle and server["on_dead"] == action for server in status["treated"]
                )
                treated.add_metric([handle, action], count)
        yield from (treated, members, stale)
        departed = GaugeMetricFamily(
            "ppu_agent_departed",
            "Servers (address and port) that left their pool, by state: out (being probed), spared, dead.",
            labels=["state"],
        )
        for state in STATES:
            departed.add_metric([state], sum(server["state"] == state for server in status["departed"]))
        yield departed
        up = GaugeMetricFamily(
            "ppu_agent_registrar_settled",
            "1 while the registrar is believed.",
            labels=["registrar", "handlespace"],
        )
        for registrar in status["registrars"]:
            labels = [registrar["address"], registrar["handlespace"]]
            up.add_metric(labels, float(registrar["standing"] == "settled"))
        yield up
        yield GaugeMetricFamily(
            "ppu_agent_suspended", "1 while the agent is suspended.", value=float(status["suspended"])
        )
        yield GaugeMetricFamily(
            "ppu_agent_kernel_refused",
            "1 while the kernel refuses the rules.",
            value=float(status["kernel"]["problem"] is not None),
        )
        yield GaugeMetricFamily(
            "ppu_agent_copies_refused",
            "1 while packets can't be copied: SIP requests over TCP that a dead server leaves get no 503.",
            value=float(status["kernel"]["copies_problem"] is not None),
        )
        for key, (name, words) in _COUNTERS.items():
            yield CounterMetricFamily(name, words, value=status[key])
        yield from gateway_metrics(status["gateway"])


def gateway_metrics(gateway: Mapping[str, Any] | None) -> Iterator[Metric]:
    """Yield the gateway's metrics; none without a gateway."""
    if gateway is None:
        return
    up = GaugeMetricFamily(
        "ppu_agent_gateway_attached",
        "1 while connection set-up through the interface is guarded.",
        labels=["interface"],
    )
    for interface in gateway["interfaces"]:
        up.add_metric([interface["name"]], float(interface["problem"] is None))
    yield up
    yield GaugeMetricFamily(
        "ppu_agent_gateway_pending", "Set-ups that wait for an answer now.", value=gateway["pending"]
    )
    yield GaugeMetricFamily(
        "ppu_agent_gateway_memory_bytes", "Memory of the gateway's tables.", value=gateway["memory_bytes"]
    )
    setups = CounterMetricFamily(
        "ppu_agent_gateway_setups",
        "Connection set-ups through the gateway, by event: guarded, answered, refused, given_up, full ...",
        labels=["event"],
    )
    for name in GATEWAY_COUNTERS:
        setups.add_metric([name], gateway[f"{name}_count"])
    yield setups


def make_server(address: ListenAddress, status: Callable[[], PpuStatus]) -> PageServer:
    """Return what answers GET /metrics at `address`, not started."""
    registry = metrics.registry(PpuCollector(status))

    def made() -> HttpServer:
        page = one_page("/metrics", metrics.CONTENT_TYPE, lambda: metrics.exposition(registry))
        return HttpServer(page, address)

    return PageServer(made, "metrics", "metrics.listen")
