"""Each lab's page in Markdown has plots beside it, and tables that fit a page; the trials are invented."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import pytest
from guard_bench import report as guard
from guard_bench.measure import Load, SetUp
from rspdns_lab import loss
from rspdns_lab.bench import cli as bench
from rspdns_lab.bench.changes import Followed
from rspdns_lab.bench.flood import LABELS, Beside, Denied
from rspdns_lab.bench.gate import Guarded
from rspdns_lab.bench.questions import Rate
from rspdns_lab.bench.registrars import Borne
from rspdns_lab.bench.scale import Size
from rspdns_lab.bench.strangers import Strangers
from rspdns_lab.cells import cli as cells
from rspdns_lab.cells.lab import CellLoss, CellServerDeath, UpperLoss
from rspdns_lab.chaos.ppu import PPU_FAULTS, PpuTrial, ppu_report
from rspdns_lab.chaos.report import page_of as page_of_chaos
from rspdns_lab.chaos.run import ALL_FAULTS, Order
from rspdns_lab.chaos.summary import CaseTrial
from rspdns_lab.chaos.verdict import ChaosTrial
from rspdns_lab.compare.report import page_of as page_of_compare
from rspdns_lab.compare.run import StreamTrial
from rspdns_lab.discover import cli as discover
from rspdns_lab.discover.lab import DiscoverTrial
from rspdns_lab.favor import cli as favor
from rspdns_lab.favor import uplink
from rspdns_lab.favor.lab import FavorTrial
from rspdns_lab.ims import ppu as calls_with_ppu
from rspdns_lab.ims import report as calls
from rspdns_lab.ims import shim as calls_over_tcp
from rspdns_lab.ims.calls import CallTrial
from rspdns_lab.link import DirectionCounters
from rspdns_lab.news import cli as news
from rspdns_lab.news.lab import NewsTrial
from rspdns_lab.proxies import cli as proxies
from rspdns_lab.proxies.lab import FAULTS, PROXIES, ProxyTrial
from rspdns_lab.report.page import Page, write_markdown
from rspdns_lab.resolvers import cli as resolvers
from rspdns_lab.resolvers.programs import RESOLVERS
from rspdns_lab.resolvers.run import Delay
from rspdns_lab.secondaries import cli as secondaries
from rspdns_lab.secondaries.lab import ChangeStream, ServerDeath
from rspdns_lab.shim import cli as shim
from rspdns_lab.shim.lab import ShimTrial
from rspdns_lab.voip.report import page_of as page_of_voip
from rspdns_lab.voip.run import VoipTrial

MOST_COLUMNS = 7
T = TypeVar("T")


def invented(kind: type[T], number: int, /, **given: Any) -> T:
    """Return a trial whose figures grow with its number, but for those that are given."""
    hints = get_type_hints(kind)
    return kind(
        **{name: given[name] if name in given else _value(hint, number) for name, hint in hints.items()}
    )


def _value(hint: Any, number: int) -> Any:
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return invented(hint, number)
    if type(None) in get_args(hint):
        hint = get_args(hint)[0]
    plain: Mapping[Any, Any] = {float: 3.5 * number, int: number, str: f"s{number}", bool: number % 2 == 0}
    return plain[hint] if hint in plain else [1.5 * number, 40.0 * number]


def each(kind: type[T], /, **given: Sequence[Any]) -> list[T]:
    """Return trials, one for each of the values that are given."""
    columns = zip(*given.values(), strict=True)
    return [
        invented(kind, number, **dict(zip(given, values, strict=True)))
        for number, values in enumerate(columns, 1)
    ]


CALLED = [(-0.5, 3.0, "as1"), (0.5, 31_999.0, "as2"), (1.5, None, "")]
COUNTERS = [DirectionCounters(*range(number, number + 12)) for number in (10, 20)]
STATES = [{"user": 1.0, "system": 2.0, "softirq": 3.0, "idle": number} for number in (90.0, 80.0)]
FEW = Order(ALL_FAULTS[:3], (3,), ("enrp",), fastpath=True)
CHAOS = [
    CaseTrial(case, ChaosTrial(last_wrong_ms=5.0 * trial, timeouts=trial, answers=9))
    for case, _ in FEW.cases()
    for trial in range(20)
]
RIGHT = [{"PowerDNS itself": [5.0 * trial], "Knot, distributor": [9.0, 10.0 * trial]} for trial in (1, 2)]
SCALE_SIZES = each(Size, pools=[1, 10, 100], members=[1, 10, 10])
PAGES: dict[str, Callable[[], Page]] = {
    "faults": lambda: page_of_chaos(FEW.rows(CHAOS)),
    "faults-ppu-agent": lambda: ppu_report(1.0).page(
        each(PpuTrial, fault=[fault.name for fault in PPU_FAULTS])
    ),
    "loss": lambda: loss.page_of(
        each(loss.LossPart, looks=[[loss.Look(0.0, 0, 0), loss.Look(9.0, 99, number)] for number in (1, 2)])
    ),
    "calls": lambda: calls.page_of(
        each(CallTrial, approach=["static", "rspdns"], fault=["as-killed"] * 2, calls=[CALLED, CALLED[:2]])
    ),
    "calls-with-ppu-agent": lambda: calls_with_ppu.page_of(
        each(CallTrial, approach=["without-udp", "redirect-udp"], fault=["as-killed"] * 2, calls=[CALLED] * 2)
    ),
    "calls-over-tcp": lambda: calls_over_tcp.page_of(
        each(CallTrial, approach=calls_over_tcp.KEYS, calls=[CALLED, CALLED[:2]])
    ),
    "takeover": lambda: page_of_compare(
        each(StreamTrial, approach=["carp", "rspdns"], fault=["power-cut"] * 2, converged_ms=[None, 7.0])
    ),
    "speed": lambda: bench.REPORT.page(each(Rate, variant=["static_qps", "live_qps"], round=[1, 1])),
    "changes": lambda: bench.REPORT.page(each(Followed, kind=["idle", "loaded"])),
    "strangers": lambda: bench.REPORT.page(
        [
            *each(Denied, server=["static", "live"], round=[1, 1], labels=[LABELS[-1]] * 2),
            *each(Beside, server=["static", "live"], round=[1, 1], flood_per_s=[100, 100]),
            *each(Strangers, stranger=["quiet", "lying"]),
        ]
    ),
    "size": lambda: bench.REPORT.page(SCALE_SIZES),
    "registrars": lambda: bench.REPORT.page(each(Borne, elements=[100, 3000])),
    "gate": lambda: bench.REPORT.page(each(Guarded, kind=["questions"] * 2, round=[1, 1], rules=[0, 10])),
    "resolvers": lambda: resolvers.REPORT.page(
        each(Delay, resolver=list(RESOLVERS)[:2], is_told=[True, True])
    ),
    "guard": lambda: guard.page_of(
        [*each(SetUp, mode=["nothing", "gateway"], way=["routed"] * 2), *each(Load, way=["routed"] * 2)]
    ),
    "proxies": lambda: proxies.REPORT.page(
        each(
            ProxyTrial,
            fault=[FAULTS[0].name] * 2,
            proxy=PROXIES,
            calls=[[(0.1, 5.0)], [(0, None)]],
        )
    ),
    "discover": lambda: discover.REPORT.page(each(DiscoverTrial, client=["nginx", "HAProxy"])),
    "secondaries": lambda: secondaries.REPORT.page(
        [
            *each(ServerDeath, right_ms=RIGHT),
            *each(ChangeStream, changes=[100, 1000], cpu_ms=[{"PowerDNS": 30.0}, {"PowerDNS": 40.0}]),
        ]
    ),
    "news": lambda: news.REPORT.page(
        each(NewsTrial, transport=["light", "short"], clients=[9, 9], delays_ms=[[1, 2, 3]] * 2)
    ),
    "favor": lambda: favor.REPORT.page(
        each(FavorTrial, discipline=["CHOKe", "RED"], counters=COUNTERS, flows=[[(2, 80.0)], [(2, 90.0)]])
    ),
    "tcp-over-sctp": lambda: shim.REPORT.page(
        each(
            ShimTrial, way=["shim", "TCP CUBIC"], measure=["transfer"] * 2, size=[50_000] * 2, loss=[0.01] * 2
        )
    ),
    "voip": lambda: page_of_voip(
        each(
            VoipTrial,
            part=["sweep"] * 2,
            name=["cable", "firewalls"],
            run=[{"calls": 9}] * 2,
            processor=STATES,
        )
    ),
    "uplink": lambda: uplink.REPORT.page(
        each(uplink.UplinkTrial, delays=[{probe: [1.0, None] for probe in uplink.PROBES}] * 2)
    ),
    "cells": lambda: cells.REPORT.page(
        [
            *each(CellServerDeath, cell=["c1", "c2"]),
            *each(CellLoss, cell=["c1", "c2"], fault=cells.FAULTS),
            *each(UpperLoss, trial=[1]),
        ]
    ),
}
"""A page of each lab of setup/results.sh, but for `scale`, whose test simulates a whole site."""


@pytest.mark.parametrize("name", PAGES)
def test_page_has_plots_for_light_and_dark_and_tables_that_fit(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.md"
    write_markdown(file, PAGES[name](), ["rspdns-lab"], ["Measured here."])
    text = file.read_text()
    plots = re.findall(r"^!\[[^\]]+\]\((.*)\)$", text, re.MULTILINE)
    assert plots == [f"{name}-{number}.svg" for number in range(1, len(plots) + 1)]
    assert plots
    for plot in plots:
        drawn = (tmp_path / plot).read_text()
        assert "prefers-color-scheme: dark" in drawn
        assert "#000000" not in drawn
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        head, _, *rows = [line[2:-2].split(" | ") for line in table.splitlines()]
        assert len(head) <= MOST_COLUMNS, head
        assert len(set(head)) == len(head), head
        alike = [len(set(column)) == 1 for column in list(zip(*rows, strict=True))[1:]]
        assert len(rows) < 2 or all(alike) or not any(alike), head


def test_every_page_of_the_script_is_among_them() -> None:
    script = (Path(__file__).resolve().parents[2] / "setup/results.sh").read_text()
    [names] = re.findall(r"^all=\((.*)\)$", script, re.MULTILINE)
    assert {name for name in names.split() if not name.startswith("faults-")} <= {*PAGES, "scale"}
