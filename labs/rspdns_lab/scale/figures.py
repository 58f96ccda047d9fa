"""Sizes, costs, results and bounds of `rspdns-lab scale`: shared by measurement, simulation and page."""

from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter

BUSY_BOUND: Final = 0.5
"""The part of a registrar's thread that may be in use, over ten seconds."""
CHANGES_BOUND: Final = 5.0
"""Changes a second above."""
SEEN_BOUND_MS: Final = 1000.0
"""The time after which 99 % of the name servers have a lost cell no more, and those outside the cells of a
region that is cut off."""


@dataclass(frozen=True)
class MessageCosts:
    """The processor time of a real rspregistrar, in us: for a keep-alive of an element of its own, for a
    registration anywhere, for telling one name server of one registration (3 at least), and for a name
    server that follows it, each second (presences, questions after the sentinel and a pool).

    `name_servers`, `elements`: with how many it was measured. `sctp_percent`: of a core, the busiest SCTP
    daemon, with all of them.
    """

    keep_alive_us: float
    registration_us: float
    update_us: float
    name_server_us: float
    name_servers: int
    elements: int
    sctp_percent: float
    load_average: float


@dataclass(frozen=True)
class ScaleSize:
    """The size of a simulation. `sample`: the name servers that are played, of `name_servers`.

    `reregistration_ms`: of the gateways. `steady_s`: how long nothing but load and churn happens. `full_s`:
    how long one cell is played in full, 0: not at all. `moved_by`: the load that is news above; the
    gateway's own value, unless a test breaks it. `is_home_elsewhere`: the upper registrar of its own region
    is the last choice of each gateway.
    """

    cells: int
    servers: int
    name_servers: int
    sample: int
    places: int = 30
    reregistration_ms: int = 2000
    steady_s: float = 300.0
    full_s: float = 40.0
    removals: int = 30
    seed: int = 1
    moved_by: float = 0.05
    is_home_elsewhere: bool = True

    @property
    def all_servers(self) -> int:
        """The servers of all cells."""
        return self.cells * self.servers


@dataclass(frozen=True)
class RegistrarLoad:
    """The part of a registrar's thread that is in use: on average while all is steady, and in the busiest
    ten seconds from then on. `where`: above, or in the cell that is played in full."""

    where: str
    number: int
    steady: float
    worst: float


@dataclass(frozen=True)
class CellRemoval:
    """A cell that was lost: `fault` says how. `seen_ms`: after how long each played name server above had it
    no more."""

    cell: int
    fault: str
    seen_ms: list[float]


@dataclass(frozen=True)
class FullCell:
    """The cell that is played in full. `gone_ms`: after how long servers that died had left the belief of
    its name server. `reports` of its gateway above, and the mean of the aggregated ones. The processor time
    of that gateway and of the name server's belief is of a core of this machine."""

    servers: int
    registrations_per_s: float
    gone_ms: list[float]
    reports: int
    expected_reports: float
    gateway_percent: float
    belief_percent: float


@dataclass(frozen=True)
class RegionCut:
    """A third of all places, cut off from the others. `gone_ms`: after how long name servers outside had one
    of its cells no more; `back_ms`: from the end of the cut until every name server had every cell."""

    cells: int
    seconds: float
    gone_ms: list[float]
    back_ms: float


@dataclass(frozen=True)
class ScaleOutcome:
    """The result of one simulation. `changes_per_s`: changes of an upper name server's belief while all is
    steady, on average and in the busiest ten seconds. `wrong`: cells that lived, could be reached, and left a
    name server's belief. `busy`: the busiest upper registrar's thread, each second."""

    size: ScaleSize
    registrars: list[RegistrarLoad]
    changes_per_s: float
    worst_changes_per_s: float
    removals: list[CellRemoval]
    wrong: list[str]
    cut: RegionCut
    full: FullCell | None
    simulated_s: float
    cpu_s: float
    busy: list[float] = field(repr=False)
    phases: list[tuple[float, str]]

    @property
    def seen_ms(self) -> list[float]:
        """How long each played name server named each cell that was lost."""
        return [ms for removal in self.removals for ms in removal.seen_ms]


ScaleTrial = MessageCosts | ScaleOutcome
TRIAL: Final[TypeAdapter[ScaleTrial]] = TypeAdapter(ScaleTrial)
"""Reads a trial from what `asdict` made of it. Raises ValueError for something else."""
