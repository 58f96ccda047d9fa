"""The agent's state for Prometheus, over HTTP at /metrics.

Loaded only where it is wanted: prometheus-client and aiohttp take memory.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal

from daemon_kit import metrics
from daemon_kit.addresses import ListenAddress
from daemon_kit.http_server import HttpServer, PageServer, one_page
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ppe_agent.status_model import AgentStatus, ServerStatus

STATES: Final = ("in", "joining", "leaving", "drained", "held", "down", "unknown")

_CounterKey = Literal["fall_count", "missing_count", "moved_count", "rejected_count", "collision_count"]
_COUNTERS: Final[Mapping[_CounterKey, tuple[str, str]]] = {
    "fall_count": ("falls", "How often the server went from well to not well."),
    "missing_count": ("missing", "How often a registrar did not list the server though it should."),
    "moved_count": ("moves", "How often another registrar took over from the one before."),
    "rejected_count": ("rejections", "How often a registrar refused the server."),
    "collision_count": ("collisions", "How often another host was found to have the same PE identifier."),
}


class AgentCollector(Collector):
    """Turns the answer of `status` into metrics."""

    def __init__(self, status: Callable[[], AgentStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        status = self._status()
        yield from _server_metrics(status["as"])
        up = GaugeMetricFamily(
            "ppe_agent_registrar_up", "1 while the registrar can be asked.", labels=["registrar"]
        )
        trip = GaugeMetricFamily(
            "ppe_agent_registrar_round_trip_seconds",
            "Round trip of the last question to the registrar.",
            labels=["registrar"],
        )
        for registrar in status["registrars"]:
            up.add_metric([registrar["address"]], float(registrar["up"]))
            if registrar["round_trip_ms"] is not None:
                trip.add_metric([registrar["address"]], registrar["round_trip_ms"] / 1000)
        yield up
        yield trip
        loop = status["loop"]
        yield GaugeMetricFamily(
            "ppe_agent_loop_lag_seconds", "How late the agent's event loop is.", value=loop["lag_ms"] / 1000
        )
        yield CounterMetricFamily(
            "ppe_agent_loop_stalls", "How often the agent stood still.", value=loop["stall_count"]
        )
        yield GaugeMetricFamily(
            "ppe_agent_reload_refused",
            "1 while a changed configuration file is refused for its errors.",
            value=float(status["reload_problem"] is not None),
        )


def _server_metrics(servers: list[ServerStatus]) -> Iterator[Metric]:
    names = ["as", "handle"]
    state = GaugeMetricFamily(
        "ppe_agent_as_state", "1 for the state that the server is in.", labels=[*names, "state"]
    )
    load = GaugeMetricFamily(
        "ppe_agent_as_load", "The load that is reported to the registrar, 0 to 1.", labels=names
    )
    known = GaugeMetricFamily("ppe_agent_as_load_source_up", "1 while the load can be read.", labels=names)
    listed = GaugeMetricFamily("ppe_agent_as_listed_by", "How many registrars list the server.", labels=names)
    unsaved = GaugeMetricFamily(
        "ppe_agent_as_state_unsaved",
        "1 while the server's identifier and drain can't be written.",
        labels=names,
    )
    check_up = GaugeMetricFamily(
        "ppe_agent_check_up", "1 while the check passes.", labels=[*names, "type", "of"]
    )
    expiry = GaugeMetricFamily(
        "ppe_agent_check_certificate_expiry_timestamp_seconds",
        "When the certificate that the check saw last expires, in Unix time.",
        labels=[*names, "type", "of"],
    )
    counters = {
        key: CounterMetricFamily(f"ppe_agent_as_{name}", words, labels=names)
        for key, (name, words) in _COUNTERS.items()
    }
    for server in servers:
        labels = [server["name"], server["handle"]]
        for possible in STATES:
            state.add_metric([*labels, possible], float(server["state"] == possible))
        if server["load"] is not None:
            load.add_metric(labels, server["load"])
            known.add_metric(labels, float(server["load_problem"] is None))
        listed.add_metric(labels, len(server["listed_by"]))
        unsaved.add_metric(labels, float(server["state_problem"] is not None))
        for check in server["check"]:
            of_check = [*labels, check["type"], check["target"]]
            check_up.add_metric(of_check, float(check["state"] == "up"))
            if check["expires_at_s"] is not None:
                expiry.add_metric(of_check, check["expires_at_s"])
        for key, counter in counters.items():
            counter.add_metric(labels, server[key])
    yield from (state, load, known, listed, unsaved, check_up, expiry, *counters.values())


def make_server(address: ListenAddress, status: Callable[[], AgentStatus]) -> PageServer:
    """Return what answers GET /metrics at `address`, not started."""
    registry = metrics.registry(AgentCollector(status))

    def made() -> HttpServer:
        page = one_page("/metrics", metrics.CONTENT_TYPE, lambda: metrics.exposition(registry))
        return HttpServer(page, address)

    return PageServer(made, "metrics", "metrics.listen")
