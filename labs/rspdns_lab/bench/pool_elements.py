"""Simulates thousands of pool elements over a few associations.

    python -m rspdns_lab.bench.pool_elements ADDRESS POOLS MEMBERS CONTROL REGISTRAR...

Each registrar has one association, and is home to all elements of every third pool (of three registrars). All
are at ADDRESS, each with a port of its own. When all are registered, the control socket CONTROL is there; it
takes `leave` and `join` (`pool`, `index`: one deregisters, or registers again) and `loads` (`count`, `per_s`:
so many report another load). The answer's `at_s` is the monotonic time just before the first was sent.
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import uvloop
from daemon_kit.control import ControlCommand, ControlServer

from rserpool import (
    AsapMessage,
    Deregistration,
    DeregistrationResponse,
    RegistrarAddress,
    RegistrationResponse,
)
from rspdns_lab.bench.element_association import ElementAssociation, registration
from rspdns_lab.bench.scale_files import element_identifier, handle_of

_UNANSWERED = 64
"""The number of messages to a registrar that may wait for its answer."""


class RegistrarElements:
    """The pool elements of one registrar."""

    def __init__(self, own: str, registrar: RegistrarAddress) -> None:
        self.ready = asyncio.Event()
        self._own = own
        self._waiting: deque[AsapMessage] = deque()
        self._unanswered = 0
        self._association = ElementAssociation(own, registrar, on_up=self._go_on, on_message=self._take)
        self._association.connect()

    def register(self, pool: int, index: int, members: int, load: float = 0.3) -> None:
        """Register an element, or report its load."""
        identifier, number = element_identifier(pool, index), pool * members + index
        self._send(registration(handle_of(pool).encode(), identifier, self._own, number, load))

    def deregister(self, pool: int, index: int) -> None:
        """Deregister it."""
        self._send(Deregistration(handle_of(pool).encode(), element_identifier(pool, index)))

    def _send(self, message: AsapMessage) -> None:
        self.ready.clear()
        self._waiting.append(message)
        self._go_on()

    def _go_on(self) -> None:
        while self._association.is_up.is_set() and self._waiting and self._unanswered < _UNANSWERED:
            self._unanswered += 1
            self._association.send(self._waiting.popleft())
        if not self._waiting and not self._unanswered:
            self.ready.set()

    def _take(self, message: AsapMessage) -> None:
        if isinstance(message, RegistrationResponse | DeregistrationResponse):
            if getattr(message, "rejected", False):
                sys.exit(f"refused: {message}")
            self._unanswered -= 1
            self._go_on()


async def _simulate(
    own: str, pools: int, members: int, control: Path, registrars: Sequence[RegistrarAddress]
) -> None:
    associations = [RegistrarElements(own, registrar) for registrar in registrars]

    def of(pool: int) -> RegistrarElements:
        return associations[pool % len(associations)]

    async def leave(asked: Mapping[str, Any]) -> dict[str, Any]:
        began_s = time.monotonic()
        of(asked["pool"]).deregister(asked["pool"], asked["index"])
        return {"at_s": began_s}

    async def join(asked: Mapping[str, Any]) -> dict[str, Any]:
        began_s = time.monotonic()
        of(asked["pool"]).register(asked["pool"], asked["index"], members)
        return {"at_s": began_s}

    async def report_loads(asked: Mapping[str, Any]) -> dict[str, Any]:
        began_s = time.monotonic()
        for number in range(asked["count"]):
            await asyncio.sleep(began_s + number / asked["per_s"] - time.monotonic())
            pool, index = number % pools, number // pools % members
            of(pool).register(pool, index, members, 0.1 + 0.8 * (number % 7) / 7)
        return {"at_s": began_s}

    for pool in range(pools):
        for index in range(members):
            of(pool).register(pool, index, members)
    for association in associations:
        await association.ready.wait()
    element = {"pool": int, "index": int}
    commands = {
        "leave": ControlCommand(leave, element),
        "join": ControlCommand(join, element),
        "loads": ControlCommand(report_loads, {"count": int, "per_s": int}),
    }
    server = ControlServer(control, commands)  # kept: one that nobody refers to stops listening
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(
        _simulate(
            sys.argv[1],
            int(sys.argv[2]),
            int(sys.argv[3]),
            Path(sys.argv[4]),
            [RegistrarAddress.parse(registrar) for registrar in sys.argv[5:]],
        )
    )
