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
all of them over, a hundred times a second, and lists none of it. `steal`: it is the home of each element,
sentinels too, and each has left. `steal-address`: it is the home of each element of the pool HANDLE, which is
in turn at INVENTED and at 192.0.2.66, which no pool accepts, port 6666. `ghosts`: five more elements in the
pool HANDLE, at INVENTED and that port, that another registrar is home of. `orphans`: the same, of a home that
nobody knows. `leave:FILE`: each element of the keyed pool HANDLE leaves, as its sidecar said at the end of an
earlier stay; FILE is the pool's key. `quiet`: nothing. `home`: it is the home of what registers with it, as a
true registrar. `disown`: it goes on confirming these registrations, and tells that each of them has left.
`KIND/PER_S`: so many times a second instead. `@FILE`: what this file says, which may change at any time.

Each writes "sent N to FOLLOWERS" once a second.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

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
    RegistrationResponse,
    SctpSocket,
    ServerInformation,
    Transport,
    UpdateAction,
    asap,
    enrp,
    read_pool_keys,
    sentinel_handle,
)

_IDENTIFIERS = 0x0BADBAD0
"""The identifier of the registrar whose sentinel is number 0."""
_PAGE = 400
_TURN_S = 0.01
_FOREIGN = "192.0.2.66"
"""An address that no pool accepts (RFC 5737)."""
_DENY_EVERY_S = 0.1
_TAKE_OVER_EVERY_S = 0.01
"""Shorter than polls are apart: most of them see none of the sidecars' renewals."""
_GHOSTS_AT_ONCE = 5
_UNKNOWN_HOME = 0x0BADF00D
_PRESENCE_S = 1.0
_LIFE_MS = 6000
_PATIENCE_S = 30.0
PushedUpdate = tuple[UpdateAction, bytes, PoolElement]


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
        self.is_home = False
        """Whether it takes registrations."""
        self.disowns = False
        """Whether it denies what it has taken."""
        self._children: dict[tuple[bytes, int], PoolElement] = {}
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

    def push(self, updates: Sequence[PushedUpdate]) -> None:
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

    def disown(self) -> None:
        """Tell every follower that its own elements have left."""
        self.push([(UpdateAction.DELETE, handle, child) for (handle, _), child in self._children.items()])

    def _asked(self, association: int, message: asap.AsapMessage, peer: tuple[str, int]) -> None:
        match message:
            case HandleResolution():
                elements = tuple(self._listed(message.handle)[:MOST_RESOLVED])
                error = () if elements else (ErrorCause(CauseCode.UNKNOWN_POOL_HANDLE, message.handle),)
                policy = LeastUsed(0.0) if elements else None
                answer = HandleResolutionResponse(message.handle, policy, elements, error)
                self._asap.send(association, answer)
            case asap.Registration() if self.is_home:
                handle, element = message.handle, message.pool_element
                transport = Transport(Protocol.SCTP, peer[1], (IPv4Address(peer[0]),))
                child = replace(element, home_registrar=self._identifier, asap_transport=transport)
                self._children[handle, element.identifier] = child
                self._asap.send(association, RegistrationResponse(handle, element.identifier))
                if not self.disowns:
                    self.push([(UpdateAction.ADD, handle, child)])

    def _listed(self, handle: bytes) -> Sequence[PoolElement]:
        """The elements of a pool that it tells of."""
        invented = self._pools.get(handle, ())
        if not self.is_home or self.disowns:
            return invented
        return (*invented, *(child for (pool, _), child in self._children.items() if pool == handle))

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
        handles = dict.fromkeys((*self._pools, *(handle for handle, _ in self._children)))
        pools = {handle: self._listed(handle) for handle in handles}
        for handle, elements in pools.items():
            chosen = tuple(elements[skipped : skipped + left])
            skipped, left = max(0, skipped - len(elements)), left - len(chosen)
            if chosen:
                entries.append(PoolEntry(handle, chosen))
        return tuple(entries), first + _PAGE >= sum(map(len, pools.values()))

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


async def lie(kind: str, own: str, number: str, handle: str, invented: str, *honest: str) -> None:
    """Lie for ever; the words are those of the command above."""
    liar = LyingRegistrar(own, int(number), {}, [RegistrarAddress.parse(text) for text in honest])
    source = Path(kind[1:]) if kind.startswith("@") else None
    ghosts = itertools.count(1)
    addresses = itertools.cycle((invented, _FOREIGN))
    every_s = _DENY_EVERY_S
    while True:
        await asyncio.sleep(every_s)
        lie, _, key = (kind if source is None else source.read_text()).partition(":")
        name, _, per_s = lie.partition("/")
        every_s = _TAKE_OVER_EVERY_S if name == "takeover" else _DENY_EVERY_S
        if per_s:
            every_s = 1 / float(per_s)
        add, pool = UpdateAction.ADD, handle.encode()
        of_pool = [element for (where, _), element in liar.victims.items() if where == pool]
        lies: list[PushedUpdate] = []
        liar.is_home, liar.disowns = name in ("home", "disown"), name == "disown"
        match name:
            case "disown":
                liar.disown()
            case "takeover":
                liar.take_over()
            case "steal":
                stolen = [
                    (where, replace(element, home_registrar=liar.identifier))
                    for (where, _), element in liar.victims.items()
                ]
                lies = [(add, where, element) for where, element in stolen]
                lies += [(UpdateAction.DELETE, where, element) for where, element in stolen]
            case "steal-address":
                address = next(addresses)
                moved = [_ghost(element, element.identifier, address) for element in of_pool]
                lies = [(add, pool, replace(element, home_registrar=liar.identifier)) for element in moved]
            case "ghosts" | "orphans":
                identifiers = itertools.islice(ghosts, _GHOSTS_AT_ONCE if of_pool else 0)
                made = [_ghost(of_pool[0], identifier, invented) for identifier in identifiers]
                if name == "orphans":
                    made = [replace(element, home_registrar=_UNKNOWN_HOME) for element in made]
                lies = [(add, pool, element) for element in made]
            case "leave":
                words = [_farewell(element, pool, Path(key)) for element in of_pool]
                lies = [(add, pool, replace(word, home_registrar=liar.identifier)) for word in words]
        liar.push(lies)


def _farewell(element: PoolElement, pool: bytes, key: Path) -> PoolElement:
    """The word that the element leaves; a registrar that lies has kept it since an earlier stay."""
    transport = element.user_transport
    server = read_pool_keys(key.read_text())[0].server_key(
        transport.protocol, transport.addresses[0], transport.port
    )
    return replace(element, identifier=server.leaving(pool, element.identifier))


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
            uvloop.run(lie(command, *words))
