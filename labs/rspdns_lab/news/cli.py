"""The command `rspdns-lab news`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import click

from rspdns_lab.ending import say
from rspdns_lab.news.lab import BOUND_MS, TRANSPORTS, NewsTrial, Phase, run_news
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page, Section, table_of
from rspdns_lab.report.plots import Bars
from rspdns_lab.report.trials import LabReport, run_lab

CLIENTS: Final = (3000, 30_000)
_QUICK_CLIENTS, _QUICK_SCALE = 300, 0.03
_TITLE: Final = "News without connections"
_INTRO: Final = (
    "Clients want to hear within a second that a pool changed. Each transport has the same news, from the "
    "same backend. A server of the pool is drained and let in, five times in all. Figures are those of the "
    "server's process and host; the kernel's work for refused connections is in no process. The clients run "
    "on the same machine."
)
_PUBLISHED: Final = (
    ("", "bandwidth", "processor", "memory"),
    ("LightWeight Polling", "about 40 % of short polling", "never above 50 %", "170 MB"),
    ("short polling", "100 %", "reaches 100 %", "140 MB"),
    ("long polling", "", "", "220 MB"),
)
"""The figures that were published for LightWeight Polling, on another machine."""


@click.command()
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
    help="Length of the phases; 1: quiet 180 s, polling 300 s, news five times 120 s apart.",
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
    sections = [
        section for count in sorted({trial.clients for trial in found}) for section in _of(found, count)
    ]
    return Page(_TITLE, _INTRO, [*sections, Section("Published figures", "", _PUBLISHED)])


def _of(found: Sequence[NewsTrial], count: int) -> Iterator[Section]:
    trials = [trial for trial in found if trial.clients == count]
    titles = [TRANSPORTS[trial.transport] for trial in trials]
    rows = table_of(
        [
            ("transport", lambda trial: TRANSPORTS[trial.transport]),
            ("processor: no news", lambda trial: f"{trial.polling.cpu:.1%}"),
            ("with news", lambda trial: f"{trial.telling.cpu:.1%}"),
            ("kB/s: no news", lambda trial: f"{trial.polling.kilobytes_per_s:,.0f}"),
            ("with news", lambda trial: f"{trial.telling.kilobytes_per_s:,.0f}"),
            ("sockets", lambda trial: f"{max(trial.polling.sockets, trial.telling.sockets):,}"),
            ("MB", lambda trial: f"{max(trial.polling.megabytes, trial.telling.megabytes):.0f}"),
            ("delay p50, ms", lambda trial: f"{trial.delays_ms[0]:,.0f}"),
            ("p99", lambda trial: f"{trial.delays_ms[1]:,.0f}"),
            ("longest", lambda trial: f"{trial.delays_ms[2]:,.0f}"),
            ("lost", lambda trial: f"{trial.lost:,}"),
            ("load of the machine", lambda trial: f"{trial.load_average}"),
        ],
        trials,
    )
    lengths = (
        f"Phases: {trials[0].quiet.seconds:g} s without clients, {trials[0].polling.seconds:g} s without "
    )
    aim = f"Aimed at for the news of rspdns: p99 of the delay below {BOUND_MS:g} ms, none lost."
    text = f"{lengths}news, {trials[0].telling.seconds:g} s with five changes. {aim}"
    green = {TRANSPORTS["light"]}
    plots = [
        Bars("Processor of the server while there is no news", "processor, %", values, green)
        for values in [{title: 100 * trial.polling.cpu for title, trial in zip(titles, trials, strict=True)}]
    ]
    plots += [
        Bars("Traffic while there is no news", "kB/s", values, green)
        for values in [
            {title: trial.polling.kilobytes_per_s for title, trial in zip(titles, trials, strict=True)}
        ]
    ]
    yield Section(f"{count:,} clients", text, rows, plots)


def _figures(found: Sequence[NewsTrial]) -> Mapping[str, Any]:
    return {"bound_ms": BOUND_MS}


def _problems(found: Sequence[NewsTrial]) -> Sequence[str]:
    return [
        f"{trial.clients:,} clients of rspdns news: p99 {trial.delays_ms[1]:.0f} ms (bound {BOUND_MS:.0f}), "
        f"{trial.lost} lost, {trial.doubled} doubled"
        for trial in found
        if trial.transport == "light" and (trial.delays_ms[1] > BOUND_MS or trial.lost or trial.doubled)
    ]


REPORT: Final = LabReport(read=_read, figures=_figures, page=_page, problems=_problems, markdown_plots=True)
