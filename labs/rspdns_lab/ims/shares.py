"""Which server took how many of the IMS lab's calls, beside what weights say. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from pool_user import OVERLOADED_AT

from rspdns_lab.chain.plan import APPLICATION_SERVERS, LOADS
from rspdns_lab.chain.side_by_side.approaches import TITLES
from rspdns_lab.ims.calls import SETTLED_S, Figures
from rspdns_lab.ims.faults import ImsFault
from rspdns_lab.report.page import Columns, Rows, table_of

MOST_LEFT: Final = 1 / 3
"""An overloaded server may keep this part of what was due to it under rspdns, once weights have followed."""
TEXT: Final = (
    "Weights say the share of each server that can take calls. Under rspdns it follows the load, and an "
    "overloaded server waits as a spare. Elsewhere no load is known: all shares are equal."
)


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


def not_moved(figures: Figures, fault: ImsFault) -> str:
    """Return, in words, that servers which `fault` overloads kept too many calls; "" when they did not."""
    allowed = MOST_LEFT * sum(due(figures.approach)[server] for server in fault.loads)
    if not fault.loads:
        return ""
    if not figures.share_settled:
        return f"no call was answered {SETTLED_S:g} s after the fault or later: where they go is not known"
    kept = sum(figures.share_settled.get(server, 0.0) for server in fault.loads)
    if kept <= allowed:
        return ""
    return (
        f"{' and '.join(fault.loads)} kept {kept:.0%} of the calls from {SETTLED_S:g} s after the fault on, "
        f"allowed: {allowed:.0%}"
    )


def share_table(figures: Sequence[Figures], fault: ImsFault) -> Rows:
    """Return a row for each approach; what weights came to later is told where a load rose."""
    columns: Columns[Figures] = (
        ("DNS served by", lambda row: TITLES[row.approach]),
        ("weights say, before", lambda row: _in_words(due(row.approach))),
        ("calls per server before", lambda row: _in_words(row.share_before)),
        ("weights say, after", lambda row: _in_words(due(row.approach, fault))),
        ("calls after", lambda row: _in_words(row.share_after)),
        (f"calls from {SETTLED_S:g} s after on", lambda row: _in_words(row.share_settled)),
    )
    return table_of(columns if fault.loads else columns[:-1], figures)


def _in_words(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{server} {share:.0%}" for server, share in shares.items()) or "-"
