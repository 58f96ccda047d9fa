"""Which server took how many of the IMS lab's calls, beside what weights say. Pure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pool_user import OVERLOADED_AT

from rspdns_lab.chain.plan import APPLICATION_SERVERS, LOADS
from rspdns_lab.chain.side_by_side.approaches import TITLES
from rspdns_lab.ims.calls import SETTLED_S, Figures
from rspdns_lab.ims.faults import ImsFault
from rspdns_lab.report.page import Table, new_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Plot

MOST_LEFT: Final = 1 / 3
"""An overloaded server may keep this part of what was due to it under rspdns, once weights have followed."""
CAPTION: Final = (
    "Full colour: calls that a server took; pale: what weights say. After a load rose: of the calls that "
    f"began {SETTLED_S:g} s later or after that."
)
TEXT: Final = (
    "Weights say the share of each server that can take calls. Under rspdns it follows the load, and an "
    "overloaded server waits as a spare. Elsewhere no load is known: all shares are equal."
)
_HEAD: Final = (
    "DNS served by",
    "weights say, before",
    "calls per server before",
    "weights say, after",
    "calls after",
    f"calls from {SETTLED_S:g} s after on",
)
_COLOURS: Final = dict(zip(APPLICATION_SERVERS, ("#0072b2", "#e69f00", "#009e73"), strict=True))
_PALE: Final = 0.4


def due(approach: str, fault: ImsFault | None = None) -> dict[str, float]:
    """Return which part of the calls, 0 to 1, each server is due before anything fails, or after `fault`.

    rspdns alone knows loads, and gives a server whose load is too high nothing while others live.
    """
    loads = {**LOADS, **(fault.loads if fault else {})}
    dead = (fault.dead_addresses if fault else None) or ()
    parts = dict.fromkeys(loads, 0.0)
    for server, load in loads.items():
        if APPLICATION_SERVERS[server] not in dead and (approach != "rspdns" or load < OVERLOADED_AT):
            parts[server] = 1 - load if approach == "rspdns" else 1.0
    return {server: part / sum(parts.values()) for server, part in parts.items()}


def not_moved(one: Figures, fault: ImsFault) -> str:
    """Return, in words, that servers which `fault` overloads kept too many calls; "" when they did not."""
    allowed = MOST_LEFT * sum(due(one.approach)[server] for server in fault.loads)
    if not fault.loads:
        return ""
    if not one.share_settled:
        return f"no call was answered {SETTLED_S:g} s after the fault or later: where they go is not known"
    kept = sum(one.share_settled.get(server, 0.0) for server in fault.loads)
    if kept <= allowed:
        return ""
    return (
        f"{' and '.join(fault.loads)} kept {kept:.0%} of the calls from {SETTLED_S:g} s after the fault on, "
        f"allowed: {allowed:.0%}"
    )


def share_table(figures: Sequence[Figures], fault: ImsFault) -> Table:
    """Return a row for each approach; what weights came to later is told where a load rose."""
    rows = [_HEAD, *(_row(one, fault) for one in figures)]
    return rows if fault.loads else [row[:-1] for row in rows]


def _row(one: Figures, fault: ImsFault) -> Sequence[str]:
    return (
        TITLES[one.approach],
        _in_words(due(one.approach)),
        _in_words(one.share_before),
        _in_words(due(one.approach, fault)),
        _in_words(one.share_after),
        _in_words(one.share_settled),
    )


def share_plot(figures: Sequence[Figures], fault: ImsFault) -> "Plot":
    """Plot the calls of each server before and after the fault, each above what weights say."""
    plot = new_plot(height_inch=0.7 * len(figures) + 1.3)
    before, after = plot.subplots(1, 2, sharey=True)
    titles = [TITLES[one.approach].partition(" (")[0] for one in figures]
    _bars(before, "before the fault", titles, [(one.share_before, due(one.approach)) for one in figures])
    taken = [one.share_settled if fault.loads else one.share_after for one in figures]
    due_after = [due(one.approach, fault) for one in figures]
    _bars(after, "after it", titles, list(zip(taken, due_after, strict=True)))
    before.invert_yaxis()
    parts, servers = before.get_legend_handles_labels()
    plot.legend(parts, servers, loc="outside upper left", ncols=3, fontsize="small", frameon=False)
    return plot


def _bars(
    axes: "Axes",
    title: str,
    titles: Sequence[str],
    pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]],
) -> None:
    """Draw, for each title, a bar of what servers took above a pale one of what they were due."""
    for shift, alpha, which in ((-0.2, 1.0, 0), (0.2, _PALE, 1)):
        left = [0.0] * len(pairs)
        for server, colour in _COLOURS.items():
            widths = [100 * pair[which].get(server, 0.0) for pair in pairs]
            indexes = [index + shift for index in range(len(pairs))]
            label = server if which == 0 else "_"
            axes.barh(indexes, widths, 0.36, left=left, color=colour, alpha=alpha, label=label)
            left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(titles)), titles)
    axes.set(xlim=(0, 100), xlabel="% of the calls")
    axes.set_title(title, fontsize="medium")


def _in_words(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{server} {share:.0%}" for server, share in shares.items()) or "-"
