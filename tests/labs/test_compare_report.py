"""Reports of the lab that compares."""

import json
import re
from pathlib import Path

from click.testing import CliRunner
from rspdns_lab.cli import main
from rspdns_lab.compare.report import as_json, as_markdown, measurement, summaries, write_html
from rspdns_lab.compare.run import Measurement
from rspdns_lab.compare.takeover import PAIRS, keepalived_conf
from rspdns_lab.compare.voip import Quality


def trial(number: int, approach: str, converged_ms: float | None, glitch_ms: float) -> Measurement:
    quality = Quality(1000, int(glitch_ms / 20), glitch_ms, glitch_ms, 0.1, 0.5, 0.05)
    return Measurement("power-cut", approach, number, converged_ms, quality)


TRIALS = [trial(1, "rspdns", 700.0, 1500.0), trial(2, "rspdns", 800.0, 900.0), trial(1, "carp", None, 8000.0)]


def test_a_summary_has_median_and_worst() -> None:
    rspdns, carp = summaries(TRIALS)
    assert (rspdns.trials, rspdns.converged_median_ms, rspdns.converged_max_ms) == (2, 750.0, 800.0)
    assert (rspdns.glitch_median_ms, rspdns.glitch_max_ms) == (1200.0, 1500.0)
    assert carp.converged_median_ms is None


def test_what_did_not_converge_is_not_given_a_figure() -> None:
    assert re.search(r"\| CARP .*\| not in time \| not in time \| 8,000 \|", as_markdown(summaries(TRIALS)))


def test_results_are_read_back_and_resumed_without_a_lab(tmp_path: Path) -> None:
    file, page = tmp_path / "compare.json", tmp_path / "compare.html"
    file.write_text(json.dumps(as_json((2, "g711", "rtp"), TRIALS)))
    assert [measurement(one) for one in json.loads(file.read_text())["trials"]] == TRIALS
    arguments = ["compare", "--fault", "power-cut", "--trials", "2", "--json", str(file), "--resume"]
    done = CliRunner().invoke(main, [*arguments, "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "power-cut" in done.output
    write_html(page, TRIALS)
    assert page.read_text().count("<svg") == 2


def test_only_the_first_host_of_a_pair_begins_as_master() -> None:
    pair = next(one for one in PAIRS if one.advertisement_ms == 100)
    first, second = (keepalived_conf(pair, first=first) for first in (True, False))
    assert "state MASTER" in first
    assert "state BACKUP" in second
    assert all("advert_int 0.1" in text and f"{pair.shared}/24" in text for text in (first, second))
