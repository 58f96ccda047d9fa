"""What a trial of the chaos lab showed, and the sum of many."""

import re
from pathlib import Path

import pytest
from rspdns_lab.chain.plan import Follow
from rspdns_lab.chaos.long_handle import message
from rspdns_lab.chaos.report import page_of
from rspdns_lab.chaos.run import ALL_FAULTS, QUICK_FAULTS, describe
from rspdns_lab.chaos.summary import Bounds, Case, summarize, table
from rspdns_lab.chaos.verdict import Trial, judge_trial
from rspdns_lab.observe.verdict import Kind, Observation
from rspdns_lab.report.html import markdown_table, write_page

A, B, C = "10.53.0.31", "10.53.0.32", "10.53.0.33"
CASE = Case("as-killed", 3, "poll")


def answer(
    asked_at_s: float, *names: str, kind: Kind = Kind.ANSWER, server: int = 0, complete: bool = True
) -> Observation:
    answered = None if kind is Kind.TIMEOUT else asked_at_s + 0.001
    return Observation(server, 0, complete, asked_at_s, answered, kind, frozenset(names))


def test_the_longest_time_a_live_server_was_missing_is_not_the_time_since_the_fault() -> None:
    observations = [
        answer(10.0, A, B),
        answer(13.0, A),
        answer(13.1, A),
        answer(13.2, A, B),
        answer(14.0, B),
        answer(14.05, A, B),
    ]
    trial = judge_trial(observations, 10.0, {A, B}, set(), {0}, 7)
    assert trial.longest_missing_ms == pytest.approx(200)
    assert trial.last_wrong_ms == pytest.approx(4001)
    assert trial.longest_dead_ms == 0


def test_the_outages_of_two_name_servers_are_not_added_up() -> None:
    observations = [
        answer(10.0, A, server=0),
        answer(10.1, A, B, server=0),
        answer(10.1, A, server=1),
        answer(10.2, A, B, server=1),
    ]
    assert judge_trial(observations, 10.0, {A, B}, set(), {0, 1}, 7).longest_missing_ms == pytest.approx(100)


def test_an_outage_that_does_not_end_counts_to_the_last_answer() -> None:
    observations = [answer(10.0, A, B), answer(11.0, A), answer(15.0, A)]
    assert judge_trial(observations, 10.0, {A, B}, set(), {0}, 7).longest_missing_ms == pytest.approx(4000)


def test_naming_the_dead_or_a_stranger_is_wrong() -> None:
    for name in (C, "10.9.9.9"):
        trial = judge_trial([answer(10.0, A, B, name), answer(10.05, A, B)], 10.0, {A, B}, {C}, {0}, 7)
        assert trial.last_wrong_ms == pytest.approx(1.0)
        assert trial.longest_dead_ms == pytest.approx(50)
        assert trial.longest_missing_ms == 0


def test_of_a_large_pool_an_answer_holds_as_many_as_fit() -> None:
    live = {f"10.53.0.{number}" for number in range(31, 43)}
    seven, six = sorted(live)[:7], sorted(live)[:6]
    assert judge_trial([answer(10.0, *seven)], 10.0, live, set(), {0}, 7).last_wrong_ms == 0
    assert judge_trial([answer(10.0, *six)], 10.0, live, set(), {0}, 7).last_wrong_ms > 0


def test_what_was_asked_before_is_counted_only_when_told_so() -> None:
    observations = [answer(9.5, kind=Kind.SERVFAIL), answer(9.6, kind=Kind.EMPTY), answer(10.1, A)]
    trial = judge_trial(observations, 10.0, {A}, set(), {0}, 7)
    assert (trial.servfail, trial.empty, trial.answers) == (0, 0, 1)
    trial = judge_trial(observations, 10.0, {A}, set(), {0}, 7, counted_from_s=9.0)
    assert (trial.servfail, trial.empty, trial.answers, trial.last_wrong_ms) == (1, 1, 3, 0)


def test_a_row_within_its_bounds_has_no_problem() -> None:
    trials = [Trial(last_wrong_ms=30, answers=1000), Trial(last_wrong_ms=70, answers=1000)]
    row = summarize(CASE, trials, Bounds(p50_ms=40, p99_ms=80))
    assert (row.trials, row.p50_ms, row.p99_ms, row.max_ms, row.problems) == (2, 30, 70, 70, ())
    assert row.as_json()["fault"] == "as-killed"


