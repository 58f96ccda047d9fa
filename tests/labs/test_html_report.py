"""A page with several plots is valid HTML: no id twice, and what refers to one still finds it. Pages of labs
that have little to tell."""

import importlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rspdns_lab.cli import main
from rspdns_lab.html_report import Section, new_plot, write_page
from rspdns_lab.loss import Look, LossOutcome


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a page with the same plot twice, which has markers (used by reference) and clips."""
    plots = []
    for _ in range(2):
        plot = new_plot(2, 1)
        plot.subplots().plot([1, 2, 3], "o-")
        plots.append(("a plot", plot))
    file = tmp_path_factory.mktemp("page") / "page.html"
    write_page(file, "title", "text", [Section("one", plots=plots[:1]), Section("two", plots=plots[1:])])
    return file.read_text()


def test_no_id_is_there_twice(page: str) -> None:
    ids = re.findall(r'<[^<>]*\sid="([^"]+)"', page)
    assert len(ids) > 20
    assert len(set(ids)) == len(ids)


def test_every_reference_is_to_an_id_of_the_same_plot(page: str) -> None:
    for svg in page.split("<svg")[1:]:
        referred = set(re.findall(r'href="#([^"]+)"', svg)), set(re.findall(r"url\(#([^)]+)\)", svg))
        assert all(referred)
        assert set.union(*referred) <= set(re.findall(r'\sid="([^"]+)"', svg))


def test_the_same_page_is_written_again(tmp_path: Path) -> None:
    plot = new_plot(2, 1)
    for name in ("first", "second"):
        write_page(tmp_path / name, "title", "text", [Section("one", plots=[("a plot", plot)])])
    assert (tmp_path / "first").read_text() == (tmp_path / "second").read_text()


MODULES = {"loss": "rspdns_lab.chaos_cli", "bench-sctp": "rspdns_lab.cli"}
LOST = LossOutcome(2, 1, True, 0, 0, 3000, 7, 5, (Look(0, 0, 0), Look(1, 1000, 7), Look(2, 3000, 7)))
SCTP = {
    "udp_round_trip_us": 50.0,
    "sctp_round_trip_us": 500.0,
    "round_trip_ratio": 10.0,
    "killed_p99_ms": 1.0,
}


@pytest.mark.parametrize(
    ("command", "found", "said", "plots"),
    [
        ("loss", LOST, ("It failed", ">answers that lacked a live server</td><td>7</td>"), 1),
        ("loss", replace(LOST, wrong=0, looks=()), ("No live server was lost",), 0),
        ("bench-sctp", SCTP, ("Missed its aim: SCTP round trip against UDP.", "<td>&lt;= 8</td>"), 2),
        ("bench-sctp", {"soak_lost": 0.0}, ("Every aim was reached.",), 0),
    ],
)
def test_small_labs_write_a_page_too(
    command: str,
    found: object,
    said: tuple[str, ...],
    plots: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = importlib.import_module(MODULES[command])
    monkeypatch.setattr(module, "become_root", lambda *_: None)
    run = {"loss": "run_loss", "bench-sctp": "run_sctp_bench"}[command]
    monkeypatch.setattr(module, run, lambda *_, **__: found)
    done = CliRunner().invoke(main, [command, "--html", str(tmp_path / "page")])
    assert done.exit_code in (0, 1), done.output
    assert "looks" not in done.output
    text = (tmp_path / "page").read_text()
    assert text.count("<svg") == plots
    assert [one for one in said if one not in text] == []
    assert not re.search(r'(src|href)="(?!#)', text)
