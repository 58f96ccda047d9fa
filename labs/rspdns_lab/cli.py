"""The command `rspdns-lab`."""

import json
import sys
from pathlib import Path

import click
from daemon_kit.commands import CommandGroup, example
from rich.console import Console

from rspdns_lab.bench.cli import bench
from rspdns_lab.cells.cli import cells
from rspdns_lab.chaos.cli import chaos
from rspdns_lab.compare.cli import compare
from rspdns_lab.demo.film import Film
from rspdns_lab.demo.run import run_demo
from rspdns_lab.discover.cli import discover
from rspdns_lab.ending import end_on_signals, ending_plainly
from rspdns_lab.favor.cli import favor
from rspdns_lab.favor.uplink import uplink
from rspdns_lab.ims.cli import ims
from rspdns_lab.loss import loss
from rspdns_lab.net.leftovers import remove_leftovers
from rspdns_lab.net.preconditions import become_root
from rspdns_lab.news.cli import news
from rspdns_lab.proxies.cli import proxies
from rspdns_lab.report.files import STDOUT, ReportPath, hand_over
from rspdns_lab.resolvers.cli import resolvers
from rspdns_lab.scale.cli import scale
from rspdns_lab.secondaries.cli import secondaries
from rspdns_lab.shim.cli import shim
from rspdns_lab.simulate.cli import simulate
from rspdns_lab.simulate.mutant_trials import mutants
from rspdns_lab.voip.cli import voip
from rspdns_lab.watch.relay import HANDED_ON, listener_on_loopback
from rspdns_lab.watch.run import run_watch

EXIT_BOUND_BROKEN = 1
WIDTH_WITHOUT_TERMINAL = 130


@click.group(
    cls=CommandGroup,
    first=("demo", "watch", "chaos", "ims"),
    epilog="Begin with `rspdns-lab demo`. `rspdns-lab chaos --fault as-killed --trials 20` shows how far "
    "times spread.",
)
@click.version_option(package_name="rspdns")
def main() -> None:
    """Run labs: the whole chain in network namespaces of its own.

    Needs root, or unprivileged user namespaces."""
    end_on_signals()


@main.command(epilog=example("rspdns-lab demo --json demo.json"))
@click.option(
    "--json", "json_file", type=ReportPath(stdout=True), help='Write the figures here ("-": stdout).'
)
@click.option(
    "--film", "film_file", type=ReportPath(), help="Write the first step as a moving picture (SVG) here."
)
@click.option(
    "--slow",
    type=click.FloatRange(1, 100),
    default=1.0,
    show_default=True,
    help="The factor by which this machine is slower (an emulated one): bounds, patience and the client's "
    "beat are stretched. Answers that may never be wrong still may not, and no answer may be empty.",
)
def demo(json_file: Path | None, film_file: Path | None, slow: float) -> None:
    """Kill, drain and cut parts of the chain, and show what DNS answers meanwhile.

    Exit status: 0 all bounds kept, 1 a bound broken, 2 the lab can't run here.
    """
    to_stdout = json_file == STDOUT
    console = Console(stderr=to_stdout, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    film = Film() if film_file else None
    with ending_plainly():
        become_root()
        outcome = run_demo(console, slow, film)
    with ending_plainly():
        if json_file is not None:
            hand_over(json_file, json.dumps(outcome.as_json(), indent=2))
        if film_file is not None and film is not None:
            hand_over(film_file, film.as_svg())
    sys.exit(0 if outcome.ok else EXIT_BOUND_BROKEN)


main.add_command(ims)
main.add_command(bench)
main.add_command(compare)
main.add_command(chaos)
main.add_command(loss)
main.add_command(resolvers)
main.add_command(proxies)
main.add_command(discover)
main.add_command(secondaries)
main.add_command(news)
main.add_command(favor)
main.add_command(simulate)
main.add_command(mutants)
main.add_command(shim)
main.add_command(voip)
main.add_command(cells)
main.add_command(uplink)
main.add_command(scale)


@main.command(epilog=example("rspdns-lab watch"))
@click.option(
    "--admin-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Loopback port of the live page; 0: a free one, which is shown.",
)
def watch(admin_port: int) -> None:
    """Show the running lab, and kill, hang, cut, drain, overload and revive its servers with a key."""
    with ending_plainly(), listener_on_loopback(admin_port) as listener:
        become_root({HANDED_ON: str(listener.fileno())})
        run_watch(Console(highlight=False), listener)


@main.command(epilog=example("rspdns-lab clean"))
def clean() -> None:
    """Remove what labs left behind that were killed with SIGKILL (any other end cleans up by itself)."""
    removed, kept = remove_leftovers()
    for name in kept:
        click.echo(f"error: {name} is another user's lab's: remove it as that user or as root", err=True)
    if removed or not kept:
        click.echo("\n".join(f"removed {name}" for name in removed) or "nothing left behind")
    sys.exit(1 if kept else 0)


if __name__ == "__main__":
    main()
