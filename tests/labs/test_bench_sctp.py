"""Which figures of the SCTP benchmark miss their aim, and how they are shown."""

from rspdns_lab.bench_sctp import AIMS, TITLES, as_markdown, missed

GOOD = {
    "round_trip_ratio": 8.0,
    "associations_held": 1.0,
    "idle_cpu_percent": 0.99,
    "killed_median_ms": 9.9,
    "killed_group_median_ms": 9.9,
    "soak_lost": 0.0,
    "soak_wrong": 0.0,
}


def test_figures_at_their_aim_are_good() -> None:
    assert not missed(GOOD)


def test_each_figure_can_miss_its_aim() -> None:
    bad = {
        "associations_held": 0.99,
        "idle_cpu_percent": 1.0,
        "killed_median_ms": 10.0,
        "killed_group_median_ms": 10.0,
    }
    for key in GOOD:
        assert missed(GOOD | {key: bad.get(key, GOOD[key] + 1)}) == [key]


def test_what_was_not_measured_is_not_missed() -> None:
    """The kernel's own SCTP has no daemon whose time could be measured."""
    assert not missed({"round_trip_ratio": 2.0})


def test_table_shows_aims() -> None:
    assert set(AIMS) <= set(TITLES)
    assert "| SCTP round trip against UDP | 8 | <= 8 |" in as_markdown(GOOD)
    assert "| kill -9 to peer told, median (ms) | 9.90 | < 10 |" in as_markdown(GOOD)
