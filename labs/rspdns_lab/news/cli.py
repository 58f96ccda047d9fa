"""The command `rspdns-lab news`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import click
from daemon_kit.commands import example

from rspdns_lab.ending import say
from rspdns_lab.news.lab import (
    BOUND_MS,
    NEWS_COUNT,
    NEWS_EVERY_S,
    POLLING_S,
    QUIET_S,
    TRANSPORTS,
    NewsTrial,
    Phase,
    run_news,
)
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Columns, Page, Section, table_of
from rspdns_lab.report.plots import Bars, Dots
from rspdns_lab.report.trials import LabReport, run_lab

CLIENTS: Final = (3000, 30_000)
MOST_WAITED: Final = 0.25
"""A server that had no processor for more of its work can't be judged: the machine does too much else."""
_QUICK_CLIENTS, _QUICK_SCALE = 300, 0.015
_INTRO: Final = (
    "Clients want to hear within a second that a pool changed. Each transport has the same news, from the "
    "same backend. A server of the pool is drained and let in, five times in all. Figures are those of the "
    "server's processes and host; the kernel's work for refused connections is in no process. The clients "
    "run on the same machine: *clients late* is by how much 99 % of their connections were opened and read "
    "too late at most. The delays contain that; *p99 of the news* does not. *Server waited*: the share of "
    "its work with news for which it had no processor, since clients and others had them. A client that "
    "polls each second hears of a change after 0 to 1 s, so its p99 is 990 ms if all else takes no time. "
    "*Lost*: changes that a client had not heard of 40 s after the last one."
)
_BESIDE: Final = (
    "Bandwidth is a share of short polling's, the processor that of the busier phase. The published "
    "machine and messages are not known well enough to be repeated here; and if the phases are shorter, news "
    "come more often. Compare the order."
)
_PUBLISHED: Final = {
    "light": ("about 40 %", "never above 50 %", "170"),
    "short": ("100 %", "reaches 100 %", "140"),
    "long": ("-", "-", "220"),
    "events": ("-", "-", "-"),
}
"""The figures that were published for LightWeight Polling, on another machine."""


@click.command(epilog=example("rspdns-lab news --quick"))
@click.option(
    "--clients",
    "counts",
    type=click.IntRange(1, 60_000),
    multiple=True,
    default=CLIENTS,
    show_default=True,
    help="Number of clients; repeat it for several.",
)
@click.option(
    "--transport", "transports", type=click.Choice(list(TRANSPORTS)), multiple=True, help="Default: all."
)
@click.option(
    "--scale",
    type=click.FloatRange(0.01, 10),
    default=0.1,
    show_default=True,
    help="Length of the phases; 1, as published: quiet 180 s, polling 300 s, news five times 120 s apart.",
)
@click.option("--quick", is_flag=True, help=f"{_QUICK_CLIENTS} clients, short phases: under two minutes.")
@report_options
def news(
    counts: Sequence[int], transports: Sequence[str], scale: float, quick: bool, report: ReportFiles
) -> None:
    """Measure what it costs to tell thousands of clients of a change: news of rspdns, short polling, long
    polling and server-sent events side by side.

    Exit status: 0 measured, 1 news of rspdns were late or lost, 2 the lab can't run here.
    """
    if quick:
        counts, scale = [_QUICK_CLIENTS], _QUICK_SCALE
    plan = [(transport, count) for count in counts for transport in transports or TRANSPORTS]

    def measure(earlier: Sequence[NewsTrial]) -> Iterable[Sequence[NewsTrial]]:
        done = {(trial.transport, trial.clients) for trial in earlier}
        left = [step for step in plan if step not in done]
        if left:
            yield from run_news(left, scale, say)

    run_lab(report, REPORT, {"scale": scale}, measure)


def _read(fields: dict[str, Any]) -> NewsTrial:
    phases = {name: Phase(**fields[name]) for name in ("quiet", "polling", "telling")}
    return NewsTrial(**{**fields, **phases})


def _page(found: Sequence[NewsTrial]) -> Page:
    counts = sorted({trial.clients for trial in found})
    sections = [section for count in counts for section in _of(found, count)]
    return Page("News without connections", _INTRO, sections)


