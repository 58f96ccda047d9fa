"""The command `ppe-agent`."""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click
from daemon_kit import logs
from daemon_kit.commands import (
    CommandGroup,
    config_option,
    counted,
    duration_option,
    example,
    log_options,
    until_ctrl_c,
)
from daemon_kit.config_file import ConfigurationError, ConfigurationErrors, TomlDocument, read_text
from daemon_kit.control import ControlError, request
from daemon_kit.durations import duration
from daemon_kit.run import run_service
from daemon_kit.users import become

from ppe_agent.configuration import (
    DEFAULT_PATH,
    AgentConfig,
    ServerConfig,
    addresses_of,
    control_path,
    load_configuration,
    registered_addresses,
)
from ppe_agent.daemon_threads import DaemonThreads
from ppe_agent.idle import busy, check_load_sources, progress
from ppe_agent.leftovers import adopt_orphans
from ppe_agent.status_model import AgentStatus

_CONFIG = config_option(DEFAULT_PATH)
_SERVER = click.argument("name", metavar="[AS]", required=False)
_UNIT_USER = "ppe-agent"
_NAME_THREADS = 8
_IDLE_LOOK_S = 0.5
_EXIT_INTERRUPTED = 130
_DISK_S = 60.0
"""The time that the agent's disk may take to keep a drain; the server has left its pool long before."""


@click.group(
    cls=CommandGroup,
    first=("check", "run", "status", "drain", "undrain"),
    epilog='For maintenance: `ppe-agent drain --for 2h --reason "new kernel"`, later `ppe-agent undrain`.',
)
@click.version_option(package_name="rspdns")
def main() -> None:
    """Keep unmodified servers in their RSerPool pools while they are healthy."""


@main.command(epilog=example("ppe-agent run --log-level debug"))
@_CONFIG
@log_options()
def run(config: Path, log_level: str, log_json: bool) -> None:
    """Run the sidecar until SIGTERM, which withdraws the servers. SIGHUP reads the configuration again."""
    logs.configure(log_level, json=log_json)
    from ppe_agent.agent import Agent
    from rserpool import SctpUnavailable, check_available

    loaded = load_configuration(config)

    async def serve(stop: asyncio.Event) -> None:
        adopt_orphans()
        check_available()
        # Host names in URLs are looked up there; a name server may be silent for a minute.
        asyncio.get_running_loop().set_default_executor(DaemonThreads(_NAME_THREADS, "names"))
        await Agent(loaded, config).run(stop)

    sys.exit(run_service(serve, fatal=(SctpUnavailable,)))


@main.command(epilog=example("ppe-agent check"))
@_CONFIG
def check(config: Path) -> None:
    """Say whether the configuration is right and what it names is on this host: every error with its line.

    Each load source is asked once, and a command run, by the user who checks. If the file is the service's
    own, root asks as the user of the service.
    """
    from ppe_agent.client_addresses import cautions
    from ppe_agent.load_trial import loads_now

    loaded = load_configuration(config)
    doubts = _look_at_host(config, loaded)
    for server in loaded.servers:
        addresses = "this host's address towards its registrar"
        registrars = loaded.registrars_of(server)
        if registrars or server.address != "auto":
            addresses = ", ".join(str(address) for address in addresses_of(server, *registrars[:1]))
        checks = ", ".join(check.type for check in server.check)
        click.echo(
            f"{server.name}: {server.transport} {addresses} port {server.port} in pool {server.pool}, "
            f"policy {server.policy}, while these pass: {checks}"
        )
        if server.remote:
            click.echo(f"{server.name}: {_about_remote(server, loaded)}")
    if config == DEFAULT_PATH:
        become(_UNIT_USER)
    adopt_orphans()
    loads = asyncio.run(loads_now(loaded))
    for reading in loads:
        if reading.load is None:
            click.echo(f"warning: {reading.name}: load from {reading.source}: {reading.problem}", err=True)
        else:
            click.echo(f"{reading.name}: load from {reading.source}: {reading.load:.2f} now")
    warnings = [] if loaded.relay is None else list(cautions(loaded.relay.client_networks))
    for warning in warnings:
        click.echo(f"warning: [relay] clients: {warning}", err=True)
    for doubt in doubts:
        click.echo(f"{doubt}; no error if the sidecar runs as another user: run this check as that user")
    failed = sum(reading.load is None for reading in loads) + len(warnings)
    click.echo(f"{config}: no errors" + (f", {counted(failed, 'warning')}" if failed else ""))


@main.command(epilog=example("ppe-agent status --watch"))
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--watch", is_flag=True, help="Go on showing it, every second, until Ctrl-C.")
def status(config: Path, as_json: bool, watch: bool) -> None:
    """Say why each server is in its pool or not. With --json and --watch: one line of JSON a second."""
    if watch:
        from ppe_agent.status import watch_status

        watch_status(lambda: _status_or_problem(config), as_json=as_json)
        return
    result = _status(config)
    if as_json:
        click.echo(json.dumps(result, indent=2))
        return
    from ppe_agent.status import console, render

    screen = console()
    screen.print(render(result, screen.width))


