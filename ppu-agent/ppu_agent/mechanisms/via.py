"""`via = "sctp"`: what is sent to a pool's front reaches the servers embedded in SCTP, by `ppu_agent.via`."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Final

from daemon_kit.errors import FatalError

from ppu_agent.configuration import PpuConfig
from ppu_agent.deaths import Departed
from ppu_agent.destinations import Address, Destination
from ppu_agent.mechanisms.base import NOTHING, Redirections, Situation
from ppu_agent.relay import Streams, connect
from ppu_agent.steering import PoolPolicy
from ppu_agent.via import Channels, DatagramFront
from rserpool import Protocol, SctpUnavailable

TIDY_EVERY_S: Final = 1.0


class ViaMechanism:
    """Takes the datagrams to fronts, and connects the relay of TCP to servers."""

    def __init__(self) -> None:
        self._situation = Situation()
        self._channels: Channels | None = None
        self._fronts: dict[Destination, DatagramFront] = {}
        self._flow_numbers = itertools.count(1)
        self._idle_s = 0.0
        self._tidied_at_s = 0.0

    async def configure(self, config: PpuConfig) -> None:
        """Open a socket for each front. Raises FatalError."""
        if not any(pool.via for pool in config.pools):
            return
        if self._channels is None:
            channels = Channels(self._came, ipv6=_has_v6(config))
            try:
                channels.start()
            except SctpUnavailable as problem:
                raise FatalError(str(problem)) from None
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

    def commands(self, situation: Situation) -> Redirections:
        """Redirect the datagrams to fronts that are steered."""
        self._situation = situation
        if self._channels is None:
            return NOTHING
        self._tidy()
        steered = {one.front for one in situation.steering.fronts}
        ports = {
            front: made.port
            for front, made in self._fronts.items()
            if front in steered and self._policy(front) is not None
        }
        return Redirections(fronts=ports)

    def died(self, server: Departed) -> None:
        """Its clients' datagrams go elsewhere. An association with a host without any server ends."""
        for front in self._fronts.values():
            front.died(server.destination)
        members = (member for view in self._situation.views.values() for member in view.members)
        is_alone = not any(server.destination.address in member.addresses for member in members)
        if self._channels is not None and server.is_certain and is_alone:
            self._channels.died(server.destination)

    def takes(self, front: Destination) -> bool:
        """Whether connections to this front go by SCTP."""
        return self._policy(front) is not None

    async def dial(self, asked: Destination, server: Destination) -> Streams:
        """Connect to a server: over SCTP when the connection was to a front with `via`. Raises OSError."""
        policy = self._policy(asked)
        if policy is None or policy.via_port is None or self._channels is None:
            return await connect(server)
        return await self._channels.open(server, policy.via_port)

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

    def _policy(self, front: Destination) -> PoolPolicy | None:
        policies = self._situation.policies
        return next((one for one in policies if one.via_port and one.front == front.endpoint), None)

    def _choose(self, front: Destination, client: Address) -> Destination | None:
        policy = self._policy(front)
        return None if policy is None else self._situation.draw(front, policy, client)

    def _send(self, front: Destination, server: Destination, flow: int, data: bytes) -> None:
        policy = self._policy(front)
        if policy is not None and policy.via_port is not None and self._channels is not None:
            self._channels.send(server, policy.via_port, flow, data)

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


def _has_v6(config: PpuConfig) -> bool:
    return any(network.version == 6 for pool in config.pools for network in pool.accept)
