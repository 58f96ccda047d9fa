"""A registrar that lies: a sentinel like any other, and whatever handlespace it was told to invent.

    python -m rspdns_lab.chain.lying_registrar flood ADDRESS NUMBER HANDLE TABLE PER_S FIRST_NETWORK
    python -m rspdns_lab.chain.lying_registrar deny ADDRESS NUMBER HONEST VICTIM INVENTED HANDLE ...
    python -m rspdns_lab.chain.lying_registrar KIND ADDRESS NUMBER HANDLE INVENTED HONEST ...

ADDRESS and HONEST are HOST or HOST:ASAP_PORT/ENRP_PORT. NUMBER is
that of its sentinel. `flood`: TABLE elements of the pool HANDLE are in each handle table, at
addresses from FIRST_NETWORK on, which nobody has. PER_S updates a second are pushed to all followers, each
about another element. `deny`: the pools are those of the registrar HONEST without the elements at the address
VICTIM, and with others at the address INVENTED. Ten times a second all followers, registrars as well, are
told that it is the home of the former, and that they have left.

Each KIND is a lie about all that the other registrars own, ten times a second. `takeover`: it has taken
all of them over, and lists none of it. `steal`: it is the home of each element, sentinels too, and each has
left. `steal-address`: it is the home of each element of the pool HANDLE, which is in turn at INVENTED and at
192.0.2.66, which no pool accepts, port 6666. `ghosts`: five more elements in the pool HANDLE, at INVENTED and
that port, that another registrar is home of.

Each writes "sent N to FOLLOWERS" once a second.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address

import uvloop

from rserpool import (
    ASAP,
    ENRP,
    MOST_RESOLVED,
    AssociationLost,
    AssociationUp,
    CauseCode,
    ErrorCause,
    HandleResolution,
    HandleResolutionResponse,
    HandleTableRequest,
    HandleTableResponse,
    HandleUpdate,
    LeastUsed,
    MessageEndpoint,
    Notification,
    PoolElement,
    PoolEntry,
    Presence,
    Protocol,
    RegistrarAddress,
    RegistrarClient,
    SctpSocket,
    ServerInformation,
    Transport,
    UpdateAction,
    asap,
    enrp,
    sentinel_handle,
)

_IDENTIFIERS = 0x0BADBAD0
"""The identifier of the registrar whose sentinel is number 0."""
_PAGE = 400
_TURN_S = 0.01
_FOREIGN = "192.0.2.66"
"""An address that no pool accepts (RFC 5737)."""
_DENY_EVERY_S = 0.1
_GHOSTS_AT_ONCE = 5
_PRESENCE_S = 1.0
_LIFE_MS = 6000
_PATIENCE_S = 30.0
Update = tuple[UpdateAction, bytes, PoolElement]


class LyingRegistrar:
    """Its two sockets. `pools`: what it answers, and what is in its handle table."""

    def __init__(
        self,
        own: str,
        number: int,
        pools: Mapping[bytes, Sequence[PoolElement]],
        honest: Sequence[RegistrarAddress] = (),
    ) -> None:
        address = RegistrarAddress.parse(own)
        self._own, self._enrp_port = address.host, address.enrp_port
        self._number = number
        self._honest = {(registrar.host, registrar.enrp_port) for registrar in honest}
        self.others: set[int] = set()
        """The identifiers of the honest registrars that are here."""
        self.victims: dict[tuple[bytes, int], PoolElement] = {}
        """The elements that the honest registrars own by their own word, by handle and identifier."""
        self._identifier = _IDENTIFIERS + number
        transport = Transport(Protocol.SCTP, 1024, (IPv4Address(self._own),))
        sentinel = PoolElement(0x51, self._identifier, _LIFE_MS, transport, LeastUsed(0.0))
        self._pools = {sentinel_handle(number).encode(): (sentinel,), **pools}
        self._followers: dict[int, int] = {}
        """By association, the next element of its handle table."""
        self._presence_s = self._told_s = time.monotonic()
        self.sent = 0
        self._asap = MessageEndpoint(
            ASAP,
            SctpSocket(local_addresses=(self._own,), port=address.asap_port, listens=True),
            on_message=self._asked,
            on_notification=lambda notification: None,
            on_dead=sys.exit,
        )
        self._enrp = MessageEndpoint(
            ENRP,
            SctpSocket(local_addresses=(self._own,), port=address.enrp_port, listens=True),
            on_message=self._received,
            on_notification=self._happened,
            on_dead=sys.exit,
        )

    @property
    def identifier(self) -> int:
        """Its identifier."""
        return self._identifier

    def take_over(self) -> None:
        """Tell every follower that it has taken all other registrars over."""
        for association in tuple(self._followers):
            for target in self.others:
                self._enrp.send(association, enrp.TakeoverServer(self._identifier, 0, target))

    def push(self, updates: Sequence[Update]) -> None:
        """Tell every follower these; and, once a second, that it is there."""
        for association in tuple(self._followers):
            for action, handle, element in updates:
                self._enrp.send(association, HandleUpdate(self._identifier, 0, action, handle, element))
                self.sent += 1
        now = time.monotonic()
        if now >= self._presence_s + _PRESENCE_S:
            self._presence_s = now
            for association in tuple(self._followers):
                self._be_present(association)
        if now >= self._told_s + 1:
            self._told_s = now
            print(f"sent {self.sent} to {len(self._followers)}", flush=True)

    def _asked(self, association: int, message: asap.AsapMessage, _peer: tuple[str, int]) -> None:
        if not isinstance(message, HandleResolution):
            return
        elements = tuple(self._pools.get(message.handle, ())[:MOST_RESOLVED])
        error = () if elements else (ErrorCause(CauseCode.UNKNOWN_POOL_HANDLE, message.handle),)
        policy = LeastUsed(0.0) if elements else None
        self._asap.send(association, HandleResolutionResponse(message.handle, policy, elements, error))

    def _received(self, association: int, message: enrp.EnrpMessage, peer: tuple[str, int]) -> None:
        if isinstance(message, Presence):
            if peer in self._honest:
                self.others.add(message.sender)
            self._followers.setdefault(association, 0)
            if message.reply_required:
                self._be_present(association)
        elif isinstance(message, HandleUpdate) and message.sender in self.others:
            if message.action is UpdateAction.ADD:
                key = message.handle, message.pool_element.identifier
                self.victims[key] = message.pool_element
        elif isinstance(message, HandleTableRequest):
            first = self._followers.get(association, 0)
            entries, is_last = self._page(first)
            self._followers[association] = 0 if is_last else first + _PAGE
            self._enrp.send(
                association,
                HandleTableResponse(self._identifier, message.sender, entries, more_to_send=not is_last),
            )

    def _page(self, first: int) -> tuple[tuple[PoolEntry, ...], bool]:
        """Up to a page of all elements, counted over all pools; whether it is the last."""
        entries = []
        skipped, left = first, _PAGE
        for handle, elements in self._pools.items():
            chosen = tuple(elements[skipped : skipped + left])
            skipped, left = max(0, skipped - len(elements)), left - len(chosen)
            if chosen:
                entries.append(PoolEntry(handle, chosen))
        return tuple(entries), first + _PAGE >= sum(map(len, self._pools.values()))

    def _happened(self, notification: Notification) -> None:
        if isinstance(notification, AssociationLost):
            self._followers.pop(notification.association, None)
        elif isinstance(notification, AssociationUp):
            self._be_present(notification.association)

    def _be_present(self, association: int) -> None:
        server = ServerInformation(
            self._identifier, Transport(Protocol.SCTP, self._enrp_port, (IPv4Address(self._own),))
        )
        self._enrp.send(association, Presence(self._identifier, 0, 0x1234, server))


class _Invented(Sequence[PoolElement]):
    """A number of elements, each made when it is looked at."""

    def __init__(self, count: int, first: IPv4Address, home: int) -> None:
        self._numbers = range(count)
        self._first = first
        self._home = home

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int | slice) -> PoolElement | tuple[PoolElement, ...]:  # type: ignore[override]
        if isinstance(index, slice):
            return tuple(map(self.element, self._numbers[index]))
        return self.element(self._numbers[index])

    def element(self, number: int) -> PoolElement:
        """The element of any number, whether it is one of them or not."""
        transport = Transport(Protocol.UDP, 5060, (self._first + number % 60_000,))
        return PoolElement(0x02000000 + number, self._home, _LIFE_MS, transport, LeastUsed(0.1))


async def _flood(own: str, number: str, handle: str, table: str, per_s: str, first: str) -> None:
    invented = _Invented(int(table), IPv4Address(first), _IDENTIFIERS + int(number))
    liar = LyingRegistrar(own, int(number), {handle.encode(): invented})
    began_s = time.monotonic()
    done = 0
    while True:
        await asyncio.sleep(_TURN_S)
        due = int((time.monotonic() - began_s) * float(per_s))
        each = (invented.element(len(invented) + index) for index in range(done, due))
        liar.push([(UpdateAction.ADD, handle.encode(), element) for element in each])
        done = due


async def _deny(own: str, number: str, honest: str, victim: str, invented: str, *handles: str) -> None:
    true = {handle.encode(): await _elements(honest, handle.encode()) for handle in handles}
    home = _IDENTIFIERS + int(number)
    pools = {handle: list(_denying(elements, victim, invented, home)) for handle, elements in true.items()}
    liar = LyingRegistrar(own, int(number), pools)
    denials = [
        (action, handle, replace(element, home_registrar=home))
        for handle, elements in true.items()
        for element in elements
        if _is_at(element, victim)
        for action in (UpdateAction.ADD, UpdateAction.DELETE)
    ]
    while True:
        await asyncio.sleep(_DENY_EVERY_S)
        liar.push(denials)


async def _lie(kind: str, own: str, number: str, handle: str, invented: str, *honest: str) -> None:
    liar = LyingRegistrar(own, int(number), {}, [RegistrarAddress.parse(text) for text in honest])
    ghosts = itertools.count(1)
    addresses = itertools.cycle((invented, _FOREIGN))
    while True:
        await asyncio.sleep(_DENY_EVERY_S)
        if kind == "takeover":
            liar.take_over()
            liar.push([])
        elif kind == "steal":
            stolen = [
                (pool, replace(element, home_registrar=liar.identifier))
                for (pool, _), element in liar.victims.items()
            ]
            liar.push([(UpdateAction.ADD, pool, element) for pool, element in stolen])
            liar.push([(UpdateAction.DELETE, pool, element) for pool, element in stolen])
        elif kind == "steal-address":
            address = next(addresses)
            moved = [
                replace(_ghost(element, identifier, address), home_registrar=liar.identifier)
                for (pool, identifier), element in liar.victims.items()
                if pool == handle.encode()
            ]
            liar.push([(UpdateAction.ADD, handle.encode(), element) for element in moved])
        else:
            of_pool = [element for (pool, _), element in liar.victims.items() if pool == handle.encode()]
            identifiers = itertools.islice(ghosts, _GHOSTS_AT_ONCE if of_pool else 0)
            made = [_ghost(of_pool[0], identifier, invented) for identifier in identifiers]
            liar.push([(UpdateAction.ADD, handle.encode(), ghost) for ghost in made])


def _ghost(like: PoolElement, identifier: int, invented: str) -> PoolElement:
    transport = replace(like.user_transport, port=6666, addresses=(IPv4Address(invented),))
    return replace(like, identifier=identifier, user_transport=transport)


async def _elements(registrar: str, handle: bytes) -> tuple[PoolElement, ...]:
    client = RegistrarClient(RegistrarAddress.parse(registrar), timeout_ms=5000)
    client.start()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await client.connected()
            return (await client.resolve(handle)).pool_elements
    finally:
        await client.close()


def _is_at(element: PoolElement, address: str) -> bool:
    return IPv4Address(address) in element.user_transport.addresses


def _denying(elements: Sequence[PoolElement], victim: str, invented: str, home: int) -> Iterator[PoolElement]:
    """All but the victim's, which are said to be somewhere else."""
    for element in elements:
        if _is_at(element, victim):
            transport = replace(element.user_transport, addresses=(IPv4Address(invented),))
            yield replace(
                element,
                identifier=element.identifier ^ 1,
                home_registrar=home,
                user_transport=transport,
            )
        else:
            yield element


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    match command:
        case "flood":
            uvloop.run(_flood(*words))
        case "deny":
            uvloop.run(_deny(*words))
        case _:
            uvloop.run(_lie(command, *words))
