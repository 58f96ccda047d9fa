"""The command `rspdns report`: how available each server was, out of the journal."""

from __future__ import annotations

import csv
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from daemon_kit.commands import config_option, end_with, example

from rspdns.configuration import DEFAULT_PATH, load_configuration
from rspdns.history import histories, server_report
from rspdns.journal import JournalError, JournalReader
from rspdns.missing import is_called
from rspdns.zones.zone import handles_of

WIDE_COLUMNS = 200
_COLUMNS = (
    *("handle", "server", "transport", "name", "availability", "up_s", "down_s", "planned_s", "unknown_s"),
    *("outages", "longest_outage_s", "changes"),
)
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Moment(click.ParamType[float]):
    """A moment, in wall-clock seconds: 30d, 12h, 90m or 45s ago, or a date and time of ISO 8601."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        if isinstance(value, float):
            return value
        ago = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([smhdw])", value)
        if ago:
            return time.time() - float(ago[1]) * _UNITS_S[ago[2]]
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError):
            self.fail(f"{value!r}: write 30d, 12h, 90m or 45s, or a date like 2026-11-26T10:00", param, ctx)


@click.command(epilog=example("rspdns report --since 7d --server 10.20.0.11:5060"))
@config_option(DEFAULT_PATH)
@click.option("--since", type=Moment(), default="30d", show_default=True, help="The beginning.")
@click.option("--until", type=Moment(), help="The end; default: now.")
@click.option("--pool", help="Only this pool: the name of its SRV records, or a handle.")
@click.option("--server", help="Only this server: its name, address, or address:port.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every span.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
def report(
    config: Path,
    since: float,
    until: float | None,
    pool: str | None,
    server: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show how available each server was: outages, their causes, and the time nobody looked.

    It reads the journal in [state] path; the backend may run or not. A server is up while it is in the
    answers of this name server. Availability is up / (up + down): planned time and time in which no backend
    looked are counted apart.
    """
    if as_json and as_csv:
        raise click.UsageError("either --json or --csv")
    until = min(time.time(), until if until is not None else time.time())
    if since >= until:
        raise click.UsageError("--since is not before --until")
    loaded = load_configuration(config, without_page=True)
    pools = [pool_of for zone in loaded.zones for site in zone.sites for pool_of in site.pools]
    handles = None if pool is None else handles_of(pools, (pool,))
    try:
        with closing(JournalReader(loaded.state.path)) as reader:
            found = histories(reader.runs(), reader.since(since, handles), since, until)
    except JournalError as problem:
        end_with(problem)
    found = [
        history
        for history in found
        if server is None or is_called([server], history.server_address, None, history.name)
    ]
    if as_json:
        servers = [asdict(server_report(history)) for history in found]
        click.echo(json.dumps({"since_s": since, "until_s": until, "servers": servers}, indent=2))
    elif as_csv:
        _print_csv([asdict(server_report(history, 0)) for history in found])
    elif found:
        _print_table([asdict(server_report(history, 0)) for history in found], since, until)
    else:
        words = "no such server was up or down in this time"
        if server is not None:
            end_with(words)
        click.echo(words)


def _print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = [*_COLUMNS, "causes"]
    writer = csv.DictWriter(sys.stdout, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, "causes": _causes(row, "{:.3f}".format)})


def _causes(row: Mapping[str, Any], shown: Callable[[float], str]) -> str:
    return ", ".join(f"{code} {shown(seconds)}" for code, seconds in row["down_by_cause_s"].items())


def _print_table(rows: Sequence[Mapping[str, Any]], since_s: float, until_s: float) -> None:
    from rich.console import Console
    from rich.table import Table

    begin, end = (f"{datetime.fromtimestamp(at_s):%Y-%m-%d %H:%M}" for at_s in (since_s, until_s))
    table = Table(box=None, title=f"{begin} to {end}", title_justify="left", pad_edge=False)
    for column in ("pool", "server", "available", "down", "outages", "longest", "planned", "unknown"):
        is_number = column not in ("pool", "server")
        table.add_column(column, justify="right" if is_number else "left", no_wrap=True)
    table.add_column("causes of the time down")
    for row in rows:
        availability = row["availability"]
        table.add_row(
            row["handle"],
            f"{row['name']} {row['server']}" if row["name"] else row["server"],
            "-" if availability is None else f"{100 * availability:.3f} %",
            _duration(row["down_s"]),
            str(row["outages"]),
            _duration(row["longest_outage_s"]),
            _duration(row["planned_s"]),
            _duration(row["unknown_s"]),
            _causes(row, _duration),
        )
    console = Console() if sys.stdout.isatty() else Console(width=WIDE_COLUMNS)
    console.print(table)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds else "0"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
