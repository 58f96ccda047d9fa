"""Reports of the lab that compares."""

import json
import re
from dataclasses import asdict
from pathlib import Path

from click.testing import CliRunner
from rspdns_lab.cli import main
from rspdns_lab.compare.report import as_markdown, figures, measurement, page_of, summaries
from rspdns_lab.compare.run import Measurement
from rspdns_lab.compare.takeover import PAIRS, keepalived_conf
from rspdns_lab.compare.voip import Quality
from rspdns_lab.report.html import write_page


def trial(number: int, approach: str, converged_ms: float | None, glitch_ms: float) -> Measurement:
    quality = Quality(1000, int(glitch_ms / 20), glitch_ms, glitch_ms, 0.1, 0.5, 0.05)
    return Measurement("power-cut", approach, number, converged_ms, quality)


TRIALS = [trial(1, "rspdns", 700.0, 1500.0), trial(2, "rspdns", 800.0, 900.0), trial(1, "carp", None, 8000.0)]


def test_a_summary_has_median_and_worst() -> None:
    rspdns, carp = summaries(TRIALS)
    assert (rspdns.trials, rspdns.converged_median_ms, rspdns.converged_max_ms) == (2, 750.0, 800.0)
    assert (rspdns.glitch_median_ms, rspdns.glitch_max_ms) == (1200.0, 1500.0)
    assert (rspdns.delay_p99_ms, rspdns.jitter_ms) == (0.5, 0.05)
    assert (carp.converged_median_ms, carp.converged_max_ms, carp.glitch_median_ms) == (None, None, 8000.0)


def test_a_summary_of_several_trials_takes_the_worst_call_the_longest_delay_the_median_jitter() -> None:
    trials = [
        Measurement("administered", "vrrp", number, 1.0, Quality(100, 3, 30.0, worst, 1.0, p99, jitter))
        for number, (worst, p99, jitter) in enumerate([(40.0, 9.0, 0.3), (60.0, 2.0, 0.1), (50.0, 4.0, 0.2)])
    ]
    found = summaries(trials)[0]
    assert (found.glitch_median_ms, found.glitch_max_ms) == (30.0, 60.0)
    assert (found.delay_p99_ms, found.jitter_ms) == (9.0, 0.2)


def test_what_did_not_converge_is_not_given_a_figure() -> None:
    assert re.search(r"\| CARP .*\| not in time \| not in time \| 8,000 \|", as_markdown(TRIALS))


def test_results_are_read_back_and_resumed_without_a_lab(tmp_path: Path) -> None:
    file, page = tmp_path / "compare.json", tmp_path / "compare.html"
    report = {**figures((2, "g711", "rtp"), TRIALS), "trials": [asdict(one) for one in TRIALS]}
    file.write_text(json.dumps(report))
    assert [measurement(one) for one in json.loads(file.read_text())["trials"]] == TRIALS
    arguments = ["compare", "--fault", "power-cut", "--trials", "2", "--json", str(file), "--resume"]
    done = CliRunner().invoke(main, [*arguments, "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "power-cut" in done.output
    write_page(page, page_of(TRIALS))
    assert page.read_text().count("<svg") == 2


def test_only_the_first_host_of_a_pair_begins_as_master() -> None:
    pair = next(one for one in PAIRS if one.advertisement_ms == 100)
    first, second = (keepalived_conf(pair, first=first) for first in (True, False))
    assert "state MASTER" in first
    assert "state BACKUP" in second
    assert all("advert_int 0.1" in text and f"{pair.shared}/24" in text for text in (first, second))
