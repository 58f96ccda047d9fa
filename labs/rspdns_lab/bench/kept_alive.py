"""Simulates pool elements as agents hold them: many associations with a few elements each, all kept alive.

    python -m rspdns_lab.bench.kept_alive ADDRESS ELEMENTS PER_ASSOCIATION PER_S CONTROL REGISTRAR...

Associations go to the registrars by turns; a lost one is made again and its elements register again, as an
agent does. At most PER_S registrations a second are sent in all until every element is registered. The
control socket CONTROL is there from the start; it takes

- `state`: counts since the start;
- `again`: from now on each element registers again every `REREGISTRATION_MS`, as agents do;
- `missing`: how many elements each registrar does not list;
- `silence` (`element`): it answers no keep-alive until no registrar lists it; then it registers again.
"""

import asyncio
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import uvloop
from daemon_kit.control import Command, ControlError, ControlServer, Handler

from rserpool import (
    MOST_RESOLVED,
    AsapMessage,
    AssociationFailed,
    AssociationUp,
    Codec,
    EndpointKeepAlive,
    EndpointKeepAliveAck,
    HandleResolution,
    HandleResolutionResponse,
    LeastUsed,
    MessageEndpoint,
    Notification,
    PoolElement,
    Protocol,
    RegistrarAddress,
    Registration,
    RegistrationResponse,
    SctpSocket,
    Transport,
    asap,
)

REREGISTRATION_MS = 2000
MEMBERS = 100
"""Elements in a pool: a registrar lists 128 at most."""
_LIFE_MS = 3_600_000
_FIRST_PORT = 1024
_KEPT_BYTES = 64
_TICK_MS = 10
_ASK_EVERY_S = 0.02
_RECONNECT_S = 0.5
_ANSWER_S = 5.0
_DROPPED_S = 60.0


@lru_cache(1 << 17)
def _kept(data: bytes) -> AsapMessage:
    return asap.decode(data)


def _decode(data: bytes) -> AsapMessage:
    """Decode; the keep-alives of an element are always the same bytes."""
    return _kept(data) if len(data) <= _KEPT_BYTES else asap.decode(data)


_CODEC: Codec[AsapMessage] = Codec(asap.PPID, lru_cache(1 << 17)(asap.encode), _decode)
"""Thousands of elements in one process: each message is built and read once."""


class _Link:
    """One association with a registrar, made again when it is lost."""

    def __init__(self, own: str, registrar: RegistrarAddress) -> None:
        self.association: int | None = None
        self.lost: Counter[str] = Counter()
        self._registrar = registrar
        self._endpoint: MessageEndpoint[AsapMessage] = MessageEndpoint(
            _CODEC,
            SctpSocket(local_addresses=(own,)),
            on_message=self._take,
            on_notification=self._happened,
            on_dead=sys.exit,
        )
        self._endpoint.connect(registrar.endpoint)

    def send(self, message: AsapMessage) -> None:
        if self.association is not None:
            self._endpoint.send(self.association, message)

    def on_up(self) -> None:
        """The association is there."""

    def on_message(self, message: AsapMessage) -> None:
        """A message came."""
        raise NotImplementedError

    def _take(self, _association: int, message: AsapMessage, _peer: tuple[str, int]) -> None:
        self.on_message(message)

    def _happened(self, notification: Notification) -> None:
        if isinstance(notification, AssociationUp):
            self.association = notification.association
            self.on_up()
            return
        if self.association not in (None, getattr(notification, "association", None)):
            return  # the end of an earlier one is told twice: when it begins and when it is done
        was, self.association = self.association, None
        if was is None and not isinstance(notification, AssociationFailed):
            return
        self.lost[getattr(notification, "reason", type(notification).__name__)] += 1
        asyncio.get_running_loop().call_later(_RECONNECT_S, self._endpoint.connect, self._registrar.endpoint)


