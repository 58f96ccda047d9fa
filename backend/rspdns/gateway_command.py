"""The commands `rspdns gateway`: a cell's gateway, which stands for its pools in the upper handlespace."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import click
from daemon_kit import logs
from daemon_kit.commands import CommandGroup, config_option, counted, example, log_options
from daemon_kit.control import request
from daemon_kit.run import run_service

from rspdns.gateway.configuration import DEFAULT_PATH, gateway_control_path, load_gateway

_CONFIG = config_option(DEFAULT_PATH)
_FEWEST = 3
"""With fewer registrars the loss of one is no takeover (`rspdns-registrar` says why)."""


@click.group(
    cls=CommandGroup, epilog=example("rspdns gateway check && systemctl enable --now rspdns-gateway")
)
def gateway() -> None:
    """Stand for the pools of a cell in the upper handlespace (a Proxy Pool Element, RFC 5351)."""


@gateway.command(epilog=example("rspdns gateway run --log-level debug"))
@_CONFIG
@log_options()
def run(config: Path, log_level: str, log_json: bool) -> None:
    """Run the gateway until SIGTERM, which takes the cell out of the pools above.

    For each pool, one element is registered above: its load is the mean load of the cell's servers, its
    capacity their number. It is withdrawn while the pool is empty, or no registrar of the cell vouches for
    it.
    """
    logs.configure(log_level, json=log_json)
    from rserpool import SctpUnavailable, check_available
    from rspdns.gateway.service import CellGateway

    loaded = load_gateway(config)

    async def serve(stop: asyncio.Event) -> None:
        check_available()
        await CellGateway(loaded).run(stop)

    sys.exit(run_service(serve, fatal=(SctpUnavailable,)))


@gateway.command(epilog=example("rspdns gateway check"))
@_CONFIG
def check(config: Path) -> None:
    """Say whether the configuration is right: every error at once, with file, line and key."""
    loaded = load_gateway(config)
    for key in ("registrars", "upper_registrars"):
        if (number := len(getattr(loaded, key))) < _FEWEST:
            click.echo(f"warning: {config}: {key}: {number}; run three", err=True)
    for pool in loaded.pools:
        click.echo(f"{', '.join(pool.shards)} -> {pool.upper} above, as {loaded.address}")
    click.echo(f"{config}: {counted(len(loaded.pools), 'pool')}, no errors")


@gateway.command(epilog=example("rspdns gateway status --json"))
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(config: Path, as_json: bool) -> None:
    """Show what the cell has, and what of it is registered above."""
    from rspdns.gateway.service import lines

    result = request(gateway_control_path(config), "status")
    click.echo(json.dumps(result, indent=2) if as_json else "\n".join(lines(result)))  # type: ignore[arg-type]
