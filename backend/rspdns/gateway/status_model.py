"""The model of `rspdns gateway status --json`: each value with its meaning, unit and range.

The gateway fills it in; the view for people and the metrics read it. Keys are only ever added.
"""

from __future__ import annotations

from typing import TypedDict


class GatewayRegistrarStatus(TypedDict):
    """A registrar of the cell."""

    address: str
    standing: str
    """How far it is believed: settled, unsettled, silent, away ..."""
    follow: str
    """enrp: it pushes changes; poll: it is asked."""


class GatewayPoolStatus(TypedDict):
    """One pool of the configuration."""

    handles: list[str]
    """The pool's handles in the cell."""
    upper_handle: str
    members: int
    """The servers that are in; 0 when no registrar vouches for the pool."""
    capacity: float | None
    """The number of servers, or the sum of their weights; null while nothing is offered."""
    load: float | None
    """The mean load, 0 to 1; null while nothing is offered."""
    withheld: str | None
    """Why nothing is offered above; null while something is."""
    identifier: str
    """The gateway's element above, 8 hexadecimal digits."""
    registered: bool
    """Whether a registrar above has confirmed it."""
    registrar: str | None
    """The registrar above that is its home."""
    problem: str | None
    """The last event that kept it from being registered; null while it is."""
    reports: int
    """How often a load or capacity that had moved was told above."""


class GatewayStatus(TypedDict):
    """The whole answer."""

    uptime_s: float
    address: str
    """The gateway's address above."""
    registrars: list[GatewayRegistrarStatus]
    pool: list[GatewayPoolStatus]
    metrics_problem: str | None
