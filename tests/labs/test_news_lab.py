"""The figures of `rspdns-lab news`: bounds that break, and a page from trials."""

from dataclasses import asdict, replace

from rspdns_lab.news.cli import REPORT
from rspdns_lab.news.lab import BOUND_MS, NewsTrial, Phase

PHASE = Phase(10.0, 0.25, 60.0, 7, 40.0)
TRIAL = NewsTrial("light", 300, 0.03, PHASE, PHASE, PHASE, [500.0, 1000.0, 1050.0], 0, 0, 0, 1.0)


def test_late_lost_and_doubled_news_break_the_promise_of_ours_alone() -> None:
    assert REPORT.problems([TRIAL]) == []
    late = replace(TRIAL, delays_ms=[500.0, BOUND_MS + 1, BOUND_MS + 2])
    for broken in (late, replace(TRIAL, lost=1), replace(TRIAL, doubled=1)):
        assert len(REPORT.problems([broken])) == 1
        assert REPORT.problems([replace(broken, transport="short")]) == []


def test_page_has_a_row_for_each_transport_and_the_published_figures() -> None:
    page = REPORT.page([TRIAL, replace(TRIAL, transport="short")])
    ours, published = page.sections
    assert [row[0] for row in ours.table[1:]] == ["news of rspdns (a closed port)", "short polling (HTTP)"]
    assert ours.table[1][1] == "25.0%"
    assert published.table[1][0] == "LightWeight Polling"


def test_trial_survives_the_report() -> None:
    assert REPORT.read(asdict(TRIAL)) == TRIAL
