"""The gateway's state for Prometheus, over HTTP at /metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from daemon_kit import metrics
from daemon_kit.addresses import ListenAddress
from daemon_kit.http_server import HttpServer, PageServer, one_page
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rspdns.gateway.status_model import GatewayStatus


class GatewayCollector(Collector):
    """Turns the answer of `status` into metrics."""

    def __init__(self, status: Callable[[], GatewayStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        status, labels = self._status(), ["upper_handle"]
        members = GaugeMetricFamily(
            "rspdns_gateway_members", "Servers of the cell that are in the pool.", labels=labels
        )
        load = GaugeMetricFamily(
            "rspdns_gateway_load", "Mean load of the cell's servers in the pool, 0 to 1.", labels=labels
        )
        registered = GaugeMetricFamily(
            "rspdns_gateway_registered", "1 while a registrar above has confirmed the element.", labels=labels
        )
        withheld = GaugeMetricFamily(
            "rspdns_gateway_withheld",
            "1 while nothing is offered above: no server is in, or no registrar of the cell vouches.",
            labels=labels,
        )
        reports = CounterMetricFamily(
            "rspdns_gateway_reports",
            "How often a load or capacity that had moved was told above.",
            labels=labels,
        )
        for pool in status["pool"]:
            handle = [pool["upper_handle"]]
            members.add_metric(handle, pool["members"])
            load.add_metric(handle, pool["load"] or 0.0)
            registered.add_metric(handle, float(pool["registered"]))
            withheld.add_metric(handle, float(pool["withheld"] is not None))
            reports.add_metric(handle, pool["reports"])
        yield from (members, load, registered, withheld, reports)
        settled = GaugeMetricFamily(
            "rspdns_gateway_registrar_settled",
            "1 while the registrar of the cell is believed.",
            labels=["registrar"],
        )
        for registrar in status["registrars"]:
            settled.add_metric([registrar["address"]], float(registrar["standing"] == "settled"))
        yield settled


def make_server(address: ListenAddress, status: Callable[[], GatewayStatus]) -> PageServer:
    """Return what answers GET /metrics at `address`, not started."""
    registry = metrics.registry(GatewayCollector(status))

    def made() -> HttpServer:
        page = one_page("/metrics", metrics.CONTENT_TYPE, lambda: metrics.exposition(registry))
        return HttpServer(page, address)

    return PageServer(made, "metrics", "metrics.listen")