@pytest.mark.parametrize(
    ("trial", "bounds", "words"),
    [
        (Trial(last_wrong_ms=90, answers=9), Bounds(p99_ms=80), "p99 90 ms, allowed are 80 ms"),
        (Trial(last_wrong_ms=1, answers=9), Bounds(max_ms=0), "max 1 ms, allowed are 0 ms"),
        (Trial(longest_missing_ms=1001, answers=9), Bounds(), "missing 1001 ms, allowed are 1000 ms"),
        (Trial(empty=2, answers=9), Bounds(), "2 empty answers"),
        (Trial(servfail=1, answers=9), Bounds(), "1 SERVFAIL"),
        (Trial(malformed=1, answers=9), Bounds(), "1 malformed answers"),
        (Trial(timeouts=50, answers=100), Bounds(), "50 questions unanswered"),
        (Trial(timeouts=0), Bounds(silence=True), "no answers at all"),
        (Trial(problem="the lab did not recover: x"), Bounds(), "the lab did not recover: x"),
    ],
)
def test_a_broken_bound_is_told(trial: Trial, bounds: Bounds, words: str) -> None:
    row = summarize(CASE, [trial], bounds)
    assert row.problems == (words,)
    assert words in markdown_table(table([row]))


def test_slack_stretches_times_and_silence_but_no_count_of_wrong_answers() -> None:
    trial = Trial(last_wrong_ms=150, longest_missing_ms=1500, empty=1, timeouts=3, answers=100)
    assert summarize(CASE, [trial], Bounds(p99_ms=80), slack=2).problems == ("1 empty answers",)


def test_a_fault_may_expect_servfail_or_silence() -> None:
    trial = Trial(servfail=5, timeouts=500, answers=500)
    assert summarize(CASE, [trial], Bounds(servfail=True, silence=True)).problems == ()


def test_every_fault_has_a_name_of_its_own_and_the_quick_ones_exist() -> None:
    names = [fault.name for fault in ALL_FAULTS]
    assert len(set(names)) == len(names)
    assert set(QUICK_FAULTS) <= set(names)
    assert {
        *("as-killed", "as-hung", "as-drained", "as-link-cut", "as-back", "agent-killed", "registrar-killed"),
        *("registrar-frozen-and-woken", "registrars-all-restarted", "as-and-home-registrar-killed"),
        *("partition", "backend-killed", "pdns-killed", "name-server-killed"),
    } <= set(names)


@pytest.mark.parametrize(
    ("name", "follow", "bounds"),
    [
        ("as-killed", "enrp", {"p50_ms": 15, "p99_ms": 60}),
        ("as-killed", "poll", {"p50_ms": 40, "p99_ms": 80}),
        ("as-drained", "enrp", {"p99_ms": 60}),
        ("as-hung", "enrp", {"max_ms": 1000}),
        ("as-link-cut", "enrp", {"p99_ms": 900}),
        ("registrar-killed", "poll", {"max_ms": 0, "missing_ms": 1000}),
        ("registrar-frozen-and-woken", "enrp", {"max_ms": 0, "missing_ms": 1000}),
        ("registrars-all-restarted", "enrp", {"missing_ms": 1000}),
        ("as-and-home-registrar-killed", "enrp", {"max_ms": 2500}),
        ("backend-killed", "enrp", {"p99_ms": 1000}),
        ("as-unreachable-from-name-servers", "poll", {"p50_ms": 500, "max_ms": 1000, "missing_ms": 1000}),
        ("all-unreachable-from-name-servers", "enrp", {"max_ms": 0}),
        ("name-server-killed", "enrp", {"max_ms": 0}),
    ],
)
def test_the_bounds_of_the_design_are_what_a_fault_is_held_to(
    name: str, follow: Follow, bounds: dict[str, float]
) -> None:
    held_to = next(fault for fault in ALL_FAULTS if fault.name == name).bounds_for(follow)
    assert {key: getattr(held_to, key) for key in bounds} == bounds


def test_a_trial_in_words_names_what_happened() -> None:
    text = describe("partition", Trial(last_wrong_ms=12, servfail=3, answers=5, timeouts=2, problem="gone"))
    assert text.startswith("partition: last wrong after 12 ms")
    assert text.endswith("0 empty, 3 SERVFAIL, 2 unanswered of 7; gone")


def test_the_long_handle_is_33_bytes_long() -> None:
    sent = message()
    assert int.from_bytes(sent[2:4], "big") == len(sent) == 4 + 4 + 36
    assert int.from_bytes(sent[6:8], "big") == 4 + 33


def test_the_page_tells_each_fault_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    cases = [Case("as-killed", 3, "enrp"), Case("as-killed", 3, "poll"), Case("pdns-killed", 3, "enrp")]
    rows = [summarize(case, [Trial(last_wrong_ms=20, answers=9)], Bounds(max_ms=10)) for case in cases]
    page = tmp_path / "chaos.html"
    write_page(page, page_of(rows, slack=2))
    text = page.read_text()
    assert text.count("<svg") == 2, "one for each size of pool and way to follow"
    assert "bounds were broken by as-killed, pdns-killed" in text
    assert "SIGKILL to one PowerDNS" in text
    assert "<h2>Pools of 3, registrars polled only</h2>" in text
    assert text.count("<td>followed by ENRP</td>") == 2
    assert "multiplied by 2" in text
    assert not re.search(r'(src|href)="(?!#)', text)
