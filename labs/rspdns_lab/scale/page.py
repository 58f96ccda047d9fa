"""The page of results of `rspdns-lab scale`. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.page import Columns, Page, Rows, Section, table_of
from rspdns_lab.report.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, Curve, Curves, share_below
from rspdns_lab.scale.figures import (
    BUSY_BOUND,
    CHANGES_BOUND,
    SEEN_BOUND_MS,
    CellRemoval,
    FullCell,
    MessageCosts,
    RegistrarLoad,
    ScaleOutcome,
    ScaleTrial,
)

_COLOURS: Final = (GREY, BLUE, ORANGE, PURPLE, RED, GREEN)
_TEXT: Final = (
    "Cells with a gateway each, below one handlespace, on a virtual clock. Each server reports its load "
    "every 2 s, 1 % of all servers die each minute and are back a minute later, a cell's mean load "
    "swings between 20 and 70 % within ten minutes. Then cells are lost one after the other, killed or "
    "silent; then a third of all places is cut off for 20 s. Each gateway's `last_choice` is the upper "
    "registrar of its own third. The costs of messages are measured on real programs. Real, and smaller: "
    "[Cells](cells.md). [Scale and sizing](../explanation/scale.md)."
)
_PARTS: Final = (
    ("part", "how it is there"),
    (
        "upper registrars, registrars of one cell",
        "played: the model of rspregistrar of `rspdns-lab simulate`, which tests hold against the real one; "
        "each message takes the time that was measured",
    ),
    (
        "name servers above",
        "a sample is played: real pool user and belief, told at a random place in the row of all; the work "
        "that all of them make is counted as time of the registrars",
    ),
    (
        "one cell, in full",
        "played: every server's registrations by real clients of the protocol, the real gateway, the belief "
        "of one name server; then its registrars are killed",
    ),
    (
        "the other cells",
        "aggregated: the gateway's real element above and its rules; load and number of servers are drawn, "
        "not added up from servers",
    ),
    ("keep-alives", "counted as time of the registrars; played only while an answer is missing"),
    ("the network", "played: places on a map, up to 85 ms one way; no loss"),
    (
        "left out",
        "PowerDNS and answers ([Size](size.md) has the time from a belief's change to the answer), SCTP's "
        "own processor time, probes, the gate; questions of name servers after a second and third upper "
        "pool: more than 100 cells have several",
    ),
)


def scale_page(trials: Sequence[ScaleTrial]) -> Page:
    """The page of at least one trial."""
    sections = [_costs(each) for each in trials if isinstance(each, MessageCosts)]
    if outcomes := [each for each in trials if isinstance(each, ScaleOutcome)]:
        sections += [_figures(outcomes), _registrars(outcomes), _removals(outcomes)]
    sections.append(Section("What is played, what is counted", "", _PARTS))
    return Page("100,000 servers, simulated", _TEXT, sections)


def _costs(costs: MessageCosts) -> Section:
    text = (
        f"Processor time of a real rspregistrar, of three, with {costs.elements:,} elements and the pool "
        f"users of {costs.name_servers} name servers; straight lines lead from there to the simulated sizes. "
        f"SCTP comes to that: a registrar's daemon took {costs.sctp_percent:.0f} % of a core. Load average "
        f"of the machine: {costs.load_average:g}."
    )
    rows = [
        ("for", "us"),
        ("a keep-alive of a server of its own", f"{costs.keep_alive_us:.0f}"),
        ("a registration, at each of three registrars", f"{costs.registration_us:.0f}"),
        ("telling one name server of one registration; 3.0 at least", f"{costs.update_us:.1f}"),
        ("a name server that follows, each second", f"{costs.name_server_us:.0f}"),
    ]
    return Section("Costs", text, rows)


def _times(times_ms: Sequence[float], *percents: int) -> str:
    return ", ".join(f"{percentile(times_ms, each):.0f}" for each in percents) + " ms"


def _full(show: Callable[[FullCell], str]) -> Callable[[ScaleOutcome], str]:
    return lambda outcome: "-" if outcome.full is None else show(outcome.full)


_FIGURES: Final[Sequence[tuple[str, str, Callable[[ScaleOutcome], str]]]] = (
    ("cells", "", lambda each: f"{each.size.cells}"),
    (
        "name servers above; of them played",
        "",
        lambda each: f"{each.size.name_servers:,}; {each.size.sample}",
    ),
    ("a gateway registers again every", "", lambda each: f"{each.size.reregistration_ms / 1000:g} s"),
    (
        "busiest upper registrar, ten seconds",
        f"{BUSY_BOUND:.0%}",
        lambda each: f"{max(load.worst for load in each.registrars if load.where == 'above'):.1%}",
    ),
    ("changes above, a second", f"{CHANGES_BOUND:g} (34 cells)", lambda each: f"{each.changes_per_s:.1f}"),
    ("the same, busiest ten seconds", "", lambda each: f"{each.worst_changes_per_s:.1f}"),
    (
        "lost cell gone at all name servers, p99",
        f"{SEEN_BOUND_MS:.0f} ms",
        lambda each: f"{percentile(each.seen_ms, 99):.0f} ms",
    ),
    ("living cells lost", "0", lambda each: f"{len(each.wrong)}"),
    ("cells in the region that is cut off", "", lambda each: f"{each.cut.cells}"),
    (
        "they are gone outside after: p50, p99, max",
        f"{SEEN_BOUND_MS:.0f} ms (p99)",
        lambda each: _times(each.cut.gone_ms, 50, 99, 100),
    ),
    ("all are everywhere after its end", "30 s", lambda each: f"{each.cut.back_ms / 1000:.1f} s"),
    ("cell in full: registrations a second", "", _full(lambda each: f"{each.registrations_per_s:,.0f}")),
    (
        "a death there, out of its name server's belief: p50, max",
        "",
        _full(lambda each: _times(each.gone_ms, 50, 100)),
    ),
    (
        "reports of its gateway; mean of the aggregated ones",
        "",
        _full(lambda each: f"{each.reports}; {each.expected_reports:.1f}"),
    ),
    (
        "its gateway; a name server's belief: processor time here",
        "",
        _full(lambda each: f"{each.gateway_percent:.0f} %; {each.belief_percent:.0f} %"),
    ),
    ("simulated; in processor time", "", lambda each: f"{each.simulated_s:.0f} s; {each.cpu_s:.0f} s"),
)


def _figures(outcomes: Sequence[ScaleOutcome]) -> Section:
    head = ["what", *(f"{each.size.all_servers:,} servers" for each in outcomes), "bound"]
    rows = [[title, *map(show, outcomes), bound] for title, bound, show in _FIGURES]
    return Section("Figures", "", [head, *rows])


def _registrars(outcomes: Sequence[ScaleOutcome]) -> Section:
    columns: Columns[tuple[ScaleOutcome, RegistrarLoad]] = (
        ("cells", lambda each: f"{each[0].size.cells}"),
        ("registrar", lambda each: f"{each[1].where}, {each[1].number}"),
        ("steady", lambda each: f"{each[1].steady:.1%}"),
        ("busiest ten seconds", lambda each: f"{each[1].worst:.1%}"),
    )
    rows = table_of(columns, [(outcome, load) for outcome in outcomes for load in outcome.registrars])
    first = outcomes[0]
    names = ", ".join(f"{name} ({at_s:.0f} s)" for at_s, name in first.phases)
    plot = Curves(
        f"The busiest upper registrar of {first.size.cells} cells; dashed: the bound, the phases: {names}.",
        "seconds",
        "part of its thread",
        [Curve("busiest upper registrar", list(range(len(first.busy))), first.busy, GREEN, "step")],
        at_x=[(at_s, GREY) for at_s, _ in first.phases],
        at_y=[(BUSY_BOUND, RED)],
    )
    return Section("Registrars", "The part of its one thread that is in use.", rows, [plot])


def _removals(outcomes: Sequence[ScaleOutcome]) -> Section:
    text = (
        "Until a played name server above has the cell no more. Killed: its gateway ends. Silent: it is "
        "unplugged, and found by a keep-alive. Its registrars are killed: in the cell that is played in "
        "full; the gateway withdraws."
    )
    found: dict[tuple[int, str], list[CellRemoval]] = {}
    for outcome in outcomes:
        for removal in outcome.removals:
            found.setdefault((outcome.size.cells, removal.fault), []).append(removal)
    rows: list[Sequence[str]] = [("cells", "fault", "times seen", "p50 ms", "p99 ms", "max ms")]
    curves = []
    for ((cells, fault), removals), colour in zip(found.items(), _COLOURS, strict=False):
        times = sorted(ms for removal in removals for ms in removal.seen_ms)
        values = (percentile(times, 50), percentile(times, 99), max(times, default=0.0))
        rows.append((f"{cells}", fault, f"{len(times)}", *(f"{value:.0f}" for value in values)))
        curves += [share_below(f"{cells} cells: {fault}", times, colour)] if times else []
    plot = Curves(
        "The part of the name servers above that have a lost cell no more; dashed: the bound for 99 %.",
        "ms",
        "% of name servers",
        curves,
        at_x=[(SEEN_BOUND_MS, RED)],
    )
    table: Rows = rows
    return Section("Cells that are lost", text, table, [plot])
