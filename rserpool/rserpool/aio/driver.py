"""The one driver of every machine, for asyncio: messages over an SCTP socket, one timer, and what it tells.

`Driver` tells a machine what the socket and the clock bring, and does what the machine asks for. It knows
which registrar an association is with (`machine.peer_identity`), and nothing of what any message means. It
stands on `MessageEndpoint` (messages over a socket in the event loop) and `DeadlineTimer`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from rserpool import asap, enrp
from rserpool.aio.sctp import (
    AssociationFailed,
    AssociationLost,
    AssociationRestarted,
    AssociationUp,
    Notification,
    PathChanged,
    SctpMessage,
    SctpSocket,
    SctpUnavailable,
)
from rserpool.asap import AsapMessage
from rserpool.data_channel import DataMessage
from rserpool.enrp import EnrpMessage
from rserpool.errors import DecodeError
from rserpool.machine.base import Close, CloseSocket, Connect, Machine, MachineAction, SctpAddress, Send
from rserpool.machine.peer_identity import PeerIdentities
from rserpool.rspregistrar import check_safe

_READS_IN_A_ROW = 64
_IN_A_ROW_S = 0.005
"""Messages that come within this time of each other are read in one go: twice as many each time."""
_TURN_S, _WAITING_TURN_S = 0.005, 0.1
"""Reading goes on for so long at most, then all else in the event loop has its turn: no sender without end
keeps others from being heard. The second is for what waits before time-outs are judged."""
_MOST_WAITING = 2048
"""Messages read before time-outs are judged; more than any registrar was asked for at once."""
MAX_QUEUED = 1024
"""Messages that wait for a full socket buffer; above it they are dropped, and time-outs do the rest."""
_KEPT, _MOST_KEPT_BYTES = 128, 1024
"""How many messages are kept in both forms, and the most bytes of each: the same are said again and again."""
_SAID_AGAIN = frozenset({asap.HandleResolution, asap.EndpointKeepAliveAck})

M = TypeVar("M", bound=AsapMessage | EnrpMessage | DataMessage)
E = TypeVar("E")
_Way = tuple[int, bool] | None


# The two protocols


@dataclass(frozen=True, slots=True)
class MessageCodec(Generic[M]):
    """How one protocol's messages travel; `encode` raises UnsafeMessageError for what must not be sent.

    `way` says of a message by which stream it goes, and whether unordered. Default: stream 0, in order.
    """

    ppid: int
    encode: Callable[[M], bytes]
    decode: Callable[[bytes], M]
    way: Callable[[M], tuple[int, bool]] | None = None


def _safe_asap(message: AsapMessage) -> bytes:
    check_safe(message)
    return asap.encode(message)


def _safe_enrp(message: EnrpMessage) -> bytes:
    check_safe(message)
    return enrp.encode(message)


_kept_bytes = lru_cache(_KEPT)(_safe_asap)
_kept_message = lru_cache(_KEPT)(asap.decode)


def _encode_asap(message: AsapMessage) -> bytes:
    return _kept_bytes(message) if type(message) in _SAID_AGAIN else _safe_asap(message)


def _decode_asap(data: bytes) -> AsapMessage:
    return _kept_message(data) if len(data) <= _MOST_KEPT_BYTES else asap.decode(data)


ASAP: MessageCodec[AsapMessage] = MessageCodec(asap.PPID, _encode_asap, _decode_asap)
ENRP: MessageCodec[EnrpMessage] = MessageCodec(enrp.PPID, _safe_enrp, enrp.decode)


# Messages over a socket


class MessageEndpoint(Generic[M]):
    """Sends and receives messages on an SCTP socket, from construction to `close`.

    `on_dead` is called with the reason when the socket itself fails; the endpoint is closed by then.
    """

    def __init__(
        self,
        codec: MessageCodec[M],
        sock: SctpSocket,
        *,
        on_message: Callable[[int, M, SctpAddress], None],
        on_notification: Callable[[Notification], None],
        on_dead: Callable[[str], None],
    ) -> None:
        self._codec = codec
        self._socket = sock
        self._on_message = on_message
        self._on_notification = on_notification
        self._on_dead = on_dead
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[int, bytes, _Way]] = deque()
        self._reads = 1
        self._readable_at_s = float("-inf")
        self._loop.add_reader(sock.fileno(), self._readable)

    @property
    def port(self) -> int:
        """The local SCTP port."""
        return self._socket.port

    @property
    def is_closed(self) -> bool:
        """True after `close`, and after the socket failed."""
        return self._socket.fileno() < 0

    def peers(self, association: int) -> list[SctpAddress]:
        """Return every address of the other side of an association."""
        return [] if self.is_closed else self._socket.peers(association)

    def is_confirmed(self, association: int, peer: SctpAddress) -> bool:
        """Whether the other side of an association has proved that it is at the address `peer`."""
        return not self.is_closed and self._socket.is_confirmed(association, peer)

    def locals(self, association: int) -> list[SctpAddress]:
        """Return every address of this side of an association."""
        return [] if self.is_closed else self._socket.locals(association)

    def connect(self, peer: SctpAddress) -> None:
        """Begin an association; raise OSError when it is clear at once that there will be none."""
        self._socket.connect(peer)

    def send(self, association: int, message: M) -> bool:
        """Send a message; raise UnsafeMessageError for one that must not be sent. False: there is no room.

        A message on an association that is gone vanishes: the notification of its end tells.
        """
        data = self._codec.encode(message)
        way = self._codec.way(message) if self._codec.way is not None else None
        if self._queue or not self._send_now(association, data, way):
            if not self._queue:
                self._loop.add_writer(self._socket.fileno(), self._writable)
            if len(self._queue) >= MAX_QUEUED:
                return False
            self._queue.append((association, data, way))
        return True

    def close_association(self, association: int) -> None:
        """Begin a graceful end of one association."""
        if not self.is_closed:
            self._socket.close_association(association)

    def abort_association(self, association: int) -> None:
        """End one association at once, whether its other side answers or not."""
        if not self.is_closed:
            self._socket.abort_association(association)

    def close(self) -> None:
        """Close the socket and every association."""
        if not self.is_closed:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._queue.clear()
            self._socket.close()

    def _send_now(self, association: int, data: bytes, way: _Way) -> bool:
        try:
            if way is None:
                self._socket.send(association, self._codec.ppid, data)
            else:
                self._socket.send(association, self._codec.ppid, data, way[0], unordered=way[1])
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _writable(self) -> None:
        while self._queue and self._send_now(*self._queue[0]):
            self._queue.popleft()
        if not self._queue:
            self._loop.remove_writer(self._socket.fileno())

    def read_waiting(self) -> None:
        """Read all that has arrived. To be called before somebody is found silent: a process that was kept
        busy for seconds would else take its own silence for that of others."""
        self._read(_MOST_WAITING, _WAITING_TURN_S)

    def _readable(self) -> None:
        # Mostly there is one message; to find out that there is no other costs as much as reading it.
        now = time.monotonic()
        is_burst = now - self._readable_at_s < _IN_A_ROW_S
        self._reads = min(_READS_IN_A_ROW, 2 * self._reads) if is_burst else 1
        self._readable_at_s = now
        self._read(self._reads, _TURN_S)

    def _read(self, most: int, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        for count in range(most):
            if self.is_closed or (count and time.monotonic() >= end_s):
                return
            try:
                received = self._socket.receive()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as problem:
                self.close()
                self._on_dead(str(problem))
                return
            if isinstance(received, SctpMessage):
                self._take(received)
            elif received is not None:
                if isinstance(received, AssociationLost):
                    self._socket.forget(received.association)
                self._on_notification(received)

    def _take(self, received: SctpMessage) -> None:
        """Take a message; drop it if it is of another protocol, or can't be read."""
        if received.ppid != self._codec.ppid:
            return
        try:
            message = self._codec.decode(received.data)
        except DecodeError:
            return
        self._on_message(received.association, message, received.peer)


