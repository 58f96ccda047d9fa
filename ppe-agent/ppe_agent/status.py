"""Shows `ppe-agent status` to people."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_COLOURS = {
    "in": "green",
    "up": "green",
    "drained": "yellow",
    "joining": "yellow",
    "leaving": "yellow",
    "down": "red",
}


def show(status: dict[str, Any], console: Console) -> None:
    """Print the result of the control command `status`."""
    console.print(_servers(status["as"]))
    console.print(_checks(status["as"]))
    console.print(_registrars(status["registrars"]))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _coloured(word: str) -> str:
    return f"[{_COLOURS.get(word, 'default')}]{escape(word)}[/]"


def _servers(servers: list[dict[str, Any]]) -> Table:
    table = _table(
        "Application servers", "name", "state", "why", "pool", "identifier", "load", "registrar", "listed by"
    )
    for server in servers:
        load = "" if server["load"] is None else f"{server['load']:.0%}"
        if server["load_problem"]:
            load += f" ({server['load_problem']})"
        table.add_row(
            escape(server["name"]),
            _coloured(server["state"]),
            escape(server["reason"]),
            escape(server["handle"]),
            server["identifier"],
            escape(load),
            server["registrar"] or "none",
            ", ".join(server["listed_by"]) or "none",
        )
    return table


def _checks(servers: list[dict[str, Any]]) -> Table:
    table = _table("Checks", "AS", "check", "port", "state", "for", "saw last")
    for server in servers:
        for check in server["check"]:
            since = "" if check["since_s"] is None else f"{check['since_s']:.1f} s"
            last = (
                "not tried yet" if check["last"] is None else f"{check['last']} ({check['last_s']:.1f} s ago)"
            )
            table.add_row(
                escape(server["name"]),
                check["type"],
                str(check["port"]),
                _coloured(check["state"]),
                since,
                escape(last),
            )
    return table


def _registrars(registrars: list[dict[str, Any]]) -> Table:
    table = _table("Registrars", "address", "link", "round trip")
    for registrar in registrars:
        time_ms = registrar["round_trip_ms"]
        table.add_row(
            registrar["address"],
            _coloured("up" if registrar["up"] else "down"),
            "" if time_ms is None else f"{time_ms:.2f} ms",
        )
    return table
