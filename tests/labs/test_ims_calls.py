"""What became of the IMS lab's calls, from the logs of SIPp and Kamailio."""

from rspdns_lab.ims.calls import Call, Measurement, Sent, measure, read_calls, read_sent, sum_up


def test_a_callers_log_tells_who_answered_when_and_which_calls_failed() -> None:
    lines = [
        "start 1 100.000000 250000.000000",
        "start 2 101.000000 0.000000",
        "answer 1 100.000000 260000.000000 as2",
        "answer 9 100.000000 0.000000 as1",
        "something else",
    ]
    first, second = read_calls(lines)
    assert (first.server, second.server) == ("as2", "")
    assert first.set_up_ms is not None
    assert round(first.set_up_ms, 3) == 10
    assert second.set_up_ms is None


def test_an_s_cscfs_log_tells_where_invites_went() -> None:
    lines = [
        " 2(77) NOTICE: <script>: SENT 100.5 10.53.0.31",
        "Listening on",
        " 1(76) NOTICE: SENT 101.25 10.53.0.32",
    ]
    assert read_sent(lines) == [Sent(100.5, "10.53.0.31"), Sent(101.25, "10.53.0.32")]


def trial(dead: set[str] | None) -> Measurement:
    calls = [
        Call(9.0, 9.01, "as1"),
        Call(9.5, 9.51, "as2"),
        Call(10.5, 42.5, "as2"),
        Call(11.0, 11.02, "as2"),
        Call(12.0),
    ]
    sent = [Sent(9.0, "A"), Sent(10.5, "A"), Sent(11.0, "B"), Sent(42.5, "B")]
    return measure("as-killed", "static", 1, calls, sent, 10.0, dead)


def test_only_calls_after_the_fault_count() -> None:
    figures = sum_up([trial({"A"})])
    assert (figures.calls, figures.failed, figures.slow) == (3, 1, 1)
    assert (figures.p50_ms, figures.max_ms) == (20.0, 32000.0)
    assert (figures.to_dead, figures.last_to_dead_s) == (1, 0.5)
    assert figures.share_before == {"as1": 0.5, "as2": 0.5}
    assert figures.share_after == {"as2": 1.0}
    assert figures.share_settled == {}


def test_a_fault_that_kills_nobody_has_no_calls_to_the_dead() -> None:
    figures = sum_up([trial(None)])
    assert (figures.to_dead, figures.last_to_dead_s) == (None, None)


def test_trials_add_up() -> None:
    figures = sum_up([trial({"A"}), trial({"A"})])
    assert (figures.trials, figures.calls, figures.to_dead) == (2, 6, 2)
