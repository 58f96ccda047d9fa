"""A registrar that lies: a sentinel like any other, a handle table of tens of thousands of pool elements that
nobody has, and a flood of updates.

    python -m rspdns_lab.bench.lying_registrar ADDRESS NUMBER HANDLE TABLE PER_S FIRST_NETWORK

NUMBER is that of its sentinel. TABLE elements of the pool HANDLE are in each handle table, at addresses from
FIRST_NETWORK on; PER_S updates a second are pushed to whoever follows it, each about another element. Writes
"sent N" once a second.
"""

import asyncio
import sys
import time
from ipaddress import IPv4Address

import uvloop

from rserpool import (
    ASAP,
    ENRP,
    MOST_RESOLVED,
    AssociationLost,
    AssociationUp,
    Cause,
    CauseCode,
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
    SctpSocket,
    ServerInformation,
    Transport,
    UpdateAction,
    asap,
    enrp,
    sentinel_handle,
)

_IDENTIFIER = 0x0BADBAD0
_PAGE = 400
_TURN_S = 0.01
_PRESENCE_S = 1.0


class LyingRegistrar:
    """Its two sockets."""

    def __init__(self, own: str, number: int, handle: bytes, table: int, first: IPv4Address) -> None:
        self._own, self._number, self._handle, self._table, self._first = own, number, handle, table, first
        self._followers: dict[int, int] = {}
        """By association, the next element of its handle table."""
        self.sent = 0
        self._asap = MessageEndpoint(
            ASAP,
            SctpSocket(local_addresses=(own,), port=asap.PORT, listens=True),
            on_message=self._asked,
            on_notification=lambda notification: None,
            on_dead=sys.exit,
        )
        self._enrp = MessageEndpoint(
            ENRP,
            SctpSocket(local_addresses=(own,), port=enrp.PORT, listens=True),
            on_message=self._told,
            on_notification=self._happened,
            on_dead=sys.exit,
        )

    def _element(self, number: int) -> PoolElement:
        transport = Transport(Protocol.UDP, 5060, (self._first + number % 60_000,))
        return PoolElement(0x02000000 + number, _IDENTIFIER, 6000, transport, LeastUsed(0.1))

    def _asked(self, association: int, message: asap.AsapMessage, _peer: tuple[str, int]) -> None:
        if not isinstance(message, HandleResolution):
            return
        elements: tuple[PoolElement, ...] = ()
        if message.handle == sentinel_handle(self._number).encode():
            transport = Transport(Protocol.SCTP, 1024, (IPv4Address(self._own),))
            elements = (PoolElement(0x51, _IDENTIFIER, 6000, transport, LeastUsed(0.0)),)
        elif message.handle == self._handle:
            elements = tuple(map(self._element, range(MOST_RESOLVED)))
        error = () if elements else (Cause(CauseCode.UNKNOWN_POOL_HANDLE, message.handle),)
        policy = LeastUsed(0.0) if elements else None
        self._asap.send(association, HandleResolutionResponse(message.handle, policy, elements, error))

    def _told(self, association: int, message: enrp.EnrpMessage, _peer: tuple[str, int]) -> None:
        if isinstance(message, Presence):
            self._followers.setdefault(association, 0)
            if message.reply_required:
                self._be_present(association)
        elif isinstance(message, HandleTableRequest):
            first = self._followers.get(association, 0)
            numbers = range(first, min(first + _PAGE, self._table))
            is_last = numbers.stop >= self._table
            self._followers[association] = 0 if is_last else numbers.stop
            entry = PoolEntry(self._handle, tuple(map(self._element, numbers)))
            self._enrp.send(
                association,
                HandleTableResponse(_IDENTIFIER, message.sender, (entry,), more_to_send=not is_last),
            )

    def _happened(self, notification: Notification) -> None:
        if isinstance(notification, AssociationLost):
            self._followers.pop(notification.association, None)
        elif isinstance(notification, AssociationUp):
            self._be_present(notification.association)

    def _be_present(self, association: int) -> None:
        server = ServerInformation(
            _IDENTIFIER, Transport(Protocol.SCTP, enrp.PORT, (IPv4Address(self._own),))
        )
        self._enrp.send(association, Presence(_IDENTIFIER, 0, 0x1234, server))

    async def flood(self, per_s: float) -> None:
        """Push without end."""
        began_s = told_s = present_s = time.monotonic()
        number = 0
        while True:
            await asyncio.sleep(_TURN_S)
            now = time.monotonic()
            due = int((now - began_s) * per_s)
            for association in tuple(self._followers):
                for one in range(number, due):
                    element = self._element(self._table + one)
                    update = HandleUpdate(_IDENTIFIER, 0, UpdateAction.ADD, self._handle, element)
                    self._enrp.send(association, update)
                    self.sent += 1
            number = due
            if now >= present_s + _PRESENCE_S:
                present_s = now
                for association in tuple(self._followers):
                    self._be_present(association)
            if now >= told_s + 1:
                told_s = now
                print(f"sent {self.sent} to {len(self._followers)}", flush=True)


async def _lie(own: str, number: int, handle: str, table: int, per_s: float, first: str) -> None:
    await LyingRegistrar(own, number, handle.encode(), table, IPv4Address(first)).flood(per_s)


if __name__ == "__main__":
    uvloop.run(
        _lie(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), sys.argv[6])
    )
