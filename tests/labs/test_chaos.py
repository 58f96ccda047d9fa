"""The chaos lab: what a trial showed, the sum of many, and which trials a run does, without a lab."""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner
from rspdns_lab.chain.plan import FOLLOWS, FollowMethod, LabSetting
from rspdns_lab.chaos import run as chaos
from rspdns_lab.chaos.fatal_message import long_handle
from rspdns_lab.chaos.ppu import Asked, PpuTrial, ppu_report, wrong_for_ms
from rspdns_lab.chaos.report import page_of
from rspdns_lab.chaos.run import ALL_FAULTS, QUICK_FAULTS, Order, describe, run_chaos
from rspdns_lab.chaos.summary import Bounds, Case, CaseTrial, read_trial, summarize, table
from rspdns_lab.chaos.verdict import ChaosTrial, judge_trial, left_out_s
from rspdns_lab.cli import main
from rspdns_lab.errors import LabError
from rspdns_lab.observe.verdict import Kind, Observation
from rspdns_lab.report import trials
from rspdns_lab.report.page import markdown_table, tables_of, write_page

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


def test_time_in_which_answers_of_a_name_server_lack_a_server_is_summed_up() -> None:
    observations = [
        *(answer(10.0, A, B), answer(11.0, A), answer(12.0, A), answer(12.5, kind=Kind.TIMEOUT)),
        *(answer(13.0, A, B), answer(13.1, A, complete=False), answer(14.0, A), answer(14.5, A, B)),
        answer(12.0, A, server=1),
    ]
    assert left_out_s(observations, 0, B) == pytest.approx(2.5)
    assert left_out_s(observations, 0, A) == 0.0


def test_report_that_differs_by_more_than_a_hundredth_breaks_the_bound() -> None:
    trials = [ChaosTrial(answers=9, report_off=0.002), ChaosTrial(answers=9, report_off=0.011)]
    assert summarize(CASE, trials[:1], Bounds()).problems == ()
    row = summarize(CASE, trials, Bounds())
    assert row.problems == ("the report differs by 1.1% from the lab's clock",)
    assert "| report off by 1.10% |" in markdown_table(table([row]))
    assert "report off by" not in markdown_table(table([summarize(CASE, [ChaosTrial(answers=9)], Bounds())]))


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


def test_earlier_questions_are_counted_only_when_told_so() -> None:
    observations = [answer(9.5, kind=Kind.SERVFAIL), answer(9.6, kind=Kind.EMPTY), answer(10.1, A)]
    trial = judge_trial(observations, 10.0, {A}, set(), {0}, 7)
    assert (trial.servfail, trial.empty, trial.answers) == (0, 0, 1)
    trial = judge_trial(observations, 10.0, {A}, set(), {0}, 7, counted_from_s=9.0)
    assert (trial.servfail, trial.empty, trial.answers, trial.last_wrong_ms) == (1, 1, 3, 0)


def test_a_row_within_its_bounds_has_no_problem() -> None:
    trials = [ChaosTrial(last_wrong_ms=30, answers=1000), ChaosTrial(last_wrong_ms=70, answers=1000)]
    row = summarize(CASE, trials, Bounds(p50_ms=40, p99_ms=80))
    assert (row.trials, row.p50_ms, row.p99_ms, row.max_ms, row.problems) == (2, 30, 70, 70, ())
    assert row.as_json()["fault"] == "as-killed"


@pytest.mark.parametrize(
    ("trial", "bounds", "words"),
    [
        (ChaosTrial(last_wrong_ms=90, answers=9), Bounds(p99_ms=80), "p99 90 ms, allowed are 80 ms"),
        (ChaosTrial(last_wrong_ms=1, answers=9), Bounds(max_ms=0), "max 1 ms, allowed are 0 ms"),
        (ChaosTrial(longest_missing_ms=1001, answers=9), Bounds(), "missing 1001 ms, allowed are 1000 ms"),
        (
            ChaosTrial(longest_dead_ms=3, answers=9),
            Bounds(dead_ms=0),
            "a dead server or a stranger named for 3 ms",
        ),
        (ChaosTrial(empty=2, answers=9), Bounds(), "2 empty answers"),
        (ChaosTrial(servfail=1, answers=9), Bounds(), "1 SERVFAIL"),
        (ChaosTrial(malformed=1, answers=9), Bounds(), "1 malformed answers"),
        (ChaosTrial(timeouts=50, answers=100), Bounds(), "50 questions unanswered"),
        (ChaosTrial(timeouts=0), Bounds(silence=True), "no answers at all"),
        (ChaosTrial(problem="the lab did not recover: x"), Bounds(), "the lab did not recover: x"),
    ],
)
def test_a_broken_bound_is_told(trial: ChaosTrial, bounds: Bounds, words: str) -> None:
    row = summarize(CASE, [trial], bounds)
    assert row.problems == (words,)
    assert words in markdown_table(table([row]))


