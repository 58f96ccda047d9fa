"""The figures of `rspdns-lab cells`, and its files."""

from dataclasses import replace
from pathlib import Path

from rspdns.gateway.configuration import load_gateway
from rspdns.zones.loading import load_zone
from rspdns_lab.cells.cli import REPORT, CellsTrial, problems
from rspdns_lab.cells.lab import (
    UPPER,
    CellLoss,
    CellServerDeath,
    UpperLoss,
    cell_zone_toml,
    gateway_toml,
    master_file,
    upper_zone_toml,
)
from rspdns_lab.report.page import markdown_table

DEATHS = [CellServerDeath(trial, "c1", 5.0 + trial / 10, 6.0, 1.0) for trial in range(1, 101)]
LOSS = CellLoss(1, "c2", "silent", 700.0, 0, 900.0, 1.0)
UPPER_LOSS = UpperLoss(1, 10.0, 900, 0, 7.0, 1.0)


def test_kept_promises_are_no_problem() -> None:
    assert problems([*DEATHS, LOSS, UPPER_LOSS]) == []
    assert problems([]) == []


def test_each_broken_promise_is_told() -> None:
    late = [replace(death, gone_ms=40.0) for death in DEATHS[:5]]
    assert problems([*DEATHS, *late]) == ["a server's death in its cell's DNS: p99 is 40 ms"]
    assert problems([replace(LOSS, gone_ms=1600.0)]) == ["c2 silent: named for 1600 ms"]
    assert problems([replace(LOSS, others_lost=3)]) == ["c2 silent: 3 answers lacked another cell"]
    words = "upper triple killed: 1 of 900 answers were wrong"
    assert problems([replace(UPPER_LOSS, wrong=1)]) == [words]


def test_report_is_read_back_and_shown() -> None:
    trials: list[CellsTrial] = [*DEATHS, LOSS, UPPER_LOSS]
    assert [REPORT.read(dict(REPORT.write(trial))) for trial in trials] == trials
    sections = REPORT.page(trials).sections
    assert [section.title for section in sections] == [
        "A server dies",
        "A whole cell is lost",
        "The upper triple is killed",
    ]
    assert "| c2 | silent | 700 | 0 | 900 |" in "".join(markdown_table(sections[1].table))


def test_files_are_right_and_lead_from_the_upper_zone_to_the_cell(tmp_path: Path) -> None:
    zones = []
    for number, text, cells in ((UPPER, upper_zone_toml([1, 2]), (1, 2)), (1, cell_zone_toml(1), ())):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "zone.toml").write_text(text)
        (folder / "zone").write_text(master_file(number, cells))
        zones.append(load_zone(folder / "zone.toml"))
    upper, cell = zones
    first = (upper.config.pools[0].cells or ())[0]
    assert first.name == cell.sites[0].name == "as.c1.cells.example"
    (tmp_path / "gateway.toml").write_text(gateway_toml(1, 3, 3, tmp_path))
    assert load_gateway(tmp_path / "gateway.toml").address in first.gateways
