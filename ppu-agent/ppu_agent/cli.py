"""The command `ppu-agent`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import click
from daemon_kit import logs
from daemon_kit.commands import CommandGroup, until_ctrl_c
from daemon_kit.config_file import ConfigurationErrors
from daemon_kit.control import ControlError, request
from daemon_kit.errors import FatalError
from daemon_kit.run import run_service

from ppu_agent.configuration import DEFAULT_PATH, PpuConfig, control_path, load_configuration

_CONFIG = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default=DEFAULT_PATH,
    show_default=True,
    help="Configuration file.",
)


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rspdns")
def main() -> None:
    """Redirect or refuse what this host's programs send to servers that died."""


@main.command()
@_CONFIG
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True)
@click.option("--log-json", is_flag=True, help="Log JSON lines.")
def run(config: Path, log_level: str, log_json: bool) -> None:
    """Run the agent until SIGTERM, which takes every rule back."""
    logs.configure(log_level, json=log_json)
    from ppu_agent.agent import PpuAgent
    from rserpool import SctpUnavailable, check_available

    loaded = _load(config)

    async def serve(stop: asyncio.Event) -> None:
        try:
            check_available()
        except SctpUnavailable as problem:
            raise FatalError(str(problem)) from None
        await PpuAgent(loaded).run(stop)

    sys.exit(run_service(serve))


@main.command()
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the nftables transactions.")
@click.option("--offline", is_flag=True, help="Look at the file only; ask no registrar.")
def check(config: Path, as_json: bool, offline: bool) -> None:
    """Say whether the configuration is right, and which rules would be set should each member die."""
    loaded = _load(config)
    if not offline:
        _rehearse(loaded, as_json=as_json)
    if not as_json:
        click.echo(f"{config}: no errors")


def _rehearse(loaded: PpuConfig, *, as_json: bool) -> None:
    from ppu_agent.explanation import described
    from ppu_agent.rehearsal import ask, rehearse, told
    from rserpool import SctpUnavailable

    try:
        views = asyncio.run(ask(loaded))
    except SctpUnavailable as problem:
        click.echo(f"the registrars can't be asked: {problem}", err=True)
        sys.exit(1)
    if as_json:
        cases = [
            {
                "dies": str(one.destination),
                "treated": [described(treatment) for treatment in one.steering.treatments],
                "nftables": one.commands,
            }
            for one in rehearse(loaded, views)
        ]
        click.echo(json.dumps({"rehearsals": cases}, indent=2))
        return
    for line in told(loaded, views):
        click.echo(line)


@main.command()
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--watch", is_flag=True, help="Go on showing it, every second, until Ctrl-C.")
def status(config: Path, as_json: bool, watch: bool) -> None:
    """Show which servers are alive, which left, and what is redirected or refused."""
    import time

    from ppu_agent.status import render

    def show(result: dict[str, Any], indent: int | None) -> None:
        lines = [json.dumps(result, indent=indent)] if as_json else list(render(result))
        click.echo("\n".join(lines))

    if not watch:
        show(_ask(config, "status"), 2)
        return
    with until_ctrl_c() as goes_on:
        while goes_on():
            if not as_json:
                click.clear()
            show(_ask(config, "status"), None)
            time.sleep(1.0)


@main.command()
@_CONFIG
@click.argument("endpoint", metavar="ADDRESS:PORT")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(config: Path, endpoint: str, as_json: bool) -> None:
    """Say what happens to a packet to an address and port, and why."""
    result = _ask(config, "explain", endpoint=endpoint)
    click.echo(json.dumps(result, indent=2) if as_json else "\n".join(result["words"]))


@main.command()
@_CONFIG
def suspend(config: Path) -> None:
    """Take every rule back, and set none until `resume` (or a restart)."""
    _ask(config, "suspend")
    click.echo("suspended: nothing is redirected or refused")


@main.command()
@_CONFIG
def resume(config: Path) -> None:
    """Steer again."""
    _ask(config, "resume")
    click.echo("resumed")


def _load(config: Path) -> PpuConfig:
    try:
        return load_configuration(config)
    except ConfigurationErrors as errors:
        click.echo(errors, err=True)
        sys.exit(1)


def _ask(config: Path, command: str, **arguments: Any) -> dict[str, Any]:
    try:
        return request(control_path(config), command, **arguments)
    except ConfigurationErrors as errors:
        click.echo(errors, err=True)
        sys.exit(1)
    except ControlError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
