"""Writes the Grafana dashboard: python packaging/dashboard.py >backend/examples/grafana-dashboard.json

A test holds the file and this program together, and every metric in it against those of the services.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
CHOSEN = 'instance=~"$instance"'
POOL = f'{CHOSEN}, owner=~"$owner"'
SIDECAR = 'instance=~"$sidecar"'
COLUMNS = 24
"""The columns of Grafana's grid."""


class Panel(NamedTuple):
    """One panel: `queries` are pairs of an expression and its legend."""

    title: str
    queries: Sequence[tuple[str, str]]
    kind: str = "timeseries"
    unit: str = "none"
    width: int = 8
    height: int = 7
    why: str = ""
    low_is_bad: float | None = None
    """Below it a number is red, above it green."""


ROWS: Sequence[tuple[str, Sequence[Panel]]] = (
    (
        "Is all well",
        (
            Panel("Name servers that answer", [(f"sum(up{{job=\"rspdns\", {CHOSEN}}})", "")], "stat", width=4, height=4, low_is_bad=1),
            Panel("Servers in", [(f'sum by (owner) (max by (owner, instance) (rspdns_pool_members{{{POOL}, state="in"}}))', "{{owner}}")], "stat", width=8, height=4, low_is_bad=1),
            Panel("Registrars settled", [(f'min(sum by (instance) (rspdns_registrar_standing{{{CHOSEN}, standing="settled"}}))', "")], "stat", width=4, height=4, why="the least that any name server sees", low_is_bad=2),
            Panel("Pools served from memory", [(f"sum(rspdns_pool_stale_seconds{{{CHOSEN}}} > bool 0)", "")], "stat", width=4, height=4),
            Panel("Problems told by status", [(f"sum(rspdns_problems{{{CHOSEN}}})", "")], "stat", width=4, height=4),
        ),
    ),
    (
        "Pools",
        (
            Panel("In, and missing", [(f'rspdns_pool_members{{{POOL}, state="in"}}', "{{owner}} in ({{instance}})"), (f"rspdns_pool_missing_members{{{POOL}}}", "{{owner}} missing ({{instance}})")]),
            Panel("Load", [(f"rspdns_member_load_ratio{{{POOL}}}", "{{name}} {{address}}")], unit="percentunit"),
            Panel("Weight in the SRV records", [(f"rspdns_member_weight{{{POOL}}}", "{{name}} {{address}}")]),
            Panel("Changes", [(f"sum by (kind) (rate(rspdns_changes_total{{{CHOSEN}}}[5m]))", "{{kind}}")], unit="ops"),
            Panel("From a change to PowerDNS", [(f"histogram_quantile({share}, sum by (le) (rate(rspdns_convergence_seconds_bucket{{{CHOSEN}}}[10m])))", label) for share, label in ((0.5, "half of them"), (0.95, "95 %"))], unit="s", why="from the moment the backend knew until every PowerDNS confirmed the purge"),
            Panel("Refused registrations", [(f"sum by (owner, reason) (rate(rspdns_pool_refused_total{{{POOL}}}[5m]))", "{{owner}} {{reason}}")], unit="ops"),
        ),
    ),
    (
        "Registrars",
        (
            Panel("How they are believed", [(f"rspdns_registrar_standing{{{CHOSEN}}} == 1", "{{number}} {{address}} {{standing}} ({{instance}})")]),
            Panel("Round trip", [(f"rspdns_registrar_round_trip_seconds{{{CHOSEN}}}", "{{number}} {{address}} ({{instance}})")], unit="s"),
            Panel("Changes are pushed", [(f"rspdns_registrar_pushes{{{CHOSEN}}}", "{{number}} {{address}} ({{instance}})")]),
        ),
    ),
    (
        "PowerDNS",
        (
            Panel("Questions to the backend", [(f"sum by (instance, method) (rate(rspdns_queries_total{{{CHOSEN}}}[1m]))", "{{method}} ({{instance}})")], unit="reqps", why="PowerDNS's caches answer all others"),
            Panel("Questions that failed", [(f"sum by (instance) (rate(rspdns_query_failures_total{{{CHOSEN}}}[5m]))", "{{instance}}")], unit="reqps"),
            Panel("Purges", [(f"sum by (instance) (rate(rspdns_purged_names_total{{{CHOSEN}}}[5m]))", "names ({{instance}})"), (f"sum by (instance) (rate(rspdns_purge_failures_total{{{CHOSEN}}}[5m]))", "failed ({{instance}})")], unit="ops"),
        ),
    ),
    (
        "Sidecars of servers",
        (
            Panel("Servers by state", [(f"sum by (state) (ppe_agent_as_state{{{SIDECAR}}} == 1)", "{{state}}")]),
            Panel("Not in their pool", [(f'max by (instance, as, state) (ppe_agent_as_state{{{SIDECAR}, state!="in"}}) == 1', "{{as}} {{state}} ({{instance}})")], why="drained, held back, down, joining or leaving"),
            Panel("Load as reported", [(f"ppe_agent_as_load{{{SIDECAR}}}", "{{as}} ({{instance}})")], unit="percentunit"),
            Panel("Checks that fail", [(f"ppe_agent_check_up{{{SIDECAR}}} == 0", "{{as}} {{type}} {{of}} ({{instance}})")]),
            Panel("Falls, and registrations that were missing", [(f"sum by (as) (increase(ppe_agent_as_falls_total{{{SIDECAR}}}[10m]))", "{{as}} fell"), (f"sum by (as) (increase(ppe_agent_as_missing_total{{{SIDECAR}}}[10m]))", "{{as}} missing at a registrar")], why="in ten minutes"),
            Panel("How late the sidecar is", [(f"ppe_agent_loop_lag_seconds{{{SIDECAR}}}", "{{instance}}")], unit="s", why="one that stands still loses its servers to the registrars' keep-alives"),
        ),
    ),
    (
        "Sidecars of clients",
        (
            Panel("Dead servers whose packets are treated", [("sum by (handle, on_dead) (ppu_agent_treated)", "{{handle}} {{on_dead}}")]),
            Panel("Actions", [("sum(rate(ppu_agent_connections_ended_total[5m]))", "connections ended"), ("sum(rate(ppu_agent_flows_moved_total[5m]))", "flows moved"), ("sum(rate(ppu_agent_answered_503_total[5m]))", "answered with 503")], unit="ops"),
            Panel("Registrars believed", [("sum by (instance) (ppu_agent_registrar_settled)", "{{instance}}")]),
        ),
    ),
    (
        "Fast path",
        (
            Panel("Questions, by what became of them", [(f"sum by (decision) (rate(rspdns_fastpath_decisions_total{{{CHOSEN}}}[1m]))", "{{decision}}")], unit="reqps", why="where rspdns-fastpath answers from the kernel"),
            Panel("Answered by the kernel", [(f"topk(8, sum by (name, type) (rate(rspdns_fastpath_answered_total{{{CHOSEN}}}[1m])))", "{{name}} {{type}}")], unit="reqps", why="the names asked about most"),
            Panel("Ready answers, and names without room", [(f"rspdns_fastpath_names{{{CHOSEN}}}", "ready ({{instance}})"), (f"rate(rspdns_fastpath_refused_names_total{{{CHOSEN}}}[5m])", "no room ({{instance}})")]),
        ),
    ),
)  # fmt: skip


