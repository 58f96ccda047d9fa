"""The example alert rules: right for promtool, about metrics there are, and they fire when they should."""

import json
import re
from dataclasses import replace
from pathlib import Path

from tests.backend.exposed_metrics import POOL, exposed, exposed_by_all, promtool
from tests.backend.statuses import (
    OWNER,
    out_status,
)

RULES = Path(__file__).resolve().parents[2] / "backend" / "examples" / "alerts.yml"


def test_promtool_finds_nothing_wrong_with_our_metrics() -> None:
    done = promtool("check", "metrics", text=exposed())
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        'rspdns_member_weight{address="[2001:db8::1]:5060",member="0000000a",name="sip-1",'
        f'owner="{OWNER}"}} 500.0' in exposed()
    )


def test_a_server_that_changed_to_another_handle_of_its_pool_has_one_series() -> None:
    """It is in by one of them and still listed as out of the other: two values of one series are none."""
    left = out_status(name="sip-1", identifier="0000000a", address="2001:db8::1")
    other = out_status(name="sip-1", identifier="0000000b", address=None)
    said = exposed(replace(POOL, out=[left, other]))
    series = re.findall(r"^(rspdns_member_in.*\}) (.*)$", said, re.MULTILINE)
    assert [value for _, value in series] == ["1.0", "0.0"]
    assert len(dict(series)) == 2


def test_a_server_that_registered_anew_has_one_series() -> None:
    """For a minute it is out under its former identifier, too."""
    former = out_status(name="sip-1", identifier="0000000b", address="2001:db8::1")
    elsewhere = out_status(name="sip-2", identifier="0000000c", address="2001:db8::2")
    said = exposed(replace(POOL, out=[former, elsewhere]))
    series = re.findall(r'^rspdns_member_in\{.*name="(.*?)".*\} (.*)$', said, re.MULTILINE)
    assert series == [("sip-1", "1.0"), ("sip-2", "0.0")]


def test_the_rules_are_about_metrics_there_are() -> None:
    there = set(re.findall(r"^([a-z_0-9]+)[{ ]", exposed_by_all(), re.MULTILINE))
    used = set(re.findall(r"\b(?:rspdns|ppe_agent|ppu_agent)_[a-z_0-9]+", RULES.read_text()))
    assert {name.partition("_")[0] for name in used} == {"rspdns", "ppe", "ppu"}
    assert len(used) >= 17
    assert used <= there


