"""The command `rspdns-lab cells`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import click
from daemon_kit.commands import example

from rspdns_lab.cells.lab import (
    KEEP_ALIVE_MS,
    CellLoss,
    CellServerDeath,
    CellsLab,
    UpperLoss,
    run_death,
    run_loss,
    run_upper_loss,
)
from rspdns_lab.ending import say
from rspdns_lab.errors import LabError
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page, Section, table_of
from rspdns_lab.report.plots import Dots
from rspdns_lab.report.trials import LabReport, run_lab, trials_option

DEATH_BOUND_MS: Final = 30.0
"""The aim for a server's death in its cell's DNS, 99th percentile."""
LOSS_BOUND_MS: Final = 1500.0
"""The aim for a cell that is lost, each time."""
UPPER_LOSS_S: Final = 10.0
FAULTS: Final = ("silent", "killed")
_KINDS: Final = {"death": CellServerDeath, "loss": CellLoss, "upper": UpperLoss}
CellsTrial = CellServerDeath | CellLoss | UpperLoss


@dataclass(frozen=True)
class CellsExtent:
    """How much is run: cells, servers and registrars in each, deaths, losses of each kind."""

    cells: int
    servers: int
    registrars: int
    deaths: int
    losses: int
    upper_loss_s: float = UPPER_LOSS_S
    is_first: bool = False
    faults: Sequence[str] = FAULTS


QUICK: Final = CellsExtent(2, 10, 1, 2, 1, 2.0, faults=("silent",))


@click.command(epilog=example("rspdns-lab cells --quick"))
@click.option("--cells", "count", type=click.IntRange(2, 30), default=8, show_default=True)
@click.option(
    "--servers", type=click.IntRange(2, 1000), default=150, show_default=True, help="Servers in each cell."
)
@click.option(
    "--registrars",
    type=click.Choice(["1", "3"]),
    default="3",
    show_default=True,
    help="Registrars of each cell; the upper handlespace has three.",
)
@trials_option(100, "Servers that are killed.")
@click.option(
    "--losses",
    type=click.IntRange(1, 30),
    default=4,
    show_default=True,
    help="Cells that are killed whole, and as many that are cut off.",
)
@click.option(
    "--first",
    is_flag=True,
    help="Once started, the lab's programs come before all other work of the machine (SCHED_RR; root): for a "
    "machine that does other work.",
)
@click.option(
    "--quick", is_flag=True, help="2 cells of 10 servers with one registrar each, one cut off: half a minute."
)
@report_options
def cells(
    count: int,
    servers: int,
    registrars: str,
    trials: int,
    losses: int,
    first: bool,
    quick: bool,
    report: ReportFiles,
) -> None:
    """Run cells with a gateway each and a handlespace above them, and lose servers, cells, the upper triple.

    Exit status: 0 the promises were kept, 1 one was broken, 2 the lab can't run here.
    """
    extent = CellsExtent(count, servers, int(registrars), trials, losses)
    extent = replace(QUICK if quick else extent, is_first=first)

    def measure(earlier: Sequence[CellsTrial]) -> Iterable[Sequence[CellsTrial]]:
        done = {trial.trial for trial in earlier if isinstance(trial, CellServerDeath)}
        deaths = [trial for trial in range(1, extent.deaths + 1) if trial not in done]
        lost = {(trial.trial, trial.fault) for trial in earlier if isinstance(trial, CellLoss)}
        plan = [(trial, fault) for trial in range(1, extent.losses + 1) for fault in extent.faults]
        left = [each for each in plan if each not in lost]
        has_upper = any(isinstance(trial, UpperLoss) for trial in earlier)
        if deaths or left or not has_upper:
            yield from _run(extent, deaths, left, has_upper=has_upper)

    options = {"cells": extent.cells, "servers": extent.servers, "registrars": extent.registrars}
    options["first"] = extent.is_first
    run_lab(report, REPORT, options, measure)


def _run(
    extent: CellsExtent, deaths: Sequence[int], losses: Sequence[tuple[int, str]], *, has_upper: bool
) -> Iterator[Sequence[CellsTrial]]:
    say(f"starting {extent.cells} cells of {extent.servers} servers, {extent.registrars} registrars in each")
    with CellsLab(extent.cells, extent.servers, extent.registrars, is_first=extent.is_first) as lab:
        lab.start()
        found = lab.found_by_naptr()
        if len(found) != extent.cells or not all(found.values()):
            raise LabError(f"the upper NAPTR records lead to {found}")
        say("every cell is found from the upper name; servers die")
        for trial in deaths:
            death = run_death(lab, trial)
            say(f"death {trial} in {death.cell}: gone after {death.gone_ms:.0f} ms, back {death.back_ms:.0f}")
            yield [death]
        if not has_upper:
            upper = run_upper_loss(lab, 1, extent.upper_loss_s)
            say(f"upper triple killed: {upper.wrong} wrong of {upper.answers} answers")
            yield [upper]
        for trial, fault in losses:
            loss = run_loss(lab, trial, fault)
            say(f"{loss.cell} {fault}: gone after {loss.gone_ms:.0f} ms, back after {loss.back_ms:.0f} ms")
            yield [loss]


def problems(trials: Sequence[CellsTrial]) -> list[str]:
    """The broken promises, in words."""
    broken = []
    gone_ms = [trial.gone_ms for trial in trials if isinstance(trial, CellServerDeath)]
    if gone_ms and (worst_ms := percentile(gone_ms, 99)) >= DEATH_BOUND_MS:
        broken.append(f"a server's death in its cell's DNS: p99 is {worst_ms:.0f} ms")
    for trial in trials:
        match trial:
            case CellLoss():
                if trial.gone_ms >= LOSS_BOUND_MS:
                    broken.append(f"{trial.cell} {trial.fault}: named for {trial.gone_ms:.0f} ms")
                if trial.others_lost:
                    words = f"{trial.others_lost} answers lacked another cell"
                    broken.append(f"{trial.cell} {trial.fault}: {words}")
            case UpperLoss():
                if trial.wrong:
                    broken.append(f"upper triple killed: {trial.wrong} of {trial.answers} answers were wrong")
    return broken


def _page(trials: Sequence[CellsTrial]) -> Page:
    loads = [trial.load_average for trial in trials]
    deaths = [trial for trial in trials if isinstance(trial, CellServerDeath)]
    losses = [trial for trial in trials if isinstance(trial, CellLoss)]
    uppers = [trial for trial in trials if isinstance(trial, UpperLoss)]
    text = (
        "Real are all registrars, name servers (rspdns and PowerDNS) and gateways, each in a network "
        "namespace of its own on one machine. Servers are simulated, each with an association of its own. "
        "The upper handlespace has three registrars. Registrars of cells ask their servers every "
        f"{KEEP_ALIVE_MS / 1000:g} s only, since all together would take the machine; the upper ones ask the "
        "gateways every 300 ms. Before anything is lost, every cell is found as a resolver finds it: the "
        "upper NAPTR, the delegation, the cell's SRV and A records. "
        f"The machine's load average was {min(loads):g} to {max(loads):g}, the lab's own part included; with "
        "`--first` what runs comes before other work, but for what has just been started. Without it "
        "(`rspdns-lab cells`), 100 deaths took 76 ms at p99 on the same machine, idle but for the lab. A "
        "death passes seven programs, one after the other, and a hundred wait for the same two processors. "
        "[How-to](../how-to/registrars/cell-gateways.md)."
    )
    sections = [_deaths(deaths), _losses(losses), _uppers(uppers)]
    return Page("Cells", text, [section for section in sections if section is not None])


def _deaths(deaths: Sequence[CellServerDeath]) -> Section | None:
    if not deaths:
        return None
    table = [("what", "deaths", "p50 ms", "p99 ms", "max ms")]
    for title, times in (
        ("gone from the cell's SRV records", [death.gone_ms for death in deaths]),
        ("its name has its address again", [death.back_ms for death in deaths]),
    ):
        values = (percentile(times, 50), percentile(times, 99), max(times))
        table.append((title, str(len(times)), *(f"{value:.1f}" for value in values)))  # type: ignore[arg-type]
    text = (
        f"A server's association ends without a word, in one cell after the other. Aimed at: p99 below "
        f"{DEATH_BOUND_MS:g} ms."
    )
    titles = [row[0] for row in table[1:]]
    both = [[death.gone_ms for death in deaths], [death.back_ms for death in deaths]]
    plot = Dots("A dot for each death.", "ms", titles, {"deaths": both}, [DEATH_BOUND_MS, None])
    return Section("A server dies", text, table, [plot])


def _losses(losses: Sequence[CellLoss]) -> Section | None:
    columns = (
        *(("cell", "{cell}"), ("fault", "{fault}"), ("gone after ms", "{gone_ms:.0f}")),
        *(("answers that lacked another cell", "{others_lost}"), ("named again after ms", "{back_ms:.0f}")),
    )
    text = (
        "Killed: all programs of the cell at once, by SIGKILL; named again: after their start, with that of "
        "the registrars and the registration of all servers. Silent: all its hosts are cut off, the "
        "gateway's first; named again: after the cut ended. The upper name server is asked every "
        f"millisecond. Aimed at: gone within {LOSS_BOUND_MS:g} ms."
    )
    plot = Dots.of(
        "A dot for each loss; red: what is aimed at for gone.",
        "ms",
        losses,
        lambda loss: loss.fault,
        {"gone": lambda loss: [loss.gone_ms], "named again": lambda loss: [loss.back_ms]},
        bounds=dict.fromkeys(FAULTS, LOSS_BOUND_MS),
    )
    return Section("A whole cell is lost", text, table_of(columns, losses), [plot]) if losses else None


def _uppers(uppers: Sequence[UpperLoss]) -> Section | None:
    columns = (
        *(("killed for s", "{seconds:g}"), ("upper answers", "{answers}"), ("wrong", "{wrong}")),
        ("a server's death meanwhile, in its cell's DNS, ms", "{gone_ms:.0f}"),
    )
    text = (
        "All three upper registrars are killed at once, started again later, and watched until all are "
        "settled and 5 s more. Wrong: an answer that lacks a cell, or none within half a second."
    )
    return Section("The upper triple is killed", text, table_of(columns, uppers)) if uppers else None


def _read(fields: dict[str, Any]) -> CellsTrial:
    kind = _KINDS[fields["kind"]]
    trial: CellsTrial = kind(**{key: value for key, value in fields.items() if key != "kind"})
    return trial


def _write(trial: CellsTrial) -> Mapping[str, Any]:
    name = next(name for name, kind in _KINDS.items() if isinstance(trial, kind))
    return {"kind": name, **asdict(trial)}


def _figures(trials: Sequence[CellsTrial]) -> dict[str, float]:
    gone_ms = [trial.gone_ms for trial in trials if isinstance(trial, CellServerDeath)]
    lost_ms = [trial.gone_ms for trial in trials if isinstance(trial, CellLoss)]
    return {
        **(
            {"death_p50_ms": percentile(gone_ms, 50), "death_p99_ms": percentile(gone_ms, 99)}
            if gone_ms
            else {}
        ),
        **({"loss_max_ms": max(lost_ms)} if lost_ms else {}),
    }


REPORT: Final[LabReport[CellsTrial]] = LabReport(_read, _figures, _page, problems, _write)
