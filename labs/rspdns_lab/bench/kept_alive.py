"""Simulates pool elements as agents hold them: many associations with a few elements each, all kept alive.

    python -m rspdns_lab.bench.kept_alive ADDRESS ELEMENTS PER_ASSOCIATION PER_S CONTROL REGISTRAR...

Associations go to the registrars by turns; a lost one is made again and its elements register again, as an
agent does. At most PER_S registrations a second are sent in all until every element is registered. The
control socket CONTROL is there from the start; it takes

- `state`: counts since the start, and by how much this process was late at most;
- `again`: from now on each element registers again every `REREGISTRATION_MS`, as agents do;
- `missing`: how many elements each registrar does not list;
- `silence` (`element`): it answers no keep-alive until no registrar lists it; then it registers again.
"""

import asyncio
import resource
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import uvloop
from daemon_kit.control import CommandHandler, ControlCommand, ControlError, ControlServer

from rserpool import (
    ASAP,
    MOST_RESOLVED,
    AsapMessage,
    HandleResolution,
    HandleResolutionResponse,
    RegistrarAddress,
    RegistrationResponse,
)
from rspdns_lab.bench.element_association import ElementAssociation, registration

REREGISTRATION_MS = 2000
MEMBERS = 100
"""Elements in a pool: a registrar lists 128 at most."""
_TICK_MS = 10
_ASK_EVERY_S = 0.02
_RECONNECT_S = 0.5
_ANSWER_S = 5.0
_DROPPED_S = 60.0


class _Agent:
    """Some elements and the association they share; when it is lost, it is made again."""

    def __init__(
        self, own: str, registrar: RegistrarAddress, numbers: range, simulation: "Simulation"
    ) -> None:
        self.numbers = numbers
        self._own = own
        self._simulation = simulation
        self.association = ElementAssociation(
            own,
            registrar,
            on_up=lambda: simulation.want(self),
            on_message=self._take,
            on_end=self._lost,
            answers=lambda identifier: identifier != simulation.silent,
        )
        self.association.connect()

    def register(self, number: int) -> None:
        self.association.send_encoded(_registration(self._own, number))

    def _take(self, message: AsapMessage) -> None:
        if isinstance(message, RegistrationResponse):
            simulation = self._simulation
            simulation.registrations += 1
            if message.rejected:
                simulation.refused += 1
            else:
                simulation.registered.add(message.identifier)

    def _lost(self, reason: str) -> None:
        self._simulation.lost[reason] += 1
        asyncio.get_running_loop().call_later(_RECONNECT_S, self.association.connect)


class _Asker:
    """Asks one registrar who is in a pool."""

    def __init__(self, own: str, registrar: RegistrarAddress) -> None:
        self._answer: asyncio.Future[frozenset[int]] | None = None
        self._association = ElementAssociation(own, registrar, on_message=self._take, on_end=self._lost)
        self._association.connect()

    async def listed(self, handle: bytes) -> frozenset[int]:
        """Return the identifiers that the registrar lists. Raises TimeoutError."""
        self._answer = asyncio.get_running_loop().create_future()
        self._association.send(HandleResolution(handle, MOST_RESOLVED))
        async with asyncio.timeout(_ANSWER_S):
            return await self._answer

    def _take(self, message: AsapMessage) -> None:
        if isinstance(message, HandleResolutionResponse) and self._answer and not self._answer.done():
            self._answer.set_result(frozenset(element.identifier for element in message.pool_elements))

    def _lost(self, _: str) -> None:
        asyncio.get_running_loop().call_later(_RECONNECT_S, self._association.connect)


