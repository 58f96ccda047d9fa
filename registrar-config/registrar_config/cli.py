"""The command `rspdns-registrar`."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from daemon_kit import logs, notify
from daemon_kit.commands import CommandGroup, example, log_options
from daemon_kit.control import ControlError, request
from daemon_kit.errors import FatalError
from daemon_kit.notify import feed_watchdog
from daemon_kit.run import run_service

from registrar_config.gate import WITHOUT_GATE, Gate, answer, exposition, in_words
from registrar_config.hang_watch import LIMIT_S, HangWatch, guard_against_hanging
from registrar_config.inventory import two_registrars_problem
from registrar_config.kernel_timers import report_kernel_timers
from registrar_config.options import (
    ANNOUNCE_GROUP,
    ASAP_PORT,
    ENRP_PORT,
    KEEP_ALIVE,
    MOST_PATIENCE,
    RegistrarSettings,
    SctpEndpoint,
    announce_problem,
    arguments,
    parse_group,
    patient_timers_ms,
    without_own,
)
from registrar_config.preflight import check_ports, find_program
from registrar_config.render import check_inventory, render_inventory
from registrar_config.sentinel import AGENT_REREGISTRATION_MS, Sentinel, is_settled
from registrar_config.sizing import SHORTEST_KEEP_ALIVE_MS
from registrar_config.supervisor import Supervisor, run_together, then_set
from registrar_config.wireguard import render_wireguard
from rserpool import RSerPoolError, SctpUnavailable


def _read_endpoints(default_port: int) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return what turns the text of an option, or of each of several, into endpoints."""

    def read(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
        try:
            if isinstance(value, str):
                return SctpEndpoint.parse(value, default_port)
            return tuple(SctpEndpoint.parse(text, default_port) for text in value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


def _read_registrars(_context: click.Context, _option: click.Parameter, value: str | None) -> Any:
    """Return the endpoints of "10.0.0.1, 10.0.0.2"; none for None."""
    try:
        return tuple(SctpEndpoint.parse(text, ASAP_PORT) for text in (value or "").replace(",", " ").split())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _number_of(number: int | None, registrars: tuple[SctpEndpoint, ...], asap: SctpEndpoint) -> int:
    """Return the number of the registrar `asap`, as given or as listed. Raises UsageError."""
    if not registrars:
        if number is None:
            raise click.UsageError("Missing option '--number' (or '--registrars').")
        return number
    if asap not in registrars:
        raise click.UsageError(
            f"{asap} (--address) is not among --registrars: {', '.join(map(str, registrars))}"
        )
    listed = registrars.index(asap) + 1
    if number not in (None, listed):
        raise click.UsageError(f"--number {number}, but {asap} is number {listed} of --registrars")
    return listed


def _read_group(_context: click.Context, _option: click.Parameter, value: str | None) -> SctpEndpoint | None:
    try:
        return None if value is None else parse_group(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _common(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        log_options(),
        click.option(
            "--agent-reregistration-ms",
            type=click.IntRange(100, 600_000),
            default=AGENT_REREGISTRATION_MS,
            show_default=True,
            help="How often agents register again; the sentinel waits for two of these.",
        ),
    ):
        command = option(command)
    return _which(command)


def _which(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which registrar is meant."""
    for option in (
        click.option(
            "--address",
            "asap",
            callback=_read_endpoints(ASAP_PORT),
            required=True,
            envvar="RSPDNS_REGISTRAR_ADDRESS",
            show_envvar=True,
            help=f"Address this registrar serves agents and backends at; port {ASAP_PORT} unless given.",
        ),
        click.option(
            "--number",
            type=click.IntRange(1, 99),
            help="Its position, from 1, in the `registrars` list of the DNS backends.",
        ),
        click.option(
            "--registrars",
            callback=_read_registrars,
            metavar="ADDRESS,...",
            envvar="RSPDNS_REGISTRARS",
            show_envvar=True,
            help="All registrars, in the order of the DNS backends' `registrars`, this one among them: "
            "instead of --number, and of --peer.",
        ),
    ):
        command = option(command)
    return command


@click.group(
    cls=CommandGroup,
    first=("check", "render", "run", "status"),
    epilog="From one inventory to the files of all hosts: `rspdns-registrar render inventory.toml --output "
    "rendered`.",
)
@click.version_option(package_name="rspdns")
def main() -> None:
    """Run rspregistrar, supervised and with its sentinel."""


@main.command(
    epilog=example("rspdns-registrar run --registrars 10.0.0.1,10.0.0.2,10.0.0.3 --address 10.0.0.1")
)
@_common
@click.option("--enrp-port", type=click.IntRange(1, 65535), default=ENRP_PORT, show_default=True)
@click.option(
    "--peer", "peers", callback=_read_endpoints(ENRP_PORT), multiple=True, help="Another registrar (ENRP)."
)
@click.option(
    "--announce",
    callback=_read_group,
    metavar="GROUP",
    help=f"Announce it to this multicast group, e.g. {ANNOUNCE_GROUP}.",
)
@click.option("--no-sentinel", is_flag=True, help="Leave the sentinel to `rspdns-registrar sentinel`.")
@click.option(
    "--set-kernel-timers", is_flag=True, help="Set this namespace's SCTP timers (kernel SCTP, root)."
)
@click.option(
    "--patience",
    type=click.FloatRange(1, MOST_PATIENCE),
    default=1.0,
    show_default=True,
    help="Multiplies the time that agents and peers may be silent, for a host that stands still at times.",
)
@click.option(
    "--keep-alive-ms",
    type=click.IntRange(SHORTEST_KEEP_ALIVE_MS, 600_000),
    default=SHORTEST_KEEP_ALIVE_MS,
    show_default=True,
    help="How often each server is asked whether it lives; `render` computes it from expected_elements.",
)
@click.option(
    "--gate",
    "rules",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    envvar="RSPDNS_REGISTRAR_GATE",
    show_envvar=True,
    help="Rules file of the gate, from `rspdns-registrar render`; without it whoever gets here is believed.",
)
@click.option(
    "--reports", is_flag=True, help="Let reports of unreachable servers remove them (see `--gate`)."
)
@click.option(
    "--control",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="SOCKET",
    help="Answer `status --control` here, with what the gate has dropped.",
)
@click.option("--force", is_flag=True, help="Accept two registrars.")
def run(
    number: int | None,
    registrars: tuple[SctpEndpoint, ...],
    asap: SctpEndpoint,
    agent_reregistration_ms: int,
    log_level: str,
    log_json: bool,
    enrp_port: int,
    peers: tuple[SctpEndpoint, ...],
    announce: SctpEndpoint | None,
    no_sentinel: bool,
    set_kernel_timers: bool,
    patience: float,
    keep_alive_ms: int,
    rules: Path | None,
    reports: bool,
    control: Path | None,
    force: bool,
) -> None:
    """Run one registrar until SIGTERM: started again within a second when it dies, in 10 s when it hangs."""
    own_number = _number_of(number, registrars, asap)
    logs.configure(log_level, log_json)
    log = logs.get_logger(f"registrar-{own_number}")
    enrp = SctpEndpoint(asap.address, enrp_port)
    listed = [SctpEndpoint(registrar.address, ENRP_PORT) for registrar in registrars if registrar != asap]
    others = without_own(dict.fromkeys((*peers, *listed)), enrp)
    if announce is not None and (problem := announce_problem(announce, asap.address)):
        raise click.BadParameter(problem, param_hint="--announce")
    timers_ms = {**patient_timers_ms(patience), KEEP_ALIVE: keep_alive_ms}
    settings = RegistrarSettings(asap, enrp, others, timers_ms, announce=announce, takes_reports=reports)

    async def serve(stop: asyncio.Event) -> None:
        program = find_program()
        if not force and (problem := two_registrars_problem(1 + len(settings.peers))):
            raise FatalError(problem)
        check_ports(settings)
        report_kernel_timers(log, change=set_kernel_timers)
        gate = Gate(rules, log) if rules else None
        if gate is None:
            log.warning(
                "no_gate", problem=WITHOUT_GATE, hint="--gate=FILE; `rspdns-registrar render` writes the file"
            )
        if reports and gate is None:
            raise FatalError("--reports without --gate: anybody could remove any server")
        registrar_stop = asyncio.Event()
        sentinel = None
        if not no_sentinel:
            sentinel = Sentinel(
                own_number, asap, log, agent_reregistration_ms, is_watched=True, reports=reports
            )

        def on_start() -> None:
            if gate is not None:
                gate.started(supervisor.pid)
            if sentinel is not None:
                sentinel.registrar_started()
            notify.ready()

        def on_ready() -> None:
            if sentinel is not None:
                sentinel.registrar_ready()

        supervisor = Supervisor(
            arguments(settings, program),
            log,
            on_start,
            on_ready,
            environment=gate.environment() if gate else None,
            descriptors=gate.descriptors if gate else (),
        )
        parts = [feed_watchdog(stop)]
        if gate is not None:
            parts.append(gate.run(stop))
        if control is not None:
            parts.append(answer(control, gate, stop))
        if sentinel is None:  # nobody asks it, so nobody sees it hang
            parts.append(supervisor.run(stop))
        else:
            # The sentinel leaves first: then the peers need not find out that it is gone.
            parts += [
                supervisor.run(registrar_stop),
                then_set(sentinel.run(stop), registrar_stop),
                guard_against_hanging(
                    supervisor, lambda: sentinel.heard_at_s, log, HangWatch(LIMIT_S * patience), stop
                ),
            ]
        await run_together(parts, stop)

    sys.exit(run_service(serve, fatal=(SctpUnavailable,)))


main.add_command(check_inventory)
main.add_command(render_inventory)
main.add_command(render_wireguard)


@main.command(epilog=example("rspdns-registrar sentinel --number 1 --address 10.0.0.1"))
@_common
def sentinel(
    number: int | None,
    registrars: tuple[SctpEndpoint, ...],
    asap: SctpEndpoint,
    agent_reregistration_ms: int,
    log_level: str,
    log_json: bool,
) -> None:
    """Run only the sentinel of a registrar that something else (systemd) runs on this host."""
    own_number = _number_of(number, registrars, asap)
    logs.configure(log_level, log_json)
    log = logs.get_logger(f"registrar-{own_number}")

    async def serve(stop: asyncio.Event) -> None:
        notify.ready()
        guard = Sentinel(own_number, asap, log, agent_reregistration_ms)
        await run_together([guard.run(stop), feed_watchdog(stop)], stop)

    sys.exit(run_service(serve, fatal=(SctpUnavailable,)))


@main.command(epilog=example("rspdns-registrar status --number 1 --address 10.0.0.1"))
@_which
@click.option(
    "--control",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="SOCKET",
    help="Say what its gate has dropped, too: the socket of `run --control`.",
)
@click.option(
    "--metrics", is_flag=True, help="Print what the gate has dropped as Prometheus's text, and nothing else."
)
def status(
    number: int | None,
    registrars: tuple[SctpEndpoint, ...],
    asap: SctpEndpoint,
    control: Path | None,
    metrics: bool,
) -> None:
    """Say whether a registrar is settled: exits with 0 when it answers and lists its own sentinel.

    To be run where SCTP works, on a kernel without it under sctp-run.
    """
    own_number = _number_of(number, registrars, asap)
    gate = None
    if control is not None:
        try:
            gate = request(control, "status")["gate"]
        except ControlError as problem:
            raise click.ClickException(str(problem)) from None
    if metrics:
        if control is None:
            raise click.UsageError("--metrics needs --control")
        click.echo(exposition(own_number, gate), nl=False)
        return
    try:
        settled = asyncio.run(is_settled(own_number, asap))
    except (RSerPoolError, SctpUnavailable) as problem:
        raise click.ClickException(f"registrar {own_number} at {asap} does not answer: {problem}") from None
    if not settled:
        raise click.ClickException(
            f"registrar {own_number} at {asap} answers, and does not list its sentinel: "
            "it is starting, or no sentinel runs"
        )
    click.echo(f"registrar {own_number} at {asap}: settled")
    if control is not None:
        for line in in_words(gate):
            click.echo(line)
