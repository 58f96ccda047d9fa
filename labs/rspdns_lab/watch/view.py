"""How a running lab looks in the terminal. Pure: facts in, something to print out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from daemon_kit.durations import duration
from pool_user import OVERLOADED_AT, RELIEVED_AT
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rspdns_lab.chain.plan import APPLICATION_SERVERS, SRV_OWNER
from rspdns_lab.observe.part_logs import Event
from rspdns_lab.watch.keys import DOINGS

MOST_EVENTS: Final = 14
WIDE: Final = 120
"""Columns from which on a server's load has a bar, and its reason stands beside it."""
_BAR_CELLS: Final = 20
_FRAME: Final = 2
"""The lines of a panel's frame."""


@dataclass
class Screen:
    """The screen that is shown: what was done to each server, the status of each name server's backend, and
    the events.

    `answers`: of each name server, the SRV answer as (address, priority, weight), None while there is none.
    """

    chosen: str
    marks: dict[str, str] = field(default_factory=dict)
    statuses: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    answers: Mapping[str, Sequence[tuple[str, int, int]] | None] = field(default_factory=dict)
    events: Sequence[Event] = ()
    now_s: float = 0.0
    note: str = ""


def draw(screen: Screen, width: int, height: int) -> RenderableType:
    """Return the whole screen for a terminal of this size: the oldest events go before a key does."""
    keys = _keys(screen, width)
    members = _members(screen)
    reasons = [] if width >= WIDE else _reasons(members)
    servers = Group(_servers(screen, members, is_wide=width >= WIDE), *reasons)
    registrars = _registrars(screen)
    lines = 1 + len(APPLICATION_SERVERS) + len(reasons) + _FRAME + len(keys.plain.splitlines())
    lines += 1 if isinstance(registrars, Text) else registrars.row_count + 1 + _FRAME
    room = min(height - lines - _FRAME, MOST_EVENTS)
    return Group(
        Panel(servers, title=f"{SRV_OWNER} SRV", title_align="left"),
        registrars
        if isinstance(registrars, Text)
        else Panel(registrars, title="registrars", title_align="left"),
        *([Panel(_events(screen, room), title="events", title_align="left")] if room > 0 else []),
        keys,
    )


def _reasons(members: Mapping[str, Mapping[str, Any]]) -> list[Text]:
    """A line for each server that is out, with the cause, where the table has no room for it."""
    return [
        Text(f"{name}: {members[address]['reason']}", style="yellow", no_wrap=True, overflow="ellipsis")
        for name, address in APPLICATION_SERVERS.items()
        if members.get(address, {}).get("reason")
    ]


def _servers(screen: Screen, members: Mapping[str, Mapping[str, Any]], *, is_wide: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    last = ("backend says",) if is_wide else ()
    for heading in ("", "server", "address", "done to it", *screen.answers, "load", *last):
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    for number, (name, address) in enumerate(APPLICATION_SERVERS.items(), start=1):
        style = "bold" if name == screen.chosen else ""
        sign = "▶" if name == screen.chosen else " "
        member = members.get(address, {})
        table.add_row(
            f"{sign}{number}",
            name,
            address,
            Text(screen.marks.get(name, ""), style="red"),
            *(_answer(answer, address) for answer in screen.answers.values()),
            _bar(member.get("load"), _BAR_CELLS if is_wide else 0),
            *([escape(str(member.get("reason") or ("in the pool" if member else "")))] if is_wide else []),
            style=style,
        )
    return table


def _members(screen: Screen) -> dict[str, Mapping[str, Any]]:
    """Return what the first backend that answers says of each address."""
    for status in screen.statuses.values():
        found: dict[str, Mapping[str, Any]] = {}
        for zone in status.get("zones", ()):
            for pool in zone.get("pools", ()):
                for member in pool.get("out", ()):
                    found[str(member.get("address"))] = member
                for member in pool.get("members", ()):
                    found |= dict.fromkeys(member.get("addresses", ()), member)
        if found:
            return found
    return {}


def _answer(answer: Sequence[tuple[str, int, int]] | None, address: str) -> Text:
    if answer is None:
        return Text("no answer", style="red")
    for found, priority, weight in answer:
        if found == address:
            return Text(f"in, {priority} {weight}", style="green")
    return Text("out", style="red")


def _bar(load: object, most: int) -> Text:
    if not isinstance(load, int | float):
        return Text("")
    cells = round(max(0.0, min(1.0, float(load))) * most)
    style = "red" if load >= OVERLOADED_AT else "yellow" if load >= RELIEVED_AT else "green"
    return Text("█" * cells, style=style) + Text("░" * (most - cells) + f" {load:.0%}", style="dim")


def _registrars(screen: Screen) -> Table | Text:
    """A line when every name server says of every registrar that it is settled, else a table."""
    found = [each for status in screen.statuses.values() for each in status.get("registrars", ())]
    if found and all(each.get("standing") == "settled" for each in found):
        return Text(f" registrars: all settled, say {', '.join(screen.statuses)}", style="green")
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    rows: dict[str, list[str]] = {}
    for name, status in screen.statuses.items():
        table.add_column(f"by {name}")
        for registrar in status.get("registrars", ()):
            standing = str(registrar.get("standing"))
            rows.setdefault(str(registrar.get("address")), []).append(standing)
    for address, standings in rows.items():
        table.add_row(address, *standings)
    return table


def _events(screen: Screen, most: int) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="cyan", no_wrap=True)
    table.add_column(style="magenta", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for event in sorted(screen.events)[-most:]:
        table.add_row(f"{duration(screen.now_s - event.at_s)} ago", event.where, event.what)
    return table


def _keys(screen: Screen, width: int) -> Text:
    words = [
        f"1-{len(APPLICATION_SERVERS)} choose",
        *(f"{doing.key} {doing.word}" for doing in DOINGS),
        "q quit",
    ]
    lines = [""]
    for word in filter(None, (*words, screen.note)):
        if len(lines[-1]) + len(word) + 3 > width:
            lines.append("")
        lines[-1] += f" {word}  "
    return Text("\n".join(lines), style="reverse", no_wrap=True)