SCENARIO = """
rule_files: [{rules}]
evaluation_interval: 5s
tests:
  - interval: 5s
    input_series:
      - series: 'rspdns_pool_members{{instance="a", owner="{owner}", state="in"}}'
        values: '2 2 0x20'
      - series: 'rspdns_pool_expected_members{{instance="a", owner="{owner}"}}'
        values: '8x90'
      - series: 'rspdns_pool_missing_members{{instance="a", owner="{owner}"}}'
        values: '0 0 5x90'
      - series: 'rspdns_pool_known{{instance="a", owner="{owner}"}}'
        values: '1x30'
      - series: 'rspdns_pool_stale_seconds{{instance="a", owner="{owner}"}}'
        values: '0x30'
      - series: 'rspdns_purge_works{{instance="a", control="/run/x"}}'
        values: '1 1 0x20'
      - series: 'rspdns_fastpath_up{{instance="a"}}'
        values: '1 1 0x30'
      - series: 'ppe_agent_as_state{{instance="s", as="sip-1", handle="sip", state="down"}}'
        values: '0 0 1x40'
      - series: 'ppe_agent_as_state{{instance="s", as="sip-2", handle="sip", state="drained"}}'
        values: '1x40'
      - series: 'ppe_agent_as_state{{instance="s", as="sip-3", handle="sip", state="joining"}}'
        values: '1x40'
      - series: 'ppe_agent_as_rejections_total{{instance="s", as="sip-3", handle="sip"}}'
        values: '0+1x40'
      - series: 'ppe_agent_as_load_source_up{{instance="s", as="sip-2", handle="sip"}}'
        values: '1 1 0x40'
      - series: 'ppu_agent_pool_stale{{instance="c", handle="sip"}}'
        values: '0 0 1x40'
      - series: 'ppu_agent_kernel_refused{{instance="c"}}'
        values: '0x40'
      - series: 'up{{instance="s", job="ppe-agent"}}'
        values: '1 1 0x40'
      - series: 'rspdns_resolver_works{{instance="a", resolver="r"}}'
        values: '1x30'
      - series: 'rspdns_secondary_works{{instance="a", secondary="s"}}'
        values: '0x5 1x30'
      - series: 'rspdns_publication_right{{instance="a", publication="p"}}'
        values: '0x40'
      - series: 'rspdns_publication_works{{instance="a", publication="p"}}'
        values: '0x40'
      - series: 'rspdns_registrar_standing{{instance="a", number="1", standing="settled"}}'
        values: '1x30'
    alert_rule_test:
      - {{eval_time: 5s, alertname: RspdnsPoolEmpty}}
      - {{eval_time: 60s, alertname: RspdnsPoolStale}}
      - {{eval_time: 60s, alertname: RspdnsRegistrarDown}}
      - {{eval_time: 60s, alertname: RspdnsPoolSmall}}
      - {{eval_time: 30s, alertname: PpeAgentServerOut}}
      - {{eval_time: 90s, alertname: PpuAgentKernelRefuses}}
      - {{eval_time: 90s, alertname: RspdnsResolverNotTold}}
      - {{eval_time: 90s, alertname: RspdnsSecondaryBehind}}
      - {{eval_time: 180s, alertname: RspdnsPublicationSilent}}
      - eval_time: 90s
        alertname: RspdnsPublicationFails
        exp_alerts:
          - exp_labels: {{severity: critical, instance: a, publication: p}}
            exp_annotations:
              summary: "p takes no updates of a: it answers dead servers"
              remedy: "rspdns status says why: key, clock, permission, or a server that is away"
      - eval_time: 90s
        alertname: PpeAgentServerOut
        exp_alerts:
          - exp_labels: {{severity: warning, instance: s, as: sip-1, handle: sip, state: down}}
            exp_annotations:
              summary: "sip-1 of s is down, out of the pool sip"
              remedy: "ppe-agent status says which check fails, and what it saw"
      - eval_time: 90s
        alertname: PpeAgentServerRefused
        exp_alerts:
          - exp_labels: {{severity: critical, instance: s, as: sip-3, handle: sip}}
            exp_annotations:
              summary: "a registrar refuses sip-3 of s"
              remedy: "ppe-agent status says what differs from the pool's other members"
      - eval_time: 90s
        alertname: PpeAgentLoadUnknown
        exp_alerts:
          - exp_labels: {{severity: warning, instance: s, as: sip-2, handle: sip}}
            exp_annotations:
              summary: "the load of sip-2 of s can't be read: it counts as when_unknown"
              remedy: "ppe-agent status says why"
      - eval_time: 90s
        alertname: PpeAgentDown
        exp_alerts:
          - exp_labels: {{severity: critical, instance: s, job: ppe-agent}}
            exp_annotations:
              summary: "the sidecar s does not answer: its servers are out of their pools"
              remedy: "systemctl status ppe-agent; the servers themselves may be well"
      - eval_time: 90s
        alertname: PpuAgentBlind
        exp_alerts:
          - exp_labels: {{severity: warning, instance: c, handle: sip}}
            exp_annotations:
              summary: "the sidecar c believes no registrar about sip: packets go where DNS says"
              remedy: "ppu-agent status; bring a registrar and its sentinel back"
      - eval_time: 90s
        alertname: RspdnsFastPathDown
        exp_alerts:
          - exp_labels: {{severity: warning, instance: a}}
            exp_annotations:
              summary: "the kernel of a answers nothing: PowerDNS answers all"
              remedy: "rspdns status says why; rspdns-fastpath status"
      - eval_time: 90s
        alertname: RspdnsPoolSmall
        exp_alerts:
          - exp_labels: {{severity: critical, instance: a, owner: {owner}}}
            exp_annotations:
              summary: "62.5% of the servers of {owner} are missing"
              remedy: "rspdns status names them, says why, and what to look at"
      - eval_time: 400s
        alertname: RspdnsServerMissing
        exp_alerts:
          - exp_labels: {{severity: warning, instance: a, owner: {owner}}}
            exp_annotations:
              summary: "5 of the servers of {owner} are missing"
              remedy: "rspdns status names them; rspdns forget, for those taken out of service"
      - eval_time: 60s
        alertname: RspdnsPoolEmpty
        exp_alerts:
          - exp_labels: {{severity: critical, instance: a, owner: {owner}, state: in}}
            exp_annotations:
              summary: "no server is alive in {owner}; DNS answers as when_empty says"
              remedy: "rspdns status tells why each member is out"
      - eval_time: 60s
        alertname: RspdnsPurgeFails
        exp_alerts:
          - exp_labels: {{severity: critical, instance: a, control: /run/x}}
            exp_annotations:
              summary: "PowerDNS at /run/x can't be purged: its answers are up to 4 s old"
              remedy: "rspdns status says why; leave no idle client at the control socket"
"""


