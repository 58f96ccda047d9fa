"""The command `rspdns-lab secondaries`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import click
from daemon_kit.commands import example

from rspdns_lab.ending import say
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page, Section, table_of
from rspdns_lab.report.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, Curves, share_below
from rspdns_lab.report.trials import LabReport, run_lab, trials_option
from rspdns_lab.secondaries.lab import (
    RATES,
    BackendRestart,
    ChangeStream,
    SecondariesLab,
    ServerDeath,
    run_death,
    run_restart,
    run_stream,
)
from rspdns_lab.secondaries.servers import KINDS

COUNT: Final = 50
BOUND_MS: Final = 300.0
"""The aim for the 99th percentile at each of the fifty."""
_QUICK_DEATHS, _QUICK_S, _QUICK_COST_S = 5, 10, 5
_LONG_PER_S: Final = 10.0
_KINDS: Final = {"death": ServerDeath, "restart": BackendRestart, "stream": ChangeStream}
Trial = ServerDeath | BackendRestart | ChangeStream


@click.command(epilog=example("rspdns-lab secondaries --quick"))
@trials_option(100, "Servers that are killed.")
@click.option(
    "--seconds",
    type=click.IntRange(5, 7200),
    default=600,
    show_default=True,
    help="Time with ten changes a second.",
)
@click.option(
    "--cost-seconds",
    type=click.IntRange(2, 600),
    default=30,
    show_default=True,
    help="Time with each other rate of changes.",
)
@click.option("--quick", is_flag=True, help="5 servers that are killed, 10 s of changes: under two minutes.")
@report_options
def secondaries(trials: int, seconds: int, cost_seconds: int, quick: bool, report: ReportFiles) -> None:
    """Let fifty Knot and NSD follow a live zone by IXFR, three others by AXFR, and three be sent DNS UPDATE,
    while its servers die.

    Exit status: 0 the promises were kept, 1 one was broken, 2 the lab can't run here.
    """
    if quick:
        trials, seconds, cost_seconds = _QUICK_DEATHS, _QUICK_S, _QUICK_COST_S

    def measure(earlier: Sequence[Trial]) -> Iterable[Sequence[Trial]]:
        done = {trial.trial for trial in earlier if isinstance(trial, ServerDeath)}
        deaths = [trial for trial in range(1, trials + 1) if trial not in done]
        measured = {trial.wanted_per_s for trial in earlier if isinstance(trial, ChangeStream)}
        rates = [rate for rate in RATES if rate not in measured]
        has_restart = any(isinstance(trial, BackendRestart) for trial in earlier)
        if deaths or rates or not has_restart:
            yield from _run(deaths, rates, seconds, cost_seconds, has_restart=has_restart)

    options = {"secondaries": COUNT, "seconds": seconds, "cost_seconds": cost_seconds}
    run_lab(report, REPORT, options, measure)


def _run(
    deaths: Sequence[int], rates: Sequence[float], seconds: int, cost_seconds: int, *, has_restart: bool
) -> Iterator[Sequence[Trial]]:
    say(f"starting {COUNT} secondaries behind a distributor, six that the backend tells itself")
    with SecondariesLab(COUNT) as lab:
        lab.start()
        for trial in deaths:
            death = run_death(lab, trial)
            last = max((ms or float("inf") for times in death.right_ms.values() for ms in times), default=0)
            say(f"death {trial}: all right after {last:.0f} ms")
            yield [death]
        if not has_restart:
            yield [run_restart(lab)]
        for rate in rates:
            for_s = seconds if rate == _LONG_PER_S else cost_seconds
            say(f"{rate:g} changes a second for {for_s} s")
            yield [run_stream(lab, rate, for_s)]


@dataclass(frozen=True)
class AgeRow:
    """The deaths at one kind of secondaries."""

    title: str
    servers: int
    deaths: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    worst_p99_ms: float
    """The 99th percentile at the secondary where it is the longest."""
    never: int


def age_rows(trials: Sequence[Trial]) -> list[AgeRow]:
    """Sum up the deaths by kind of secondary. Pure."""
    deaths = [trial for trial in trials if isinstance(trial, ServerDeath)]
    rows = []
    for title in dict.fromkeys(title for death in deaths for title in death.right_ms):
        own = [death.right_ms[title] for death in deaths]
        times = [ms for each in own for ms in each if ms is not None]
        by_server = [[ms for ms in each if ms is not None] for each in zip(*own, strict=True)]
        rows.append(
            AgeRow(
                title,
                len(own[0]),
                len(own),
                percentile(times, 50),
                percentile(times, 99),
                max(times, default=0.0),
                max(percentile(each, 99) for each in by_server),
                sum(ms is None for each in own for ms in each),
            )
        )
    return rows


def problems(trials: Sequence[Trial]) -> list[str]:
    """The broken promises, in words."""
    broken = []
    for row in age_rows(trials):
        if row.never:
            broken.append(f"{row.title}: {row.never} times a dead server was there for 30 s")
        if row.title.endswith("distributor") and row.worst_p99_ms >= BOUND_MS:
            broken.append(f"{row.title}: p99 at one of them is {row.worst_p99_ms:.0f} ms")
    for trial in trials:
        if isinstance(trial, BackendRestart) and (trial.lost or trial.right_ms is None):
            broken.append("after the backend was killed, zones were lost, or not repaired")
        if isinstance(trial, ChangeStream):
            words = f"{trial.wanted_per_s:g} changes a second"
            if trial.behind or trial.different:
                count = max(trial.behind, trial.different)
                broken.append(f"{words}: {count} secondaries differ at the end")
            if trial.went_back:
                broken.append(f"{words}: a serial went back {trial.went_back} times")
    return broken


def _page(trials: Sequence[Trial]) -> Page:
    deaths = [trial for trial in trials if isinstance(trial, ServerDeath)]
    loads = [trial.load_average for trial in trials if not isinstance(trial, BackendRestart)]
    versions = ", ".join(f"{kind.title} {kind.tells_version()}" for kind in KINDS.values())
    busy = f" The machine's load average was {min(loads):g} to {max(loads):g}, the lab's own part included."
    text = (
        f"A pool of five servers on real registrars is in a zone at {COUNT} secondaries, 25 Knot and 25 NSD, "
        "each in a network namespace of its own. BIND as the distributor transfers the zone from PowerDNS "
        "and sends increments on, with the configuration of `rspdns distributor-conf`. Three others "
        "transfer the whole zone from PowerDNS: the backend tells them itself. "
        "[How-to](../how-to/dns/secondaries.md). BIND, Knot and PowerDNS with SQLite are primaries of the "
        "same zone that the backend sends DNS UPDATE. [How-to](../how-to/dns/publish-by-dns-update.md). "
        f"Versions: {versions}."
    )
    return Page(
        "A live zone at its secondaries",
        text + (busy if loads else ""),
        [
            section
            for section in (_ages(deaths), _restarts(trials), _streams(trials), _costs(trials))
            if section
        ],
    )


_AGE_COLUMNS: Final = (
    *(("right answers at", "{title}"), ("servers", "{servers}"), ("deaths", "{deaths}")),
    *(("p50 ms", "{p50_ms:.0f}"), ("p99 ms", "{p99_ms:.0f}"), ("max ms", "{max_ms:.0f}")),
    *(("p99 at the slowest of them, ms", "{worst_p99_ms:.0f}"), ("never", "{never}")),
)


def _ages(deaths: Sequence[ServerDeath]) -> Section | None:
    if not deaths:
        return None
    text = (
        "From the SIGKILL of a server to the first answer without it. Each name server is asked every 20 ms. "
        f"Aimed at for those behind the distributor: p99 below {BOUND_MS:g} ms at each."
    )
    table = table_of(_AGE_COLUMNS, age_rows(deaths))
    return Section("A server dies", text, table, [_plot(deaths)])


COLOURS: Final = (GREY, RED, *[ORANGE] * 3, *[PURPLE] * 3, GREEN, BLUE)


def _plot(deaths: Sequence[ServerDeath]) -> Curves:
    curves = []
    titles = list(deaths[0].right_ms)
    for title, colour in zip(titles, COLOURS, strict=False):
        found = [ms for death in deaths for ms in death.right_ms[title] if ms is not None]
        curves += [share_below(title, found, colour)] if found else []
    caption = "Right after this time, percent of all answers. Dashed: what is aimed at."
    return Curves(caption, "ms", "%", curves, log="x", at_x=[(BOUND_MS, RED)])


def _restarts(trials: Sequence[Trial]) -> Section | None:
    rows = [trial for trial in trials if isinstance(trial, BackendRestart)]
    columns = (
        ("secondaries that lost the zone", "{lost}"),
        ("all right after the next start, ms", lambda row: _number(row.right_ms)),
    )
    text = "The backend is killed, then a server; 3 s later the next backend starts."
    return Section("The backend dies", text, table_of(columns, rows)) if rows else None


def _streams(trials: Sequence[Trial]) -> Section | None:
    rows = [trial for trial in trials if isinstance(trial, ChangeStream)]
    columns = (
        ("changes a second, wanted", "{wanted_per_s:g}"),
        ("reached", lambda row: f"{row.changes / row.seconds:.1f}"),
        *(("changes", "{changes} in {seconds:.0f} s"), ("serials", "{serials}")),
        ("all right after the last one, ms", lambda row: _number(row.settled_ms)),
        ("other serials, records at the end", "{behind}, {different}"),
        ("serial went back", "{went_back}"),
    )
    text = (
        "A server is taken out and let back in, by `rspdns override`. At the end the serial and all records "
        "of each secondary are compared with PowerDNS's. A reached rate below the wanted one is that of the "
        "control socket, which writes each override to the disk."
    )
    return Section("Changes all the time", text, table_of(columns, rows)) if rows else None


def _costs(trials: Sequence[Trial]) -> Section | None:
    rows = [trial for trial in trials if isinstance(trial, ChangeStream)]
    if not rows:
        return None
    table = [
        [
            "processor time, ms a second",
            *(f"at {row.changes / row.seconds:.0f} changes a second" for row in rows),
        ]
    ]
    table += [[title, *(f"{row.cpu_ms[title]:.0f}" for row in rows)] for title in rows[0].cpu_ms]
    for_all = [_for_all_ms(row) for row in rows]
    table.append(["all programs together, ms for one change", *(f"{ms:.0f}" for ms in for_all)])
    text = (
        "The time is that of each program, for secondaries of a kind the mean of one. The backend's has the "
        "overrides in it. "
        "The last row is the work that all of them share two processors for: it is what a change at fifty "
        "secondaries waits for, beside the other work of the machine."
    )
    return Section("Cost", text, table)


def _for_all_ms(row: ChangeStream) -> float:
    """Processor time of all programs for one change."""
    per_s = sum(
        ms * (COUNT // 2 if title.endswith(", distributor") else 1) for title, ms in row.cpu_ms.items()
    )
    return per_s * row.seconds / row.changes


def _number(value: float | None) -> str:
    return "never" if value is None else f"{value:,.0f}"


def _read(fields: dict[str, Any]) -> Trial:
    kind = _KINDS[fields["kind"]]
    trial: Trial = kind(**{key: value for key, value in fields.items() if key != "kind"})
    return trial


def _write(trial: Trial) -> Mapping[str, Any]:
    name = next(name for name, kind in _KINDS.items() if isinstance(trial, kind))
    return {"kind": name, **asdict(trial)}


REPORT: Final[LabReport[Trial]] = LabReport(
    _read,
    lambda trials: {"rows": [asdict(row) for row in age_rows(trials)]},
    _page,
    problems,
    _write,
)
