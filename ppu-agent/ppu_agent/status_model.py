"""The model of `ppu-agent status --json`: the one description of each value, with its meaning, unit and
range.

The agent fills it in; the view for people and the metrics read it. Keys are only ever added.
"""

from __future__ import annotations

from typing import Any, TypedDict

from daemon_kit.finding import Life


class PpuRegistrarStatus(TypedDict):
    """One registrar."""

    address: str
    handlespace: str
    """The name of its handlespace; empty: there is one, without a name."""
    standing: str
    """How far it is believed: settled, unsettled, silent, away ..."""
    follow: str
    """enrp: it pushes changes; poll: it is asked."""


class PpuMemberStatus(TypedDict):
    """A living member of a pool."""

    identifier: str
    """8 hexadecimal digits."""
    transport: str
    endpoints: list[str]


class PpuPoolStatus(TypedDict):
    """One pool of the configuration."""

    handle: str
    known: bool
    """Whether a registrar has told of it."""
    stale_s: float | None
    """How long no registrar can be believed about it; null while at least one can."""
    members: list[PpuMemberStatus]


class DepartedStatus(TypedDict):
    """A server that left its pool a short time ago."""

    transport: str
    endpoint: str
    pools: list[str]
    state: str
    """out: being probed; spared: it answers; dead."""
    for_s: float
    """How long it has been in this state."""
    said: str
    """The words of its last probe."""
    found: Life
    """The same as a code: unwell: it is there and can't serve; refused: nothing is there."""


class TargetStatus(TypedDict):
    """The server to which packets go instead."""

    endpoint: str
    weight: int


class TreatedStatus(TypedDict):
    """A server whose packets are redirected, refused, answered or relayed."""

    transport: str
    endpoint: str
    on_dead: str
    """The treatment: redirect, refuse or repeat."""
    handle: str
    why: str
    to: list[TargetStatus]


class FrontStatus(TypedDict):
    """One address for a pool, `steer`."""

    transport: str
    endpoint: str
    handle: str
    affinity: str | None
    """source: a client keeps its server; null: it does not."""
    clients: list[str] | None
    """The networks whose packets are steered; null: all."""
    to: list[TargetStatus]


class ChannelStatus(TypedDict):
    """The association with one ppe-agent, `via`."""

    address: str
    port: int
    up: bool
    """Whether the association is there."""


class PaceStatus(TypedDict):
    """A server to which connection set-up is paced."""

    endpoint: str
    learns: bool
    """Whether the pace follows the round trip."""
    round_trip_ms: float | None
    """Learned so far; null: none yet."""


class KernelStatus(TypedDict):
    """nftables."""

    problem: str | None
    """Why the kernel refused the rules; null: it took them."""
    write_count: int
    """How often the rules were written."""
    copies_problem: str | None
    """Why requests over TCP that a dead server leaves can't be answered; null: they can, if there are any."""
    copied_bytes: int
    """The bytes of packets that are kept for that."""


class BelievedStatus(TypedDict):
    """The agent's belief, and its treatments."""

    registrars: list[PpuRegistrarStatus]
    pool: list[PpuPoolStatus]
    departed: list[DepartedStatus]
    treated: list[TreatedStatus]
    steer: list[FrontStatus]


class PpuStatus(BelievedStatus):
    """The whole agent. Counts are since its start."""

    uptime_s: float
    suspended: bool
    """Whether `ppu-agent suspend` was given."""
    reload_problem: str | None
    """Why the last reload was refused; null: it was not."""
    metrics_problem: str | None
    """Why there are no metrics at the configured address; null: there are, or none are configured."""
    state_problem: str | None
    """Why what left its pool can't be kept over a restart; null: it is."""
    kernel: KernelStatus
    answered_503_count: int
    """SIP requests answered with 503."""
    relayed_count: int
    """TCP connections relayed."""
    repeated_count: int
    """SIP requests repeated to another server over TCP."""
    died_count: int
    """How often a member was found dead."""
    returned_count: int
    """How often a dead member came back."""
    connections_ended_count: int
    """TCP connections to dead members that were ended."""
    flows_moved_count: int
    """Flows moved from a dead server to a living one."""
    via: list[ChannelStatus]
    """The associations with ppe-agents."""
    pace: list[PaceStatus]
    gateway: dict[str, Any] | None
    """As ppu-guard tells it; null without [gateway]."""
