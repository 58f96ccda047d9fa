"""The command `rspdns-lab resolvers`."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from rspdns_lab.net.privilege import become_root
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.html import Section, Table, markdown_table, write_page
from rspdns_lab.resolvers.programs import RESOLVERS
from rspdns_lab.resolvers.run import NAME_SERVER, Delay, read_delay, run_resolvers, summed_up
from rspdns_lab.told_plainly import say, told_plainly

_QUICK_TRIALS = 2
_TITLE = "How long resolvers go on naming a server that has left"


@click.command()
@click.option(
    "--resolver",
    "resolvers",
    multiple=True,
    type=click.Choice(list(RESOLVERS)),
    metavar="NAME",
    help=f"Only this, or these: {', '.join(RESOLVERS)}.",
)
@click.option(
    "--trials", type=click.IntRange(1, 1000), default=20, show_default=True, help="Changes watched."
)
@click.option("--quick", is_flag=True, help=f"{_QUICK_TRIALS} changes.")
@report_options
def resolvers(resolvers: Sequence[str], trials: int, quick: bool, report: ReportFiles) -> None:
    """Measure what caching resolvers add: a server leaves and comes back, its zone's TTL is 1 s.

    Exit status: 0 measured, 2 the lab can't run here.
    """
    keys = [key for key in RESOLVERS if not resolvers or key in resolvers]
    options = {"resolvers": keys}
    found: list[Delay] = []
    with told_plainly(lambda: markdown_table(_table(found)) if found else ""):
        become_root(sys.argv[1:])
        found += report.earlier(read_delay, options)
        done = {one.trial for one in found}
        left = [trial for trial in range(1, (_QUICK_TRIALS if quick else trials) + 1) if trial not in done]
        if left:
            say(f"starting the lab with {', '.join(keys)}")
            for delays in run_resolvers(keys, left, say):
                found += delays
                report.keep(_as_json(found), options)
        report.show(
            lambda file, all_of: write_page(file, _TITLE, "", [Section("", "", _table(all_of))]), found
        )
    click.echo(markdown_table(_table(found)))


def _as_json(found: Sequence[Delay]) -> dict[str, Any]:
    return {"results": summed_up(found), "trials": [one.as_json() for one in found]}


def _table(found: Sequence[Delay]) -> Table:
    rows: list[Sequence[str]] = [
        ("answers of", "changes", "gone: median", "longest", "back: median", "longest")
    ]
    titles = {NAME_SERVER: "the name server itself"} | {key: one.title for key, one in RESOLVERS.items()}
    for key, figures in summed_up(found).items():
        times = [f"{figures[name] / 1000:.2f} s" for name in figures if name != "changes"]
        rows.append([titles[key], f"{figures['changes']:.0f}", *times])
    return rows