class _Agent(_Link):
    """Some elements and the association they share."""

    def __init__(
        self, own: str, registrar: RegistrarAddress, numbers: range, simulation: "Simulation"
    ) -> None:
        self.numbers = numbers
        self._own = own
        self._simulation = simulation
        super().__init__(own, registrar)

    def register(self, number: int) -> None:
        port = _FIRST_PORT + number % (65536 - _FIRST_PORT)
        transport = Transport(Protocol.UDP, port, (IPv4Address(self._own),))
        element = PoolElement(number + 1, 0, _LIFE_MS, transport, LeastUsed(0.3))
        self.send(Registration(_handle_of(number), element))

    def on_up(self) -> None:
        self._simulation.want(self)

    def on_message(self, message: AsapMessage) -> None:
        simulation = self._simulation
        if isinstance(message, EndpointKeepAlive) and message.identifier is not None:
            simulation.keep_alives += 1
            if message.identifier != simulation.silent:
                self.send(EndpointKeepAliveAck(message.handle, message.identifier))
        elif isinstance(message, RegistrationResponse):
            simulation.registrations += 1
            if message.rejected:
                simulation.refused += 1
            else:
                simulation.registered.add(message.identifier)


class _Asker(_Link):
    """Asks one registrar who is in a pool."""

    def __init__(self, own: str, registrar: RegistrarAddress) -> None:
        self._answer: asyncio.Future[frozenset[int]] | None = None
        super().__init__(own, registrar)

    async def listed(self, handle: bytes) -> frozenset[int]:
        """Return the identifiers that the registrar lists. Raises TimeoutError."""
        self._answer = asyncio.get_running_loop().create_future()
        self.send(HandleResolution(handle, MOST_RESOLVED))
        async with asyncio.timeout(_ANSWER_S):
            return await self._answer

    def on_message(self, message: AsapMessage) -> None:
        if isinstance(message, HandleResolutionResponse) and self._answer and not self._answer.done():
            self._answer.set_result(frozenset(element.identifier for element in message.pool_elements))


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
        self.keep_alives = 0
        self.registrations = 0
        self.refused = 0
        self.registered: set[int] = set()
        self.silent: int | None = None
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
                registrars[place % len(registrars)],
                range(first, min(elements, first + per_association)),
                self,
            )
            for place, first in enumerate(range(0, elements, per_association))
        ]

    def want(self, agent: _Agent) -> None:
        """Have all elements of an agent registered, in their turn."""
        self._wanted.extend((agent, number) for number in agent.numbers)

    async def register(self) -> None:
        """Register what is wanted, at the pace that was given."""
        while True:
            began_s = time.monotonic()
            for _ in range(max(1, self._per_s * _TICK_MS // 1000)):
                if self._wanted:
                    agent, number = self._wanted.popleft()
                    agent.register(number)
            if self._is_again:
                self._register_again()
            await asyncio.sleep(max(0.0, began_s + _TICK_MS / 1000 - time.monotonic()))

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
        lost: Counter[str] = Counter()
        for link in (*self._agents, *self._askers):
            lost += link.lost
        return {
            "at_s": time.monotonic(),
            "registered": len(self.registered),
            "keep_alives": self.keep_alives,
            "registrations": self.registrations,
            "refused": self.refused,
            "lost": dict(lost),
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


async def _simulate(control: Path, simulation: Simulation) -> None:
    commands: dict[str, Command | Handler] = {
        "state": simulation.state,
        "again": simulation.again,
        "missing": simulation.missing,
        "silence": Command(simulation.silence, {"element": int}),
    }
    server = ControlServer(control, commands)  # kept: one that nobody refers to stops listening
    await server.start()
    await simulation.register()


async def _main(arguments: Sequence[str]) -> None:
    own, elements, per_association, per_s, control, *registrars = arguments
    addresses = [RegistrarAddress.parse(registrar) for registrar in registrars]
    await _simulate(
        Path(control), Simulation(own, int(elements), int(per_association), int(per_s), addresses)
    )


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1:]))
