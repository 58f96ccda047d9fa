"""The command `rspdns-lab resolvers`."""

from collections.abc import Iterable, Sequence
from typing import Final

import click
from daemon_kit.commands import example

from rspdns_lab.ending import say
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page, Section
from rspdns_lab.report.plots import Dots
from rspdns_lab.report.trials import LabReport, run_lab, trials_option
from rspdns_lab.resolvers.programs import RESOLVERS
from rspdns_lab.resolvers.run import (
    NAME_SERVER,
    TOLD_TTL_S,
    Delay,
    asked_per_s,
    run_resolvers,
    summed_up,
)

_QUICK_TRIALS = 2
_HEAD = ("answers of", "changes", "gone: median", "gone: longest", "back: median", "back: longest")
_TITLE = "How long resolvers go on naming a server that has left"
_INTRO = (
    "A client asks each resolver every 20 ms while a server is drained and comes back. In the first table "
    f"the TTL is 1 s. In the second one it is {TOLD_TTL_S} s, and both backends have each resolver forget "
    "what changed (`[[resolver]]`)."
)


@click.command(epilog=example("rspdns-lab resolvers --quick"))
@trials_option(20, "Changes watched.")
@click.option("--quick", is_flag=True, help=f"{_QUICK_TRIALS} changes.")
@report_options
def resolvers(trials: int, quick: bool, report: ReportFiles) -> None:
    """Measure what caching resolvers add: a server leaves and comes back. The TTL of its zone is 1 s; then
    30 s, and the resolvers are told to forget.

    Exit status: 0 measured, 2 the lab can't run here.
    """
    keys = list(RESOLVERS)

    def measure(earlier: Sequence[Delay]) -> Iterable[Sequence[Delay]]:
        for is_told in (False, True):
            done = {delay.trial for delay in earlier if delay.is_told == is_told}
            left = [each for each in range(1, (_QUICK_TRIALS if quick else trials) + 1) if each not in done]
            if left:
                yield from run_resolvers(keys, left, say, is_told=is_told)

    run_lab(report, REPORT, {"resolvers": keys}, measure)


def _page(found: Sequence[Delay]) -> Page:
    sections = [_section(found, is_told=is_told) for is_told in (False, True)]
    return Page(_TITLE, _INTRO, [section for section in sections if len(section.table) > 1])


def _section(found: Sequence[Delay], *, is_told: bool) -> Section:
    titles = {NAME_SERVER: "the name server itself"} | {key: each.title for key, each in RESOLVERS.items()}
    times = ("gone_p50_ms", "gone_max_ms", "back_p50_ms", "back_max_ms")
    rows = [
        [titles[key], f"{figures['changes']:.0f}", *(f"{figures[name] / 1000:.3f} s" for name in times)]
        for key, figures in summed_up(found, is_told=is_told).items()
    ]
    rate = asked_per_s(found, is_told=is_told)
    asked = "" if rate is None else f"All resolvers together ask the name servers {rate:g} times a second."
    plot = Dots.of(
        "From the change to the last answer of before, a dot for each change.",
        "ms",
        [delay for delay in found if delay.is_told == is_told],
        lambda delay: titles[delay.resolver].replace("`", ""),
        {"gone": lambda delay: [delay.gone_ms], "back": lambda delay: [delay.back_ms]},
    )
    title = f"Told, TTL {TOLD_TTL_S} s" if is_told else "Not told, TTL 1 s"
    return Section(title, asked, [_HEAD, *rows], [plot])


def _results(found: Sequence[Delay]) -> dict[str, object]:
    return {
        "told" if is_told else "not_told": {
            "resolvers": summed_up(found, is_told=is_told),
            "asked_per_s": asked_per_s(found, is_told=is_told),
        }
        for is_told in (False, True)
    }


REPORT: Final = LabReport(lambda fields: Delay(**fields), lambda found: {"results": _results(found)}, _page)
