"""The results of `rspdns-lab proxies` from its requests, and the files with which it measures."""

import tomllib
from pathlib import Path

from ppu_agent.configuration import load_configuration
from rspdns_lab.proxies.cli import LATE_MS, problems, rows
from rspdns_lab.proxies.lab import ProxyTrial, agent_toml, sidecar_toml

from tests.support.pages import blocks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "clients" / "reverse-proxies.md"


def trial(fault: str, *delays_ms: float | None, has_agent: bool = True) -> ProxyTrial:
    calls = [(0.1 * number, delay_ms) for number, delay_ms in enumerate(delays_ms)]
    return ProxyTrial(fault, "nginx", has_agent, 1, calls)


def test_rows_count_requests_by_fault_proxy_and_agent() -> None:
    found = [trial("cut", 2.0, None), trial("cut", LATE_MS + 1, 3.0), trial("cut", 9.0, has_agent=False)]
    without, beside = rows(found)
    assert (without.agent, without.requests, without.max_ms) == ("without", 1, 9.0)
    assert (beside.requests, beside.failed, beside.over_2_s, beside.max_ms) == (4, 1, 1, LATE_MS + 1)


def test_only_what_is_promised_can_be_broken() -> None:
    assert problems([trial("cut", 40_000.0, None, has_agent=False), trial("hung", 60_000.0)]) == []
    assert problems([trial("cut", None, LATE_MS + 1)]) == [
        "cut, nginx with ppu-agent: 1 requests failed, 1 took more than 2 s"
    ]


def test_lab_measures_with_the_files_of_the_page(tmp_path: Path) -> None:
    """The lab has more damping, ports and paths of its own; nothing else may differ."""
    of_upstream, of_proxy = map(tomllib.loads, blocks(PAGE.read_text(), "toml"))
    path = tmp_path / "ppu-agent.toml"
    path.write_text(agent_toml(tmp_path))
    assert load_configuration(path).handles == ("web",)
    lab = tomllib.loads(path.read_text())
    assert [list(pool) for pool in lab["pool"]] == [list(pool) for pool in of_proxy["pool"]]
    assert set(lab) - {"control", "state"} == set(of_proxy)
    path.write_text(sidecar_toml("as1", "127.0.0.1", tmp_path))
    (server,) = tomllib.loads(path.read_text())["as"]
    (of_page,) = of_upstream["as"]
    assert server["check"] == of_page["check"]
    assert set(server) - {"damping"} == set(of_page)
