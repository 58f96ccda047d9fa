"""The faults of an application server in the IMS lab, and how each is taken back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final

from rspdns_lab.chain.plan import APPLICATION_SERVERS, LOADS
from rspdns_lab.chain.side_by_side.lab import at_once
from rspdns_lab.ims.lab import ImsLab

VICTIM: Final = "as1"
OVERLOAD: Final = 0.97
_LEAST_OVERLOADED_S: Final = 12
"""The least time that calls must go on for enough of them to show where they go once weights have
followed."""


@dataclass(frozen=True)
class ImsFault:
    """One fault. `dead`: whether no call should go to the victim from then on; `dies`: whether it answers
    nothing from then on.

    `loads`: which servers' loads, 0 to 1, are others from then on. `least_s`: for how long calls go on after
    it, at least.
    """

    name: str
    title: str
    do: Callable[[ImsLab], None]
    undo: Callable[[ImsLab], None]
    dead: bool = True
    dies: bool = True
    loads: Mapping[str, float] = field(default_factory=dict)
    least_s: int = 0

    @property
    def dead_addresses(self) -> frozenset[str] | None:
        """The addresses that no call should go to any more; None when all still serve."""
        return frozenset([APPLICATION_SERVERS[VICTIM]]) if self.dead else None


def _drain(lab: ImsLab) -> None:
    at_once([partial(approach.drain, VICTIM) for approach in lab.approaches.values()])


def _undrain(lab: ImsLab) -> None:
    at_once([partial(approach.undrain, VICTIM) for approach in lab.approaches.values()])


FAULTS: Final = (
    ImsFault(
        "as-killed",
        f"{VICTIM}'s SIP server is killed",
        lambda lab: lab.servers[VICTIM].kill(),
        lambda lab: lab.servers[VICTIM].start_sip(),
    ),
    ImsFault(
        "as-hung",
        f"{VICTIM}'s SIP server hangs (SIGSTOP)",
        lambda lab: lab.servers[VICTIM].hang(),
        lambda lab: lab.servers[VICTIM].wake(),
    ),
    ImsFault(
        "as-drained", f"{VICTIM} is drained by each name server's operator", _drain, _undrain, dies=False
    ),
    ImsFault(
        "as-link-cut",
        f"{VICTIM}'s network cable is pulled",
        lambda lab: lab.network.cut(lab.servers[VICTIM].host),
        lambda lab: lab.network.restore(lab.servers[VICTIM].host),
    ),
    ImsFault(
        "as-overloaded",
        f"{VICTIM}'s load rises to {OVERLOAD:.0%}",
        lambda lab: lab.servers[VICTIM].set_load(OVERLOAD),
        lambda lab: lab.servers[VICTIM].set_load(LOADS[VICTIM]),
        dead=False,
        dies=False,
        loads=MappingProxyType({VICTIM: OVERLOAD}),
        least_s=_LEAST_OVERLOADED_S,
    ),
)
