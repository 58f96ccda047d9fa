"""The command `ppu-agent`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

import click
from daemon_kit import logs
from daemon_kit.commands import CommandGroup, config_option, end_with, example, log_options, until_ctrl_c
from daemon_kit.control import request
from daemon_kit.run import run_service

from ppu_agent.configuration import DEFAULT_PATH, PpuConfig, control_path, load_configuration
from ppu_agent.status_model import PpuStatus

_CONFIG = config_option(DEFAULT_PATH)
THREADS_TURN_S = 0.0001
"""The time for which a thread that reads thousands of sockets or flows may keep the interpreter from the
event loop.

With Python's 5 ms, each call of the relay into the kernel waits that long: some 150 ms for a connection.
"""


@click.group(
    cls=CommandGroup,
    first=("check", "run", "status", "explain"),
    epilog="To see what would become of a packet: `ppu-agent explain 10.20.0.5:5060`.",
)
@click.version_option(package_name="rspdns")
def main() -> None:
    """Redirect or refuse what this host's programs send to servers that died."""


@main.command(epilog=example("ppu-agent run --log-level debug"))
@_CONFIG
@log_options()
def run(config: Path, log_level: str, log_json: bool) -> None:
    """Run the agent until SIGTERM, which removes its rules. SIGHUP reads the configuration again."""
    logs.configure(log_level, json=log_json)
    from ppu_agent.service import PpuService
    from rserpool import SctpUnavailable, check_available

    loaded = load_configuration(config)

    async def serve(stop: asyncio.Event) -> None:
        check_available()
        sys.setswitchinterval(THREADS_TURN_S)
        await PpuService(loaded, config).run(stop)

    sys.exit(run_service(serve, fatal=(SctpUnavailable,)))


@main.command(epilog=example("ppu-agent check"))
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the nftables transactions.")
@click.option("--offline", is_flag=True, help="Look at the file only; ask no registrar.")
def check(config: Path, as_json: bool, offline: bool) -> None:
    """Say whether the configuration is right, and show what would be done if a server died.

    The registrars are asked who is in the pools. With --offline only the file is read.
    """
    loaded = load_configuration(config)
    if not offline:
        _rehearse(loaded, as_json=as_json)
    if not as_json:
        click.echo(f"{config}: no errors")


def _rehearse(loaded: PpuConfig, *, as_json: bool) -> None:
    from ppu_agent.explanation import described
    from ppu_agent.rehearsal import ask, gateway_lines, lines, rehearse
    from rserpool import SctpUnavailable

    try:
        views = asyncio.run(ask(loaded))
    except SctpUnavailable as problem:
        end_with(f"the registrars can't be asked: {problem}")
    if as_json:
        cases = [
            {
                "dies": str(rehearsal.destination),
                "treated": [described(treatment) for treatment in rehearsal.plan.treatments],
                "nftables": rehearsal.commands,
            }
            for rehearsal in rehearse(loaded, views)
        ]
        gateway = list(gateway_lines(loaded, views))
        click.echo(json.dumps({"rehearsals": cases, "gateway": gateway}, indent=2))
        return
    for line in lines(loaded, views):
        click.echo(line)


@main.command(epilog=example("ppu-agent status --watch"))
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--watch", is_flag=True, help="Go on showing it, every second, until Ctrl-C.")
@click.option(
    "--check",
    is_flag=True,
    help="Show only what is wrong; exit status 1 when the kernel refuses the rules, or no registrar vouches "
    "for a pool. For keepalived, or a monitor.",
)
def status(config: Path, as_json: bool, watch: bool, check: bool) -> None:
    """Show which servers are alive, which left, and what is redirected or refused."""
    import time

    from ppu_agent.status import problems, render

    if check:
        found = list(problems(_status(config)))
        click.echo("\n".join(found or ["all is well"]))
        raise SystemExit(1 if found else 0)

    def show(indent: int | None) -> None:
        result = _status(config)
        lines = [json.dumps(result, indent=indent)] if as_json else list(render(result))
        click.echo("\n".join(lines))

    if not watch:
        show(2)
        return
    with until_ctrl_c() as goes_on:
        while goes_on():
            if not as_json:
                click.clear()
            show(None)
            time.sleep(1.0)


@main.command(epilog=example("ppu-agent explain 10.20.0.5:5060"))
@_CONFIG
@click.argument("endpoint", metavar="ADDRESS:PORT")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(config: Path, endpoint: str, as_json: bool) -> None:
    """Say what happens to a packet to an address and port, and why."""
    result = _ask(config, "explain", endpoint=endpoint)
    click.echo(json.dumps(result, indent=2) if as_json else "\n".join(result["words"]))


@main.command(epilog=example("ppu-agent suspend"))
@_CONFIG
def suspend(config: Path) -> None:
    """Redirect, refuse and guard nothing until `resume` or a restart. The fronts of `steer` go on."""
    _ask(config, "suspend")
    click.echo("suspended: nothing is redirected or refused until `ppu-agent resume`")


@main.command(epilog=example("ppu-agent resume"))
@_CONFIG
def resume(config: Path) -> None:
    """End `suspend`: redirect or refuse again what is sent to dead servers."""
    _ask(config, "resume")
    click.echo("resumed: what is sent to dead servers is redirected or refused again")


def _status(config: Path) -> PpuStatus:
    return cast(PpuStatus, _ask(config, "status"))


def _ask(config: Path, command: str, **arguments: Any) -> dict[str, Any]:
    return request(control_path(config), command, **arguments)


if __name__ == "__main__":
    main()
