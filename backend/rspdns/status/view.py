"""`rspdns status` in a terminal of any size: pools first, events last, no word broken. Pure.

In a narrow terminal the tables lack their least important columns; in a low one the oldest events go.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from daemon_kit.addresses import endpoint
from daemon_kit.durations import duration
from pool_user import Code, Standing
from rich.text import Text

from rspdns.status.model import (
    EventStatus,
    FastPathStatus,
    MemberStatus,
    OutStatus,
    OverrideStatus,
    PdnsStatus,
    PoolStatus,
    RegistrarStatus,
    ReloadStatus,
    SecondaryStatus,
    SiteStatus,
    Status,
    ZoneStatus,
)
from rspdns.status.override_words import title, utc

EVENTS_SHOWN = 8
FEWEST_EVENTS = 3
"""Events that are shown even where the rest fills the terminal."""
GAP = "  "
_Homes = Mapping[tuple[str | None, str | None], str]
"""The registrars for people, by handlespace and identifier."""
_INDENT = "      "
_COLOURS = {
    Standing.SETTLED: "green",
    Standing.STARTING: "yellow",
    Standing.WAKING: "yellow",
    Standing.SILENT: "red",
    Standing.DOWN: "red",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; where they don't fit, the one with the largest `drop` goes first, 0 never."""

    title: str
    drop: int = 0


SERVERS = (
    Column("server", 1),
    Column("address"),
    Column("weight", 2),
    Column("load", 3),
    Column("for", 4),
    Column("home", 5),
    Column("PE", 6),
    Column(""),
)
REGISTRARS = (
    Column("registrar"),
    Column("address", 1),
    Column("standing"),
    Column("for", 2),
    Column("round trip", 3),
    Column("follow", 4),
    Column("identifier", 5),
)
SECONDARIES = (
    Column("secondary"),
    Column("address", 2),
    Column("zones right", 1),
    Column("NOTIFYs", 3),
    Column("repeats", 4),
    Column(""),
)
PDNS = (
    Column("control socket"),
    Column("commands", 3),
    Column("names purged", 4),
    Column("failed", 2),
    Column("waiting", 1),
    Column(""),
)


def view(status: Status, width: int, height: int | None = None) -> Text:
    """Return the status for this number of columns and, unless None, lines."""
    upper = _heading(status, width)
    homes = {
        (registrar.handlespace, registrar.identifier): f"registrar {registrar.called}"
        for registrar in status.registrars
    }
    for zone in status.zones:
        for pool in zone.pools:
            upper += [*_pool(pool, zone, homes, width), Text()]
    if status.reload is not None and status.reload.state != "done":
        upper += _reload(status.reload, width)
    for problem in status.problems:
        upper += _wrapped(f"problem: {problem}", width, "red", "  ")
    for override in status.overrides:
        upper += _wrapped(_override_words(override), width, "yellow" if override.problem else "", "  ")
    for resolver in status.resolvers:
        if resolver.problem is not None:
            words = f"resolver {resolver.name} can't be told of changes: {resolver.problem}"
            upper += _wrapped(words, width, "yellow", "  ")
    for peer in status.peers:
        if peer.problem is not None:
            upper += _wrapped(f"peer {peer.name} can't be asked: {peer.problem}", width, "yellow", "  ")
        for difference in peer.differences:
            words = f"peer {peer.name} has other overrides: {difference}"
            upper += _wrapped(words, width, "yellow", "  ")
    upper += _registrars(status.registrars, width)
    upper += _pdns(status.pdns, width)
    upper += _secondaries(status.secondaries, width)
    if status.fastpath is not None:
        upper += _fastpath(status.fastpath, width)
    if height is None:
        return Text("\n").join([*upper, Text(), *_events(status.events[-EVENTS_SHOWN:], width, whole=True)])
    most = max(FEWEST_EVENTS, min(EVENTS_SHOWN, height - len(upper) - 2))
    events = _events(status.events[-most:], width, whole=False)
    room = height - len(upper) - 1
    shown = [*upper, Text(), *(events[:1] + events[1:][-(room - 1) :] if room > 1 else [])]
    if len(shown) > height:
        left_out = len(shown) - height + 1
        note = Text(
            f"{left_out} more lines: a taller terminal shows them, and so does rspdns status", style="yellow"
        )
        shown = [*shown[: height - 1], note]
    return Text("\n").join(shown)


