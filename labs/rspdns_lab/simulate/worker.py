"""Runs scenarios as told on the command line, and writes one line of JSON for each.

    python -m rspdns_lab.simulate FIRST LAST MINUTES [--faults NAME,...] [--leave-out INDEX,...] [--shrink]

With `--trace FILE` the trace of the last one goes there. With `--for-s SECONDS` none begins after this time
of the processor. With `--unfolded` every keep-alive, check and look-up goes its way packet by packet. With
`--lines FILE` the lines that they reach of the modules in `mutations` go there.
"""

import json
import sys
from itertools import chain
from pathlib import Path

import click

from rspdns_lab.simulate import determinism, scenario
from rspdns_lab.simulate.invariants import ANY_PROMISE
from rspdns_lab.simulate.mutations import GROUPS
from rspdns_lab.simulate.reached import ReachedLines
from rspdns_lab.simulate.regressions import SIZE
from rspdns_lab.simulate.soak import code_version
from rspdns_lab.simulate.world import PLAIN, WorldSetting, WorldSize


@click.command()
@click.argument("first", type=int)
@click.argument("last", type=int)
@click.argument("minutes", type=float)
@click.option("--faults", default="")
@click.option("--leave-out", default="")
@click.option("--shrink", is_flag=True)
@click.option("--trace", type=click.Path(path_type=Path))
@click.option("--until-broken", is_flag=True)
@click.option("--for-s", type=float, default=float("inf"))
@click.option("--size", default=SIZE)
@click.option("--setting", default="")
@click.option("--unfolded", is_flag=True)
@click.option("--lines", type=click.Path(path_type=Path))
def main(
    first: int,
    last: int,
    minutes: float,
    faults: str,
    leave_out: str,
    shrink: bool,
    trace: Path | None,
    until_broken: bool,
    for_s: float,
    size: str,
    setting: str,
    unfolded: bool,
    lines: Path | None,
) -> None:
    """Run the scenarios FIRST to LAST."""
    reached = None if lines is None else ReachedLines(chain.from_iterable(GROUPS.values()))
    if reached is not None:
        reached.begin()
    world_size = WorldSize(*map(int, size.split(",")))
    names = [name for name in faults.split(",") if name]
    left_out = [int(index) for index in leave_out.split(",") if index]
    kinds = [kind for kind in setting.split(",") if kind not in ("", PLAIN)]
    world_setting = WorldSetting(**dict.fromkeys(kinds, True)) if setting else None
    began_s, code = determinism.real_s(), code_version()
    for seed in range(first, last + 1):
        if determinism.real_s() - began_s > for_s:
            break
        outcome = scenario.run(
            seed,
            minutes,
            names=names,
            left_out=left_out,
            size=world_size,
            setting=world_setting,
            until_broken=ANY_PROMISE if until_broken else "",
            is_folding=not unfolded,
        )
        if shrink and outcome.broken:
            outcome = scenario.shrink(outcome, names, world_size, world_setting)
        print(json.dumps({**outcome.as_json(), "code": code}), flush=True)
        if trace is not None:
            trace.write_text("".join(f"{line}\n" for line in outcome.lines))
        if until_broken and outcome.broken:
            break
    if reached is not None and lines is not None:
        reached.end(lines)
    sys.exit(0)
