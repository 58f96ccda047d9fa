"""How long a change takes to reach every PowerDNS, and who is told."""

import asyncio
import time
from dataclasses import replace
from ipaddress import ip_address

import pytest
from pool_user import BeliefEvent, Cause, Code
from prometheus_client.core import HistogramMetricFamily
from rspdns.event_log import (
    LOGGED_EACH,
    MAX_WAITING,
    NAMED_TOGETHER,
    QUEUED,
    REASONS_TOGETHER,
    Convergence,
    EventLog,
)
from structlog.testing import capture_logs

from tests.backend.making import event, member


def test_a_change_is_done_when_every_powerdns_purged_all_its_names() -> None:
    waiting = Convergence(["a", "b"])
    assert waiting.published([1, 2], {"x", "y"}, 10.0) == ()
    assert waiting.purged("a", ["x", "y"], 10.1) == ()
    assert waiting.purged("b", ["x"], 10.1) == ()
    assert waiting.purged("b", ["z", "y"], 10.2) == (1, 2)
    assert waiting.purged("b", ["x", "y"], 10.3) == (), "told once"


def test_a_command_from_before_the_change_does_not_count() -> None:
    waiting = Convergence(["a"])
    waiting.published([1], {"x"}, 10.0)
    assert waiting.purged("a", ["x"], 9.9) == ()
    assert waiting.purged("a", ["x"], 10.0) == (1,)


def test_where_no_powerdns_is_nothing_is_waited_for() -> None:
    waiting = Convergence(["a", "b"])
    waiting.published([1], {"x"}, 10.0)
    assert waiting.purged("a", None, 10.1) == ()
    assert waiting.purged("b", ["x"], 10.1) == (1,)
    assert Convergence([]).published([1], {"x"}, 10.0) == (1,)
    assert waiting.published([2], (), 10.0) == (), "no answer changed"


def test_the_oldest_of_too_many_is_given_up() -> None:
    waiting = Convergence(["a"])
    for number in range(MAX_WAITING + 1):
        waiting.published([number], {f"x{number}"}, 10.0)
    assert waiting.purged("a", ["x0"], 11.0) == ()
    assert waiting.purged("a", ["x1"], 11.0) == (1,)


async def test_listeners_hear_of_an_event_and_again_when_it_has_converged() -> None:
    log = EventLog(["a"])
    with log.listening() as listener:
        log.happened([event(), event("moved")])
        log.published({"x"})
        log.purged("a", ["x"], time.monotonic())
        heard = [await asyncio.wait_for(listener.next(), 10) for _ in range(3)]
    assert [logged.number for logged in heard] == [1, 2, 1]
    first, moved = log.statuses()
    assert first.converged_ms
    assert first.identifier == "00000007"
    assert moved.converged_ms is None, "who moves changes no answer"
    histogram = HistogramMetricFamily("rspdns_convergence_seconds", "")
    log.convergence.add_to(histogram)
    samples = {
        (sample.name.rpartition("_")[2], sample.labels.get("le")): sample.value
        for sample in histogram.samples
    }
    assert samples["count", None] == 1
    assert samples["sum", None] == pytest.approx(first.converged_ms / 1000, abs=0.001)
    assert log.convergence.count == 1
    assert log.counts == {"left": 1, "moved": 1}


def test_what_is_noted_is_written_later_and_before_the_word_that_it_converged() -> None:
    log = EventLog(["a"])
    with capture_logs() as lines:
        log.note([event()])
        log.published({"x"})
        assert not lines, "the answers come first"
        log.purged("a", ["x"], time.monotonic())
        log.write()
    assert [line["event"] for line in lines] == ["left", "converged"]


def test_log_lines_about_ever_new_members_of_a_pool_have_the_same_source() -> None:
    """The limiter counts by kind and source: addresses can be invented without end."""
    with capture_logs() as lines:
        for number in range(100):
            where = (ip_address(f"10.0.1.{number}"),)
            EventLog([]).happened([replace(event(), member=replace(member(7), addresses=where))])
    assert len({line["address"] for line in lines}) == 100
    assert {line["_source"] for line in lines} == {event().handle}


def test_of_a_crowd_the_log_has_a_line_for_each_pool_with_everybody_in_it() -> None:
    crowd = [
        BeliefEvent(
            1.0, "joined", f"p{number % 2}", number, Cause(Code.REGISTERED, registrar=f"{number:08x}")
        )
        for number in range(LOGGED_EACH + 1)
    ]
    with capture_logs() as lines:
        EventLog([]).happened(crowd)
        EventLog([]).happened(crowd[:2])
    assert [line["handle"] for line in lines] == ["p0", "p1", "p0", "p1"]
    together = lines[:2]
    assert sorted(identifier for line in together for identifier in line["identifiers"]) == [
        f"{number:08x}" for number in range(LOGGED_EACH + 1)
    ]
    assert [line["members"] for line in together] == [26, 25]
    first = enumerate(crowd[: 2 * REASONS_TOGETHER])
    assert all(event.words in lines[number % 2]["why"] for number, event in first)
    assert lines[0]["why"].endswith("and 16 more")
    assert lines[3]["identifier"] == "00000001"


def test_of_thousands_the_log_names_some_and_their_number() -> None:
    crowd = [
        BeliefEvent(1.0, "joined", "p", number, Cause(Code.REGISTERED, registrar=f"{number:08x}"))
        for number in range(4000)
    ]
    with capture_logs() as lines:
        EventLog([]).happened(crowd)
    assert [line["members"] for line in lines] == [4000]
    assert len(lines[0]["identifiers"]) == NAMED_TOGETHER


async def test_a_slow_listener_is_let_go() -> None:
    log = EventLog([])
    with log.listening() as listener:
        log.happened([event()] * QUEUED)
        assert not listener.lost
        log.happened([event()])
        assert listener.lost
