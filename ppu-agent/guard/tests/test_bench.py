"""The measurements of `rspdns-lab guard`, and its words about them."""

import os
import signal
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from guard_bench.lab import GuardLab, GuardPlace
from guard_bench.measure import GuardTrial, Load, Memory, SetUp, measure_load, read_trial
from guard_bench.report import BYTES_BELOW, REPORT, page_of, problems
from rspdns_lab.report.page import tables_of, write_page

from tests.support.waiting import until

GUARDED = SetUp("gateway", "routed", [0.3, 501.0, 1002.0, 1504.0], 2004.0, "ECONNREFUSED")
ALONE = SetUp("nothing", "routed", [0.3, 1024.0, 2050.0], None, "waits on")
LOAD = Load("routed", 1000, 1010, 3, 6000, 5990, 10, 0, 0, 1.0, 9.0, 0.9, 8.0, 0.8, 2.0, 0.3, 1.0, 6.0)
MEMORY = Memory(100_000, 100_000, 100_000, 9_700_000)
ALL: list[GuardTrial] = [ALONE, GUARDED, LOAD, MEMORY]


def test_promises_are_kept_or_named() -> None:
    assert problems(ALL) == []
    cases: list[tuple[GuardTrial, str]] = [
        (replace(GUARDED, syns_ms=[0.3, 1024.0], ended_ms=None), "SYNs at 0, 1024 ms"),
        (replace(GUARDED, ended_ms=2600.0), "routed, guarded by gateway"),
        (replace(LOAD, open=2), "2 set-ups were not closed"),
        (replace(LOAD, added_answer_p50_us=21.0), "the median delay grew by 0.8 us (SYN) and 21 us"),
        (replace(MEMORY, refused=99_999), "100,000 set-ups at a time: 99,999 refused"),
        (replace(MEMORY, memory_bytes=BYTES_BELOW + 1), "10,000,001 bytes"),
    ]
    for broken, words in cases:
        (told,) = problems([broken])
        assert words in told
    assert problems([replace(LOAD, rate_per_s=200_000, open=2)]) == [], "nobody promised that"


def test_trials_come_back_from_a_file_and_are_told(tmp_path: Path) -> None:
    assert [read_trial(asdict(trial)) for trial in ALL] == ALL
    assert REPORT.figures(ALL)["ok"] is True
    assert REPORT.figures([])["ok"] is False
    text = tables_of(page_of(ALL))
    assert "| `[gateway]` | 0, 501, 1002, 1504 | 2004 | ECONNREFUSED |" in text
    assert "| +0.8, +2.0 |" in text
    file = tmp_path / "guard.html"
    write_page(file, page_of([*ALL, replace(LOAD, rate_per_s=5000), replace(LOAD, way="bridged")]))
    assert "164 us in the median" in file.read_text()


@pytest.mark.integration
@pytest.mark.parametrize("way", ["routed", "bridged"])
def test_every_set_up_of_the_labs_own_load_is_closed(way: GuardPlace) -> None:
    (found,) = measure_load(way, [1000], 0.2, 1, lambda words: None)
    assert (found.sent, found.open, found.unguarded) == (200, 0, 0)
    assert found.syn_p50_us > 0
    assert found.processor_us > 0


@pytest.mark.integration
def test_set_ups_wait_for_a_guard_that_is_held_up() -> None:
    """Set-ups that begin while it has no processor are repeated when it has: the ring holds more than 9,000.

    A machine that stands still may lose some on the way, or let the lease end.
    """
    with GuardLab("routed") as lab:
        lab.deafen()
        guard = lab.guard(pending=20_000)

        def held_up(set_ups: int) -> Mapping[str, Any]:
            """The guard's figures after it was held up during this number of set-ups."""
            os.kill(guard.pid, signal.SIGSTOP)
            lab.generate(set_ups, 100_000, burst=16, seed=set_ups, wait_ms=0)
            before = guard.counters
            os.kill(guard.pid, signal.SIGCONT)
            until(lambda: guard.counters is not before and guard.counters["pending"] == 0)
            return guard.counters

        try:
            few = held_up(9000)
            assert (few["behind_count"], few["full_count"]) == (0, 0)
            assert few["given_up_count"] == few["guarded_count"]
            many = held_up(15_000)
            assert many["behind_count"] + many["unattended_count"] > 0
        finally:
            guard.stop()
