"""The command of `make bench`, and its report: tables, a page with a plot, broken promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, TypeVar, get_args

import click
from rspdns_lab.ending import say
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Columns, Page, Rows, Section, table_of
from rspdns_lab.report.plots import BLUE, ORANGE, Curve, Curves, Dots
from rspdns_lab.report.trials import LabReport, run_lab

from guard_bench.lab import GuardPlace
from guard_bench.measure import (
    GIVEN_UP_WITHIN_MS,
    WATCHED_S,
    GuardTrial,
    Load,
    Memory,
    Mode,
    SetUp,
    measure_load,
    measure_memory,
    measure_set_ups,
    read_trial,
)

RATES: Final = (1_000, 5_000, 10_000, 14_000, 50_000, 100_000, 200_000)
PENDING: Final = (10_000, 100_000)
PROMISED_PER_S: Final = 100_000
ADDED_BELOW_US: Final = 20.0
"""The median delay that the guard may add."""
BYTES_BELOW: Final = 10_000_000
"""For 100,000 set-ups that wait, and so for fewer."""
_QUICK_RATES: Final = (1_000, 20_000, 100_000)
_QUICK_S: Final = 1.0
_WAYS: Final[tuple[GuardPlace, ...]] = get_args(GuardPlace)
_MODES: Final[tuple[Mode, ...]] = get_args(Mode)
_GUARDS: Final[Mapping[Mode, str]] = {
    "nothing": "nothing",
    "host": "`pace`, on the client's host",
    "gateway": "`[gateway]`",
}
T = TypeVar("T", SetUp, Load, Memory)


@click.command()
@click.option(
    "--rate",
    "rates",
    multiple=True,
    type=click.IntRange(100, 1_000_000),
    help=f"SYNs a second; may be given several times.  [default: {', '.join(map(str, RATES))}]",
)
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=2.0, show_default=True, help="Each round.")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Rounds of each rate."
)
@click.option("--quick", is_flag=True, help="Three rates, one round of a second each.")
@report_options
def guard(rates: Sequence[int], seconds: float, rounds: int, quick: bool, report: ReportFiles) -> None:
    """Guard connection set-up: one to a silent server, then thousands a second, and what they cost.

    Exit status: 0 all promises kept, 1 one was broken, 2 the lab can't run here.
    """
    if quick:
        seconds, rounds = _QUICK_S, 1
    wanted = tuple(rates) or (_QUICK_RATES if quick else RATES)
    options = {"seconds": seconds, "rounds": rounds}

    def measure(earlier: Sequence[GuardTrial]) -> Iterable[Sequence[GuardTrial]]:
        return ([trial] for trial in _left(earlier, wanted, seconds, rounds, say))

    run_lab(report, REPORT, options, measure)


def _left(
    earlier: Sequence[GuardTrial],
    rates: Sequence[int],
    seconds: float,
    rounds: int,
    tell: Callable[[str], None],
) -> Iterator[GuardTrial]:
    """Measure what an earlier run lacks."""
    for way in _WAYS:
        seen = {trial.mode for trial in _of(SetUp, earlier) if trial.way == way}
        modes: Sequence[Mode] = [mode for mode in _MODES if mode not in seen]
        if modes:
            yield from measure_set_ups(way, modes, tell)
    for way in _WAYS:
        done = {trial.rate_per_s for trial in _of(Load, earlier) if trial.way == way}
        left = [rate for rate in rates if rate not in done]
        if left:
            yield from measure_load(way, left, seconds, rounds, tell)
    held = {trial.pending for trial in _of(Memory, earlier)}
    yield from measure_memory([count for count in PENDING if count not in held], tell)


def _of(kind: type[T], trials: Sequence[GuardTrial]) -> list[T]:
    return [trial for trial in trials if isinstance(trial, kind)]


def problems(found: Sequence[GuardTrial]) -> list[str]:
    """Return broken promises."""
    return [
        *(
            f"{trial.way}, guarded by {trial.mode}: SYNs at {_times(trial)} ms, ended: {trial.ended}"
            for trial in _of(SetUp, found)
            if trial.mode != "nothing" and not _is_kept(trial)
        ),
        *(
            f"{load.way}, {load.rate_per_s:,} SYN/s: {load.open} set-ups were not closed, "
            f"{load.unguarded} passed unguarded"
            for load in _of(Load, found)
            if (load.open or load.unguarded) and load.rate_per_s <= PROMISED_PER_S
        ),
        *(
            f"{load.way}, {load.rate_per_s:,} SYN/s: the median delay grew by {load.added_syn_p50_us:g} us "
            f"(SYN) and {load.added_answer_p50_us:g} us (SYN-ACK)"
            for load in _of(Load, found)
            if max(load.added_syn_p50_us, load.added_answer_p50_us) >= ADDED_BELOW_US
        ),
        *(
            f"{memory.pending:,} set-ups at a time: {memory.refused:,} refused, {memory.memory_bytes:,} bytes"
            for memory in _of(Memory, found)
            if memory.refused != memory.pending or memory.memory_bytes > BYTES_BELOW
        ),
    ]


def _is_kept(trial: SetUp) -> bool:
    """Whether a silent server was asked four times, and given up about two seconds after the first."""
    return len(trial.syns_ms) == 4 and trial.ended_ms is not None and trial.ended_ms < GIVEN_UP_WITHIN_MS


def _times(trial: SetUp) -> str:
    return ", ".join(f"{at_ms:.0f}" for at_ms in trial.syns_ms)


_SET_UPS: Final[Columns[SetUp]] = (
    ("guarded by", lambda row: _GUARDS[row.mode]),
    ("the network", "{way}"),
    ("SYNs at the server after, ms", lambda row: _times(row)),
    ("ended after, ms", lambda row: "" if row.ended_ms is None else f"{row.ended_ms:.0f}"),
    ("with", "{ended}"),
)
_LOADS: Final[Columns[Load]] = (
    *(("SYN/s", "{rate_per_s:,}"), ("the network", "{way}")),
    ("SYN p50, p99, us", "{syn_p50_us:.1f}, {syn_p99_us:.1f}"),
    ("added to a SYN", "{added_syn_p50_us:+.1f}, {added_syn_p99_us:+.1f}"),
    ("SYN-ACK p50, p99, us", "{answer_p50_us:.1f}, {answer_p99_us:.1f}"),
    ("added to a SYN-ACK", "{added_answer_p50_us:+.1f}, {added_answer_p99_us:+.1f}"),
)
_COSTS: Final[Columns[Load]] = (
    *(("SYN/s", "{rate_per_s:,}"), ("the network", "{way}"), ("reached", "{reached_per_s:,}")),
    ("processor, us each", "{processor_us:.2f}"),
    ("of a core", lambda row: f"{row.processor_us * row.reached_per_s / 1e4:.1f} %"),
    (
        "handled",
        lambda row: f"{row.open} open, {row.unguarded} unguarded" if row.open or row.unguarded else "all",
    ),
)
_MEMORIES: Final[Columns[Memory]] = (
    *(("set-ups at a time", "{pending:,}"), ("held", "{held:,}"), ("refused after 2 s", "{refused:,}")),
    ("memory, MB", lambda row: f"{row.memory_bytes / 1e6:.1f}"),
)
_PROTOTYPE: Final[Rows] = [
    ("figure", "the prototype of 2012"),
    ("delay, unloaded", "128 us at least, 164 us in the median"),
    ("delay at 5,000 to 10,000 SYN/s", "5 to 10 ms and more"),
    ("its queue was full at", "14,000 SYN/s"),
    ("memory for 10,730 set-ups", "41 MB"),
    ("memory for 99,181 set-ups", "341 MB"),
]


def page_of(found: Sequence[GuardTrial]) -> Page:
    """Return the page of a run."""
    text = (
        "A client, a gateway and a server in network namespaces. A set-up without an answer is repeated by "
        "the guard of the gateway, or by `pace` on the client's host, and refused in the end. Delays are "
        "those of the way through the gateway, by the kernel's clock at both ends. *Added* is with the guard "
        "less without, by turns in the same run."
    )
    loads = _of(Load, found)
    return Page(
        "What a guarded connection set-up costs",
        text,
        [
            Section(
                "One set-up to a silent server",
                f"Without help the client's kernel goes on for two minutes; it was watched {WATCHED_S:g} s.",
                table_of(_SET_UPS, _of(SetUp, found)),
                [_set_ups(_of(SetUp, found))],
            ),
            Section(
                "Many set-ups",
                "Bursts and intervals are uniform, between random addresses of two /24. Each server drops "
                "some SYNs, which the guard repeats; the generator repeats nothing.",
                table_of(_LOADS, loads),
                [_plot(loads)] if len(loads) > 1 else (),
            ),
            Section(
                "Processor time of many set-ups",
                "It is that of the guard's process and its BPF programs. A rate that is not reached, and "
                "what is lost there, is this machine's: its processors carry clients, network, servers, too.",
                table_of(_COSTS, loads),
            ),
            Section(
                "Set-ups that wait",
                "None is answered. Memory is the process with its BPF maps.",
                table_of(_MEMORIES, _of(Memory, found)),
            ),
            Section("The prototype, to compare", "It held packets back in user space (NFQUEUE).", _PROTOTYPE),
        ],
    )


def _set_ups(trials: Sequence[SetUp]) -> Dots:
    return Dots.of(
        "A silent server is asked again, until the set-up ends.",
        "ms",
        trials,
        lambda trial: f"{_GUARDS[trial.mode].replace('`', '')}, {trial.way}",
        {"SYNs at the server": lambda trial: trial.syns_ms, "ended": lambda trial: [trial.ended_ms]},
        never="not ended",
        linear=True,
    )


def _plot(loads: Sequence[Load]) -> Curves:
    curves = []
    for way, colour in zip(_WAYS, (BLUE, ORANGE), strict=True):
        of_way = sorted((load for load in loads if load.way == way), key=lambda load: load.rate_per_s)
        rates = [load.rate_per_s for load in of_way]
        curves.append(Curve(f"{way}, median", rates, [load.added_syn_p50_us for load in of_way], colour))
        curves.append(Curve(f"{way}, p99", rates, [load.added_syn_p99_us for load in of_way], colour, "o:"))
    caption = "Delay that the guard adds to a SYN, median and p99."
    return Curves(caption, "SYN/s", "us", curves, log="x")


def _figures(found: Sequence[GuardTrial]) -> dict[str, Any]:
    kinds = {"set-up": SetUp, "load": Load, "memory": Memory}
    rows = {
        kind: [asdict(trial) for trial in found if isinstance(trial, made)] for kind, made in kinds.items()
    }
    return {"ok": bool(found) and not problems(found), **rows}


REPORT: Final = LabReport(read_trial, _figures, page_of, problems, house="ppu-agent/guard")
