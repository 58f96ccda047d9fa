"""Shows `ppe-agent status` to people."""

import json
import os
import sys
import time
from collections.abc import Callable, Collection

from daemon_kit.commands import until_ctrl_c
from daemon_kit.durations import duration
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ppe_agent.status_model import AgentStatus, RegistrarLinkStatus, ServerStatus

_COLOURS = {
    "in": "green",
    "up": "green",
    "drained": "yellow",
    "joining": "yellow",
    "leaving": "yellow",
    "down": "red",
    "held": "yellow",
}


_WATCH_INTERVAL_S = 1.0
_WIDE_COLUMNS = 280
_TABLE_COLUMNS = 160
"""A narrower terminal shows an AS in lines: in a table of all columns nobody could read the reason."""


def console() -> Console:
    """Return the console to print to. Without a terminal it is wide: grep would miss what is folded."""
    return Console() if sys.stdout.isatty() or "COLUMNS" in os.environ else Console(width=_WIDE_COLUMNS)


def render(status: AgentStatus, columns: int) -> Group:
    """Return the result of the control command `status` for a console of this width in columns."""
    parts: list[RenderableType] = [
        (_servers if columns >= _TABLE_COLUMNS else _servers_in_lines)(status["as"]),
        _checks(status["as"]),
        _registrars(status["registrars"]),
    ]
    for server in status["as"]:
        if server["state_problem"]:
            words = f"{server['name']}: {server['state_problem']}. It goes on, but identifier and drain "
            parts.append(Text(words + "would be lost should the agent restart now", style="red"))
        if server["twin"]:
            words = (
                f"{server['name']}: another sidecar has the same server in as {server['twin']}. Let one of "
            )
            parts.append(Text(words + "them register it: a drain of one leaves the server in", style="red"))
        if server["taken_by"]:
            words = f"{server['name']}: {server['taken_by']} registered its identifier "
            words += f"({server['collision_count']} collisions)"
            parts.append(Text(words, style="red"))
    if status["multicast"] and not status["multicast"]["heard"]:
        words = f"No registrar has announced itself at {status['multicast']['group']} yet"
        if status["multicast"]["ignored"]:
            words += f"; {status['multicast']['ignored']} announcements were ignored: not in accept, or none"
        if drained := [each["name"] for each in status["waiting"] if each["state"] == "drained"]:
            words += f". Drained: {', '.join(drained)}"
        parts.append(Text(words, style="red"))
    if status["reload_problem"]:
        words = f"The configuration file was not taken at the last reload:\n{status['reload_problem']}"
        parts.append(Text(words, style="red"))
    if status["metrics_problem"]:
        parts.append(Text(f"No metrics: {status['metrics_problem']}; see metrics.listen", style="red"))
    return Group(*parts)


def watch_status(ask: Callable[[], AgentStatus | str], *, as_json: bool) -> None:
    """Show the status every second until Ctrl-C; `ask` returns it, or why there is none just now."""
    with until_ctrl_c() as goes_on:
        if as_json:
            while goes_on():
                result = ask()
                document = {"error": result} if isinstance(result, str) else result
                print(json.dumps(document), flush=True)
                time.sleep(_WATCH_INTERVAL_S)
            return
        with Live(console=console(), screen=sys.stdout.isatty(), auto_refresh=False) as live:
            while goes_on():
                result = ask()
                shown = (
                    Text(result, style="red")
                    if isinstance(result, str)
                    else render(result, live.console.width)
                )
                live.update(shown, refresh=True)
                time.sleep(_WATCH_INTERVAL_S)


def _table(title: str, *columns: str, whole: Collection[str] = ()) -> Table:
    """Make a table; the columns `whole` are never folded."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
    return table


def _coloured(word: str) -> str:
    return f"[{_COLOURS.get(word, 'default')}]{escape(word)}[/]"


def _servers(servers: list[ServerStatus]) -> Table:
    table = _table(
        "Application servers",
        "name",
        "state",
        "why",
        "address",
        "pool",
        "identifier",
        "load",
        "registrar",
        "listed by",
    )
    for server in servers:
        table.add_row(
            escape(server["name"]),
            _coloured(server["state"]),
            escape(server["reason"]),
            escape(_address(server)),
            escape(server["handle"]),
            server["identifier"],
            escape(_load(server)),
            server["registrar"] or "none",
            ", ".join(server["listed_by"]) or "none",
        )
    return table


def _servers_in_lines(servers: list[ServerStatus]) -> Table:
    table = _table("Application servers", "name", "state", "why, and where it is", whole=("state",))
    for server in servers:
        load = f", load {_load(server)}" if _load(server) else ""
        lines = (
            server["reason"],
            f"{_address(server)} in pool {server['handle']}, identifier {server['identifier']}{load}",
            f"registrar {server['registrar'] or 'none'}, "
            f"listed by {', '.join(server['listed_by']) or 'none'}",
        )
        table.add_row(escape(server["name"]), _coloured(server["state"]), escape("\n".join(lines)))
    return table


def _address(server: ServerStatus) -> str:
    """Return where it is registered to serve, which is also where the checks look for it."""
    where = f"{server['transport']} {', '.join(server['address'])} port {server['port']}"
    if not server["remote"]:
        return where
    return f"{where}, remote: judged and registered from {', '.join(server['registered_as'])}"


def _load(server: ServerStatus) -> str:
    load = "" if server["load"] is None else f"{server['load']:.0%}"
    return f"{load} ({server['load_problem']})" if server["load_problem"] else load


def _checks(servers: list[ServerStatus]) -> Table:
    table = _table("Checks", "AS", "check", "of", "state", "for", "saw last", whole=("check", "state"))
    for server in servers:
        for check in server["check"]:
            since = duration(check["since_s"])
            last = (
                "not tried yet"
                if check["last"] is None
                else f"{check['last']} ({duration(check['last_s'])} ago)"
            )
            table.add_row(
                escape(server["name"]),
                check["type"],
                escape(check["target"]),
                _coloured(check["state"]),
                since,
                escape(last),
            )
    return table


def _registrars(registrars: list[RegistrarLinkStatus]) -> Table | Text:
    """A line when all are up, else a table."""
    if registrars and all(registrar["up"] for registrar in registrars):
        addresses = ", ".join(registrar["address"] for registrar in registrars)
        slowest = max((registrar["round_trip_ms"] or 0.0 for registrar in registrars), default=0.0)
        return Text(f"Registrars {addresses}: up, round trip {slowest:.2f} ms at most", style="green")
    table = _table("Registrars", "address", "link", "round trip")
    for registrar in registrars:
        time_ms = registrar["round_trip_ms"]
        table.add_row(
            registrar["address"],
            _coloured("up" if registrar["up"] else "down"),
            "" if time_ms is None else f"{time_ms:.2f} ms",
        )
    return table
