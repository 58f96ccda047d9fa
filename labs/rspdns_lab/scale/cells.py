"""The cells of a simulation: one in full, and those of which only the gateway's element above is there."""

import math
from collections import deque
from collections.abc import Sequence
from ipaddress import ip_address
from random import Random
from typing import Final

from pool_user import BeliefChange
from rspdns.gateway import offer as gateway_offer
from rspdns.gateway.configuration import CellGatewayConfig
from rspdns.gateway.offer import Offer
from rspdns.gateway.service import CellGateway, UpperElement

from rserpool import (
    LeastUsed,
    PoolElement,
    PoolElementClient,
    Protocol,
    RegistrarAddress,
    Transport,
    fresh_identifier,
)
from rspdns_lab.scale.figures import MessageCosts, ScaleSize
from rspdns_lab.scale.parts import (
    REGIONS,
    Following,
    PlacedHost,
    PlacedNetwork,
    PlayedNameServer,
    registrars_at,
)

READY_S: Final = 20.0
"""All is registered and followed by then."""
REPORT_S: Final = 2.0
"""How often a server reports its load."""
CHURN_PER_S: Final = 0.01 / 60
"""The part of all servers that dies each second; each is back after `DEAD_S`."""
DEAD_S: Final = 60.0
SWING, SWING_S = 0.25, 600.0
"""The mean load of a cell swings by this much, up and down, in this time; each cell has its own phase."""
_PER_POOL: Final = 100
_FILL_S: Final = 5.0
"""All servers of the cell in full have registered within this time."""
_TICK_S: Final = 0.25
_FIRST_PORT: Final = 1024


def upper_handle(number: int) -> str:
    """The upper pool of a cell: a registrar lists 128 elements of a pool at most."""
    return f"cells-{number // _PER_POOL}"


def set_news(moved_by: float) -> None:
    """Have gateways tell above a load that moves by this much."""
    vars(gateway_offer)["MOVED_BY"] = moved_by


class CellLoad:
    """The load of a cell's servers: it swings, and chance is in it."""

    def __init__(self, seed: int, cell: int) -> None:
        self._random = Random(f"{seed} {cell}")  # noqa: S311 - a scenario, no secret
        self._phase = self._random.random()
        self._noise = self._at_s = 0.0

    def mean(self, now: float) -> float:
        """The mean of all at that time."""
        passed_s, self._at_s = now - self._at_s, now
        self._noise += self._random.gauss(0, 0.003) * math.sqrt(passed_s) - self._noise * passed_s / 60
        swing = math.sin(2 * math.pi * (self._phase + now / SWING_S))
        return min(1.0, max(0.0, 0.45 + SWING * swing + self._noise))