def _override_words(override: OverrideStatus) -> str:
    name = title(override.action, override.servers, override.share, override.pool)
    until = "" if override.ends_at_s is None else f", until {utc(override.ends_at_s)}"
    state = "" if override.holds else f", from {utc(override.starts_at_s)} on"
    if override.problem is not None:
        state = f" does not hold: {override.problem}"
    return f"override {override.number}: {name}{state}{until}, by {override.by}: {override.reason}"


LIMITED = ("limited_tc", "limited_dropped")
"""The decisions by which a question is kept from PowerDNS."""
FAILED = ("not_grown", "not_written")
"""The decisions that are errors: an answer could not be written into its packet."""
NAMES_SHOWN = 5
"""The number of names shown, those that the kernel is asked about most."""


def _fastpath(fast: FastPathStatus, width: int) -> list[Text]:
    """The state of the answers from the kernel."""
    if fast.problem is not None:
        words = f"fast path: PowerDNS answers everything: {fast.problem} ({fast.socket})"
        return [Text(), *_wrapped(words, width, "red", "  ")]
    answered = fast.decisions.get("answered", 0)
    limited = sum(fast.decisions.get(reason, 0) for reason in LIMITED)
    failed = sum(fast.decisions.get(reason, 0) for reason in FAILED)
    passed = sum(fast.decisions.values()) - answered - limited - failed
    words = f"fast path: {fast.names} names, {answered} questions answered by the kernel, {passed} passed on"
    lines = [Text(), *_wrapped(words, width, "green", "  ")]
    reasons = [
        f"{reason} {count}"
        for reason, count in fast.decisions.items()
        if count and reason not in ("answered", *LIMITED, *FAILED)
    ]
    if reasons:
        lines += _wrapped(f"passed on: {', '.join(reasons)}", width, "dim", "    ")
    if failed:
        words = f"fast path: {failed} answers could not be written into their packet"
        lines += _wrapped(words, width, "yellow", "  ")
    for name in fast.asked[:NAMES_SHOWN]:
        words = f"{name.name} {name.type}: {name.answered} answered, {name.passed} passed on"
        words += f", {name.failed} failed" if name.failed else ""
        lines += _wrapped(words, width, "dim", "    ")
    if limited:
        lines += _wrapped(f"fast path: {limited} questions above the limit", width, "yellow", "  ")
    for interface in fast.interfaces:
        if interface.problem:
            words = (
                f"fast path: {'at' if interface.attached else 'not at'} {interface.name}: {interface.problem}"
            )
            lines += _wrapped(words, width, "yellow" if interface.attached else "red", "  ")
    if fast.refused:
        lines += _wrapped(f"fast path: no room for {fast.refused} names", width, "red", "  ")
    return lines


def _heading(status: Status, width: int) -> list[Text]:
    """Which name server this is."""
    words = f"rspdns {status.version} on {status.host}, up for {duration(status.uptime_s)}"
    return [*_wrapped(words, width, "bold", "  "), Text()]


def _reload(reload: ReloadStatus, width: int) -> list[Text]:
    """A reload that runs, or was refused."""
    if reload.state == "running":
        read = f"{reload.files} of {reload.of_files} files, {reload.records} records"
        return _wrapped(f"reload: running for {duration(reload.since_s)}: {read}", width, "yellow", "  ")
    words = f"reload: refused {duration(reload.since_s)} ago: {reload.problem}"
    return _wrapped(words, width, "red", "  ")


