"""Data channels with asyncio: an SCTP socket with its flows, and TCP connections passed through them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from rserpool.aio.driver import MessageCodec, MessageEndpoint
from rserpool.aio.sctp import (
    AssociationLost,
    AssociationRestarted,
    Notification,
    SctpSocket,
)
from rserpool.data_channel import (
    MAX_DATA_BYTES,
    PPID,
    ChannelFlow,
    DataMessage,
    DataMessageType,
    FlowBroken,
    decode,
    encode,
    way_of,
)
from rserpool.machine.base import SctpAddress

DATA: Final[MessageCodec[DataMessage]] = MessageCodec(PPID, encode, decode, way_of)
_Key = tuple[int, int]
FLUSH_S: Final = 30.0
"""The time that a program has to take the last bytes of a connection that ended in order."""


class DataChannels:
    """One SCTP socket with all its associations and flows. Raises SctpUnavailable, or OSError.

    `on_message` gets what belongs to no TCP flow that is up: OPEN and DATAGRAM. `on_change` is told what
    happens to associations, after their flows were told; `on_dead` is called when the socket itself failed.
    """

    def __init__(
        self,
        *,
        on_message: Callable[[int, DataMessage, SctpAddress], None],
        on_change: Callable[[Notification], None] = lambda notification: None,
        on_dead: Callable[[], None] = lambda: None,
        local_addresses: Sequence[str] = (),
        port: int = 0,
        ipv6: bool = False,
        listens: bool = False,
    ) -> None:
        self._on_message = on_message
        self._on_change = on_change
        self._on_dead = on_dead
        self._flows: dict[_Key, Passing] = {}
        sock = SctpSocket(local_addresses=local_addresses, port=port, ipv6=ipv6, listens=listens)
        self.endpoint = MessageEndpoint(
            DATA, sock, on_message=self._take, on_notification=self._changed, on_dead=self._dead
        )
        self.problem = ""
        """Why the socket failed; empty while it lives."""

    @property
    def flow_count(self) -> int:
        """TCP flows that are up."""
        return len(self._flows)

    def send(self, association: int, message: DataMessage) -> bool:
        """Send a message; False when there is no room for it."""
        return not self.endpoint.is_closed and self.endpoint.send(association, message)

    def end(self, association: int) -> None:
        """End an association and its flows at once."""
        self._break_flows(association)
        self.endpoint.abort_association(association)

    def close(self) -> None:
        """Close the socket, all associations and all flows."""
        for association in {association for association, _ in self._flows}:
            self._break_flows(association)
        self.endpoint.close()

    def begin(self, association: int, number: int) -> Passing:
        """A TCP flow begins. Messages that come for it wait until `Passing.run()`, which must follow."""
        passing = Passing(number, lambda message: self.send(association, message))
        self._flows[association, number] = passing
        passing.when_done = lambda: self._flows.pop((association, number), None)
        return passing

    def _take(self, association: int, message: DataMessage, peer: SctpAddress) -> None:
        passing = self._flows.get((association, message.flow))
        if passing is not None and message.type is not DataMessageType.DATAGRAM:
            passing.received(message)
        elif message.type in (DataMessageType.OPEN, DataMessageType.DATAGRAM):
            self._on_message(association, message, peer)

    def _changed(self, notification: Notification) -> None:
        if isinstance(notification, AssociationLost | AssociationRestarted):
            self._break_flows(notification.association)
        self._on_change(notification)

    def _break_flows(self, association: int) -> None:
        for (other, _), passing in list(self._flows.items()):
            if other == association:
                passing.break_off("the association ended")

    def _dead(self, reason: str) -> None:
        self.problem = reason
        for passing in list(self._flows.values()):
            passing.break_off(reason)
        self._on_dead()


class Passing:
    """A TCP connection and its flow."""

    def __init__(self, number: int, send: Callable[[DataMessage], bool]) -> None:
        self.when_done: Callable[[], object] = lambda: None
        self._send = send
        self._flow = ChannelFlow(number, self._send_or_break)
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._broken: FlowBroken | None = None
        self._task: asyncio.Future[list[None]] | None = None
        self._used_at_s = 0.0

    def received(self, message: DataMessage) -> None:
        """Take a message of this flow."""
        try:
            self._flow.received(message)
        except FlowBroken as problem:
            self._break(problem)
            return
        self._use()
        if self._flow.room:
            self._room.set()
        self._news.set()

    def break_off(self, words: str) -> None:
        """The other side can't be told any more."""
        self._break(FlowBroken(words, is_told=True))

    def refuse(self) -> None:
        """There is no connection for this flow."""
        self._break(FlowBroken("refused"))
        self._tell()

    async def run(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, idle_s: float | None = None
    ) -> None:
        """Pass the connection through the flow until both sides ended, or one broke; then it is closed.

        `idle_s`: the time for which nothing may pass; None: for ever.
        """
        self._use()
        watching = None if idle_s is None else asyncio.create_task(self._end_when_idle(idle_s))
        parts: list[asyncio.Task[None]] = []
        try:
            if self._broken is None:
                ways = (self._to_flow(reader), self._to_connection(writer))
                parts = [asyncio.create_task(way) for way in ways]
                self._task = asyncio.gather(*parts)
                await self._task
        except OSError as problem:
            self._break(FlowBroken(str(problem)))
        except asyncio.CancelledError:
            if self._broken is None:
                self._break(FlowBroken("cancelled"))
                raise
        finally:
            for task in (*parts, *((watching,) if watching is not None else ())):
                task.cancel()
            if self._broken is None:
                writer.close()
                # A program that reads nothing would keep what is left, and a descriptor.
                asyncio.get_running_loop().call_later(FLUSH_S, writer.transport.abort)
            else:
                writer.transport.abort()
            self._tell()

    def _use(self) -> None:
        self._used_at_s = asyncio.get_running_loop().time()

    async def _end_when_idle(self, idle_s: float) -> None:
        loop = asyncio.get_running_loop()
        while (left_s := self._used_at_s + idle_s - loop.time()) > 0:  # noqa: ASYNC110 - a time, not an event
            await asyncio.sleep(left_s)
        self._break(FlowBroken(f"nothing passed for {idle_s:g} s"))

    def _tell(self) -> None:
        """Tell the other side, unless it knows; the number is free again."""
        if self._broken is not None and not self._broken.is_told:
            self._send(DataMessage(DataMessageType.RESET, self._flow.number))
        self.when_done()

    async def _to_flow(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(MAX_DATA_BYTES):
            self._use()
            while data:
                await self._room.wait()
                sent, data = data[: self._flow.room], data[self._flow.room :]
                self._flow.push(sent)
                if not self._flow.room:
                    self._room.clear()
        self._flow.end()

    async def _to_connection(self, writer: asyncio.StreamWriter) -> None:
        while not (self._flow.has_ended and not self._flow.incoming):
            await self._news.wait()
            self._news.clear()
            if data := self._flow.take():
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()

    def _send_or_break(self, message: DataMessage) -> None:
        if not self._send(message):
            raise OSError("the association has no room")

    def _break(self, problem: FlowBroken) -> None:
        if self._broken is None:
            self._broken = problem
            if self._task is not None:
                self._task.cancel()
