"""The figures of `rspdns-lab secondaries`, and its files."""

import re
from dataclasses import replace
from pathlib import Path

from rspdns.configuration import load_configuration
from rspdns.publish.configuration import read_key
from rspdns_lab.chain.plan import NAME_SERVERS, ZONE
from rspdns_lab.chain.texts import static_zone
from rspdns_lab.report.page import markdown_page, markdown_table
from rspdns_lab.secondaries.cli import REPORT, Trial, age_rows, problems
from rspdns_lab.secondaries.lab import (
    DIRECT,
    BackendRestart,
    ChangeStream,
    ServerDeath,
    secondaries_toml,
    sidecar_toml,
    zone_toml,
)
from rspdns_lab.secondaries.primaries import ADDRESSES, PRIMARIES, publish_toml, write_key
from rspdns_lab.secondaries.servers import KINDS

from tests.support.pages import blocks

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "dns" / "secondaries.md").read_text()
PUBLISH = (Path(__file__).resolve().parents[2] / "docs/how-to/dns/publish-by-dns-update.md").read_text()
FAR = "Knot, distributor"
DEATHS = [
    ServerDeath(trial, {"PowerDNS itself": [5.0], FAR: [10.0 * trial, 200.0]}, 1.0) for trial in range(1, 11)
]
STREAM = ChangeStream(10.0, 100, 10.0, 100, 0, 0, 0, 20.0, {"PowerDNS": 30.0}, 2.0)
RESTART = BackendRestart(0, 1500.0)


def test_deaths_are_summed_up_by_kind_and_by_the_slowest_of_it() -> None:
    itself, far = age_rows(DEATHS)
    assert (itself.title, itself.servers, itself.p50_ms, itself.never) == ("PowerDNS itself", 1, 5.0, 0)
    assert (far.servers, far.deaths, far.p50_ms, far.max_ms, far.worst_p99_ms) == (2, 10, 100.0, 200.0, 200.0)


def test_kept_promises_are_no_problem() -> None:
    assert problems([*DEATHS, RESTART, STREAM]) == []
    assert problems([]) == []


def test_each_broken_promise_is_told() -> None:
    slow = ServerDeath(1, {FAR: [10.0, 400.0], "Knot, direct": [900.0]}, 1.0)
    never = ServerDeath(1, {FAR: [10.0, None]}, 1.0)
    assert problems([slow]) == [f"{FAR}: p99 at one of them is 400 ms"]
    assert problems([never]) == [f"{FAR}: 1 times a dead server was there for 30 s"]
    assert problems([replace(RESTART, lost=1)]) == problems([BackendRestart(0, None)]) != []
    assert problems([replace(STREAM, different=2)]) == [
        "10 changes a second: 2 secondaries differ at the end"
    ]
    assert problems([replace(STREAM, went_back=1)]) == ["10 changes a second: a serial went back 1 times"]


def test_report_is_read_back_and_shown() -> None:
    trials: list[Trial] = [*DEATHS, RESTART, STREAM]
    assert [REPORT.read(dict(REPORT.write(trial))) for trial in trials] == trials
    page = REPORT.page(trials)
    assert [section.title for section in page.sections] == [
        "A server dies",
        "The backend dies",
        "Changes all the time",
        "Cost",
    ]
    assert f"| {FAR} | 2 | 10 | 100 | 200 | 200 | 200 | 0 |" in markdown_table(page.sections[0].table)
    made = markdown_page(page, ["rspdns-lab", "secondaries"], ["Measured here."], ["ages.svg"])
    assert made.count("](ages.svg)") == 1


def test_primaries_have_the_lines_of_the_page(tmp_path: Path) -> None:
    """Beside what a lab needs: its own folder, the key in the same file, and no record of expiry."""
    own = re.compile(r"include |file|storage|secret|acl: |update-owner-name|update-type|.*_rspdns-expire")
    for kind, language in (("bind", "text"), ("knot", "yaml")):
        (text,) = (block for block in blocks(PUBLISH, language) if "rspdns-key" in block)
        written = PRIMARIES[kind].configured("192.0.2.1", "", tmp_path)
        lines = {line.strip() for line in written.splitlines()}
        wanted = [line.strip() for line in text.replace("ims.example.net", ZONE).splitlines()]
        assert [line for line in wanted if line not in lines and not own.match(line)] == []
        assert sum(line in lines for line in wanted) > 5


def test_secondaries_have_the_lines_of_the_page() -> None:
    """Beside what a lab needs: its own folder, and a client that compares whole zones."""
    for kind, name in (("bind", "bind"), ("nsd", "nsd"), ("knot", "knot")):
        (text,) = blocks(PAGE, name)
        written = KINDS[kind].configured("192.0.2.99", "192.0.2.1", Path("/var/cache/bind"))
        address = {"bind": "192.0.2.11", "nsd": "192.0.2.12", "knot": "192.0.2.13"}[name]
        wanted = text.replace(address, "192.0.2.99").replace("ims.example.net", ZONE)
        lines = {line.strip() for line in written.splitlines()}
        missing = [line.strip() for line in wanted.splitlines() if line.strip() not in lines]
        of_the_key = {
            "key:",
            "- id: notify",
            "algorithm: hmac-sha256",
            "secret: SECRET",
            "key: notify",
            "acl: notify",
        }
        assert set(missing) <= of_the_key, missing


def test_backend_takes_the_files(tmp_path: Path) -> None:
    zones = tmp_path / "zones.d"
    zones.mkdir()
    (zones / f"{ZONE}.toml").write_text(zone_toml())
    (zones / f"{ZONE}.zone").write_text(static_zone([NAME_SERVERS["ns1"]]))
    file = tmp_path / "rspdns.toml"
    key = write_key(tmp_path)
    file.write_text(f'registrars = ["10.53.0.11"]\n{secondaries_toml()}{publish_toml(key)}')
    loaded = load_configuration(file)
    assert [secondary.name for secondary in loaded.secondaries] == ["distributor", *DIRECT]
    assert [publication.name for publication in loaded.publications] == list(ADDRESSES)
    assert read_key(str(key)).name == "rspdns-key"
    assert sidecar_toml("/x").count("[[as]]") == 5
