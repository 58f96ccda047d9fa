"""A host that registers thousands of pool elements in one pool, and goes on coming and going.

    python -m rspdns_lab.bench.stranger_elements ADDRESS HANDLE COUNT PER_S REGISTRAR...

Registers COUNT elements, PER_S a second over all registrars; then, at the same pace, each in turn deregisters
and registers again under another identifier. Writes "registered N" once a second. It never waits for answers.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Sequence
from ipaddress import IPv4Address

import uvloop

from rserpool import (
    ASAP,
    AsapMessage,
    AssociationUp,
    Deregistration,
    EndpointKeepAlive,
    EndpointKeepAliveAck,
    LeastUsed,
    MessageEndpoint,
    Notification,
    PoolElement,
    Protocol,
    RegistrarAddress,
    Registration,
    SctpSocket,
    Transport,
)

_LIFE_MS = 3_600_000
_FIRST_IDENTIFIER, _FIRST_PORT, _PORTS = 0x01000000, 1024, 60_000
_TURN_S = 0.01


class _Association:
    def __init__(self, own: str, registrar: RegistrarAddress) -> None:
        self._association: int | None = None
        self.is_up = asyncio.Event()
        self._endpoint: MessageEndpoint[AsapMessage] = MessageEndpoint(
            ASAP,
            SctpSocket(local_addresses=(own,)),
            on_message=self._take,
            on_notification=self._happened,
            on_dead=sys.exit,
        )
        self._endpoint.connect(registrar.endpoint)

    def send(self, message: AsapMessage) -> None:
        if self._association is not None:
            self._endpoint.send(self._association, message)

    def _happened(self, notification: Notification) -> None:
        if isinstance(notification, AssociationUp):
            self._association = notification.association
            self.is_up.set()
        else:
            sys.exit(f"a registrar is gone: {notification}")

    def _take(self, association: int, message: AsapMessage, _peer: tuple[str, int]) -> None:
        if isinstance(message, EndpointKeepAlive) and message.identifier is not None:
            self._endpoint.send(association, EndpointKeepAliveAck(message.handle, message.identifier))


async def _register(
    own: str, handle: bytes, count: int, per_s: float, registrars: Sequence[RegistrarAddress]
) -> None:
    associations = [_Association(own, registrar) for registrar in registrars]
    for association in associations:
        await association.is_up.wait()
    began_s = told_s = time.monotonic()
    for number in itertools.count():
        due_s = began_s + number / per_s
        if due_s > time.monotonic():
            await asyncio.sleep(max(_TURN_S, due_s - time.monotonic()))
        identifier = _FIRST_IDENTIFIER + number
        if number >= count:
            left = number - count
            associations[left % len(associations)].send(Deregistration(handle, identifier - count))
        transport = Transport(Protocol.UDP, _FIRST_PORT + number % _PORTS, (IPv4Address(own),))
        element = PoolElement(identifier, 0, _LIFE_MS, transport, LeastUsed(0.3))
        associations[number % len(associations)].send(Registration(handle, element))
        if time.monotonic() >= told_s + 1:
            told_s = time.monotonic()
            print(f"registered {number + 1}", flush=True)


if __name__ == "__main__":
    uvloop.run(
        _register(
            sys.argv[1],
            sys.argv[2].encode(),
            int(sys.argv[3]),
            float(sys.argv[4]),
            [RegistrarAddress.parse(registrar) for registrar in sys.argv[5:]],
        )
    )
