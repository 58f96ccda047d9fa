"""The results of `rspdns-lab discover` from the lists of its clients, and its files."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rspdns.zones.loading import load_zones
from rspdns_lab.chain.texts import static_zone
from rspdns_lab.discover.cli import REPORT, SLACK_MS, problems, rows
from rspdns_lab.discover.clients import haproxy_lines, nginx_lines, prometheus_lines, version_in
from rspdns_lab.discover.lab import (
    SERVERS,
    VICTIM,
    WHOLE,
    DiscoverTrial,
    followed_ms,
    haproxy_weight,
    load_of,
    owner,
    result,
    zone_toml,
)

from tests.support.pages import blocks

PAGE = (
    Path(__file__).resolve().parents[2] / "docs" / "how-to" / "clients" / "discover-servers.md"
).read_text()
Lists = Sequence[tuple[float, Mapping[str, int | None]]]


def example(language: str) -> str:
    """The lines of the page, with the lab's one name server and its zone."""
    (text,) = blocks(PAGE, language)
    lines = [line for line in text.splitlines() if "ns2" not in line]
    text = "\n".join(lines) + "\n"
    text = text.replace(" 198.51.100.1", "").replace("192.0.2.1", "10.53.0.21")
    return text.replace("ims.example.net", WHOLE)


def test_clients_have_the_lines_of_the_page() -> None:
    assert haproxy_lines("10.53.0.21", owner(WHOLE)) == example("haproxy")
    assert nginx_lines("10.53.0.21", f"web.{WHOLE}") == example("nginx")
    assert prometheus_lines(owner(WHOLE)) == example("yaml")


def test_the_pool_is_that_of_the_page(tmp_path: Path) -> None:
    (tmp_path / f"{WHOLE}.toml").write_text(zone_toml(WHOLE))
    fixed = static_zone(["10.53.0.21"]).partition("\n")[2]
    (tmp_path / f"{WHOLE}.zone").write_text(f"$ORIGIN {WHOLE}.\n{fixed}")
    (zone,) = load_zones(tmp_path)
    (of_page,) = blocks(PAGE, "toml")
    keys = [line.split("=")[0].strip() for line in of_page.splitlines() if "=" in line]
    pool = zone.sites[0].pools[0].config
    assert (pool.answers, pool.weights) == ("all", "wide")
    assert all(key in zone_toml(WHOLE) for key in keys)


EVERY = dict.fromkeys(SERVERS.values(), None)
OTHERS = {address: None for number, address in SERVERS.items() if number != VICTIM}


def watched(lists: Lists, **client: Any) -> Any:
    values = {"version": lambda: "2.6", "name": "haproxy", "used_within_s": None, "poll_s": 1.0, **client}
    return SimpleNamespace(client=SimpleNamespace(**values), lists=lists)


def test_a_server_that_comes_and_goes_is_counted_and_the_dead_one_is_not() -> None:
    lists: Lists = [(0.0, EVERY), (1.0, OTHERS), (2.0, EVERY), (10.5, EVERY), (10.9, OTHERS)]
    found = result(watched(lists), 1, [(0.0, 1)], 10.0)
    assert (found.flaps, found.listed, found.out_ms, found.weights) == (2, 40, 900.0, None)
    used = result(watched(lists, used_within_s=0.4), 1, [(0.0, 1)], 10.0)
    assert (used.flaps, used.out_ms) == (None, 500.0)


def test_weights_follow_when_all_are_those_of_the_loads() -> None:
    def weights(step: int) -> Mapping[str, int | None]:
        return {address: haproxy_weight(load_of(number, step)) for number, address in SERVERS.items()}

    seen = [(0.5, 0), (1.0, 1), (5.2, 1), (6.5, 2), (11.0, 2)]
    lists: Lists = [(at_s, weights(step)) for at_s, step in seen]
    assert followed_ms(lists, [(0.0, 1), (5.0, 2), (10.0, 3)], 15.0) == [1000.0, 1500.0, None]
    assert followed_ms([*lists, (15.0, weights(3))], [(10.0, 3)], 15.0) == [None]
    assert followed_ms([*lists, (14.0, weights(3))], [(10.0, 3)], 15.0) == [4000.0]
    assert len(set(weights(1).values())) == 20


TRIAL = DiscoverTrial("haproxy", "all, wide", 1, 120.0, 40, 0, 20, [900.0, 1500.0], 800.0, 1.0, "2.6", 1.5)


def test_only_what_is_promised_can_be_broken() -> None:
    redrawn = replace(TRIAL, client="haproxy, default answers", answers="default", flaps=300, out_ms=None)
    assert problems([TRIAL, redrawn]) == []
    late = replace(TRIAL, trial=2, out_ms=1000 + SLACK_MS + 1, flaps=2)
    assert problems([TRIAL, late]) == [
        "haproxy: 2 servers came or went while only loads changed",
        "haproxy: a killed server was listed for 1101 ms",
    ]
    (row,) = rows([TRIAL, late])
    assert (row.seconds, row.flaps, row.follow_max_ms, row.out_max_ms) == (240.0, 2, 1500.0, 1101.0)
    ignored = replace(TRIAL, follow_ms=[900.0, None])
    assert problems([ignored]) == ["haproxy: 1 changes of load were not in its weights"]


def test_a_client_that_keeps_the_dead_server_or_falls_silent_breaks_the_promise() -> None:
    before: Lists = [(9.0, EVERY), (9.9, EVERY)]
    after: Lists = [(10.1, EVERY), (10.2, OTHERS), (10.3, EVERY)]
    for lists in (before, [*before, *after]):
        trial = result(watched(lists), 1, [(0.0, 1)], 10.0)
        assert trial.out_ms is None
        assert problems([replace(trial, follow_ms=[])]) == ["haproxy: 1 killed servers were never seen out"]


def test_page_says_versions_and_how_busy_the_machine_was() -> None:
    page = REPORT.page([TRIAL, replace(TRIAL, trial=2, load_average=13.0)])
    assert "load average was 1.5 to 13," in page.text
    assert page.sections[0].table[1][:2] == ["haproxy", "2.6"]
    said = {
        "nginx version: nginx/1.22.1\n": "1.22.1",
        "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/": "2.6.12",
        "prometheus, version 2.42.0+ds (branch: debian/sid)": "2.42.0",
        "envoy  version: 9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL": "1.40.0",
        "": "?",
    }
    assert [version_in(text) for text in said] == list(said.values())
