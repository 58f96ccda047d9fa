"""The commands `rspdns override`: take servers out, drain, hold in, give each a share; list and clear."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
from daemon_kit.commands import CommandGroup, config_option, counted, duration_option, end_with, example
from daemon_kit.control import request
from daemon_kit.durations import duration

from rspdns.configuration import DEFAULT_PATH, control_path
from rspdns.overrides.book import SITE

CONFIG = config_option(DEFAULT_PATH)
PATIENCE_S = 15.0


class OverrideGroup(CommandGroup):
    """`rspdns override SERVERS ACTION` is `rspdns override set SERVERS ACTION`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take words that are no command for the servers."""
        if args and args[0] not in self.commands:
            args = ["set", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let options of `set` come before the servers, too."""
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = ["set", *args]
        return super().parse_args(ctx, args)


def seconds_until(text: str, now: datetime) -> float:
    """Return the seconds from `now`, in local time, until "02:00" or "2026-11-27 02:00". Raises ValueError.

    A time of day that has passed is that of tomorrow.
    """
    words = text.strip().replace("T", " ")
    for form in ("%H:%M", "%H:%M:%S"):
        try:
            at = datetime.strptime(words, form).replace(year=now.year, month=now.month, day=now.day)
        except ValueError:
            continue
        at = at if at > now.replace(tzinfo=None) else at + timedelta(days=1)
        return (at.astimezone() - now.astimezone()).total_seconds()
    for form in ("%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"):
        try:
            at = datetime.strptime(words, form)
        except ValueError:
            continue
        left_s = (at.astimezone() - now.astimezone()).total_seconds()
        if left_s <= 0:
            raise ValueError(f"{text!r} is over")
        return left_s
    raise ValueError(f"{text!r} is no time: write 02:00, or 2026-11-27 02:00, in the time of this host")


