"""From what was written down during a benchmark to its figures."""

import dns.message
import dns.rrset
import pytest
from rspdns_lab.bench import Rate, figures_of
from rspdns_lab.bench_convergence import Change, Reply, read_changes, read_replies
from rspdns_lab.bench_convergence import figures_of as convergence_of
from rspdns_lab.errors import LabError


def test_the_last_wrong_answer_after_each_change_counts() -> None:
    changes = [Change(1.0, 2, 1.06), Change(2.0, 3, 2.06), Change(3.0, 2, 3.06), Change(4.0, 3)]
    replies = [
        Reply(0.9, 1.001, 3),  # before
        Reply(1.001, 1.002, 3),
        Reply(1.004, 1.005, 3),
        Reply(1.01, 1.02, 2),
        Reply(1.999, 2.001, 3),  # came after the next change
        Reply(2.001, 2.002, 3),
        Reply(3.07, 3.08, 3),  # stale after the last purge
        Reply(3.2, 3.3, 2),
    ]
    figures = convergence_of(changes, replies)
    assert figures["changes"] == 3
    assert figures["last_wrong_p50_ms"] == pytest.approx(4.0)
    assert figures["last_wrong_max_ms"] == pytest.approx(70.0)
    assert figures["stale_after_purges"] == 1
    with pytest.raises(LabError):
        convergence_of(changes, [])


def test_changes_and_replies_are_read() -> None:
    lines = ["P 0.5", "C 1.000000 2", "P 1.060000", "C 2.000000 3"]
    assert read_changes(lines) == [Change(1.0, 2, 1.06), Change(2.0, 3)]
    message = dns.message.make_response(dns.message.make_query("x.example.", "SRV"))
    message.answer = [dns.rrset.from_text("x.example.", 1, "IN", "SRV", "0 1 1 a.", "0 1 1 b.")]
    body = message.to_wire()[2:].hex()
    assert read_replies([f"B 0 {body}", "R 0 0 1.5 1.6 0", "T 0 0 1.7"]) == [Reply(1.5, 1.6, 2)]


def test_ratios_are_those_of_a_round() -> None:
    rates = {
        "static_qps": [Rate(100, 10), Rate(10, 12), Rate(50, 11)],
        "live_qps": [Rate(90, 10), Rate(9.5, 10), Rate(40, 10)],
        "live_qps_100_changes": [Rate(50, 20), Rate(9, 20), Rate(20, 20)],
        "uncached_qps": [Rate(1, 1000)] * 3,
    }
    figures = figures_of(rates)
    assert figures["live_qps"] == 40
    assert figures["live_qps_ratio"] == pytest.approx(0.9)
    assert figures["static_cpu_us"] == 11
    assert figures["live_100_changes_cpu_us"] == 20
