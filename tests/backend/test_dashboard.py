"""The Grafana dashboard and the recording rules: about metrics there are, in expressions Prometheus takes."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.backend.exposed_metrics import exposed_by_all, promtool

TOP = Path(__file__).resolve().parents[2]
DASHBOARD = TOP / "backend" / "examples" / "grafana-dashboard.json"
RECORDING = TOP / "backend" / "examples" / "recording.yml"
METRIC = re.compile(r"\b(?:rspdns|ppe_agent|ppu_agent)_[a-z_0-9]+")
RECORDED = """
rule_files: [{rules}]
evaluation_interval: 10s
tests:
  - interval: 10s
    input_series:
      - series: 'rspdns_pool_members{{instance="a", owner="o", state="in"}}'
        values: '3x30'
      - series: 'rspdns_pool_members{{instance="a", owner="o", state="out"}}'
        values: '1x30'
      - series: 'rspdns_pool_expected_members{{instance="a", owner="o"}}'
        values: '4x30'
      - series: 'rspdns_pool_expected_members{{instance="a", owner="nobody"}}'
        values: '0x30'
      - series: 'rspdns_queries_total{{instance="a", method="lookup"}}'
        values: '0+100x30'
      - series: 'rspdns_query_failures_total{{instance="a"}}'
        values: '0+5x30'
      - series: 'rspdns_registrar_standing{{instance="a", number="1", standing="settled"}}'
        values: '1x30'
      - series: 'rspdns_registrar_standing{{instance="a", number="2", standing="settled"}}'
        values: '0x30'
    promql_expr_test:
      - expr: rspdns:pool_in:ratio
        eval_time: 5m
        exp_samples: [{{labels: 'rspdns:pool_in:ratio{{instance="a", owner="o"}}', value: 0.75}}]
      - expr: rspdns:queries:rate1m
        eval_time: 5m
        exp_samples: [{{labels: 'rspdns:queries:rate1m{{instance="a"}}', value: 10}}]
      - expr: rspdns:query_failures:ratio_rate5m
        eval_time: 5m
        exp_samples: [{{labels: 'rspdns:query_failures:ratio_rate5m{{instance="a"}}', value: 0.05}}]
      - expr: rspdns:registrars_settled:count
        eval_time: 5m
        exp_samples: [{{labels: 'rspdns:registrars_settled:count{{instance="a"}}', value: 1}}]
"""


def expressions() -> list[str]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_the_dashboard_is_as_its_program_writes_it() -> None:
    command = [sys.executable, "packaging/dashboard.py"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == DASHBOARD.read_text(), (
        "python packaging/dashboard.py >backend/examples/grafana-dashboard.json"
    )


def test_dashboard_and_recording_rules_are_about_metrics_there_are() -> None:
    there = set(re.findall(r"^([a-z_0-9]+)[{ ]", exposed_by_all(), re.MULTILINE))
    used = set(METRIC.findall(DASHBOARD.read_text() + RECORDING.read_text()))
    assert {name.partition("_")[0] for name in used} == {"rspdns", "ppe", "ppu"}
    assert len(used) >= 30
    assert used <= there


def test_no_panel_covers_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_prometheus_takes_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    found = expressions()
    assert len(found) >= 15
    rules = [
        {
            "record": f"rspdns:dashboard:{number}",
            "expr": expression.replace("$instance", ".*").replace("$owner", ".*").replace("$sidecar", ".*"),
        }
        for number, expression in enumerate(found)
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = promtool("check", "rules", str(file))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_promtool_takes_the_recording_rules_and_they_say_what_they_should(tmp_path: Path) -> None:
    checked = promtool("check", "rules", str(RECORDING))
    assert checked.returncode == 0, checked.stderr
    scenario = tmp_path / "scenario.yml"
    scenario.write_text(RECORDED.format(rules=RECORDING))
    tested = promtool("test", "rules", str(scenario))
    assert tested.returncode == 0, tested.stdout + tested.stderr
