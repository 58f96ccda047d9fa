"""The command `rspdns-lab chaos`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from rspdns_lab.chain.plan import FOLLOWS, MOST_MEMBERS, Follow
from rspdns_lab.chaos.report import write_html
from rspdns_lab.chaos.run import ALL_FAULTS, QUICK_FAULTS, SIZES, Order, run_chaos
from rspdns_lab.chaos.summary import Kept, Row, table
from rspdns_lab.net.privilege import become_root
from rspdns_lab.report.files import ReportPath, hand_over
from rspdns_lab.report.html import markdown_table
from rspdns_lab.told_plainly import say, told_plainly

EXIT_BOUND_BROKEN = 1


@click.command()
@click.option("--trials", type=click.IntRange(1, 10_000), default=10, show_default=True)
@click.option(
    "--quick", is_flag=True, help=f"One trial of {', '.join(QUICK_FAULTS)}, in a pool of 3, followed by ENRP."
)
@click.option(
    "--fault",
    "names",
    multiple=True,
    type=click.Choice([one.name for one in ALL_FAULTS]),
    metavar="FAULT",
    help=f"Only this, or these: {', '.join(one.name for one in ALL_FAULTS)}.",
)
@click.option(
    "--members", "sizes", multiple=True, type=click.IntRange(2, MOST_MEMBERS), help="Only this size."
)
@click.option("--follow", "follows", multiple=True, type=click.Choice(FOLLOWS),
              help="Only so: registrars followed by ENRP, or polled only.")  # fmt: skip
@click.option("--slack", type=click.FloatRange(1, 1000), default=1.0, show_default=True,
              help="Multiplies the time bounds: a busy machine is slower.")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="For the moments and the victims.")
@click.option("--results", type=ReportPath(),
              help="Every trial is added to this file; those in it are not run again.")  # fmt: skip
@click.option("--json", "json_file", type=ReportPath(), help="Write the figures here.")
@click.option("--html", "html_file", type=ReportPath(), help="One page with tables and plots.")
def chaos(
    trials: int,
    quick: bool,
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    follows: tuple[Follow, ...],
    slack: float,
    seed: int,
    results: Path | None,
    json_file: Path | None,
    html_file: Path | None,
) -> None:
    """Break every part again and again at random moments, and sum up what DNS answered.

    In pools of 2, 3 and 12, with registrars followed by ENRP and polled only, unless told otherwise.

    Exit status: 0 all bounds kept, 1 a bound broken, 2 the lab can't run here.
    """
    if quick:
        names, sizes, follows, trials = names or QUICK_FAULTS, sizes or (3,), follows or ("enrp",), 1
    faults = tuple(one for one in ALL_FAULTS if not names or one.name in names)
    each_size, each_follow = tuple(dict.fromkeys(sizes)) or SIZES, tuple(dict.fromkeys(follows)) or FOLLOWS
    order = Order(faults, each_size, each_follow, trials, slack, seed)
    if not list(order.cases()):
        raise click.UsageError(f"{', '.join(names)}: not in pools of {', '.join(map(str, each_size))}")
    kept = Kept()
    with told_plainly(lambda: _as_markdown(order.rows(kept))):
        become_root(sys.argv[1:])
        kept = Kept(results)
        run_chaos(order, kept, say)
    rows = order.rows(kept)
    ok = bool(rows) and not any(row.problems for row in rows)
    click.echo(_as_markdown(rows))
    with told_plainly():
        if json_file is not None:
            figures = {"ok": ok, "faults": [row.as_json() for row in rows]}
            hand_over(json_file, json.dumps(figures, indent=2))
        if html_file is not None:
            write_html(html_file, rows, slack)
    sys.exit(0 if ok else EXIT_BOUND_BROKEN)


def _as_markdown(rows: Sequence[Row]) -> str:
    return markdown_table(table(rows)) if rows else ""