def _pool(pool: PoolStatus, zone: ZoneStatus, homes: _Homes, width: int) -> list[Text]:
    lines = [Text(pool.owner, style="bold")]
    lines += _wrapped(f"pool {', '.join(pool.handles)}, serial {zone.serial}", width, "", "  ")
    share, style = _share(pool)
    if len(lines[-1]) + len(share) + 2 > width:
        lines += _wrapped(share, width, style, "  ", first="  ")
    else:
        lines[-1].append(", ").append(share, style=style)
    if not pool.known:
        lines += _wrapped("not known yet: SERVFAIL", width, "red", "  ")
    elif pool.lost:
        for part in pool.lost:
            age, its = duration(part.stale_s), f"handlespace {part.name}"
            words = f"{its}: from memory for {age}: none of its registrars can be believed"
            lines += _wrapped(words, width, "yellow", "  ")
    elif pool.stale_s is not None:
        age = duration(pool.stale_s)
        lines += _wrapped(f"from memory for {age}: no registrar can be believed", width, "yellow", "  ")
    for site in pool.sites:
        lines += _wrapped(_site_words(site), width, "" if site.enough else "yellow", "  ", first="  ")
    rows, notes, styles = [], [], []
    ranks = sorted({member.priority for member in pool.members if member.priority is not None})
    for member in pool.members:
        rows.append(_member(member, ranks, homes))
        notes.append("")
        styles.append("yellow" if member.stale else "green")
    for out in pool.out:
        address = endpoint(out.address, out.port) if out.address else ""
        age, word = duration(out.since_s), _out_word(out)
        rows.append((out.name or "", address, "", "", age, "", out.identifier or "", word))
        look_at = f"; look at: {out.look_at}" if out.look_at else ""
        notes.append(f"{out.reason}{look_at}")
        styles.append("yellow" if out.missing or out.planned else "red")
    table = _table(SERVERS, rows, width, styles)
    lines += table[:1]
    for line, note in zip(table[1:], notes, strict=True):
        lines += [line, *(_wrapped(note, width, "", _INDENT, first=_INDENT) if note else [])]
    if pool.answered_instead:
        lines += _wrapped(pool.answered_instead, width, "yellow", "  ")
    return lines


def _member(member: MemberStatus, ranks: Sequence[int], homes: _Homes) -> tuple[str, ...]:
    addresses = ", ".join(endpoint(address, member.port) for address in member.addresses)
    rank = 0 if member.priority is None else ranks.index(member.priority)
    weight = "not shown" if member.weight is None else f"{member.weight}{f', reserve {rank}' if rank else ''}"
    load = "" if member.load is None else f"{member.load:.0%}"
    word = "in, from memory" if member.stale else "in"
    age, name = duration(member.since_s), member.name or ""
    home = homes.get((member.handlespace, member.home_registrar), member.home_registrar)
    return (name, addresses, weight, load, age, home, member.identifier, word)


def _site_words(site: SiteStatus) -> str:
    """A site and its part in the answers."""
    part = "gets the calls" if site.rank == 0 else f"rank {site.rank}"
    spills = ", hands a part of the calls on" if site.spilling else ""
    load = "" if site.load is None else f", load {site.load:.0%}"
    lacks = "" if site.enough else ", not enough"
    back = "" if site.back_s is None else f", counts again in {duration(site.back_s)}"
    return f"site {site.name}: {part}{spills}, {site.members} in{load}{lacks}{back}"


def _out_word(out: OutStatus) -> str:
    """The state of a server that is not in, in a word or two."""
    if out.cause is Code.DRAINED and out.planned:
        return "drained" if out.planned_s is None else f"drained, {duration(out.planned_s)} left"
    return "missing" if out.missing else "out"


def _share(pool: PoolStatus) -> tuple[str, str]:
    """How many of the expected servers are in, and the colour of that."""
    inside, expected, lacking = len(pool.members), pool.expected, pool.missing
    if not inside and not lacking:
        return "nobody is in", "red"
    more = inside - (expected - lacking)
    if not lacking and more <= 0:
        return f"{inside} in", "green"
    words = f"{expected - lacking} of {expected} in" + (f", and {more} not expected" if more > 0 else "")
    return words, ("yellow" if lacking else "green") if inside else "red"


def _registrars(registrars: Iterable[RegistrarStatus], width: int) -> list[Text]:
    ordered = sorted(registrars, key=lambda registrar: (registrar.handlespace or "", registrar.number))
    if _all_well(ordered):
        called = ", ".join(registrar.called for registrar in ordered)
        slowest = max((registrar.round_trip_ms or 0.0 for registrar in ordered), default=0.0)
        words = f"settled, follow {ordered[0].follow}, round trip {slowest:.2f} ms at most"
        return _wrapped(f"registrars {called}: {words}", width, "green", "  ")
    rows = [
        (
            registrar.called,
            registrar.address,
            registrar.standing.value,
            duration(registrar.since_s),
            "" if registrar.round_trip_ms is None else f"{registrar.round_trip_ms:.2f} ms",
            registrar.follow,
            registrar.identifier or "",
        )
        for registrar in ordered
    ]
    table = _table(REGISTRARS, rows, width, [_COLOURS[registrar.standing] for registrar in ordered])
    lines = table[:1]
    for registrar, line in zip(ordered, table[1:], strict=True):
        lines.append(line)
        why = "" if registrar.standing is Standing.SETTLED else registrar.why or ""
        if registrar.follow_problem:
            why = f"{why} It pushes no changes: {registrar.follow_problem}.".strip()
        lines += _wrapped(why, width, "", _INDENT, first=_INDENT) if why else []
    return lines


