"""What is done to an application server in the IMS lab, and how it is taken back."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from rspdns_lab.ims.lab import ImsLab
from rspdns_lab.plan import APPLICATION_SERVERS, LOADS
from rspdns_lab.side_by_side.at_once import at_once

VICTIM: Final = "as1"
OVERLOAD: Final = 0.97


@dataclass(frozen=True)
class ImsFault:
    """One fault. `dead`: whether no call should go to the victim from then on."""

    name: str
    title: str
    do: Callable[[ImsLab], None]
    undo: Callable[[ImsLab], None]
    dead: bool = True

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
    ImsFault("as-drained", f"{VICTIM} is drained by each name server's operator", _drain, _undrain),
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
    ),
)
