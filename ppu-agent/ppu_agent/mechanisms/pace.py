"""`pace`: connection set-up to living servers is repeated after milliseconds, by the kernel."""

from __future__ import annotations

from typing import Any

from daemon_kit.addresses import ListenAddress
from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

from ppu_agent.configuration import PpuConfig
from ppu_agent.destinations import AddressPort
from ppu_agent.kernel import PaceError, Pacer, Pacing
from ppu_agent.mechanisms.base import Mechanism
from ppu_agent.plan import Plan, Way
from ppu_agent.rules import NOTHING, TableCommands
from ppu_agent.status_model import PaceStatus


class PaceMechanism(Mechanism):
    """Paces connection set-up from this host."""

    def __init__(self) -> None:
        self._pacer: Pacer | None = None
        self._paced: dict[AddressPort, Pacing] = {}
        self._problem = ""
        """The reason why the kernel refused it last, and may have taken only a part; logged once."""

    async def configure(self, config: PpuConfig) -> None:
        """Load the BPF program. Raises FatalError."""
        if self._pacer is None and any(pool.pace for pool in config.pools):
            try:
                self._pacer = Pacer()
            except PaceError as problem:
                raise FatalError(f"pace: {problem}") from None

    def commands(self, plan: Plan) -> TableCommands:
        """Pace set-up to those that live. If the kernel refuses that, it is tried again the next time."""
        if self._pacer is None:
            return NOTHING
        now = paced(plan)
        if self._problem or now != self._paced:
            try:
                self._pacer.set(now)
            except PaceError as problem:
                if str(problem) != self._problem:
                    get_logger("agent").warning("not_paced", problem=str(problem))
                self._problem = str(problem)
            else:
                self._paced, self._problem = now, ""
        return NOTHING

    def status(self) -> dict[str, Any]:
        """The servers to which set-up is paced, and the round trips learned."""
        found: list[PaceStatus] = []
        if self._pacer is not None:
            found = [
                {
                    "endpoint": str(ListenAddress(*endpoint)),
                    "learns": pacing.learns,
                    "round_trip_ms": self._pacer.round_trip_ms(*endpoint),
                }
                for endpoint, pacing in self._paced.items()
            ]
        return {"pace": found}

    async def close(self) -> None:
        """Take the BPF program out."""
        if self._pacer is not None:
            self._pacer.close()
            self._pacer = None


def paced(plan: Plan) -> dict[AddressPort, Pacing]:
    """How set-up to each living member is paced; the first pool of the configuration decides."""
    found: dict[AddressPort, Pacing] = {}
    for place in plan.places_by(Way.PACE):
        if place.policy.pace is not None:
            found.setdefault(place.destination.endpoint, place.policy.pace)
    return found