def _time(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    try:
        return None if text is None else seconds_until(text, datetime.now().astimezone())
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


def _servers(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> str:
    """The servers in a word; `site NAME` is `site:NAME`."""
    words = " ".join(given).split()
    if len(words) == 2 and words[0] == "site":
        return f"{SITE}{words[1]}"
    if len(given) > 1:
        raise click.BadParameter(f"{' '.join(given)!r}: write a server, a network, or site NAME")
    return given[0]


def _action(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, float | None]:
    name, equals, share = text.partition("=")
    if text in ("down", "drain", "up"):
        return text, None
    if name == "share" and equals:
        try:
            return name, float(share.removesuffix("%")) / 100
        except ValueError:
            pass
    raise click.BadParameter(f"{text!r}: an action is down, drain, up or share=5%")


@click.group(
    cls=OverrideGroup, epilog=example('rspdns override 10.20.0.11:5060 drain --reason "new kernel" --for 2h')
)
def override() -> None:
    """Take servers out of DNS, drain them, hold them in, or give each a share.

    `rspdns override SERVERS down --reason "new kernel" --for 2h`. An override holds at once, also over
    restarts, until its time is over or it is cleared.
    """


@override.command(
    "set", epilog=example('rspdns override 10.20.0.11:5060 down --reason "new kernel" --for 2h --dry-run')
)
@CONFIG
@click.argument("servers", nargs=-1, required=True, metavar="SERVERS", callback=_servers)
@click.argument("action", callback=_action)
@click.option("--reason", required=True, help="Why; it is shown in status and log.")
@click.option(
    "--for", "for_s", callback=duration_option, help="How long: 90s, 10m, 2h, 1d. Default: until cleared."
)
@click.option(
    "--at", "in_s", callback=_time, help="When it begins: 02:00, or 2026-11-27 02:00. Default: now."
)
@click.option("--pool", help="Only in this pool: the name of its SRV records, or a handle.")
@click.option("--force", is_flag=True, help="Also if a pool loses its last member.")
@click.option("--everywhere", is_flag=True, help="At the other name servers, too: those of [[peer]].")
@click.option("--dry-run", is_flag=True, help="Only print the shares that would result here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def set_(config: Path, servers: str, action: tuple[str, float | None], as_json: bool, **wish: Any) -> None:
    """Override SERVERS: a name, address, address:port, PE identifier, network, glob (10.1.*), or site NAME.

    ACTION is `down` (out of the answers), `drain` (no calls while another server lives), `up` (in, whatever
    registrars and probes say) or `share=5%` (each gets this part of the calls). It prints the shares that
    result, and refuses to empty a pool.
    """
    keys = {"servers": servers, "action": action[0], "share": action[1], **wish}
    path = control_path(config)
    if not wish["dry_run"] and not as_json:
        _print_shares(_ask(path, {**keys, "dry_run": True}))
    result = _ask(path, keys)
    if as_json:
        click.echo(json.dumps(result, indent=2))
    elif wish["dry_run"]:
        _print_shares(result)
        others = "; no other name server was asked" if wish["everywhere"] else ""
        click.echo(f"it {_when(result['override'])}")
        click.echo(f"nothing was changed (--dry-run){others}")
    else:
        kept = result["override"]
        click.echo(f"override {kept['number']} {_when(kept)}")
        if result["is_repeat"]:
            click.echo(
                f"it was set before, by {kept['by']}: {kept['reason']}; to change it, clear it first: "
                f"rspdns override clear {kept['number']} --everywhere"
            )
    _end_if_refused(result["peers"], "give the same command again, when that is mended", as_json=as_json)


@override.command("list", epilog=example("rspdns override list"))
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(config: Path, as_json: bool) -> None:
    """List the overrides that hold or will."""
    found = request(control_path(config), "status")["overrides"]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for each in found:
        share = "" if each["share"] is None else f"={100 * each['share']:g}%"
        pool = f" of {each['pool']}" if each["pool"] else ""
        problem = f" (does not hold: {each['problem']})" if each["problem"] else ""
        what = f"{each['servers']}{pool} {each['action']}{share}"
        where = f", set everywhere as {each['id']}" if each["id"] else ""
        click.echo(
            f"{each['number']}: {what}, {_when(each)}, by {each['by']}: {each['reason']}{where}{problem}"
        )
    if not found:
        click.echo("no override")


@override.command(epilog=example("rspdns override clear 3"))
@CONFIG
@click.argument("named", nargs=-1, metavar="[NUMBER]...")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option("--everywhere", is_flag=True, help="At the other name servers, too, those set --everywhere.")
def clear(config: Path, named: tuple[str, ...], everything: bool, everywhere: bool) -> None:
    """Clear the overrides of each NUMBER (rspdns override list), or identifier of one set --everywhere."""
    if bool(named) == everything:
        raise click.UsageError("name the overrides by number, or give --all")
    words = {"named": list(named), "all": everything, "everywhere": everywhere}
    result = request(control_path(config), "clear", timeout_s=PATIENCE_S, **words)
    click.echo(f"cleared: {', '.join(map(str, result['cleared'])) or 'there was none'}")
    again = " ".join(result["identifiers"] or named)
    if everywhere and not result["peers"]:
        click.echo("no other name server was asked")
    if result["identifiers"] and not everywhere:
        click.echo(f"it may hold at other name servers still: rspdns override clear {again} --everywhere")
    _end_if_refused(result["peers"], f"when that is mended, give: rspdns override clear {again} --everywhere")


def _end_if_refused(peers: Sequence[Mapping[str, Any]], what_to_do: str, *, as_json: bool = False) -> None:
    """Say which peers did the same; end with an error if some did not."""
    refused = [peer for peer in peers if peer["problem"] is not None]
    for peer in peers:
        if not as_json and peer not in refused:
            click.echo(f"{peer['peer']}: done")
    for peer in refused:
        click.echo(f"{peer['peer']}: not done: {peer['problem']}", err=True)
    if refused:
        end_with(f"not done everywhere; {what_to_do}")


def _ask(path: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in keys.items() if value is not None}
    return request(path, "override", timeout_s=PATIENCE_S, **given)


def _print_shares(result: Mapping[str, Any]) -> None:
    pools: Mapping[str, Sequence[Mapping[str, Any]]] = result["pools"]
    kept = result["override"]
    begins = "" if kept["starts_at_s"] <= time.time() else f", from {_moment(kept['starts_at_s'])} on"
    for owner, shares in pools.items():
        click.echo(f"{owner}: {counted(len(shares), 'server')}{begins}")
        for each in shares:
            called = f"{each['name']} {each['server']}" if each["name"] else each["server"]
            click.echo(f"  {called:<32} {_percent(each['before']):>7} -> {_percent(each['after']):>7}")
    for note in result["notes"]:
        click.echo(f"note: {note}")
    if not pools:
        click.echo(f"no share changes{begins}")


def _percent(share: float | None) -> str:
    return "out" if share is None else f"{100 * share:.1f} %"


def _when(kept: Mapping[str, Any]) -> str:
    now_s, begins = time.time(), ""
    if kept["starts_at_s"] > now_s:
        begins = f"begins {_in(kept['starts_at_s'], now_s)}, "
    if kept["ends_at_s"] is None:
        return f"{begins}holds until it is cleared"
    return f"{begins}ends {_in(kept['ends_at_s'], now_s)}"


def _in(at_s: float, now_s: float) -> str:
    return f"in {duration(math.ceil(at_s - now_s))} ({_moment(at_s)})"


def _moment(at_s: float) -> str:
    """The time of this host, as `--at` takes it, and the name of its zone."""
    return datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
