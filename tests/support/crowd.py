"""Many pool elements of one process, registered over one association: a program, and `Crowd` to start it.

python -m tests.support.crowd ADDRESS REGISTRAR HANDLE:FIRST:COUNT...
"""

import asyncio
import os
import signal
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

from rserpool import (
    ASAP,
    AsapMessage,
    AssociationUp,
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
from tests.support.namespaces import REPOSITORY, Namespace

REREGISTRATION_S = 2.0


class Crowd:
    """Elements of `pools`, by handle the first identifier and how many; they live until `kill()`."""

    def __init__(
        self,
        namespace: Namespace,
        folder: Path,
        address: str,
        registrar: str,
        pools: dict[str, tuple[int, int]],
    ) -> None:
        self.identifiers = {
            identifier for first, count in pools.values() for identifier in range(first, first + count)
        }
        self._process: subprocess.Popen[str] = namespace.start(
            *(sys.executable, "-m", "tests.support.crowd", address, registrar),
            *(f"{handle}:{first}:{count}" for handle, (first, count) in pools.items()),
            sctp=True,
            log=folder / "crowd.log",
            environment={"PYTHONPATH": str(REPOSITORY)},
        )

    def kill(self) -> None:
        """All die at once."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class _Program:
    def __init__(self, address: str, pools: list[tuple[str, int, int]]) -> None:
        self._messages = [
            Registration(handle.encode(), _element(identifier, address, identifier - first))
            for handle, first, count in pools
            for identifier in range(first, first + count)
        ]
        self._address = address
        self._association: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self, registrar: RegistrarAddress) -> None:
        sock = SctpSocket(local_addresses=[self._address])
        self._endpoint: MessageEndpoint[AsapMessage] = MessageEndpoint(
            ASAP,
            sock,
            on_message=self._answer,
            on_notification=self._notified,
            on_dead=lambda reason: sys.exit(reason),
        )
        self._endpoint.connect(registrar.endpoint)
        association = await self._association
        while True:
            for message in self._messages:
                self._endpoint.send(association, message)
            await asyncio.sleep(REREGISTRATION_S)

    def _notified(self, notification: Notification) -> None:
        if isinstance(notification, AssociationUp) and not self._association.done():
            self._association.set_result(notification.association)

    def _answer(self, association: int, message: AsapMessage, peer: tuple[str, int]) -> None:
        if isinstance(message, EndpointKeepAlive) and message.identifier is not None:
            self._endpoint.send(association, EndpointKeepAliveAck(message.handle, message.identifier))


def _element(identifier: int, address: str, number: int) -> PoolElement:
    transport = Transport(Protocol.UDP, 20000 + number, (ip_address(address),), False)
    return PoolElement(identifier, 0, int(3000 * REREGISTRATION_S), transport, LeastUsed(0.0), None)


async def _main(address: str, registrar: str, *pools: str) -> None:
    wanted = [
        (handle, int(first), int(count)) for handle, first, count in (pool.split(":") for pool in pools)
    ]
    await _Program(address, wanted).run(RegistrarAddress.parse(registrar))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
