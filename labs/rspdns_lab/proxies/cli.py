"""The command `rspdns-lab proxies`, and what it tells."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import click
from daemon_kit.commands import example

from rspdns_lab.ending import say
from rspdns_lab.proxies.lab import FAULTS, PROXIES, ProxyFault, ProxyLab, ProxyTrial, run_fault
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page, Section, table_of
from rspdns_lab.report.plots import Dots
from rspdns_lab.report.trials import LabReport, each_undone, run_lab, trials_left, trials_option

LATE_MS: Final = 2000.0
_INTRO: Final = (
    "nginx and HAProxy on hosts of their own, each in front of the same three web servers, whose addresses "
    "stand in its file; nginx has its defaults, HAProxy the timeouts of Debian's file and its own check of "
    "connections every 2 s. Beside every other one runs ppu-agent with the file of the how-to page. "
    "Clients ask all the time, each request in a connection of its own; then one web server fails."
)


@click.command(epilog=example("rspdns-lab proxies --fault hung --proxy nginx"))
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=click.Choice([fault.name for fault in FAULTS]),
    help="Only this fault; may be repeated.",
)
@click.option("--proxy", "proxies", multiple=True, type=click.Choice(PROXIES), help="Only this proxy.")
@trials_option(1, "Trials of each fault.")
@click.option(
    "--seconds", type=click.IntRange(2, 600), default=10, show_default=True, help="After the fault."
)
@report_options
def proxies(
    faults: Sequence[str],
    proxies: Sequence[str],
    trials: int,
    seconds: int,
    report: ReportFiles,
) -> None:
    """Send requests through nginx and HAProxy while a web server fails, with ppu-agent and without.

    Exit status: 0 the promises were kept, 1 one was broken, 2 the lab can't run here.
    """
    wanted = [fault for fault in FAULTS if not faults or fault.name in faults]
    kinds = [kind for kind in PROXIES if not proxies or kind in proxies]

    def measure(earlier: Sequence[ProxyTrial]) -> Iterable[Sequence[ProxyTrial]]:
        done = {(trial.fault, trial.trial) for trial in earlier}
        if plan := trials_left(wanted, trials, done, lambda fault: fault.name):
            yield from _run(kinds, plan, seconds)

    run_lab(report, REPORT, {"proxies": kinds, "seconds": seconds}, measure)


def _run(
    kinds: Sequence[str], plan: Sequence[tuple[ProxyFault, int]], seconds: int
) -> Iterator[Sequence[ProxyTrial]]:
    say(f"starting the lab: {', '.join(kinds)}; {len(plan)} faults to go")
    with ProxyLab(kinds) as lab:

        def undo(fault: ProxyFault) -> None:
            fault.undo(lab)
            lab.wait_until_ready()

        def do(fault: ProxyFault, trial: int) -> Sequence[ProxyTrial]:
            say(f"{fault.name}, trial {trial}: {fault.what}")
            return run_fault(lab, fault, trial, seconds)

        lab.start()
        yield from each_undone(plan, do, undo)


@dataclass(frozen=True)
class ProxyRow:
    """The result of one fault with one proxy: all requests of the trials."""

    fault: str
    proxy: str
    agent: str
    requests: int
    failed: int
    over_2_s: int
    p50_ms: float
    max_ms: float


def rows(trials: Sequence[ProxyTrial]) -> list[ProxyRow]:
    """Sum up, by fault, proxy and agent. Pure."""
    found = []
    keys = itertools.product((each.name for each in FAULTS), PROXIES, (False, True))
    for key in keys:
        of_key = [trial for trial in trials if (trial.fault, trial.proxy, trial.has_agent) == key]
        if not of_key:
            continue
        fault, proxy, has_agent = key
        delays = [delay_ms for trial in of_key for _, delay_ms in trial.calls]
        answered = sorted(delay_ms for delay_ms in delays if delay_ms is not None)
        found.append(
            ProxyRow(
                fault,
                proxy,
                "ppu-agent" if has_agent else "without",
                len(delays),
                len(delays) - len(answered),
                sum(delay_ms > LATE_MS for delay_ms in answered),
                answered[len(answered) // 2] if answered else 0.0,
                answered[-1] if answered else 0.0,
            )
        )
    return found


def problems(trials: Sequence[ProxyTrial]) -> list[str]:
    """The broken promises, in words."""
    promised = {fault.name for fault in FAULTS if fault.promised}
    return [
        f"{row.fault}, {row.proxy} with ppu-agent: "
        f"{row.failed} requests failed, {row.over_2_s} took more than 2 s"
        for row in rows(trials)
        if row.agent != "without" and row.fault in promised and (row.failed or row.over_2_s)
    ]


def _plot(trials: Sequence[ProxyTrial]) -> Dots:
    return Dots.of(
        "A dot for each answered request; few of those that are alike.",
        "ms",
        trials,
        lambda trial: f"{trial.proxy}, {'ppu-agent' if trial.has_agent else 'without'}",
        {"requests": lambda trial: [delay_ms for _, delay_ms in trial.calls]},
        never="failed",
    )


_COLUMNS: Final = (
    *(("proxy", "{proxy}"), ("beside it", "{agent}"), ("requests", "{requests}"), ("failed", "{failed}")),
    *(("over 2 s", "{over_2_s}"), ("p50 ms", "{p50_ms:,.0f}"), ("max ms", "{max_ms:,.0f}")),
)


def _trial(fields: dict[str, Any]) -> ProxyTrial:
    calls = [(at_s, delay_ms) for at_s, delay_ms in fields["calls"]]
    return ProxyTrial(**{**fields, "calls": calls})


REPORT: Final = LabReport(
    _trial,
    lambda found: {"rows": [asdict(row) for row in rows(found)]},
    lambda found: Page(
        "Requests through nginx and HAProxy, with ppu-agent and without",
        _INTRO,
        [
            Section(
                f"{fault.name}: {fault.what}",
                "",
                table_of(_COLUMNS, of),
                [_plot([trial for trial in found if trial.fault == fault.name])],
            )
            for fault in FAULTS
            if (of := [row for row in rows(found) if row.fault == fault.name])
        ],
    ),
    problems,
)