class Simulation:
    """All agents, and what they counted."""

    def __init__(
        self,
        own: str,
        elements: int,
        per_association: int,
        per_s: int,
        registrars: Sequence[RegistrarAddress],
    ) -> None:
        self.registrations = 0
        self.refused = 0
        self.registered: set[int] = set()
        self.lost: Counter[str] = Counter()
        self.silent: int | None = None
        self._late_s = 0.0
        self._is_again = False
        self._turn = 0.0
        self._next = 0
        self._elements, self._per_association = elements, per_association
        self._per_s = per_s
        self._wanted: deque[tuple[_Agent, int]] = deque()
        self._askers = [_Asker(own, registrar) for registrar in registrars]
        self._agents = [
            _Agent(
                own,
                registrars[index % len(registrars)],
                range(first, min(elements, first + per_association)),
                self,
            )
            for index, first in enumerate(range(0, elements, per_association))
        ]

    def want(self, agent: _Agent) -> None:
        """Have all elements of an agent registered, in their turn."""
        self._wanted.extend((agent, number) for number in agent.numbers)

    async def register(self) -> None:
        """Register what is wanted, at the pace that was given."""
        while True:
            due_s = time.monotonic() + _TICK_MS / 1000
            for _ in range(max(1, self._per_s * _TICK_MS // 1000)):
                if self._wanted:
                    agent, number = self._wanted.popleft()
                    if number + 1 != self.silent:
                        agent.register(number)
            if self._is_again:
                self._register_again()
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            self._late_s = max(self._late_s, time.monotonic() - due_s)

    def _register_again(self) -> None:
        """Let those register again whose turn it is: each once in `REREGISTRATION_MS`."""
        self._turn += self._elements * _TICK_MS / REREGISTRATION_MS
        while self._turn >= 1:
            self._turn -= 1
            self._next = (self._next + 1) % self._elements
            if self._next + 1 != self.silent:
                self._agents[self._next // self._per_association].register(self._next)

    async def state(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Return the counts."""
        return {
            "late_ms": 1000 * self._late_s,
            "registered": len(self.registered),
            "keep_alives": sum(agent.association.keep_alives for agent in self._agents),
            "registrations": self.registrations,
            "refused": self.refused,
            "lost": dict(self.lost),
        }

    async def again(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to register every element again and again."""
        self._is_again = True
        return {}

    async def missing(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Return how many elements each registrar does not list."""
        pools = -(-self._elements // MEMBERS)
        try:
            return {
                "missing": [
                    self._elements
                    - sum([len(await asker.listed(b"pool-%d" % pool)) for pool in range(pools)])
                    for asker in self._askers
                ]
            }
        except TimeoutError:
            raise ControlError("a registrar does not answer") from None

    async def silence(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Let an element fall silent; return after how many ms no registrar listed it any more."""
        number = int(asked["element"])
        self.silent = number + 1
        began_s = time.monotonic()
        try:
            for asker in self._askers:
                while self.silent in await asker.listed(_handle_of(number)):
                    if time.monotonic() > began_s + _DROPPED_S:
                        raise ControlError("a silent element is still listed")
                    await asyncio.sleep(_ASK_EVERY_S)
            took_ms = 1000 * (time.monotonic() - began_s)
        except TimeoutError:
            raise ControlError("a registrar does not answer") from None
        finally:
            self.silent = None
        next(agent for agent in self._agents if number in agent.numbers).register(number)
        return {"took_ms": took_ms}


def _handle_of(number: int) -> bytes:
    return b"pool-%d" % (number // MEMBERS)


@lru_cache(1 << 17)
def _registration(own: str, number: int) -> bytes:
    return ASAP.encode(registration(_handle_of(number), number + 1, own, number))


def _have_descriptors() -> None:
    """Take as many descriptors as are allowed: each association needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _simulate(control: Path, simulation: Simulation) -> None:
    commands: dict[str, ControlCommand | CommandHandler] = {
        "state": simulation.state,
        "again": simulation.again,
        "missing": simulation.missing,
        "silence": ControlCommand(simulation.silence, {"element": int}),
    }
    server = ControlServer(control, commands)  # kept: one that nobody refers to stops listening
    await server.start()
    await simulation.register()


async def _main(arguments: Sequence[str]) -> None:
    own, elements, per_association, per_s, control, *registrars = arguments
    _have_descriptors()
    addresses = [RegistrarAddress.parse(registrar) for registrar in registrars]
    await _simulate(
        Path(control), Simulation(own, int(elements), int(per_association), int(per_s), addresses)
    )


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1:]))