def _of(found: Sequence[NewsTrial], count: int) -> Iterator[Section]:
    trials = [trial for trial in found if trial.clients == count]
    first = trials[0]
    text = (
        f"Phases: {first.quiet.seconds:g} s without clients, {first.polling.seconds:g} s without news, "
        f"{first.telling.seconds:g} s with {NEWS_COUNT} changes; published: {QUIET_S:g}, {POLLING_S:g}, and "
        f"{NEWS_COUNT * NEWS_EVERY_S:g} s. Aimed at for the news of rspdns: p99 of the delay below "
        f"{BOUND_MS:,.0f} ms, none lost."
    )
    text = " ".join([text, *(f"Not reached: {problem}." for problem in _problems(trials))])
    figures = {
        f"Processor of the server while there is no news, {count:,} clients": ("%", "{0.cpu:%}"),
        f"Traffic while there is no news, {count:,} clients": ("kB/s", "{0.kilobytes_per_s}"),
    }
    plots = [
        Bars(
            caption,
            label,
            {TRANSPORTS[trial.transport]: float(form.format(trial.polling).rstrip("%")) for trial in trials},
            [TRANSPORTS["light"]],
        )
        for caption, (label, form) in figures.items()
    ]
    costs, delays = _MEASURED[:_COSTS], (_MEASURED[0], *_MEASURED[_COSTS:])
    yield Section(f"{count:,} clients", text, table_of(costs, trials), plots)
    series = {
        part: [[trial.delays_ms[at]] if trial.delays_ms[at] >= 0 else [] for trial in trials]
        for at, part in enumerate(("p50", "p99", "longest"))
    }
    dots = Dots(
        "From the change to a client.", "ms", [TRANSPORTS[trial.transport] for trial in trials], series
    )
    loads = sorted(trial.load_average for trial in trials)
    busy = f"The machine's load average was {loads[0]:g} to {loads[-1]:g}."
    yield Section(f"{count:,} clients: delays", busy, table_of(delays, trials), [dots])
    short = [trial for trial in trials if trial.transport == "short"]
    if short:
        rows = [_beside(trial, short[0]) for trial in trials]
        yield Section(f"{count:,} clients, beside the published figures", _BESIDE, [_HEAD, *rows])


def _beside(trial: NewsTrial, short: NewsTrial) -> Sequence[str]:
    """Return a transport's figures, each beside the published one."""
    bandwidth, processor, memory = _PUBLISHED[trial.transport]
    shares = [
        f"{ours.kilobytes_per_s / most.kilobytes_per_s:.0%}" if most.kilobytes_per_s else "-"
        for ours, most in ((trial.polling, short.polling), (trial.telling, short.telling))
    ]
    busiest = f"{max(trial.polling.cpu, trial.telling.cpu):.0%}"
    return [
        *(TRANSPORTS[trial.transport], *shares, bandwidth),
        *(f"{busiest} ({processor})", f"{_megabytes(trial)} ({memory})"),
    ]


def _delay(delay_ms: float) -> str:
    return f"{delay_ms:,.0f}" if delay_ms >= 0 else "none heard"


def _megabytes(trial: NewsTrial) -> str:
    return f"{max(trial.polling.megabytes, trial.telling.megabytes):.0f}"


_HEAD: Final = (
    *("transport", "bandwidth: no news", "with news", "published"),
    *("processor (published)", "MB (published)"),
)
_MEASURED: Final[Columns[NewsTrial]] = (
    ("transport", lambda trial: TRANSPORTS[trial.transport]),
    ("processor: no news", lambda trial: f"{trial.polling.cpu:.1%}"),
    ("processor: with news", lambda trial: f"{trial.telling.cpu:.1%}"),
    ("kB/s: no news", lambda trial: f"{trial.polling.kilobytes_per_s:,.0f}"),
    ("kB/s: with news", lambda trial: f"{trial.telling.kilobytes_per_s:,.0f}"),
    ("sockets", lambda trial: f"{max(trial.polling.sockets, trial.telling.sockets):,}"),
    ("MB", _megabytes),
    ("p50 ms", lambda trial: _delay(trial.delays_ms[0])),
    ("p99", lambda trial: _delay(trial.delays_ms[1])),
    ("longest", lambda trial: _delay(trial.delays_ms[2])),
    ("p99 of the news", lambda trial: _delay(trial.news_p99_ms)),
    ("lost", "{lost:,}"),
    ("server waited", lambda trial: f"{_waited(trial):.0%}"),
    ("clients late, ms", "{late_ms:,.0f}"),
)


_COSTS: Final = 7
"""The columns before the delays."""


def _figures(found: Sequence[NewsTrial]) -> Mapping[str, Any]:
    return {"bound_ms": BOUND_MS}


def _problems(found: Sequence[NewsTrial]) -> Sequence[str]:
    return [
        f"{trial.clients:,} clients of rspdns news: {problem}"
        for trial in found
        if trial.transport == "light"
        for problem in _problems_of(trial)
    ]


def _problems_of(trial: NewsTrial) -> Iterator[str]:
    p99_ms, waited = trial.delays_ms[1], _waited(trial)
    late = f"p99 {p99_ms:,.0f} ms (bound {BOUND_MS:,.0f}), {trial.lost:,} pieces of news lost"
    if trial.doubled:
        yield f"{trial.doubled} pieces of news doubled"
    if p99_ms <= BOUND_MS and not trial.lost:
        return
    if waited > MOST_WAITED:
        yield f"no verdict, {late}: the server had no processor for {waited:.0%} of its work"
    elif trial.news_p99_ms <= BOUND_MS and not trial.lost:
        yield f"no verdict, {late}: the lab's clients were late by {trial.late_ms:,.0f} ms"
    else:
        yield late


def _waited(trial: NewsTrial) -> float:
    """The share of the time with work in which the server had no processor, while there was news."""
    return trial.telling.waited / (trial.telling.cpu + trial.telling.waited or 1.0)


REPORT: Final = LabReport(read=_read, figures=_figures, page=_page, problems=_problems)