# Time


class DeadlineTimer:
    """Calls `callback` at a deadline on the monotonic clock that may move; possibly a little early."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._fires_at_s = 0.0

    def set(self, deadline_s: float | None) -> None:
        """Move the deadline; None: there is none. A timer that fires too early does no harm, and stays."""
        if self._handle and (deadline_s is None or deadline_s < self._fires_at_s):
            self._handle.cancel()
            self._handle = None
        if deadline_s is not None and self._handle is None:
            self._fires_at_s = deadline_s
            delay_s = max(0.0, deadline_s - time.monotonic())
            self._handle = self._loop.call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._callback()


# A machine on a socket

UNKNOWN: SctpAddress = ("", 0)
"""Stands for the other side of an association that ended before it was asked for."""


class Driver(Generic[M, E]):
    """Runs `machine` on one SCTP socket, and calls `on_event` with what it tells; that must not raise.

    `registrars` are the endpoints that the machine may want to reach, `local_addresses` the IP addresses to
    speak from (default: the system's choice). `listens`: others may set up associations too; such an
    association counts as a registrar's only when it is proved to be. `reply` gives what is owed to any sender
    of a message, proved or not. `on_open` is called with the port of every socket that is opened,
    `on_unopened` with the reason when one can't be opened to connect with; without it, that counts as a
    failure to connect. After every input that the owner gives to the machine it calls `run`.
    """

    def __init__(
        self,
        machine: Machine[M, E],
        codec: MessageCodec[M],
        on_event: Callable[[E], None],
        *,
        registrars: Iterable[SctpAddress],
        local_addresses: Sequence[str] = (),
        listens: bool = True,
        reply: Callable[[M], M | None] = lambda message: None,
        on_open: Callable[[int], None] = lambda port: None,
        on_unopened: Callable[[str], None] | None = None,
    ) -> None:
        registrars = tuple(registrars)
        self._machine = machine
        self._codec = codec
        self._on_event = on_event
        self._local_addresses = tuple(local_addresses)
        self._ipv6 = any(":" in host for host in (*local_addresses, *(host for host, _ in registrars)))
        self._listens = listens
        self._reply = reply
        self._on_open = on_open
        self._on_unopened = on_unopened
        # A socket that does not listen has no associations but those that this side began: nothing to prove.
        self._identities: PeerIdentities[M] = PeerIdentities(registrars if listens else ())
        self._associations: set[int] = set()
        self._endpoint: MessageEndpoint[M] | None = None
        self._timer: DeadlineTimer | None = None
        self._is_running = False

    def start(self, *, opens: bool = True) -> None:
        """Begin; must run in an event loop. Raise SctpUnavailable where there is no SCTP.

        `opens`: open the socket now, and raise OSError when an address can't be bound; otherwise it is opened
        with the first association.
        """
        if not opens:
            SctpSocket(ipv6=self._ipv6).close()
        elif self._endpoint is None:
            self._open()

    @property
    def port(self) -> int:
        """The SCTP port of the socket, 0 while there is none."""
        return self._endpoint.port if self._endpoint else 0

    def set_registrars(self, registrars: Iterable[SctpAddress]) -> None:
        """These are the registrars from now on."""
        registrars = frozenset(registrars)
        self._identities.registrars = registrars
        self._ipv6 = any(":" in host for host in (*self._local_addresses, *(host for host, _ in registrars)))

    def run(self) -> None:
        """Do what the machine asks for; doing it may ask for more."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while actions := self._machine.take_actions():
                for action in actions:
                    self._do(action)
        finally:
            self._is_running = False
        deadline_s, proof_s = self._machine.next_deadline_s, self._identities.next_deadline_s
        if deadline_s is None or (proof_s is not None and proof_s < deadline_s):
            deadline_s = proof_s
        if self._timer is None and deadline_s is not None:
            self._timer = DeadlineTimer(self._advance)
        if self._timer is not None:
            self._timer.set(deadline_s)

    # Actions of the machine

    def _do(self, action: MachineAction[M, E]) -> None:
        match action:
            case Connect(peer):
                self._connect(peer)
            case Send(association, message):
                if self._endpoint:
                    self._endpoint.send(association, message)
            case Close(association):
                if self._endpoint:
                    self._endpoint.close_association(association)
            case CloseSocket():
                self._close()
            case event:
                self._on_event(event)

    def _open(self) -> MessageEndpoint[M]:
        sock = SctpSocket(local_addresses=self._local_addresses, ipv6=self._ipv6, listens=self._listens)
        self._endpoint = MessageEndpoint(
            self._codec,
            sock,
            on_message=self._message,
            on_notification=self._notification,
            on_dead=self._dead,
        )
        self._on_open(self._endpoint.port)
        return self._endpoint

    def _connect(self, peer: SctpAddress) -> None:
        """Begin an association, after ending those that only claim the other side's address."""
        try:
            endpoint = self._endpoint or self._open()
        except (OSError, SctpUnavailable) as problem:
            if self._on_unopened is None:
                self._machine.connect_failed(peer, time.monotonic(), str(problem))
            else:
                self._on_unopened(getattr(problem, "strerror", None) or str(problem))
            return
        try:
            for pretender in self._identities.pretenders(endpoint, tuple(self._associations), peer):
                self._abort(pretender, f"it claims to be at {peer[0]} port {peer[1]}, which is to be reached")
            endpoint.connect(peer)
        except OSError as problem:
            self._machine.connect_failed(peer, time.monotonic(), str(problem))

    def _close(self) -> None:
        for association in self._associations:
            self._identities.release(association)
        self._associations.clear()
        if self._endpoint:
            self._endpoint.close()
        self._endpoint = None

    # Events of the socket and the clock

    def _message(self, association: int, message: M, _source: SctpAddress) -> None:
        if association not in self._associations:
            self._up(association, None)  # its notification is missing
        if self._endpoint and (reply := self._reply(message)):
            self._endpoint.send(association, reply)
        if self._identities.is_held(association):
            self._identities.keep(association, message)
        else:
            self._machine.received(association, message, time.monotonic())
        self.run()

    def _notification(self, notification: Notification) -> None:
        match notification:
            case AssociationUp(association, peer):
                self._up(association, peer)
            case AssociationRestarted(association, peer):
                self._down(association, "the registrar started anew")
                self._up(association, peer)
            case PathChanged(association) if self._identities.is_held(association):
                self._up(association, None)
            case AssociationLost(association, _, reason):
                self._down(association, reason)
            case AssociationFailed(_, peer):
                self._machine.connect_failed(peer, time.monotonic(), "no answer, or refused")
        self.run()

    def _dead(self, reason: str) -> None:
        self._endpoint = None
        for association in tuple(self._associations):
            self._down(association, f"the SCTP socket failed: {reason}")
        self.run()

    def _advance(self) -> None:
        if self._endpoint:
            self._endpoint.read_waiting()
        now = time.monotonic()
        for association in self._identities.due(now):
            self._abort(association, "it did not prove a registrar's address")
        self._machine.advance(now)
        self.run()

    # Associations

    def _up(self, association: int, primary: SctpAddress | None) -> None:
        """Introduce the other side by the address that is configured, should it have several; as long as a
        registrar's address is only claimed, not at all."""
        if self._endpoint is None:
            return
        self._associations.add(association)
        now = time.monotonic()
        registrar = self._identities.registrar(self._endpoint, association, primary)
        if registrar is None and self._identities.hold(self._endpoint, association, now):
            return
        local = [(host, self._endpoint.port) for host, _ in self._endpoint.locals(association)]
        self._machine.associated(association, registrar or primary or UNKNOWN, now, local)
        for message in self._identities.release(association):
            self._machine.received(association, message, now)

    def _down(self, association: int, reason: str) -> None:
        self._associations.discard(association)
        self._identities.release(association)
        self._machine.lost(association, time.monotonic(), reason)

    def _abort(self, association: int, reason: str) -> None:
        """End an association that claims a registrar's address without proof."""
        if self._endpoint:
            self._endpoint.abort_association(association)
        self._down(association, reason)