def _all_well(registrars: Sequence[RegistrarStatus]) -> bool:
    """Whether a line says all that there is to say of them."""
    return len({registrar.follow for registrar in registrars}) == 1 and not any(
        registrar.standing is not Standing.SETTLED or registrar.follow_problem for registrar in registrars
    )


def _pdns(sockets: Iterable[PdnsStatus], width: int) -> list[Text]:
    controls = list(sockets)
    rows = [
        (
            socket.control,
            *map(str, (socket.commands, socket.names, socket.failures, socket.waiting)),
            socket.problem or "works",
        )
        for socket in controls
    ]
    return _table(PDNS, rows, width, ["red" if socket.problem else "green" for socket in controls])


def _secondaries(secondaries: Iterable[SecondaryStatus], width: int) -> list[Text]:
    listed = list(secondaries)
    rows = [
        (
            secondary.name,
            secondary.address,
            f"{secondary.right} of {secondary.of_zones}",
            str(secondary.notifies),
            str(secondary.repeats),
            "fails" if secondary.problem else "follows",
        )
        for secondary in listed
    ]
    styles = ["yellow" if secondary.problem else "green" for secondary in listed]
    table = _table(SECONDARIES, rows, width, styles)
    lines = table[:1]
    for secondary, line in zip(listed, table[1:], strict=True):
        lines.append(line)
        lines += _wrapped(secondary.problem, width, "", _INDENT, first=_INDENT) if secondary.problem else []
    return lines


def _events(events: Sequence[EventStatus], width: int, *, whole: bool) -> list[Text]:
    """The heading and each event, in one line unless it is to be shown whole."""
    lines = [Text("events", style="bold")]
    for event in events:
        at = time.strftime("%H:%M:%S", time.localtime(event.at_s)) + f".{int(event.at_s * 1000) % 1000:03d}"
        server = event.name or event.address or event.identifier or ""
        took = "" if event.converged_ms is None else f"in DNS after {event.converged_ms:.1f} ms"
        words = GAP.join(filter(None, (at, event.kind, event.handle, server, took, event.words)))
        if whole:
            lines += _wrapped(words, width, "", _INDENT)
        else:
            lines.append(Text(textwrap.wrap(words, width, max_lines=1, placeholder=" ...")[0]))
    return lines


def _table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, styles: Sequence[str]
) -> list[Text]:
    """The heading and a line for each row; columns without a word are left out, and those that don't fit."""
    shown = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    sizes = [
        max(len(column.title), *(len(row[index]) for row in rows), 0) for index, column in enumerate(columns)
    ]
    while sum(sizes[index] + len(GAP) for index in shown) - len(GAP) > width:
        last = max(shown, key=lambda index: columns[index].drop)
        if not columns[last].drop:
            break
        shown.remove(last)
    lines = [
        Text(GAP.join(columns[index].title.ljust(sizes[index]) for index in shown).rstrip(), style="bold")
    ]
    if not rows:
        return []
    for row, style in zip(rows, styles, strict=True):
        line = Text(GAP.join(row[index].ljust(sizes[index]) for index in shown).rstrip())
        word = row[shown[-1]] if shown[-1] == len(columns) - 1 else ""
        for coloured in filter(None, (word, row[2] if columns is REGISTRARS else "")):
            line.highlight_words([coloured], style)
        lines.append(line)
    return lines


def _wrapped(words: str, width: int, style: str, later: str, first: str = "") -> list[Text]:
    """`words` in lines that end between words; `later` begins all but the first."""
    lines = textwrap.wrap(
        words, max(20, width), initial_indent=first, subsequent_indent=later, break_long_words=False
    )
    return [Text(line, style=style) for line in lines] or [Text()]
