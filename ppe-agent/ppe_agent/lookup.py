"""Looks the agent's own PEs up at every registrar, twice a second.

A registrar that was frozen and wakes can delete a PE that moved meanwhile, everywhere, and nobody tells the
PE. Looking is the only way to find out; the registration is then renewed.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger
from rserpool.client import RegistrarClient
from rserpool.errors import RSerPoolError
from rserpool.registrar_choice import RegistrarAddress

from ppe_agent.pace import next_moment
from ppe_agent.registration import PoolState, Registration

INTERVAL_S = 0.5
# While an AS is joining, its pool is looked up for what its other members have in common.
_LOOKED_UP = frozenset({PoolState.IN, PoolState.JOINING})
REPORTS_THAT_REMOVE = 3
"""So many reports of "endpoint unreachable" make rspregistrar remove a pool element."""


class RegistrarWatch:
    """Watches one registrar: is it reachable, and which of the `registrations` does it list."""

    def __init__(
        self,
        address: RegistrarAddress,
        registrations: Sequence[Registration],  # the agent's own list, which a reload changes
        *,
        make_client: Callable[..., RegistrarClient] = RegistrarClient,
    ) -> None:
        self.address = address
        self._registrations = registrations
        self._log = get_logger("lookup").bind(registrar=str(address))
        self._client = make_client(address, on_link=self._on_link)
        self._listed: dict[Registration, bool | None] = {}

    def lists(self, registration: Registration) -> bool | None:
        """Tell whether the registrar listed this PE when last asked; None when that is not known."""
        return self._listed.get(registration) if self._client.is_up else None

    def describe(self) -> dict[str, Any]:
        """Return the registrar for people and programs."""
        return {
            "address": str(self.address),
            "up": self._client.is_up,
            "round_trip_ms": self._client.round_trip_ms,
        }

    def report_unreachable(self, registration: Registration) -> None:
        """Have the registrar remove a PE that left while its own registrar failed, before any takeover."""
        if self._client.is_up:
            for _ in range(REPORTS_THAT_REMOVE):
                self._client.report_unreachable(registration.handle, registration.identifier)

    async def run(self) -> None:
        """Ask for ever. Raises FatalError where there is no SCTP."""
        try:
            self._client.start()
        except RSerPoolError as error:
            raise FatalError(str(error)) from None
        try:
            while True:
                for gone in self._listed.keys() - set(self._registrations):
                    del self._listed[gone]
                handles = {one.handle for one in self._registrations if self._is_looked_up(one)}
                await asyncio.gather(*(self._look_up(handle) for handle in sorted(handles)))
                await next_moment(INTERVAL_S)
        finally:
            await self._client.close()

    def _is_looked_up(self, registration: Registration) -> bool:
        # One that left is looked up until it is seen to be gone; it would be told to be listed for ever.
        return registration.state in _LOOKED_UP or self._listed.get(registration) is True

    async def _look_up(self, handle: bytes) -> None:
        try:
            resolution = await self._client.resolve(handle)
        except RSerPoolError:
            return  # silent or away: that says nothing about our PEs
        for registration in self._registrations:
            if registration.handle == handle:
                self._listed[registration] = registration.check_listed(self.address, resolution)

    def _on_link(self, is_up: bool) -> None:
        self._listed.clear()
        self._log.info("registrar_link", up=is_up)
