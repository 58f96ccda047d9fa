"""The gate without sockets (with AddressSanitizer and UBSan), its rules file, and what it tells."""

import os
import subprocess
from pathlib import Path

import pytest
from daemon_kit import logs
from daemon_kit.errors import FatalError
from registrar_config import load_inventory
from registrar_config.gate import GateReport, check_rules, exposition, gate_rules, in_words
from structlog.testing import capture_logs

from tests.support.builds import sanitized_gate


@pytest.mark.parametrize("program", ["gate-test", "preload-test"])
def test_the_gate_holds_under_sanitizers(tmp_path: Path, program: str) -> None:
    (tmp_path / "rules").write_text("registrar 10.0.0.1\nuser 10.0.0.2\nend\n")
    done = subprocess.run(
        [str(sanitized_gate() / program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "RSPDNS_GATE_RULES": str(tmp_path / "rules")},
    )
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


INVENTORY = """\
agent_reregistration_ms = 200000
[[registrar]]
name = "r1"
address = "10.0.0.1"
[[registrar]]
name = "r2"
address = "10.0.0.2"
[[agent]]
name = "as"
addresses = ["10.20.0.0/16", "10.30.0.1"]
handles = ["a b*", "web"]
registrations = 5
[[pool]]
handles = ["a b*"]
policy = "least-used"
[[pool]]
handles = ["web", "a bc"]
policy = "weighted-round-robin"
transport = "sctp+control"
[[backend]]
name = "ns"
addresses = ["10.0.0.21"]
reports_per_s = 2
[[backend]]
name = "poller"
addresses = ["10.0.0.22"]
follow = "poll"
"""
RULES = """\
life 600
registrar 10.0.0.1
element 10.0.0.1 handles rspdns-sentinel-1 most 100
registrar 10.0.0.2
element 10.0.0.2 handles rspdns-sentinel-2 most 100
follower 10.0.0.21 reports 2
user 10.0.0.22
element 10.20.0.0/16 handles a%20b*,web addresses 10.20.0.0/16,10.30.0.1 most 5
element 10.30.0.1 handles a%20b*,web addresses 10.20.0.0/16,10.30.0.1 most 5
pool a%20b* policy 0x40000001  # least-used
pool web,a%20bc policy 0x00000002 transport sctp+control  # weighted-round-robin
end
"""


def test_rules_of_an_inventory_are_right(tmp_path: Path) -> None:
    (tmp_path / "inventory.toml").write_text(INVENTORY)
    rules = gate_rules(load_inventory(tmp_path / "inventory.toml"), "r1")
    assert [line for line in rules.splitlines() if line[:1] != "#"] == RULES.splitlines()
    (tmp_path / "gate").write_text(rules)
    check_rules(tmp_path / "gate")


def test_pools_that_anybody_could_make_anothers_are_told(tmp_path: Path) -> None:
    (tmp_path / "inventory.toml").write_text(INVENTORY)
    doubts = list(load_inventory(tmp_path / "inventory.toml").doubts())
    assert any(doubt.startswith("no [[pool]] gives policy and transport of 'a b*':") for doubt in doubts)
    whole = INVENTORY.replace('policy = "least-used"', 'policy = "least-used"\ntransport = "udp"')
    (tmp_path / "inventory.toml").write_text(whole)
    assert not any("[[pool]]" in doubt for doubt in load_inventory(tmp_path / "inventory.toml").doubts())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "No such file"),
        ("", "has no last line `end`"),
        ("end\n", "names no registrar"),
        (RULES.removesuffix("nd\n"), "line 12: .e. is not registrar"),
        (RULES[: RULES.rindex("pool")], "line 11: the file has no last line `end`: it is not whole"),
        ("registrar 10.0.0.1\nelement 10.0.0.2", "line 2: an element needs handles"),
        ("registrar 10.0.0.1\0", "it is no text"),
    ],
)
def test_a_wrong_rules_file_is_refused(tmp_path: Path, text: str | None, problem: str) -> None:
    if text is not None:
        (tmp_path / "gate").write_text(text)
    with pytest.raises(FatalError, match=problem):
        check_rules(tmp_path / "gate")


def test_what_the_gate_dropped_is_told_with_a_limit_and_outlives_rspregistrar() -> None:
    report = GateReport(logs.get_logger("gate"))
    with capture_logs() as told:
        report.take("ready 7 9", 0)
        for number in range(1, 50):
            report.take(f"dropped report 10.0.0.9 {number}", number)
        report.take("ready 8 9", 60)
        for number in range(100):
            report.take(f"dropped stranger 10.0.1.{number} 1", 61)
        report.take("dropped report 10.0.0.9 2", 130)
        report.take("wrong line 3: no", 131)
    dropped = [line for line in told if line["event"] == "gate_dropped"]
    assert len(dropped) == 1 + 20 + 1
    assert dropped[0]["messages"] == 1
    assert (dropped[-1]["messages"], dropped[-1]["total"]) == (50, 51)
    assert report.dropped["report", "10.0.0.9"] == 51
    assert len(report.status()["dropped"]) == 101
    words = list(in_words(report.status()))
    assert words[:2] == ["gate: 9 rules", "gate: the rules file is wrong, those of before hold: line 3: no"]
    assert "gate: 51 messages of 10.0.0.9 dropped: report" in words
    assert 'registrar="2",reason="report",host="10.0.0.9"} 51\n' in exposition(2, report.status())
    assert 'rspdns_registrar_gate{registrar="2"} 0' in exposition(2, None)