def test_promtool_takes_the_rules_and_they_fire(tmp_path: Path) -> None:
    checked = promtool("check", "rules", str(RULES))
    assert checked.returncode == 0, checked.stderr
    assert "32 rules found" in checked.stdout
    scenario = tmp_path / "scenario.yml"
    scenario.write_text(SCENARIO.format(rules=RULES, owner=OWNER))
    tested = promtool("test", "rules", str(scenario))
    assert tested.returncode == 0, tested.stdout + tested.stderr


FIRES: dict[str, dict[str, str]] = {
    "RspdnsBackendDown": {'up{job="rspdns"}': "1 0x120"},
    "RspdnsPoolEmpty": {
        'rspdns_pool_members{owner="o", state="in"}': "1 0x120",
        'rspdns_pool_known{owner="o"}': "1x120",
    },
    "RspdnsPoolSmall": {"rspdns_pool_missing_members": "2x120", "rspdns_pool_expected_members": "4x120"},
    "RspdnsServerMissing": {"rspdns_pool_missing_members": "1x120"},
    "RspdnsPoolUnknown": {"rspdns_pool_known": "0x120"},
    "RspdnsPoolStale": {"rspdns_pool_stale_seconds": "0+5x120"},
    "RspdnsRegistrarDown": {'rspdns_registrar_standing{standing="settled"}': "1 0x120"},
    "RspdnsRegistrarSlow": {"rspdns_registrar_round_trip_seconds": "0.3x120"},
    "RspdnsPurgeFails": {"rspdns_purge_works": "1 0x120"},
    "RspdnsConvergenceSlow": {
        'rspdns_convergence_seconds_bucket{le="0.25"}': "0+1x120",
        'rspdns_convergence_seconds_bucket{le="1"}': "0+2x120",
        'rspdns_convergence_seconds_bucket{le="+Inf"}': "0+2x120",
    },
    "RspdnsFlapping": {'rspdns_changes_total{kind="joined"}': "0+3x120"},
    "RspdnsMembersVanish": {'rspdns_changes_total{kind="vanished"}': "0+1x120"},
    "RspdnsRefusals": {"rspdns_refusals_total": "0+1x120"},
    "RspdnsAnswersFail": {"rspdns_query_failures_total": "0+1x120"},
    "RspdnsFastPathDown": {"rspdns_fastpath_up": "1 0x120"},
    "RspdnsFastPathFull": {"rspdns_fastpath_refused_names_total": "0+1x120"},
    "RspdnsResolverNotTold": {'rspdns_resolver_works{resolver="r"}': "1 0x120"},
    "RspdnsSecondaryBehind": {'rspdns_secondary_works{secondary="s"}': "1 0x120"},
    "RspdnsPublicationFails": {'rspdns_publication_works{publication="p"}': "1 0x120"},
    "RspdnsPublicationSilent": {
        'rspdns_publication_right{publication="p"}': "1 0x120",
        'rspdns_publication_works{publication="p"}': "1x120",
    },
    "RspdnsPublicationEdited": {"rspdns_publication_edits_total": "0+1x120"},
    "PpeAgentDown": {'up{job="ppe-agent"}': "1 0x120"},
    "PpeAgentServerOut": {'ppe_agent_as_state{state="down"}': "1x120"},
    "PpeAgentServerRefused": {
        "ppe_agent_as_rejections_total": "0+1x120",
        'ppe_agent_as_state{state="joining"}': "1x120",
    },
    "PpeAgentLoadUnknown": {"ppe_agent_as_load_source_up": "0x120"},
    "PpeAgentCertificateExpires": {
        "ppe_agent_check_certificate_expiry_timestamp_seconds": "1000000x120",
    },
    "PpeAgentStandsStill": {"ppe_agent_loop_stalls_total": "0+1x120"},
    "PpuAgentDown": {'up{job="ppu-agent"}': "1 0x120"},
    "PpuAgentBlind": {"ppu_agent_pool_stale": "1x120"},
    "PpuAgentKernelRefuses": {"ppu_agent_kernel_refused": "1x120"},
    "PpuAgentGatewayOpen": {'ppu_agent_gateway_attached{interface="eth0"}': "1 0x120"},
    "PpuAgentSuspended": {"ppu_agent_suspended": "1x500"},
}
"""Each rule, and what Prometheus scrapes, every 10 s, when it has to fire."""


def test_each_alert_fires_when_it_should(tmp_path: Path) -> None:
    assert set(FIRES) == set(re.findall(r"alert: (\w+)", RULES.read_text()))
    tests = [
        {
            "name": alert,
            "interval": "10s",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})',
                    "eval_time": "65m" if alert == "PpuAgentSuspended" else "12m",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        }
        for alert, series in FIRES.items()
    ]
    scenario = tmp_path / "scenario.yml"
    scenario.write_text(
        json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests})
    )
    tested = promtool("test", "rules", str(scenario))
    assert tested.returncode == 0, tested.stdout + tested.stderr
