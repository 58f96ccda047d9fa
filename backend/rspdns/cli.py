"""The command `rspdns`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
from daemon_kit import logs
from daemon_kit.commands import (
    CommandGroup,
    config_option,
    counted,
    end_with,
    example,
    log_options,
    until_ctrl_c,
)
from daemon_kit.config_file import ConfigurationErrors
from daemon_kit.control import ControlError, request
from daemon_kit.run import end_process, run_service
from daemon_kit.users import become
from pdns_config import distributor_conf, pdns_conf
from registrar_config import check_inventory, render_inventory, render_wireguard

from rspdns.configuration import DEFAULT_PATH, control_path, load_configuration
from rspdns.gateway_command import gateway
from rspdns.import_command import import_
from rspdns.key_command import key
from rspdns.near_command import near
from rspdns.news_command import news
from rspdns.override_command import override
from rspdns.report_command import report
from rspdns.watch_command import watch
from rspdns.zone_command import zone

WATCH_EVERY_S = 0.5
WIDE_COLUMNS = 240
UNIT_USER = "rspdns"
"""The user that `rspdns.service` runs as."""

CONFIG = config_option(DEFAULT_PATH)


@click.group(
    cls=CommandGroup,
    first=(
        *("up", "zone", "check", "pdns-conf", "registrar"),
        *("serve", "status", "reload", "override", "report", "watch"),
    ),
    epilog="Begin with `rspdns up`; on a name server: `rspdns zone add ims.example.net --ns ns1=192.0.2.1 "
    "--handle sip-as-udp --accept 10.20.0.0/16`, then `rspdns check`.",
)
@click.version_option(package_name="rspdns")
def main() -> None:
    """DNS answers with the servers that are alive, and no others."""


@main.command(epilog=example("rspdns serve --log-level debug"))
@CONFIG
@log_options(level=None)
def serve(config: Path, log_level: str | None, log_json: bool) -> None:
    """Run the backend until SIGTERM."""
    import uvloop

    from rserpool import SctpUnavailable, check_available
    from rspdns import service
    from rspdns.reading import read_configuration

    loaded = load_configuration(config, without_page=True)
    logs.configure(log_level or loaded.log_level, json=log_json)

    async def run(stop: asyncio.Event) -> None:
        check_available()
        await service.serve(loaded, stop, partial(read_configuration, config))

    end_process(run_service(run, fatal=(SctpUnavailable,), loop_factory=uvloop.new_event_loop))


@main.command(epilog=example("rspdns check --strict"))
@CONFIG
@click.option(
    "--offline", is_flag=True, help="Ask neither the backend nor the registrars which servers are registered."
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
def check(config: Path, offline: bool, strict: bool) -> None:
    """Say whether configuration and zones are right: every error at once, with file, line and key.

    It warns of what is allowed but probably a mistake: fewer than three registrars, long TTLs, a handle under
    which no server is registered, and members that a reload would remove, with the reason. It asks the
    running backend which servers are registered; when none runs, it asks the registrars. Root checks the
    service's own file as the user of the service, who must be able to read all of it.
    """
    from rspdns.check import TOLD_TTL_S, Registered, registered, warnings
    from rspdns.losses import losses

    loaded = load_configuration(config)
    known = Registered() if offline else registered(loaded)
    going = losses(known.zones, loaded.zones, known.elements)
    problems = warnings(config, loaded, known.handles, going, unknown=known.unknown)
    if config == Path(DEFAULT_PATH) and become(UNIT_USER):  # last: what Python loads must not depend on it
        try:
            load_configuration(config)
        except ConfigurationErrors:
            click.echo(f"note: read as {UNIT_USER}, the user of the service", err=True)
            raise
    for served in loaded.zones:
        click.echo(f"{served.name}: {counted(len(served.config.pools), 'pool')}")
    if not loaded.zones:
        where = config.parent / loaded.zones_dir
        click.echo(f"note: no zone in {where}: nothing would be answered (rspdns zone add)", err=True)
    for warning in problems:
        click.echo(f"warning: {warning}", err=True)
    if loaded.resolvers and any(served.config.ttl < TOLD_TTL_S for served in loaded.zones):
        told = counted(len(loaded.resolvers), "resolver")
        click.echo(
            f"note: {told} forget what changed: where no others ask, ttl = {TOLD_TTL_S} is right", err=True
        )
    if known.handles is None and not offline:
        click.echo(f"note: which servers are registered is not known: {_why_nobody_tells()}", err=True)
    if known.unknown:
        why = "the running backend knows no such pool yet, and no registrar answers here"
        click.echo(f"note: not known who registers {', '.join(map(repr, known.unknown))}: {why}", err=True)
    warned = f", {counted(len(problems), 'warning')}" if problems else ""
    click.echo(f"{config}: no errors{warned}")
    if problems and strict:
        sys.exit(1)


def _why_nobody_tells() -> str:
    from rserpool import SctpUnavailable, check_available

    try:
        check_available()
    except SctpUnavailable:
        return (
            "no backend runs, and this kernel has no SCTP to ask the registrars; "
            "`sctp-run rspdns check` asks them"
        )
    return "no backend runs, and no registrar answers"


@main.command(epilog=example("rspdns reload"))
@CONFIG
@click.option("--force", is_flag=True, help="Also when a pool would lose its last member.")
def reload(config: Path, force: bool) -> None:
    """Let the running backend read its zones again. With an error in any file, nothing changes; after one in
    [admin] the live page stays as it was, and the zones change.

    Nothing changes either if a pool would lose its last member (its handle or `accept` was changed, say), or
    if no zone would be left: --force does it all the same. Questions are answered meanwhile. A reload of more
    than 3 s is reported as accepted, with its progress.
    """
    result = _ask(config, "reload", force=force)
    last = ""
    while (number := result.get("running")) is not None:
        progress = result["reload"] or {}
        files, of_files = progress.get("files", 0), progress.get("of_files", 0)
        said = f"accepted; reading: {files} of {of_files} files, {progress.get('records', 0)} records"
        if said != last:
            click.echo(said, err=True)
        last = said
        result = _ask(config, "reloaded", number=number)
    for going in result["going"]:
        click.echo(f"note: {going}", err=True)
    click.echo(f"serving {', '.join(result['zones']) or 'no zone'}")
    if result["needs_restart"]:
        click.echo(f"after a restart only: {', '.join(result['needs_restart'])}")


@main.command(epilog=example("rspdns status --watch"))
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--nagios",
    is_flag=True,
    help="Print one line for monitoring; exit with 0 (OK), 1 (WARNING), 2 (CRITICAL) or 3 (UNKNOWN).",
)
def status(config: Path, as_json: bool, watch: bool, nagios: bool) -> None:
    """Show which servers are in each pool, which are out and why, and which registrars are believed."""
    if nagios:
        if as_json or watch:
            raise click.UsageError("--nagios has a form of its own: without --json and --watch")
        _nagios(config)
    if watch and (as_json or not sys.stdout.isatty()):
        raise click.UsageError("--watch is for a terminal; programs use --json, or GET /v1/events/stream")
    if as_json:
        click.echo(json.dumps(_ask(config, "status"), indent=2))
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from rspdns.status import OtherVersionError, read
    from rspdns.status.view import view

    # Without a terminal rich would take 80 columns, and grep would miss what is wrapped there.
    console = Console() if sys.stdout.isatty() else Console(width=WIDE_COLUMNS)
    if not watch:
        try:
            console.print(view(read(_ask(config, "status")), console.width), soft_wrap=True)
        except OtherVersionError as problem:
            end_with(problem)
        return
    path = control_path(config)

    def in_size(answer: dict[str, Any]) -> Text:
        try:
            return view(read(answer), console.width, console.height)
        except OtherVersionError as problem:  # until it is restarted
            return Text(str(problem), style="red")

    first = in_size(_ask(config, "status"))
    with until_ctrl_c() as goes_on, Live(first, console=console, auto_refresh=False, screen=True) as live:
        while goes_on():
            time.sleep(WATCH_EVERY_S)
            try:
                shown = in_size(request(path, "status"))
            except ControlError as error:  # it may be restarting: go on watching
                shown = Text(str(error), style="red")
            live.update(shown, refresh=True)


@main.command(epilog=example("rspdns up --directory /root/trial"))
@click.option(
    "--port", type=click.IntRange(1, 65535), default=5300, show_default=True, help="The port of DNS."
)
@click.option("--address", help="The registrars' address, one of this host; default: its first one.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the files, kept afterwards; zones and agent.toml that are there stay as they are, "
    "rspdns.toml and pdns.conf are written anew. Default: a temporary one.",
)
@click.option("--no-servers", is_flag=True, help="Start with an empty pool: without the three SIP servers.")
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="warning", show_default=True)
def up(port: int, address: str | None, directory: Path | None, no_servers: bool, log_level: str) -> None:
    """Try everything on this machine.

    Runs three registrars, the backend, PowerDNS with an example zone, and three small SIP servers with
    their sidecars, until Ctrl-C; prints what to ask, kill and watch. A program that ends is started again.
    """
    from rspdns.up.run import UpSettings, run_up

    sys.exit(run_up(UpSettings(port, address, directory, log_level, has_servers=not no_servers)))


@main.command(epilog=example("rspdns forget 10.20.0.5:5060"))
@CONFIG
@click.argument("servers", nargs=-1)
@click.option("--pool", help="Only in this pool: the name of its SRV records, or a handle.")
@click.option("--all", "everybody", is_flag=True, help="Every server that is missing.")
def forget(config: Path, servers: tuple[str, ...], pool: str | None, everybody: bool) -> None:
    """No longer report servers as missing that were taken out of service.

    SERVERS are given by name, address, address:port or PE identifier. In a pool without `expect`, a
    server that was in during the last day and is not now counts as missing.
    """
    if bool(servers) == everybody:
        raise click.UsageError("name the servers, or give --all")
    gone = _ask(config, "forget", servers=list(servers), all=everybody, pool=pool)["forgotten"]
    for server in gone:
        click.echo(f"forgotten: {server}")
    if not gone:
        click.echo("no server is missing")


@main.command(epilog=example("rspdns support -o rspdns.tar.gz"))
@CONFIG
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The archive; default: rspdns-support-HOST-TIME.tar.gz in the working directory.",
)
def support(config: Path, output: Path | None) -> None:
    """Write one archive for a bug report: configuration without secrets, status, logs, versions.

    It holds the files of rspdns, its agents and PowerDNS below /etc, what `status` and `check` say, the last
    5,000 lines of their logs, and versions. Values of keys that hold passwords, tokens, API keys, TSIG keys
    or SNMP communities are left out, also where logs repeat them. The files of tokens and private keys are
    not opened. Read it before you send it.
    """
    from rspdns.support import default_target, write_archive

    target = output or default_target()
    for name in write_archive(config, control_path(config), target):
        click.echo(name)
    click.echo(f"written to {target}: read it before you send it", err=True)


@main.group(epilog=example("rspdns registrar check --offline inventory.toml"))
def registrar() -> None:
    """Prepare the registrars and the hosts that speak to them."""


main.add_command(zone)
main.add_command(key)
main.add_command(override)
main.add_command(import_)
main.add_command(near)
main.add_command(report)
main.add_command(watch)
main.add_command(news)
main.add_command(gateway)
main.add_command(pdns_conf)
main.add_command(distributor_conf)
registrar.add_command(render_inventory)
registrar.add_command(render_wireguard)
registrar.add_command(check_inventory)


def _nagios(config: Path) -> NoReturn:
    """Print what a plugin of Nagios does, and exit with its level."""
    from rspdns.status import OtherVersionError, nagios, read
    from rspdns.status.nagios import Level, check

    try:
        level, text = check(read(request(control_path(config), "status")))
    except ControlError as error:
        level, text = Level.CRITICAL, nagios.report(Level.CRITICAL, f"no backend: {error}")
    except (ConfigurationErrors, OtherVersionError) as error:
        level, text = Level.UNKNOWN, nagios.report(Level.UNKNOWN, str(error))
    click.echo(text)
    sys.exit(level)


def _ask(config: Path, command: str, **arguments: Any) -> dict[str, Any]:
    return request(control_path(config), command, **arguments)


if __name__ == "__main__":
    main()
