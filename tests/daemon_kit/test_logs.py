"""Logs: what every service loads for them, and that no source can fill them."""

import subprocess
import sys
from collections.abc import Sequence

from daemon_kit.logs import MOST_OF_A_KIND, MOST_OF_A_SOURCE, MOST_SOURCES, WINDOW_S, LogLimit

PROGRAM = """
import sys
from daemon_kit import logs
assert not [one for one in sys.modules if one.startswith("rich")], "5 MB for colours that no log has"
import rich.console  # a command may, later
logs.configure("info")
try:
    {}["missing"]
except KeyError as problem:
    logs.get_logger("part").error("it_happened", exc_info=problem)
"""


def test_services_do_without_rich_and_show_tracebacks_all_the_same() -> None:
    done = subprocess.run(
        (sys.executable, "-c", PROGRAM), capture_output=True, text=True, timeout=60, check=True
    )
    assert "it_happened" in done.stderr
    assert "KeyError: 'missing'" in done.stderr


FLOOD = """
import time
from daemon_kit import logs
logs.WINDOW_S = 1.0
logs.configure("info", json=True)
log = logs.get_logger("belief")
end_s = time.monotonic() + 3.5
lines = 0
while time.monotonic() < end_s:
    log.info("joined", handle="sip", identifier=f"{lines:08x}", why="10.0.0.1 port 5060", _source="10.0.0.1")
    lines += 1
    time.sleep(0.001)
log.info("left", handle="sip", why="another kind", _source="10.0.0.1")
log.info("joined", handle="sip", why="another source", _source="10.0.0.2")
time.sleep(1.5)
"""


def admitted(limit: LogLimit, sources: Sequence[str], now: float, event: str = "joined") -> int:
    return sum(limit.admits("belief", event, source, now) for source in sources)


def test_lines_of_one_source_in_ten_seconds_are_limited() -> None:
    limit = LogLimit()
    assert admitted(limit, ["10.0.0.1"] * 3000, 0.0) == MOST_OF_A_SOURCE
    assert admitted(limit, ["10.0.0.2"], 1.0) == 1, "another source is not silenced by it"
    assert admitted(limit, ["10.0.0.1"], 1.0, "left") == 1, "nor is another kind"
    assert limit.next_over_s == WINDOW_S
    assert limit.over(WINDOW_S - 0.1) == []
    (left_out,) = limit.over(WINDOW_S)
    assert (left_out.event, left_out.lines, left_out.sources) == ("joined", 3000 - MOST_OF_A_SOURCE, 1)
    assert admitted(limit, ["10.0.0.1"], WINDOW_S) == 1
    assert limit.next_over_s is None


def test_of_many_sources_so_many_lines_of_a_kind_are_written() -> None:
    limit = LogLimit()
    sources = [f"10.0.{number // 250}.{number % 250}" for number in range(5000)]
    assert admitted(limit, sources, 0.0) == MOST_OF_A_KIND
    (left_out,) = limit.over(WINDOW_S)
    assert left_out.lines == left_out.sources == 5000 - MOST_OF_A_KIND


def test_sources_without_end_fill_no_memory() -> None:
    limit = LogLimit()
    admitted(limit, [str(number) for number in range(3 * MOST_SOURCES)], 0.0)
    kind = limit._kinds["belief", "joined"]
    assert len(kind.of_source) + len(kind.silenced) <= 2 * MOST_SOURCES


def test_a_flood_is_told_of_with_its_number_also_when_nothing_else_is_logged() -> None:
    done = subprocess.run(
        (sys.executable, "-c", FLOOD), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.count('"event": "joined"') <= 6 * (MOST_OF_A_SOURCE + 1)
    assert len(done.stderr) < 60_000
    assert "another kind" in done.stderr
    assert "another source" in done.stderr
    assert "_source" not in done.stderr
    assert done.stderr.rstrip().splitlines()[-1].count("lines_left_out") == 1
