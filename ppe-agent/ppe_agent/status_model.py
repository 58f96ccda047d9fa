"""The model of `ppe-agent status --json`: the one description of each value, with its meaning, unit and
range.

The agent fills it in, the terminal view, the metrics and the reference page read it. Durations are counted
from now: `since_s` is how long ago. Keys are only ever added.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from daemon_kit.finding import Life

ServerState = Literal["in", "joining", "leaving", "drained", "held", "down", "unknown"]


class CheckStatus(TypedDict):
    """One check of a server."""

    type: str
    """`type` of the check in the configuration."""
    target: str
    """The target that it looks at."""
    state: Literal["up", "down", "unknown"]
    """`fall` failures in a row make it down, `rise` successes up."""
    since_s: float | None
    """How long it has been in this state."""
    last: str | None
    """Its last observation; null: not tried yet."""
    found: Life | None
    """The same as a code: unwell: it is there and can't serve; refused: nothing is there."""
    last_s: float | None
    """How long ago that was."""
    expires_at_s: float | None
    """When the certificate that it saw last expires, in Unix time; null: it sees none."""


class DrainStatus(TypedDict):
    """An operator's drain, by command."""

    by: str
    """The user of this host who drained it; empty: not known."""
    reason: str
    since_s: float | None
    """How long it has been drained; null: not known."""
    left_s: float | None
    """How long it will be; null: until it is undrained."""


class ServerStatus(TypedDict):
    """One server, an [[as]] of the configuration."""

    name: str
    """`name` of its [[as]]."""
    handle: str
    """The pool it is registered in."""
    identifier: str
    """8 hexadecimal digits."""
    transport: str
    """udp, tcp or sctp."""
    address: list[str]
    """The addresses at which it serves, and where the checks look for it."""
    port: int
    remote: bool
    """Whether it runs on another host."""
    registered_as: list[str]
    """The addresses that it is registered with."""
    policy: str
    """Its policy in the pool (RFC 5356)."""
    state: ServerState
    """in, joining, leaving, drained, held, down or unknown."""
    reason: str
    """Why it is in this state."""
    drained: bool
    """Whether an operator took it out, by command or file."""
    drain: DrainStatus | None
    """The drain by command; null: there is none."""
    registrar: str | None
    """The registrar in charge; null: none."""
    home_registrar: str | None
    """The identifier of that registrar."""
    missing_count: int
    """How often a registrar did not list it though it should."""
    moved_count: int
    """How often another registrar took over."""
    rejected_count: int
    """How often a registrar refused it."""
    collision_count: int
    """How often another host had its identifier."""
    twin: str | None
    """The identifier by which another sidecar has the same server in; null: there is none."""
    taken_by: str | None
    """The host that had its identifier last: address and port. null: none had."""
    fall_count: int
    """How often it went from well to not well."""
    load: float | None
    """0..1, as reported; null: its policy has none."""
    load_source: str | None
    """The kind of its load source; null: its policy has no load, or there is no source."""
    load_read: float | None
    """0..1, the last reading of its load source, not smoothed; null: there is none."""
    load_problem: str | None
    """Why the load can't be read; null: it can."""
    state_problem: str | None
    """Why identifier and drain can't be kept; null: they are."""
    check: list[CheckStatus]
    listed_by: list[str]
    """The registrars that list it."""


class WaitingStatus(TypedDict):
    """A server that waits until a registrar announces itself."""

    name: str
    state: ServerState
    reason: str


class RegistrarLinkStatus(TypedDict):
    """One registrar."""

    address: str
    up: bool
    """Whether it can be asked."""
    round_trip_ms: float | None
    """The round trip of the last question; null: none was answered."""


class MulticastStatus(TypedDict):
    """The registrars heard that announce themselves."""

    group: str
    heard: int
    """Registrars known."""
    ignored: int
    """Announcements that were not in `accept`, or none."""


class LoopStatus(TypedDict):
    """How late the agent itself is."""

    lag_ms: float
    """At present."""
    stall_count: int
    """How often it stood still."""
    longest_stall_ms: float
    """The longest of these."""


class RelayStatus(TypedDict):
    """The traffic that ppu-agents send here over SCTP, see `relay`."""

    port: int
    agents: list[str]
    """The addresses of the ppu-agents that are connected."""
    connections: int
    """TCP connections that are handed on at present."""
    senders: int
    """Senders of UDP datagrams at present."""
    connections_count: int
    datagrams_count: int
    refused_count: int
    """Since the start, as the two above."""
    is_open: bool
    """Whether the SCTP socket is there."""


AgentStatus = TypedDict(
    "AgentStatus",
    {
        "registrars": list[RegistrarLinkStatus],
        "multicast": MulticastStatus | None,
        "as": list[ServerStatus],
        "waiting": list[WaitingStatus],
        "loop": LoopStatus,
        "relay": RelayStatus | None,
        "reload_problem": str | None,
        "metrics_problem": str | None,
    },
)
"""The whole sidecar. `multicast` is null where `registrars` is a list, `relay` without [relay].
`reload_problem` says why the last reload was refused; null: it was not. `metrics_problem` says why there are
no metrics at the configured address; null: there are, or none are configured."""