def test_table_shows_how_many_questions_got_servfail_and_how_many_no_answer_where_both_are_allowed() -> None:
    row = summarize(
        CASE, [ChaosTrial(servfail=3, timeouts=50, answers=9)], Bounds(servfail=True, silence=True)
    )
    assert "| 3 SERVFAIL, 50 unanswered | kept |" in markdown_table(table([row]))


def test_slack_stretches_times_and_silence_but_no_count_of_wrong_answers() -> None:
    trial = ChaosTrial(last_wrong_ms=150, longest_missing_ms=1500, empty=1, timeouts=3, answers=100)
    assert summarize(CASE, [trial], Bounds(p99_ms=80), slack=2).problems == ("1 empty answers",)


def test_a_fault_may_expect_servfail_or_silence() -> None:
    trial = ChaosTrial(servfail=5, timeouts=500, answers=500)
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
        ("host-takes-identifiers", "enrp", {"missing_ms": 1500, "dead_ms": 0}),
        ("registrar-lies-takeover", "enrp", {"missing_ms": 1500}),
        ("registrar-lies-takeover", "poll", {"missing_ms": 2500}),
        ("registrar-lies-steal", "enrp", {"missing_ms": 1500}),
        ("registrar-lies-steal", "poll", {"missing_ms": 2500, "servfail": False}),
        ("host-reports-others", "poll", {"max_ms": 0, "missing_ms": 1000}),
        ("registrar-lies-ghosts", "enrp", {"max_ms": 0}),
        ("identifier-zero", "enrp", {"missing_ms": 1000, "dead_ms": None}),
        ("as-and-home-registrar-killed", "enrp", {"max_ms": 2500}),
        ("backend-killed", "enrp", {"p99_ms": 1000}),
        ("as-unreachable-from-name-servers", "poll", {"p50_ms": 500, "max_ms": 1000, "missing_ms": 1000}),
        ("all-unreachable-from-name-servers", "enrp", {"max_ms": 0}),
        ("name-server-killed", "enrp", {"max_ms": 0}),
        ("site-lost", "enrp", {"p50_ms": 20}),
        ("site-unreachable-from-name-servers", "enrp", {"max_ms": 0}),
    ],
)
def test_the_bounds_of_the_design_are_what_a_fault_is_held_to(
    name: str, follow: FollowMethod, bounds: dict[str, float | None]
) -> None:
    held_to = next(fault for fault in ALL_FAULTS if fault.name == name).bounds_for(follow)
    assert {key: getattr(held_to, key) for key in bounds} == bounds


def test_a_trial_in_words_names_what_happened() -> None:
    text = describe(
        "partition", ChaosTrial(last_wrong_ms=12, servfail=3, answers=5, timeouts=2, problem="gone")
    )
    assert text.startswith("partition: last wrong after 12 ms")
    assert text.endswith("0 empty, 3 SERVFAIL, 2 unanswered of 7; gone")


def test_the_long_handle_is_33_bytes_long() -> None:
    sent = long_handle(("", 0))
    assert int.from_bytes(sent[2:4], "big") == len(sent) == 4 + 4 + 36
    assert int.from_bytes(sent[6:8], "big") == 4 + 33


def test_the_page_tells_each_fault_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    cases = [Case("as-killed", 3, "enrp"), Case("as-killed", 3, "poll"), Case("pdns-killed", 3, "enrp")]
    rows = [summarize(case, [ChaosTrial(last_wrong_ms=20, answers=9)], Bounds(max_ms=10)) for case in cases]
    page = tmp_path / "chaos.html"
    write_page(page, page_of(rows, slack=2))
    text = page.read_text()
    assert text.count("<svg") == 2, "one for each size of pool and way to follow"
    assert "bounds were broken by as-killed, pdns-killed" in text
    assert "SIGKILL to one PowerDNS" in text
    assert "<h2>Pools of 3, registrars polled only</h2>" in text
    assert "multiplied by 2" in text
    assert not re.search(r'(src|href)="(?!#)', text)


def test_labs_side_by_side_run_each_trial_once_and_one_that_ends_is_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run_in_lab(_order: Order, _setting: object, left: Sequence[Any], _say: object) -> Iterator[CaseTrial]:
        for trial, case, _ in left:
            if trial == 1 and not (tmp_path / "ended").exists():
                (tmp_path / "ended").touch()
                raise LabError("a part did not start")
            yield CaseTrial(case, ChaosTrial(answers=trial))

    monkeypatch.setattr(chaos, "_run_in_lab", run_in_lab)
    order = Order(ALL_FAULTS[:2], (3,), ("enrp",), trials=3)
    said: list[str] = []
    found = [each for several in run_chaos(order, [], said.append, jobs=2) for each in several]
    assert Counter(each.case.fault for each in found) == {fault.name: 3 for fault in ALL_FAULTS[:2]}
    assert said == ["a lab ended: a part did not start"]