@main.command(epilog=example("ppe-agent drain --until-idle --at-most 10m && systemctl restart kamailio"))
@_CONFIG
@_SERVER
@click.option(
    "--wait",
    is_flag=True,
    help="Return when a registrar confirmed that it left; fail when none did.",
)
@click.option("--for", "for_s", callback=duration_option, help="Undrain it after this time (10m, 2h, 1d).")
@click.option("--reason", default="", help="Shown by ppe-agent status.")
@click.option("--until-idle", is_flag=True, help="Wait until its load source says 0.")
@click.option(
    "--at-most", "at_most_s", callback=duration_option, help="With --until-idle: wait no longer than this."
)
def drain(
    config: Path,
    name: str | None,
    wait: bool,
    for_s: float | None,
    reason: str,
    until_idle: bool,
    at_most_s: float | None,
) -> None:
    """Take the server AS (default: every server) out of its pool; it goes on serving. Kept over restarts.

    Name servers show it as drained, not as missing. Example: ppe-agent drain --until-idle --at-most 10m &&
    systemctl restart kamailio && ppe-agent undrain
    """
    if at_most_s is not None and not until_idle:
        raise click.UsageError("--at-most goes with --until-idle")
    words = {"name": name, "wait": wait or until_idle, "for_s": for_s, "reason": reason}
    result = _ask(config, "drain", timeout_s=_DISK_S, **words)
    _show_states(result)
    if until_idle:
        _wait_until_idle(config, [server["name"] for server in result["as"]], at_most_s)


def _wait_until_idle(config: Path, names: Sequence[str], at_most_s: float | None) -> None:
    """Return when these are idle, or at the latest after `at_most_s`; show what is left."""
    ends_s = None if at_most_s is None else time.monotonic() + at_most_s
    with until_ctrl_c() as goes_on:
        shown = ""
        while goes_on():
            servers = [server for server in _status(config)["as"] if server["name"] in names]
            check_load_sources(servers)
            left_s = None if ends_s is None else ends_s - time.monotonic()
            if not (left := busy(servers)):
                click.echo("idle")
                return
            if left_s is not None and left_s <= 0:
                click.echo(f"not idle after {duration(at_most_s)}: {progress(left, None)}")
                return
            if (what_is_left := progress(left, None)) != shown:
                shown = what_is_left
                click.echo(progress(left, left_s))
            time.sleep(_IDLE_LOOK_S)
    sys.exit(_EXIT_INTERRUPTED)


@main.command(epilog=example("ppe-agent undrain sip-1"))
@_CONFIG
@_SERVER
def undrain(config: Path, name: str | None) -> None:
    """Let the drained server AS (default: every server) into its pool again."""
    _show_states(_ask(config, "undrain", timeout_s=_DISK_S, name=name), is_surprise=True)


def _about_remote(server: ServerConfig, loaded: AgentConfig) -> str:
    own = "this host's address"
    if registrars := loaded.registrars_of(server):
        own = ", ".join(str(address) for address in registered_addresses(server, registrars[0]))
    return (
        "remote, judged over the network from this host; its pool in the zone's file needs "
        f'remote_agents = ["{own}"]'
    )


def _look_at_host(config: Path, loaded: AgentConfig) -> list[ConfigurationError]:
    """Return what only this user lacks; end with what anybody does."""
    from ppe_agent.host_check import lacks

    document = TomlDocument(str(config), read_text(config))
    problems = [(lack.is_doubtful, document.error(lack.location, lack.problem)) for lack in lacks(loaded)]
    if errors := [error for is_doubtful, error in problems if not is_doubtful]:
        raise ConfigurationErrors(errors)
    return [error for _, error in problems]


def _ask(config: Path, command: str, **arguments: Any) -> dict[str, Any]:
    return request(control_path(config), command, **arguments)


def _status(config: Path) -> AgentStatus:
    answer: Any = _ask(config, "status")
    return cast(AgentStatus, answer)


def _status_or_problem(config: Path) -> AgentStatus | str:
    """Return the status, or why there is none just now."""
    try:
        return _status(config)
    except (ConfigurationErrors, ControlError) as problem:
        return str(problem)


def _show_states(result: dict[str, Any], *, is_surprise: bool = False) -> None:
    for server in result["as"]:
        is_surprise_here = is_surprise or server.get("twin") is not None
        why = f" ({server['reason']})" if server["state"] == "drained" and is_surprise_here else ""
        click.echo(f"{server['name']}: {server['state']}{why}")


if __name__ == "__main__":
    main()
