"""Shows `rspdns status` to people."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rspdns.status import endpoint

EVENTS_SHOWN = 8
_COLOURS = {"settled": "green", "starting": "yellow", "waking": "yellow", "silent": "red", "down": "red"}
_Status = Mapping[str, Any]


def view(status: _Status) -> RenderableType:
    """Return the result of the control command `status` as something rich can print."""
    parts: list[RenderableType] = [_registrars(status["registrars"])]
    parts += [_pool(zone, pool) for zone in status["zones"] for pool in zone["pools"]]
    parts.append(_pdns(status["pdns"]))
    if status["problems"]:
        parts.append("\n".join(f"[red]problem:[/] {escape(problem)}" for problem in status["problems"]))
    parts.append(_events(status["events"][-EVENTS_SHOWN:]))
    return Group(*parts)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _registrars(registrars: Iterable[_Status]) -> Table:
    table = _table(
        "Registrars", "number", "address", "standing", "for", "identifier", "round trip", "follow", ""
    )
    for one in sorted(registrars, key=lambda one: one["number"]):
        standing = f"[{_COLOURS.get(one['standing'], 'default')}]{one['standing']}[/]"
        trip = "" if one["round_trip_ms"] is None else f"{one['round_trip_ms']:.2f} ms"
        table.add_row(
            str(one["number"]),
            escape(one["address"]),
            standing,
            _age(one["since_s"]),
            one["identifier"] or "",
            trip,
            one["follow"],
            escape(" ".join(filter(None, (one["why"], _not_pushing(one))))),
        )
    return table


def _not_pushing(registrar: _Status) -> str:
    problem = registrar["follow_problem"]
    return f"It pushes no changes: {problem}." if problem else ""


def _pool(zone: _Status, pool: _Status) -> RenderableType:
    title = f"\n{escape(pool['owner'])}  (pool {escape(', '.join(pool['handles']))}, serial {zone['serial']})"
    if not pool["known"]:
        title += "  [red]not known yet: SERVFAIL[/]"
    elif pool["stale_s"] is not None:
        title += f"  [yellow]stale for {_age(pool['stale_s'])}: no registrar can be believed[/]"
    table = _table(title, "member", "address", "weight", "load", "for", "home", "")
    for one in pool["members"]:
        weight = "" if one["weight"] is None else f"{one['priority']}/{one['weight']}"
        load = "" if one["load"] is None else f"{one['load']:.0%}"
        addresses = ", ".join(endpoint(address, one["port"]) for address in one["addresses"])
        state = "[yellow]in, from memory[/]" if one["stale"] else "[green]in[/]"
        table.add_row(
            one["identifier"], addresses, weight, load, _age(one["since_s"]), one["home_registrar"], state
        )
    for one in pool["out"]:
        address = endpoint(one["address"], one["port"]) if one["address"] else ""
        table.add_row(
            one["identifier"],
            address,
            "",
            "",
            _age(one["since_s"]),
            "",
            f"[red]out:[/] {escape(one['reason'])}",
        )
    if not pool["members"] and not pool["out"]:
        table.add_row("nobody", "", "", "", "", "", "")
    if pool.get("answered_instead"):
        return Group(table, Text(pool["answered_instead"], style="yellow"))
    return table


def _pdns(sockets: Iterable[_Status]) -> Table:
    table = _table("\nPowerDNS", "control socket", "commands", "names purged", "failed", "waiting", "")
    for one in sockets:
        problem = f"[red]{escape(one['problem'])}[/]" if one["problem"] else "[green]works[/]"
        counts = (str(one[key]) for key in ("commands", "names", "failures", "waiting"))
        table.add_row(escape(one["control"]), *counts, problem)
    return table


def _events(events: Iterable[_Status]) -> Table:
    table = _table("\nEvents", "time", "what", "pool", "member", "in DNS after", "")
    for one in events:
        at = time.strftime("%H:%M:%S", time.localtime(one["at_s"])) + f".{int(one['at_s'] * 1000) % 1000:03d}"
        took = "" if one["converged_ms"] is None else f"{one['converged_ms']:.1f} ms"
        whom = (escape(one["handle"]), one["identifier"] or "")
        table.add_row(at, one["kind"], *whom, took, escape(one["words"]))
    return table


def _age(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"
