"""The simulated servers of one cell, each with an association of its own, as a sidecar has.

    python -m rspdns_lab.cells.elements ADDRESS COUNT CONTROL REGISTRAR...

All are at ADDRESS, each with a port of its own. When all are registered, the control socket CONTROL is there.
It takes `die` (`index`: the association ends without a word, as a killed sidecar's does) and `live`. The
answer's `at_s` is the monotonic time just before.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import uvloop
from daemon_kit.control import ControlCommand, ControlServer

from rserpool import AsapMessage, RegistrarAddress, RegistrationResponse
from rspdns_lab.bench.element_association import ElementAssociation, registration
from rspdns_lab.chain.plan import HANDLE

_AT_ONCE: Final = 8
"""Servers that register at the same time: the registrars of a whole lab start on two processors."""

_AGAIN_S: Final = 0.5
"""The pause before a server whose registrar was lost tries it again."""


def identifier_of(index: int) -> int:
    """Return a server's PE identifier."""
    return index + 1


class CellServer:
    """One server with its association; `registered` is set while it is in."""

    def __init__(self, own: str, index: int, registrar: RegistrarAddress) -> None:
        self.registered = asyncio.Event()
        self._registration = registration(HANDLE.encode(), identifier_of(index), own, index)
        self._make: Callable[[], ElementAssociation] = lambda: ElementAssociation(
            own, registrar, on_up=self._up, on_message=self._take, on_end=self._ended
        )
        self._association: ElementAssociation | None = None

    def live(self) -> None:
        """Register."""
        self._association = self._make()
        self._association.connect()

    def die(self) -> None:
        """End the association without a word."""
        association, self._association = self._association, None
        if association is not None:
            association.close()

    def _up(self) -> None:
        if self._association is not None:
            self._association.send(self._registration)

    def _take(self, message: AsapMessage) -> None:
        if isinstance(message, RegistrationResponse):
            if message.rejected:
                sys.exit(f"refused: {message}")
            self.registered.set()

    def _ended(self, reason: str) -> None:
        del reason
        self.registered.clear()
        if self._association is not None:
            asyncio.get_running_loop().call_later(_AGAIN_S, self._association.connect)


async def _simulate(own: str, count: int, control: Path, registrars: Sequence[RegistrarAddress]) -> None:
    servers = [CellServer(own, index, registrars[index % len(registrars)]) for index in range(count)]

    async def die(asked: Mapping[str, Any]) -> dict[str, Any]:
        at_s = time.monotonic()
        servers[asked["index"]].die()
        return {"at_s": at_s}

    async def live(asked: Mapping[str, Any]) -> dict[str, Any]:
        at_s = time.monotonic()
        servers[asked["index"]].live()
        await servers[asked["index"]].registered.wait()
        return {"at_s": at_s}

    for first in range(0, count, _AT_ONCE):
        some = servers[first : first + _AT_ONCE]
        for server in some:
            server.live()
        for server in some:
            await server.registered.wait()
    keys = {"index": int}
    commands = {"die": ControlCommand(die, keys), "live": ControlCommand(live, keys)}
    listening = ControlServer(control, commands)  # kept: one that nobody refers to stops listening
    await listening.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    _registrars = [RegistrarAddress.parse(text) for text in sys.argv[4:]]
    uvloop.run(_simulate(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), _registrars))
