"""The truth about each server, and what each name server shows of it: the ground of all promises."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from typing import Protocol as Interface

from rspdns_lab.simulate.parts import SimulatedNameServer
from rspdns_lab.simulate.powerdns import Packet
from rspdns_lab.simulate.world import World

MEASURED_S: Final = 4.0
"""How long the traffic of a chain at rest is measured."""


@dataclass(slots=True)
class Truth:
    """A server as it is: alive since, or dead since (by how); kernel time."""

    is_live: bool = False
    since_s: float = 0.0
    how: str = "killed"


@dataclass(slots=True)
class Sight:
    """A name server's sight of the servers."""

    members: frozenset[str] = frozenset()
    """The servers that its backend believes in."""
    answer: "ClientAnswer | None" = None
    """The last one."""
    view: object = None
    """The view of which these are the members."""
    believed_since_s: dict[str, float] = field(default_factory=dict)
    came_s: dict[str, float] = field(default_factory=dict)
    gone_s: dict[str, float] = field(default_factory=dict)
    """When it believed in a server first of its last stay, and when no more."""
    sites: dict[str, tuple[bool, float]] = field(default_factory=dict)
    """Whether each site has enough members, and since when."""
    missing_since_s: dict[str, float] = field(default_factory=dict)
    established: dict[str, None] = field(default_factory=dict)
    """The servers that it showed since they live."""
    lacked: dict[str, None] = field(default_factory=dict)
    """The drained servers that it named no more."""
    serial: int = 0
    differs_since_s: float | None = None
    down_s: float = 0.0
    """When its backend was seen dead, frozen or without a view last."""
    stale_s: float = 0.0
    """When no registrar could vouch for its view last: then a server stays that answers the probe."""
    stranger_since_s: float | None = None
    """Since when it names what is no server."""
    was_whole: bool = False
    """Whether it ever named a server."""


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """An answer to the client: its packet, the servers in it, and when the client asked."""

    packet: Packet
    named: Sequence[str]
    asked_at_s: float


@dataclass(slots=True)
class Traffic:
    """How much each process had sent, second by second."""

    samples: deque[tuple[float, Mapping[str, tuple[int, int]]]] = field(
        default_factory=lambda: deque(maxlen=round(MEASURED_S) + 1)
    )

    def per_s(self, process: str) -> tuple[float, float] | None:
        """Its messages and datagrams in a second; None if it is too young."""
        if len(self.samples) < 2:
            return None
        (first_s, first), *_, (last_s, last) = self.samples
        if process not in first or process not in last:
            return None
        pairs = zip(first[process], last[process], strict=True)
        messages, datagrams = ((after - before) / (last_s - first_s) for before, after in pairs)
        return messages, datagrams


class WatchedScenario(Interface):
    """The part of `invariants.Watch` that promises need."""

    world: World
    truths: dict[str, Truth]
    sights: dict[str, Sight]
    traffic: Traffic

    @property
    def now(self) -> float:
        """The kernel's time."""

    @property
    def rest_s(self) -> float:
        """How long there was no fault of any kind."""

    def quiet_s(self, *touched: str) -> float:
        """How long nothing of this was disturbed."""

    def members(self, name_server: SimulatedNameServer) -> frozenset[str]:
        """The names of the servers that a backend believes in."""
