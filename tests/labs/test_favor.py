"""The lab of REDFavor: its sessions, its figures, its judgement, TCP's initial timeout."""

import asyncio
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import mean

import pytest
from rspdns_lab.favor.cli import REPORT, problems
from rspdns_lab.favor.initial_timeout import initial_timeout
from rspdns_lab.favor.lab import FavorTrial, read_flows, run_trial
from rspdns_lab.favor.uplink import PROBES, QUEUES, UplinkLab, UplinkTrial
from rspdns_lab.favor.uplink import REPORT as UPLINK_REPORT
from rspdns_lab.favor.workload import object_packets, round_trips_ms, session
from rspdns_lab.link import DirectionCounters
from rspdns_lab.observe.percentiles import percentile

COUNTERS = DirectionCounters(*[0] * len(DirectionCounters._fields))._replace(
    arrived=1000, delivered_bytes=125_000_000, early=40, full=9, displaced=1, syns=100
)
TRIAL = FavorTrial("REDFavor", 500.0, COUNTERS, (100, 0), [(3, 80.0), (13, 9000.0), (2, None)])


def trials(**syns_dropped: int) -> Sequence[FavorTrial]:
    return [
        replace(TRIAL, discipline=name, counters=COUNTERS._replace(syns_dropped=count))
        for name, count in syns_dropped.items()
    ]


def test_sessions_are_those_published_and_repeat_with_the_seed() -> None:
    pages = list(islice(session(1), 5000))
    assert pages == list(islice(session(1), 5000)) != list(islice(session(2), 5000))
    assert mean(len(page.packets) for page in pages) == pytest.approx(3.15, rel=0.1)
    assert mean(page.think_s for page in pages) == pytest.approx(5, rel=0.1)
    assert {page.server for page in pages} == set(range(9))
    sizes = sorted(object_packets(random.Random(seed)) for seed in range(5000))
    assert sizes[0] == 2
    assert sizes[2500] == pytest.approx(2 * 2 ** (1 / 1.2), abs=1)
    assert (round_trips_ms()[0], round_trips_ms()[-1]) == (5, 100)


def test_a_dropped_syn_or_another_order_breaks_the_promise() -> None:
    assert problems(trials(CHOKe=196, RED=3391, REDFavor=0)) == []
    assert problems(trials(REDFavor=1)) == ["REDFavor dropped 1 SYNs"]
    assert len(problems(trials(CHOKe=400, RED=391, REDFavor=0))) == 1
    short = [replace(trial, seconds=18) for trial in trials(CHOKe=400, RED=391, REDFavor=0)]
    assert problems(short) == []
    there = replace(TRIAL, syns_there=(100, 2))
    assert problems([there]) == ["REDFavor dropped 2 SYNs"]


def test_figures_stand_beside_the_published_figures() -> None:
    found = trials(CHOKe=196, RED=3391, REDFavor=0, **{"drop-tail": 5})
    page = REPORT.page([REPORT.read(dict(REPORT.write(trial))) for trial in found])
    beside, objects, _ = (section.table for section in page.sections)
    assert list(beside[3]) == ["REDFavor", "50 (33,150)", "0.050 (0.073)", "0 (0)", "20.0% (96.7%)"]
    assert list(beside[4][1:3]) == ["50", "0.050"], "drop-tail was not published"
    assert objects[3][:3] == ["REDFavor", "1", "80"], "larger objects and those that failed are left out"


def test_only_objects_that_began_while_it_was_measured_count() -> None:
    text = "9.0 2 50.0\n10.0 3 60.5\n11.5 4 -1.000\n20.0 5 9.0\n12.0 6 1"
    assert read_flows(text, 10.0, 20.0) == [(3, 60.5), (4, None)]


@pytest.mark.integration
def test_redfavor_loses_no_syn_of_real_tcp_on_a_full_link() -> None:
    trial = run_trial("REDFavor", 5.0, 3.0)
    assert (trial.syns_dropped, problems([trial])) == (0, [])
    assert trial.counters.syns > 10
    assert trial.counters.arrived > 200
    assert trial.flows


REPEATED = """
import socket, sys, time
open(sys.argv[1], "w").write("0")
sock = socket.socket()
sock.setblocking(False)
sock.connect_ex(("127.0.0.1", 9))
time.sleep(1.5)
state, _, repeats = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 3)
print(state, repeats)
"""
SYN_SENT = 2
SILENT = """
ip link set lo up
nft -f - <<END
table inet silent { chain input { type filter hook input priority 0; tcp dport 9 drop; }; }
END
exec "$@"
"""


@pytest.mark.integration
@pytest.mark.parametrize(("timeout_s", "is_repeated"), [(0.2, True), (3.0, False)])
def test_a_syn_is_repeated_after_the_time_asked_for(timeout_s: float, is_repeated: bool) -> None:
    """A port does not answer for 1.5 s, enough for Linux's own first repetition, after 1 s."""
    with initial_timeout(timeout_s) as cgroup:
        command = ["unshare", "--net", "sh", "-c", SILENT, "sh", sys.executable, "-c", REPEATED, str(cgroup)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not cgroup.exists()
    state, repeats = map(int, done.stdout.split())
    assert (state, repeats > 0) == (SYN_SENT, is_repeated)


HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "congested-uplink.md"


def test_the_labs_queues_are_those_of_the_how_to_page() -> None:
    commands = [line[3:] for line in re.findall(r"^tc .*(?=\n)", HOW_TO.read_text(), re.MULTILINE)]
    commands = [line for line in commands if " add " in line]
    assert commands == [*QUEUES["cake"].split("\n"), *QUEUES["HTB, a class; fq_codel"].strip().split("\n")]


def test_uplink_rows_count_probes_without_an_answer() -> None:
    delays = {probe: [40.0, None, 60.0] for probe in PROBES}
    found = [UplinkTrial("cake", kernel, 10.0, 1.5, delays) for kernel in ("6.1", "6.18")]
    found = [UPLINK_REPORT.read(dict(UPLINK_REPORT.write(trial))) for trial in found]
    first, second = UPLINK_REPORT.page(found).sections[0].table[1:]
    assert list(first) == ["cake", "6.1", *["40 (60)"] * 4, "12", "4", "1.50", "0.0"]
    assert list(second[:2]) == ["cake", "6.18"]


@pytest.mark.integration
def test_the_class_keeps_set_up_from_waiting_behind_uploads(caplog: pytest.LogCaptureFixture) -> None:
    p50s = {}
    for queue in ("the modem's queue", "HTB, a class"):
        with UplinkLab(queue) as lab:
            delays, rate = asyncio.run(lab.measure(2.0))
        assert 1 < rate < 3
        p50s[queue] = {probe: percentile([each or 5000.0 for each in delays[probe]], 50) for probe in PROBES}
    assert caplog.messages == [], "asyncio has nothing to complain about"
    before, after = p50s.values()
    assert [probe for probe in PROBES if before[probe] < 3 * after[probe]] == [], p50s
