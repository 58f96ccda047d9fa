"""Shows `rspdns status` to people."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from daemon_kit.durations import duration
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rspdns.endpoint import endpoint

EVENTS_SHOWN = 8
_COLOURS = {"settled": "green", "starting": "yellow", "waking": "yellow", "silent": "red", "down": "red"}
_Status = Mapping[str, Any]


def view(status: _Status) -> RenderableType:
    """Return the result of the control command `status` as something rich can print."""
    parts: list[RenderableType] = [_heading(status), _registrars(status["registrars"])]
    homes = {one["identifier"]: f"registrar {one['number']}" for one in status["registrars"]}
    parts += [_pool(zone, pool, homes) for zone in status["zones"] for pool in zone["pools"]]
    parts.append(_pdns(status["pdns"]))
    if (reload := status.get("reload")) and reload["state"] != "done":
        parts.append(_reload(reload))
    if status["problems"]:
        parts.append("\n".join(f"[red]problem:[/] {escape(problem)}" for problem in status["problems"]))
    parts.append(_events(status["events"][-EVENTS_SHOWN:]))
    return Group(*parts)


def _heading(status: _Status) -> Text:
    """Which name server this is."""
    if "host" not in status:
        return Text("")
    running = duration(status["uptime_s"])
    return Text(f"rspdns {status['version']} on {status['host']}, up for {running}", style="bold")


def _reload(reload: _Status) -> str:
    if reload["state"] == "running":
        read = f"{reload['files']} of {reload['of_files']} files, {reload['records']} records"
        return f"[yellow]reload:[/] running for {duration(reload['since_s'])}: {read}"
    return f"[red]reload:[/] refused {duration(reload['since_s'])} ago: {escape(reload['problem'])}"


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
            duration(one["since_s"]),
            one["identifier"] or "",
            trip,
            one["follow"],
            escape(" ".join(filter(None, (one["why"], _not_pushing(one))))),
        )
    return table


def _not_pushing(registrar: _Status) -> str:
    problem = registrar["follow_problem"]
    return f"It pushes no changes: {problem}." if problem else ""


def _pool(zone: _Status, pool: _Status, homes: Mapping[str, str]) -> RenderableType:
    title = f"\n{escape(pool['owner'])}  (pool {escape(', '.join(pool['handles']))}, serial {zone['serial']})"
    if not pool["known"]:
        title += "  [red]not known yet: SERVFAIL[/]"
    elif pool["stale_s"] is not None:
        title += f"  [yellow]from memory for {duration(pool['stale_s'])}: no registrar can vouch for it[/]"
    table = _table(f"{title}\n{share(pool)}", "server", "address", "weight", "load", "for", "home", "PE", "")
    ranks = sorted({one["priority"] for one in pool["members"] if one["priority"] is not None})
    for one in pool["members"]:
        load = "" if one["load"] is None else f"{one['load']:.0%}"
        addresses = ", ".join(endpoint(address, one["port"]) for address in one["addresses"])
        state = "[yellow]in, from memory[/]" if one["stale"] else "[green]in[/]"
        table.add_row(
            escape(one["name"] or ""),
            addresses,
            _weight(one, ranks),
            load,
            duration(one["since_s"]),
            homes.get(one["home_registrar"], one["home_registrar"]),
            one["identifier"],
            state,
        )
    for one in pool["out"]:
        address = endpoint(one["address"], one["port"]) if one["address"] else ""
        state = "[yellow]missing:[/]" if one["missing"] else "[red]out:[/]"
        look_at = f"\n[dim]look at: {escape(one['look_at'])}[/]" if one["look_at"] else ""
        table.add_row(
            escape(one["name"] or ""),
            address,
            "",
            "",
            duration(one["since_s"]),
            "",
            one["identifier"] or "",
            f"{state} {escape(one['reason'])}{look_at}",
        )
    if not pool["members"] and not pool["out"]:
        table.add_row("nobody", *[""] * 7)
    if pool.get("answered_instead"):
        return Group(table, Text(pool["answered_instead"], style="yellow"))
    return table


def share(pool: _Status) -> str:
    """How many of the expected servers are in, with rich's markup."""
    inside, expected, lacking = len(pool["members"]), pool["expected"], pool["missing"]
    if not lacking:
        return f"[green]{inside} in[/]" if inside else "[red]nobody is in[/]"
    words = f"{expected - lacking} of {expected} in"
    more = inside - (expected - lacking)
    words += f", and {more} not expected" if more > 0 else ""
    return f"[{'yellow' if inside else 'red'}]{words}[/]"


def _weight(member: _Status, ranks: Sequence[int]) -> str:
    """The SRV weight; behind the first rank of priorities, that the server waits as a reserve."""
    if member["weight"] is None:
        return "not shown"
    rank = ranks.index(member["priority"])
    return str(member["weight"]) if not rank else f"{member['weight']}, reserve {rank}"


def _pdns(sockets: Iterable[_Status]) -> Table:
    table = _table("\nPowerDNS", "control socket", "commands", "names purged", "failed", "waiting", "")
    for one in sockets:
        problem = f"[red]{escape(one['problem'])}[/]" if one["problem"] else "[green]works[/]"
        counts = (str(one[key]) for key in ("commands", "names", "failures", "waiting"))
        table.add_row(escape(one["control"]), *counts, problem)
    return table


def _events(events: Iterable[_Status]) -> Table:
    table = _table("\nEvents", "time", "what", "pool", "server", "in DNS after", "")
    for one in events:
        at = time.strftime("%H:%M:%S", time.localtime(one["at_s"])) + f".{int(one['at_s'] * 1000) % 1000:03d}"
        took = "" if one["converged_ms"] is None else f"{one['converged_ms']:.1f} ms"
        server = one["name"] or one["address"] or one["identifier"] or ""
        whom = (escape(one["handle"]), escape(server))
        table.add_row(at, one["kind"], *whom, took, escape(one["words"]))
    return table
