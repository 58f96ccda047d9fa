"""`via = "sctp"`: what is sent to a pool's front reaches the servers embedded in SCTP, by `ppu_agent.via`.

nftables leads the datagrams here by the table `ppu_agent_via`, which ends with the process. They have a
conntrack zone: so what conntrack remembers of a flow that is busy ends with the table, too.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping
from typing import Any, Final

from daemon_kit.errors import FatalError

from ppu_agent.configuration import PpuConfig
from ppu_agent.deaths import Departed
from ppu_agent.destinations import Address, Destination
from ppu_agent.mechanisms.base import Mechanism
from ppu_agent.plan import Front, Plan, Way
from ppu_agent.relay import StreamPair, connect
from ppu_agent.rules import (
    NOTHING,
    OWN_INTO_ZONE,
    NftCommand,
    NftTable,
    TableCommands,
    admitting_moved,
    in_conntrack_zone,
    to_front,
)
from ppu_agent.via import Channels, DatagramFront
from ppu_agent.writer import NftablesError, Writer
from rserpool import Protocol, SctpUnavailable

TIDY_EVERY_S: Final = 1.0
VIA_TABLE: Final = NftTable("ppu_agent_via")
_ZONES: Final = range(0xB200, 0xF200)
"""Conntrack zones of datagrams to fronts; each agent takes another, so that none finds old ports."""
_CHAINS: Final = {
    "via_output": ("nat", "output", -103),
    "via_prerouting": ("nat", "prerouting", -103),
    "zone_output": ("filter", "output", -300),
    "zone_prerouting": ("filter", "prerouting", -300),
    "guard": ("filter", "input", 0),
}


class ViaMechanism(Mechanism):
    """Takes the datagrams to fronts, and connects the relay of TCP to servers."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._plan = Plan()
        self._embedded: dict[Destination, Front] = {}
        self._zone = random.choice(_ZONES)  # noqa: S311 - chance, not a secret
        self._channels: Channels | None = None
        self._fronts: dict[Destination, DatagramFront] = {}
        self._flow_numbers = itertools.count(1)
        self._idle_s = 0.0
        self._tidied_at_s = 0.0
        self._died: list[Departed] = []

    async def configure(self, config: PpuConfig) -> None:
        """Open a socket for each front. Raises FatalError."""
        if not any(pool.via for pool in config.pools):
            return
        if self._channels is None:
            channels = Channels(self._came, ipv6=_has_v6(config))
            try:
                channels.start()
                chains = [VIA_TABLE.base(name, *base) for name, base in _CHAINS.items()]
                self._writer.own(VIA_TABLE.name, chains)
            except (SctpUnavailable, NftablesError) as problem:
                raise FatalError(f"via: {problem}") from None
            self._channels = channels
        for policy in (pool.policy for pool in config.pools):
            if policy.front is not None and policy.via_port is not None:
                self._begin(Destination(policy.front[0], Protocol.UDP, policy.front[1]), config)

    def _begin(self, front: Destination, config: PpuConfig) -> None:
        if front not in self._fronts:
            made = DatagramFront(front, self._choose, self._send, self._flow_numbers, config.relay.limits)
            made.start()
            self._fronts[front] = made

    def take(self, config: PpuConfig) -> None:
        """Use these limits, and IPv6 addresses where a pool has them."""
        self._idle_s = config.relay.idle_s
        for front in self._fronts.values():
            front.limits = config.relay.limits
        if self._channels is not None and any(pool.via for pool in config.pools):
            self._channels.has_v6 = _has_v6(config)

    def commands(self, plan: Plan) -> TableCommands:
        """Redirect the datagrams to fronts that are steered."""
        if not plan.is_last:
            embedded = plan.fronts_by(Way.EMBED, Protocol.UDP, Protocol.TCP)
            self._plan, self._embedded = plan, {front.destination: front for front in embedded}
        if self._channels is None:
            return NOTHING
        self._leave_hosts_without_server()
        self._tidy()
        ports = {destination: taken.port for destination, taken in self._fronts.items()}
        return TableCommands(own=via_rules(plan, ports, self._zone))

    def died(self, server: Departed) -> None:
        """Its clients' datagrams go elsewhere. An association with a host without any server ends."""
        for front in self._fronts.values():
            front.died(server.destination)
        if server.is_certain:
            self._died.append(server)

    def _leave_hosts_without_server(self) -> None:
        living = {place.destination.address for place in self._plan.places if place.left is None}
        for server in self._died:
            if self._channels is not None and server.destination.address not in living:
                self._channels.died(server.destination)
        self._died = []

    async def dial(self, asked: Destination, server: Destination) -> StreamPair:
        """Connect to a server: over SCTP when the connection was to a front with `via`. Raises OSError."""
        port = self._port_of(asked)
        if port is None or self._channels is None:
            return await connect(server)
        return await self._channels.open(server, port)

    def status(self) -> dict[str, Any]:
        """The associations."""
        return {"via": self._channels.describe() if self._channels is not None else []}

    async def close(self) -> None:
        """End the associations, and close the sockets of fronts."""
        for front in self._fronts.values():
            front.close()
        self._fronts.clear()
        if self._channels is not None:
            await self._channels.close()
            self._channels = None

    def _port_of(self, destination: Destination) -> int | None:
        front = self._embedded.get(destination)
        return None if front is None else front.policy.via_port

    def _choose(self, destination: Destination, client: Address) -> Destination | None:
        front = self._embedded.get(destination)
        return None if front is None else self._plan.draw(destination, front.policy, client)

    def _send(self, destination: Destination, server: Destination, flow: int, data: bytes) -> None:
        port = self._port_of(destination)
        if port is not None and self._channels is not None:
            self._channels.send(server, port, flow, data)

    def _came(self, address: Address, flow: int, data: bytes) -> None:
        for front in self._fronts.values():
            front.answer(address, flow, data)

    def _tidy(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._channels is not None and now - self._tidied_at_s >= TIDY_EVERY_S:
            self._tidied_at_s = now
            self._channels.tidy(self._idle_s)
            for front in self._fronts.values():
                front.tidy()


def via_rules(plan: Plan, ports: Mapping[Destination, int], zone: int) -> list[NftCommand]:
    """Have datagrams to each of these fronts go to its port of this host."""
    commands = [VIA_TABLE.flushed(chain) for chain in _CHAINS]
    commands.append(VIA_TABLE.rule("zone_output", OWN_INTO_ZONE))
    for front in plan.fronts_by(Way.EMBED, Protocol.UDP):
        port = ports.get(front.destination)
        if port is not None:
            commands += to_front(VIA_TABLE, "via", front, {"redirect": {"port": port}})
            commands += to_front(VIA_TABLE, "zone", front, in_conntrack_zone(zone))
            commands += [VIA_TABLE.rule("guard", rule) for rule in admitting_moved(port)]
    return commands


def _has_v6(config: PpuConfig) -> bool:
    return any(network.version == 6 for pool in config.pools for network in pool.accept)
