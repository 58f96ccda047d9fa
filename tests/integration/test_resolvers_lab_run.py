"""`rspdns-lab resolvers`, shortened: every resolver follows the pool."""

import json
import subprocess
from pathlib import Path

from rspdns_lab.resolvers.programs import RESOLVERS
from rspdns_lab.resolvers.run import NAME_SERVER

from tests.support.labs import LAB, as_ordinary_user, traces

LONGEST_MS = 40_000
LONGEST_TOLD_MS = 10_000
"""The TTL is 30 s: only a resolver that forgot answers rightly so soon."""


def test_every_resolver_names_the_servers_that_are_in(tmp_path: Path) -> None:
    report, page = tmp_path / "resolvers.json", tmp_path / "page"
    command = [
        *as_ordinary_user(),
        *LAB,
        "resolvers",
        "--trials",
        "1",
        "--json",
        str(report),
        "--html",
        str(page),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        story, _ = process.communicate(timeout=300)
    assert process.returncode == 0, story
    assert not traces(process.pid)
    results = json.loads(report.read_text())["results"]
    for setting, longest_ms in (("not_told", LONGEST_MS), ("told", LONGEST_TOLD_MS)):
        resolvers = results[setting]["resolvers"]
        assert list(resolvers) == [NAME_SERVER, *RESOLVERS]
        for figures in resolvers.values():
            assert figures["changes"] == 1
            assert 0 <= figures["gone_max_ms"] < longest_ms
            assert 0 <= figures["back_max_ms"] < longest_ms
    assert results["told"]["asked_per_s"] < results["not_told"]["asked_per_s"]
    assert "Knot Resolver" in page.read_text()
    assert "| Unbound | 1 |" in story
