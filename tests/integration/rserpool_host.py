"""What the scenarios with real registrars share: a client to each registrar, pool elements, and waiting."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from ipaddress import ip_address

from rserpool.aio.element import Event, EventKind, PoolElementClient
from rserpool.aio.user import RegistrarClient
from rserpool.errors import RSerPoolError
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.parameters import PoolElement, Protocol, Transport
from rserpool.policies import LeastUsed, Policy

from tests.support.waiting import until_async

IDENTIFIER = 0xA001
SECOND_ADDRESS = "10.66.1.1"
"""Another address of the host, for what is multihomed."""


@dataclass
class Host:
    """The registrars, a client to each, and the pool elements of a scenario."""

    address: str
    pids: list[int]
    registrars: list[RegistrarAddress] = field(default_factory=list)
    clients: dict[RegistrarAddress, RegistrarClient] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    elements: list[PoolElementClient] = field(default_factory=list)

    def pid(self, registrar: RegistrarAddress | None) -> int:
        assert registrar is not None
        return self.pids[self.registrars.index(registrar)]

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.events]

    def element(
        self,
        handle: bytes,
        *,
        identifier: int = IDENTIFIER,
        policy: Policy | None = None,
        transport: Transport | None = None,
        addresses: tuple[str, ...] = (),
        registrars: list[RegistrarAddress] | None = None,
        reregistration_ms: int = 2000,
        pinned: bool = False,
    ) -> PoolElementClient:
        """Start a pool element; UDP port 5060 of this host and half loaded, unless told otherwise."""
        udp = Transport(Protocol.UDP, 5060, (ip_address(self.address),))
        element = PoolElementClient(
            registrars or self.registrars,
            handle,
            PoolElement(identifier, 0, 3 * reregistration_ms, transport or udp, policy or LeastUsed(0.5)),
            local_addresses=addresses or (self.address,),
            reregistration_ms=reregistration_ms,
            pinned=pinned,
            on_event=self._note,
        )
        element.start()
        self.elements.append(element)
        return element

    def _note(self, event: Event) -> None:
        print(f"{event.at_s:.3f} {event.kind.value} {event.registrar} {event.detail}", flush=True)
        self.events.append(event)

    async def view(self, handle: bytes) -> dict[RegistrarAddress, list[PoolElement] | None]:
        """Return what each registrar lists; None for one that gives no answer."""
        found: dict[RegistrarAddress, list[PoolElement] | None] = {}
        for registrar, client in self.clients.items():
            try:
                found[registrar] = list((await client.resolve(handle)).pool_elements)
            except RSerPoolError:
                found[registrar] = None
        return found

    async def until_listed(
        self, handle: bytes, identifiers: set[int], *, by: int = 3, within_s: float = 5
    ) -> dict[RegistrarAddress, list[PoolElement] | None]:
        """Wait until `by` registrars list exactly these elements."""
        view: dict[RegistrarAddress, list[PoolElement] | None] = {}

        async def listed() -> bool:
            view.update(await self.view(handle))
            lists = [members for members in view.values() if members is not None]
            right = [members for members in lists if {each.identifier for each in members} == identifiers]
            return len(right) >= by

        await until_async(listed, within_s, lambda: f"{handle!r}: {view}")
        return view


@contextlib.asynccontextmanager
async def host(address: str, pids: list[int]) -> AsyncIterator[Host]:
    """Connect to every registrar; close all that a scenario started."""
    registrars = [RegistrarAddress(address, 3863 + i, 9901 + i) for i in range(len(pids))]
    here = Host(address, pids, registrars)
    for registrar in registrars:
        here.clients[registrar] = RegistrarClient(registrar, timeout_ms=500)
        here.clients[registrar].start()
    try:
        await until_async(lambda: all(client.is_up for client in here.clients.values()), 5)
        yield here
    finally:
        for element in here.elements:
            await element.close()
        for client in here.clients.values():
            await client.close()
