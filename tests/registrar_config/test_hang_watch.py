"""A registrar that hangs is told from one that is slow, starting, debugged or cut off."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from registrar_config.hang_watch import (
    BACKOFF_S,
    LIMIT_S,
    HangWatch,
    Hung,
    RegistrarFault,
    Unreachable,
    Vitals,
    read_vitals,
)

STOPPED = Vitals(waits=100, cpu_s=1.0, state="T")
WAITING = replace(STOPPED, state="S")
Seen = Callable[[int], Vitals | None]


def looks(
    watch: HangWatch, from_s: int, until_s: int, seen: Seen, heard_at_s: float | None = None
) -> list[tuple[int, RegistrarFault]]:
    """Look every second; return what was found, and when."""
    found = [(now, watch.look(now, seen(now), heard_at_s)) for now in range(from_s, until_s)]
    return [(now, finding) for now, finding in found if finding is not None]


def well(now: int) -> Vitals:
    return Vitals(waits=20 * now, cpu_s=0.01 * now, state="S")


def heard_until_10() -> HangWatch:
    """A registrar that was started at 0 and answered every second until 10."""
    watch = HangWatch()
    watch.started(0)
    for now in range(11):
        assert watch.look(now, well(now), float(now)) is None
    return watch


def test_a_stopped_registrar_hangs_after_ten_seconds_and_not_before() -> None:
    [(found_s, finding)] = looks(heard_until_10(), 11, 40, lambda _: STOPPED, 10.0)
    assert LIMIT_S <= found_s - 10 <= LIMIT_S + 2
    assert isinstance(finding, Hung)
    assert "SIGSTOP" in finding.problem


def test_a_registrar_that_woke_in_time_does_not_hang() -> None:
    watch = heard_until_10()
    assert looks(watch, 11, 19, lambda _: STOPPED, 10.0) == []
    assert looks(watch, 19, 20, well, 19.0) == []
    assert looks(watch, 20, 29, lambda _: STOPPED, 19.0) == []


def test_a_deadlock_and_an_endless_loop_hang_too() -> None:
    [(_, deadlock)] = looks(heard_until_10(), 11, 40, lambda _: WAITING, 10.0)
    [(_, loop)] = looks(heard_until_10(), 11, 40, lambda now: Vitals(100, 0.9 * now, "R"), 10.0)
    assert isinstance(deadlock, Hung)
    assert isinstance(loop, Hung)
    assert deadlock.problem != loop.problem


def test_a_registrar_that_gets_no_processor_or_waits_for_a_disk_is_slow() -> None:
    starved = Vitals(100, 1.0, "R")
    for seen in (lambda now: replace(starved, cpu_s=0.1 * now), lambda _: replace(starved, state="D")):
        assert looks(heard_until_10(), 11, 100, seen, 10.0) == []


def test_a_registrar_that_answers_late_is_slow() -> None:
    watch = heard_until_10()
    for now in range(11, 200):
        assert watch.look(now, STOPPED, now - now % 9) is None


def test_a_debugged_registrar_is_left_alone_and_then_counted_anew() -> None:
    watch = heard_until_10()
    assert looks(watch, 11, 200, lambda _: Vitals(100, 1.0, "t", is_traced=True), 10.0) == []
    [(found_s, _)] = looks(watch, 200, 230, lambda _: STOPPED, 10.0)
    assert found_s >= 199 + LIMIT_S


def test_a_working_registrar_that_is_not_heard_is_left_alone_and_told_once() -> None:
    watch = heard_until_10()
    [(found_s, finding)] = looks(watch, 11, 300, well, 10.0)
    assert found_s - 10 >= LIMIT_S
    assert isinstance(finding, Unreachable)
    assert "overloaded" in finding.problem
    assert looks(watch, 300, 301, well, 300.0) == []
    assert len(looks(watch, 301, 330, well, 300.0)) == 1, "a second time, since it was heard in between"


def test_a_starting_registrar_has_thrice_the_time() -> None:
    watch = HangWatch()
    watch.look(0, well(0), 0.0)
    watch.started(100)
    [(found_s, _)] = looks(watch, 101, 150, lambda _: WAITING, 99.0)
    assert found_s - 100 >= 3 * LIMIT_S


def test_a_pause_of_ours_counts_for_nothing() -> None:
    watch = heard_until_10()
    assert looks(watch, 11, 19, lambda _: STOPPED, 10.0) == []
    assert watch.look(60, STOPPED, 10.0) is None
    [(found_s, _)] = looks(watch, 61, 90, lambda _: STOPPED, 10.0)
    assert found_s >= 60 + LIMIT_S


def test_a_process_of_which_nothing_is_known_is_left_alone() -> None:
    assert looks(heard_until_10(), 11, 100, lambda _: None, 10.0) == []


def test_a_hung_registrar_is_not_killed_again_before_the_back_off() -> None:
    watch = heard_until_10()
    [(first_s, _)] = looks(watch, 11, 25, lambda _: STOPPED, 10.0)
    watch.started(25)
    watch.look(26, well(26), 26.0)
    [(second_s, _)] = looks(watch, 27, 110, lambda _: STOPPED, 26.0)
    assert second_s - first_s >= BACKOFF_S


def test_the_vitals_of_a_process_tell_running_stopped_and_gone() -> None:
    code = "import sys, time\nprint(flush=True)\nwhile True: time.sleep(0.01)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            first = read_vitals(process.pid)
            while (now := read_vitals(process.pid)) and first and now.waits < first.waits + 3:
                time.sleep(0.01)
            assert now
            assert (now.state, now.is_traced) in (("S", False), ("R", False))
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            stopped = read_vitals(process.pid)
            assert stopped
            assert stopped.state == "T"
            assert stopped == read_vitals(process.pid)
        finally:
            process.kill()
    assert read_vitals(process.pid) is None