def test_a_pool_of_twelve_is_not_judged_by_who_came_back() -> None:
    cases = {(case.fault, case.members) for case, _ in Order().cases()}
    assert ("as-back", 3) in cases
    assert ("as-back", 12) not in cases


def test_what_is_for_verified_or_keyed_pools_runs_in_a_lab_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Probes by the backends would help against other faults too, which are judged without."""
    labs = []

    @contextlib.contextmanager
    def lab(setting: LabSetting) -> Iterator[MagicMock]:
        labs.append((setting.verified, setting.keyed, setting.cells, setting.fastpath))
        yield MagicMock()

    monkeypatch.setattr(chaos, "Lab", lab)
    monkeypatch.setattr(chaos, "_run_trial", lambda *_: ChaosTrial(answers=1))
    order = Order(sizes=(3,), follows=("enrp",), trials=2)
    found = Counter(trial.case.fault for several in run_chaos(order, [], lambda _: None) for trial in several)
    kinds = [(False, False, False), (True, False, False), (False, True, False)]
    assert labs == [(*kind, False) for kind in kinds]
    of_three = [fault for fault in ALL_FAULTS if 3 in fault.sizes]
    assert found == {fault.name: 2 for fault in of_three if not fault.fastpath}
    labs.clear()
    list(run_chaos(replace(order, sizes=(8,)), [], lambda _: None))
    assert labs == [(False, False, False, False), (False, False, True, False)], "at sites, and in cells"
    labs.clear()
    order = replace(order, fastpath=True)
    found = Counter(trial.case.fault for several in run_chaos(order, [], lambda _: None) for trial in several)
    assert labs == [(*kind, fastpath) for kind in kinds for fastpath in (False, True)]
    assert found == {fault.name: 2 if fault.fastpath else 4 for fault in of_three}


def test_answers_from_the_kernel_are_compared_with_those_of_powerdns() -> None:
    def rows(kernel_ms: float, trials: int) -> list[tuple[str, ...]]:
        order = Order(sizes=(3,), follows=("poll",), fastpath=True)
        found = [
            CaseTrial(Case("as-killed", 3, "poll", fastpath), ChaosTrial(last_wrong_ms=time_ms, answers=9))
            for fastpath, time_ms in ((False, 10.0), (True, kernel_ms))
            for _ in range(trials)
        ]
        assert [read_trial(trial.as_json()) for trial in found] == found
        return [row.problems for row in order.rows(found)]

    assert rows(12, 5) == [(), ()]
    assert rows(30, 5) == [(), ("p50 30 ms, without answers from the kernel at most 10 ms",)]
    assert rows(30, 4) == [(), ()]


def test_faults_of_the_fast_path_need_it() -> None:
    done = CliRunner().invoke(main, ["chaos", "--fault=fastpath-killed"])
    assert done.exit_code == 2, done.output
    assert "fastpath-killed: only with --fastpath" in done.output


def test_registrars_are_followed_and_polled_in_one_run_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    labs: list[tuple[int, str]] = []

    @contextlib.contextmanager
    def lab(setting: LabSetting) -> Iterator[MagicMock]:
        labs.append((setting.members, setting.follow))
        yield MagicMock()

    monkeypatch.setattr(chaos, "Lab", lab)
    monkeypatch.setattr(chaos, "_run_trial", lambda *_: ChaosTrial(answers=1))
    monkeypatch.setattr(trials, "become_root", lambda: None)

    def run(*arguments: str) -> list[tuple[int, str, int]]:
        labs.clear()
        file = tmp_path / "chaos.json"
        done = CliRunner().invoke(main, ["chaos", "--fault=as-killed", f"--json={file}", *arguments])
        assert done.exit_code == 0, done.output
        rows = [
            (row["members"], row["follow"], row["trials"]) for row in json.loads(file.read_text())["faults"]
        ]
        assert [row[:2] for row in rows] == labs
        assert done.stdout.count(", registrars followed by ENRP\n") == sum(
            follow == "enrp" for _, follow in labs
        )
        assert done.stdout.count(", registrars polled only\n") == sum(follow == "poll" for _, follow in labs)
        return rows

    every = [(size, follow, 2) for size in (2, 3, 12) for follow in ("enrp", "poll")]
    assert run("--trials=2") == every
    assert run("--trials=2", "--follow=enrp", "--follow=poll", "--follow=enrp") == every
    assert run("--trials=2", "--follow=poll", "--members=3") == [(3, "poll", 2)]
    assert run("--quick") == [(3, "enrp", 1)]
    assert run("--quick", "--follow=poll") == [(3, "poll", 1)]


def test_a_fault_that_no_chosen_pool_has_is_no_broken_bound() -> None:
    done = CliRunner().invoke(main, ["chaos", "--fault=as-back", "--members=12"])
    assert done.exit_code == 2, done.output
    assert "as-back: not in pools of 12" in done.output


def test_a_client_that_asks_no_more_was_told_nothing_right(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = LabError("prober on client ended unexpectedly")
    lab = MagicMock(expect_asked=MagicMock(side_effect=ended))
    monkeypatch.setattr(chaos, "Lab", MagicMock(return_value=MagicMock(__enter__=lambda _: lab)))
    monkeypatch.setattr(chaos, "PHASE_S", 0.0)
    monkeypatch.setattr(chaos, "_watch", lambda *_: None)
    monkeypatch.setattr(chaos, "_judge", lambda *_: ChaosTrial(answers=1))
    fault = next(fault for fault in ALL_FAULTS if fault.name == "pdns-killed")
    order = Order((replace(fault, strike=MagicMock()),), (3,), ("enrp",), trials=1)
    found = [trial for several in run_chaos(order, [], lambda _: None) for trial in several]
    (row,) = order.rows(found)
    assert "the lab did not recover: prober on client ended unexpectedly" in row.problems


def test_each_way_to_follow_is_held_to_its_own_bounds() -> None:
    trial = ChaosTrial(last_wrong_ms=30, answers=10)
    found = [CaseTrial(Case("as-killed", 3, follow), trial) for follow in FOLLOWS]
    problems = {row.case.follow: row.problems for row in Order().rows(found)}
    assert problems == {"enrp": ("p50 30 ms, allowed are 15 ms",), "poll": ()}


def test_a_run_that_is_interrupted_shows_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([ChaosTrial(last_wrong_ms=12, answers=10)])

    def run_trial(*_: object) -> ChaosTrial:
        try:
            return next(left)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(chaos, "Lab", MagicMock())
    monkeypatch.setattr(chaos, "_run_trial", run_trial)
    monkeypatch.setattr(trials, "become_root", lambda: None)
    done = CliRunner().invoke(main, ["chaos", "--quick"])
    assert done.exit_code == 130, done.output
    assert "| as-killed | 1 | 12 ms | 12 ms |" in done.stdout
    assert done.stderr.endswith("interrupted; everything is cleaned up\n")


def ask_of(at_s: float, server: str, by: str, transport: str = "udp") -> Asked:
    return Asked(at_s, server, transport, by)


def test_a_living_server_is_wrong_until_it_answers_by_itself() -> None:
    asked = [
        ask_of(9.0, "as1", ""),
        ask_of(10.5, "as1", "as2"),
        ask_of(11.0, "as1", "as1"),
        ask_of(11.5, "as1", "", "tcp"),
        ask_of(12.0, "as2", ""),
    ]
    assert wrong_for_ms(asked, "as1", "udp", 10.0) == 500.0
    assert wrong_for_ms(asked, "as1", "tcp", 10.0) == 1500.0
    assert wrong_for_ms(asked, "as3", "udp", 10.0) == 0.0


def test_a_dead_server_is_wrong_until_another_one_answers() -> None:
    asked = [ask_of(10.0, "as1", ""), ask_of(10.5, "as1", "as1"), ask_of(11.0, "as1", "as2")]
    assert wrong_for_ms(asked, "as1", "udp", 9.0, is_dead=True) == 1500.0
    assert wrong_for_ms(asked, "as1", "udp", 10.6, is_dead=True) == 0.0


def test_ended_connection_to_a_server_that_lived_is_told_unless_the_relaying_agent_died() -> None:
    found = [
        PpuTrial("ppu-loss", 1, 0.0, 0.0, 100, ended=2),
        PpuTrial("ppu-killed", 1, 0.0, 0.0, 100, ended=1),
    ]
    assert ppu_report(1.0).problems(found) == ["ppu-loss: 2 connections to servers that lived were ended"]


def test_the_worst_trial_of_a_fault_of_ppu_agent_counts_and_no_probe_is_no_success() -> None:
    found = [
        PpuTrial("ppu-member-back", 1, 10.0, 0.0, 100),
        PpuTrial("ppu-member-back", 2, 0.0, 60.0, 100),
        PpuTrial("ppu-member-out", 1, 0.0, 0.0, 0),
    ]
    report = ppu_report(1.0)
    broken = report.problems(found)
    assert [problem.partition(":")[0] for problem in broken] == ["ppu-member-out", "ppu-member-back"]
    assert ppu_report(1.5).problems(found[:2]) == []
    assert report.figures(found)["rows"][1]["wrong_tcp_ms"] == 60.0
    assert "from when it is in again | 2 | 10 | 60 | 50 |" in tables_of(report.page(found))
