"""One trial of the chaos lab: who is its victim, and what the faults do to the lab."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from rspdns_lab.chain.hosts import ApplicationServerHost, NameServerHost, RegistrarHost
from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import NAME_SERVERS, REGISTRARS, FollowMethod
from rspdns_lab.chaos.summary import Bounds


@dataclass
class ChaosScene:
    """A lab with everything alive, and the number of the trial (from 0) that is to begin in it."""

    lab: Lab
    trial: int
    draw: random.Random

    @cached_property
    def server(self) -> ApplicationServerHost:
        """The application server that is struck: any."""
        return self.draw.choice(list(self.lab.application_servers.values()))

    @cached_property
    def registrar(self) -> RegistrarHost:
        """The registrar that is struck: in the first trial the one most servers use, then the others."""
        busiest = list(REGISTRARS).index(self.lab.busiest_registrar())
        return list(self.lab.registrars.values())[(busiest + self.trial) % len(REGISTRARS)]

    @property
    def home(self) -> RegistrarHost:
        """The registrar at which `server` is registered."""
        address = self.server.registrar_address()
        return next(
            registrar for registrar in self.lab.registrars.values() if registrar.host.address == address
        )

    @property
    def name_server(self) -> NameServerHost:
        """The name server that is struck: the first."""
        return next(iter(self.lab.name_servers.values()))

    def pause(self, most_s: float) -> None:
        """Wait for a time drawn between 0 and `most_s`, so that no two trials meet the timers alike."""
        time.sleep(self.draw.uniform(0, most_s))


@dataclass(frozen=True)
class Strike:
    """The effect of a fault: since when (monotonic, s) answers are judged, and what they should hold.

    `counted_from_s`: since when empty answers, SERVFAIL and silence are counted, if that is earlier.
    `report_off` is that of `ChaosTrial`. `of_addresses`: only answers with A records are judged, since these
    have addresses of the first site alone.
    """

    at_s: float
    live: frozenset[str]
    dead: frozenset[str] = frozenset()
    servers: tuple[int, ...] = tuple(range(len(NAME_SERVERS)))
    counted_from_s: float | None = None
    report_off: float | None = None
    of_addresses: bool = False


def all_live(scene: ChaosScene, at_s: float) -> Strike:
    """Return the strike of a fault that leaves every application server alive."""
    return Strike(at_s, scene.lab.addresses)


def server_dead(scene: ChaosScene, at_s: float) -> Strike:
    """Return the strike of a fault that takes `scene.server` away."""
    dead = frozenset({scene.server.host.address})
    return Strike(at_s, scene.lab.addresses - dead, dead)


def nothing(_scene: ChaosScene) -> None:
    """There is nothing to take back."""


@dataclass(frozen=True)
class ChaosFault:
    """A fault: `strike` does it and returns when it is over or takes effect, `undo` brings all back.

    `watch_s`: the least time to watch after `strike` has returned. `enrp`: the bounds when registrars are
    followed, where they differ from those of polling. `sizes`: pools of how many it is for. `verified`: for
    pools whose members the backends probe themselves (`verify`). `keyed`: for pools with a key. `sites`: for
    pools at two sites. `cells`: for two handlespaces, each with half of the servers. `fastpath`: only where
    kernels answer.
    """

    name: str
    what: str
    strike: Callable[[ChaosScene], Strike]
    bounds: Bounds
    undo: Callable[[ChaosScene], None] = nothing
    watch_s: float = 2.0
    enrp: Bounds | None = None
    sizes: tuple[int, ...] = (2, 3, 12)
    verified: bool = False
    keyed: bool = False
    sites: bool = False
    fastpath: bool = False
    cells: bool = False

    def bounds_for(self, follow: FollowMethod) -> Bounds:
        """Return the bounds that hold when the registrars are followed so."""
        return self.enrp if follow == "enrp" and self.enrp else self.bounds