def _gateway_config(
    size: ScaleSize,
    number: int,
    host: PlacedHost,
    below: Sequence[str],
    upper: Sequence[str],
    handles: Sequence[str],
) -> CellGatewayConfig:
    pool = {"handles": handles, "upper_handle": upper_handle(number), "accept": ["10.0.0.0/8"]}
    keys = {"registrars": below, "upper_registrars": upper, "reregistration_ms": size.reregistration_ms}
    if size.is_home_elsewhere:
        keys["last_choice"] = [upper[host.place * REGIONS // size.places]]
    return CellGatewayConfig.model_validate({**keys, "address": host.address, "pool": [pool]})


class AggregatedCell:
    """A cell of which only the gateway's element above is there."""

    def __init__(self, size: ScaleSize, number: int, host: PlacedHost, upper: Sequence[str]) -> None:
        self.number, self.host, self._size = number, host, size
        self.element: UpperElement | None = None
        self._config = _gateway_config(size, number, host, ["10.9.9.9"], upper, ["h"])
        self._load = CellLoad(size.seed, number)
        self._dead: deque[float] = deque()
        self.start()

    def start(self) -> None:
        """Start its gateway."""
        self.process = self.host.start("gateway")
        self.process.do(self._begin)

    def _begin(self) -> None:
        self.element = UpperElement(self._config, self._config.pools[0])
        self._tick(self.element)

    def _tick(self, element: UpperElement) -> None:
        now, servers = self.process.kernel.now, self._size.servers
        while self._dead and self._dead[0] <= now:
            self._dead.popleft()
        deaths = servers * CHURN_PER_S * _TICK_S
        chance = self.process.kernel.random.random()
        self._dead.extend(now + DEAD_S for _ in range(int(deaths) + (chance < deaths % 1)))
        members = servers - len(self._dead)
        offer = Offer(Protocol.UDP, 5060, members, float(members), self._load.mean(now))
        element.take(offer, self.process.time())
        self.process.call_later(_TICK_S, self._tick, element)


class PlayedGateway(CellGateway):
    """The real gateway, without its control socket."""

    def begin(self) -> None:
        """Start the part that is above sockets."""
        self._pool_user.start()

    @property
    def element(self) -> UpperElement:
        """Its element above."""
        return self._elements[0]


class PlayedCell:
    """A cell in full: registrars, servers, a name server, the gateway."""

    def __init__(
        self,
        size: ScaleSize,
        costs: MessageCosts,
        network: PlacedNetwork,
        host: PlacedHost,
        upper: Sequence[str],
    ) -> None:
        self.host, self._size, self._kernel = host, size, network.kernel
        self.gateway: PlayedGateway
        self.gone_ms: list[float] = []
        self.registrations = 0
        self._handles = [f"h{index}" for index in range(-(-size.servers // _PER_POOL))]
        self._addresses = [f"10.3.0.{number}" for number in (1, 2, 3)]
        following = Following(costs, 2, 2)
        self.registrars = registrars_at(network, "c0r", self._addresses, [host.place] * 3, following)
        self._servers_host = network.place_host("c0s", "10.3.1.1", host.place)
        self._load = CellLoad(size.seed, 0)
        self._clients: list[PoolElementClient | None] = [None] * size.servers
        self._turn = 0
        self._died_s: dict[int, float] = {}
        place = network.place_host("c0n", "10.3.0.21", host.place)
        self.name_server = PlayedNameServer(
            place, self._addresses, self._handles, self._changed, hot_for_s=0.0
        )
        self._servers = self._servers_host.start("servers")
        self._servers.do(lambda: self._servers.call_later(READY_S - _FILL_S, self._report))
        self.process = host.start("gateway")
        config = _gateway_config(size, 0, host, self._addresses, upper, self._handles)
        self.process.do(self._begin, config)

    def _begin(self, config: CellGatewayConfig) -> None:
        self.gateway = PlayedGateway(config)
        self.gateway.begin()

    def _report(self) -> None:
        """Have those servers report their loads whose turn it is; some die, some are back."""
        now, count, chance = self._kernel.now, self._size.servers, self._kernel.random.random
        self._servers.call_later(_TICK_S / 10, self._report)
        mean = self._load.mean(now)
        until = int((now - READY_S + _FILL_S) * count / REPORT_S)
        for index in (turn % count for turn in range(self._turn, until)):
            load = min(1.0, max(0.0, mean + 0.2 * (chance() - 0.5)))
            client = self._clients[index]
            if client is None:
                if self._died_s.get(index, -math.inf) <= now - DEAD_S:
                    self._clients[index] = self._made(index, load)
            elif now > READY_S and chance() < CHURN_PER_S * REPORT_S:
                self._clients[index], self._died_s[index] = None, now
                self._servers.create_task(client.close())
            else:
                client.update_policy(LeastUsed(load))
                self.registrations += 1
        self._turn = until

    def _made(self, index: int, load: float) -> PoolElementClient:
        own = self._servers_host.address
        transport = Transport(Protocol.UDP, _FIRST_PORT + index, (ip_address(own),))
        client = PoolElementClient(
            [RegistrarAddress(each) for each in self._addresses],
            self._handles[index // _PER_POOL].encode(),
            PoolElement(fresh_identifier(), 0, 9000, transport, LeastUsed(load)),
            local_addresses=[own],
            reregistration_ms=3000,
        )
        client.start()
        return client

    def _changed(self, _name_server: PlayedNameServer, change: BeliefChange) -> None:
        now = self._kernel.now
        for departure in (each for pool in change.pools.values() for each in pool.left):
            died_s = self._died_s.get(departure.member.port - _FIRST_PORT)
            if died_s is not None and now - died_s < DEAD_S / 2:
                self.gone_ms.append(round(1000 * (now - died_s), 1))

    def lose_registrars(self) -> None:
        """Kill all registrars at once, for good."""
        for registrar in self.registrars:
            registrar.is_given_up = True
            registrar.process.kill()

    def end(self) -> None:
        """Have all hosts lose their power."""
        registrars = (registrar.host for registrar in self.registrars)
        for host in (self.host, self.name_server.host, self._servers_host, *registrars):
            host.power_off()
