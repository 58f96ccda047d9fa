"""The demo's judgement and its story, on made-up observations."""

import io
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console
from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import APPLICATION_SERVERS
from rspdns_lab.demo.steps import STEPS, Step, StepFault, StepResult, Undo, all_named_ms
from rspdns_lab.demo.story import answer_in_words, client_events, show_end, show_undone
from rspdns_lab.observe.observations import Reading
from rspdns_lab.observe.part_logs import in_words, log_events
from rspdns_lab.observe.verdict import Kind, Observation, judge

ALL = frozenset(APPLICATION_SERVERS.values())
DEAD = frozenset({APPLICATION_SERVERS["as1"]})


def observation(asked_at_s: float, names: frozenset[str], kind: Kind = Kind.ANSWER) -> Observation:
    return Observation(0, 0, True, asked_at_s, asked_at_s + 0.001, kind, names)


def result(bound_ms: float, *observations: Observation) -> StepResult:
    def nothing(_lab: Lab) -> StepFault:
        raise NotImplementedError

    fault = StepFault(10.0, "as1 killed", ALL - DEAD, DEAD, servers=(0,))
    verdict = judge(observations, fault.at_s, fault.live, fault.dead, fault.servers)
    return StepResult(
        Step("as-killed", "killed", nothing, bound_ms), fault, verdict, list(observations), 12.0
    )


def test_within_the_bound_there_is_no_problem() -> None:
    assert not result(500, observation(10.01, ALL), observation(10.05, ALL - DEAD)).problems


def test_broken_bounds_are_named() -> None:
    late = result(500, observation(10.6, ALL))
    assert "wrong until 601.0 ms" in late.problems[0]
    assert result(0, observation(10.0, ALL)).problems
    assert result(500).problems == ["no answers at all"]


@pytest.mark.parametrize("kind", [Kind.EMPTY, Kind.SERVFAIL, Kind.MALFORMED])
def test_an_empty_or_failed_answer_is_a_problem_however_short(kind: Kind) -> None:
    assert result(500, observation(10.001, frozenset(), kind), observation(10.1, ALL - DEAD)).problems


def test_the_figures_have_the_names_programs_read() -> None:
    figures = json.loads(json.dumps(result(500, observation(10.0369, ALL)).as_json()))
    assert {
        "name": "as-killed",
        "last_wrong_ms": 37.9,
        "wrong": 1,
        "empty": 0,
        "servfail": 0,
    }.items() <= figures.items()


def test_the_steps_have_the_announced_names() -> None:
    assert [step.name for step in STEPS] == [
        "as-killed",
        "as-back",
        "as-drained",
        "as-link-cut",
        "registrar-killed",
        "name-server-killed",
    ]


def test_the_client_tells_the_last_wrong_and_the_first_right_answer() -> None:
    seen = [observation(10.01, ALL), observation(10.02, ALL), observation(10.03, ALL - DEAD)]
    events = client_events(seen, result(500, *seen).fault)
    assert [round(event.at_s, 3) for event in events] == [10.021, 10.031]
    assert "last wrong" in events[0].what


def test_logs_become_events_in_monotonic_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    now_s = time.monotonic()
    entry = {"check": "tcp-hold", "saw": "nothing listens", "level": "info"}
    lines = [
        {**entry, "event": "check_down", "timestamp": wall_time(0)},
        {**entry, "event": "unknown_to_the_story", "timestamp": wall_time(0)},
        {**entry, "event": "check_up", "timestamp": wall_time(-60)},
        {**entry, "event": "check_up"},
        {"event": "check_up", "timestamp": wall_time(0)},
    ]
    log.write_text("plain text\n{broken\n[1]\n" + "".join(json.dumps(line) + "\n" for line in lines))
    events = log_events(log, "as1", "agent", (now_s - 10, now_s + 10), {})
    assert [(event.where, event.what) for event in events] == [
        ("as1 agent", "tcp-hold: nothing listens; it is down")
    ]
    assert abs(events[0].at_s - now_s) < 5
    assert log_events(tmp_path / "missing", "x", "agent", (0, 1), {}) == []


def wall_time(offset_s: float) -> str:
    return datetime.fromtimestamp(time.time() + offset_s, UTC).isoformat()


def test_addresses_and_identifiers_are_told_as_names() -> None:
    entry = {"event": "left", "identifier": "1f2e3d4c", "why": "its home 10.53.0.11 answers without it"}
    names = {"1f2e3d4c": "as1", "10.53.0.11": "r1"}
    assert in_words("backend", entry, names) == "as1 is out: its home r1 answers without it"


def test_an_answer_is_told_with_weights() -> None:
    reading = Reading(
        Kind.ANSWER, frozenset({APPLICATION_SERVERS["as1"]}), ((APPLICATION_SERVERS["as1"], 0, 800),)
    )
    assert answer_in_words(reading) == "as1 (weight 800)"
    assert answer_in_words(None) == "nothing"


def shown(show: Callable[[Console], None], width: int = 120) -> str:
    file = io.StringIO()
    show(Console(file=file, width=width))
    return file.getvalue()


def test_the_end_shows_every_step_its_bound_and_that_it_was_kept() -> None:
    text = shown(lambda console: show_end(console, [result(500, observation(10.0369, ALL))]))
    row = next(line for line in text.splitlines() if "as-killed" in line)
    assert "37.9 ms" in row
    assert "500 ms" in row
    assert text.splitlines()[-1] == "all bounds kept"


def test_a_narrow_terminal_cuts_no_word() -> None:
    step = result(500, observation(10.0369, ALL))
    lines = shown(lambda console: show_end(console, [step]), width=60).splitlines()
    assert lines[1:] == [
        "How long clients were told wrong",
        "as-killed, bound: 500 ms",
        "  last wrong answer 37.9 ms after it",
        "  1 wrong, 0 empty, 0 SERVFAIL of 1",
        "all bounds kept",
    ]


def test_the_end_says_which_bound_was_broken() -> None:
    results = [result(500, observation(10.1, ALL)), result(50, observation(10.1, ALL))]
    last = shown(lambda console: show_end(console, results)).splitlines()[-1]
    assert last == "bounds broken: as-killed (wrong until 101.0 ms, allowed are 50 ms)"


def test_an_undone_fault_is_told_with_the_time_until_dns_named_all_again() -> None:
    seen = [
        observation(9.99, ALL),
        observation(10.01, ALL - DEAD),
        observation(10.02, ALL),
        observation(10.5, ALL),
        Observation(1, 0, True, 10.03, 10.0345, Kind.ANSWER, ALL),
    ]
    back_ms = all_named_ms(seen, 10.0, ALL)
    assert back_ms == 34.5
    undo = Undo("as2 undrained", lambda _lab: 10.0)
    assert shown(lambda console: show_undone(console, undo, back_ms)) == (
        "  as2 undrained; back in DNS after 34.5 ms\n"
    )


def test_many_unanswered_questions_are_a_problem_a_single_one_is_not() -> None:
    good = [observation(10.1 + number / 1000, ALL - DEAD) for number in range(100)]
    lost = Observation(0, 0, True, 10.5, None, Kind.TIMEOUT)
    assert not result(500, *good, lost).problems
    assert result(500, *good, *[lost] * 50).problems == ["50 questions unanswered"]