def _panels() -> Iterator[dict[str, Any]]:
    top = 0
    number = 1
    for title, panels in ROWS:
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top},
        }
        number, top, left, lowest = number + 1, top + 1, 0, 0
        for panel in panels:
            if left + panel.width > COLUMNS:
                left, top, lowest = 0, top + lowest, 0
            position = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            yield _panel(panel, number, position)
            number, left, lowest = number + 1, left + panel.width, max(lowest, panel.height)
        top += lowest


def _panel(panel: Panel, number: int, position: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.low_is_bad is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.low_is_bad}]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.why,
        "datasource": SOURCE,
        "gridPos": position,
        "targets": [
            {"datasource": SOURCE, "expr": expression, "legendFormat": legend, "refId": chr(ord("A") + index)}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": {},
    }


def _choice(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "title": "rspdns",
        "uid": "rspdns",
        "description": "Pools, registrars and PowerDNS as each name server's backend sees them; the sidecars",
        "tags": ["dns", "rspdns"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                _choice("instance", "Name server", "label_values(rspdns_uptime_seconds, instance)"),
                _choice("owner", "Pool", "label_values(rspdns_pool_known, owner)"),
                _choice("sidecar", "Sidecar", "label_values(ppe_agent_as_state, instance)"),
            ]
        },
        "panels": list(_panels()),
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=1))
