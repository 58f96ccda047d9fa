"""The command `rspdns-lab resolvers`."""

from collections.abc import Iterable, Sequence
from typing import Final

import click

from rspdns_lab.ending import say
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Page, Section
from rspdns_lab.report.trials import LabReport, run_lab
from rspdns_lab.resolvers.programs import RESOLVERS
from rspdns_lab.resolvers.run import NAME_SERVER, Delay, run_resolvers, summed_up

_QUICK_TRIALS = 2
_HEAD = ("answers of", "changes", "gone: median", "longest", "back: median", "longest")
_TITLE = "How long resolvers go on naming a server that has left"


@click.command()
@click.option(
    "--trials", type=click.IntRange(1, 1000), default=20, show_default=True, help="Changes watched."
)
@click.option("--quick", is_flag=True, help=f"{_QUICK_TRIALS} changes.")
@report_options
def resolvers(trials: int, quick: bool, report: ReportFiles) -> None:
    """Measure what caching resolvers add: a server leaves and comes back, its zone's TTL is 1 s.

    Exit status: 0 measured, 2 the lab can't run here.
    """
    keys = list(RESOLVERS)

    def measure(earlier: Sequence[Delay]) -> Iterable[Sequence[Delay]]:
        done = {delay.trial for delay in earlier}
        left = [trial for trial in range(1, (_QUICK_TRIALS if quick else trials) + 1) if trial not in done]
        return run_resolvers(keys, left, say) if left else ()

    run_lab(report, REPORT, {"resolvers": keys}, measure)


def _page(found: Sequence[Delay]) -> Page:
    titles = {NAME_SERVER: "the name server itself"} | {key: each.title for key, each in RESOLVERS.items()}
    times = ("gone_p50_ms", "gone_max_ms", "back_p50_ms", "back_max_ms")
    rows = [
        [titles[key], f"{figures['changes']:.0f}", *(f"{figures[name] / 1000:.2f} s" for name in times)]
        for key, figures in summed_up(found).items()
    ]
    return Page(_TITLE, "", [Section("", "", [_HEAD, *rows])])


REPORT: Final = LabReport(lambda fields: Delay(**fields), lambda found: {"results": summed_up(found)}, _page)
