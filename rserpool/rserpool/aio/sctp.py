"""A one-to-many SCTP socket, thinly wrapped: the same on kernel SCTP and where `sctp-run` provides it.

Nothing here blocks. `receive` gives one message or one thing that happened to an association at a time.
Numbers and layouts are those of the SCTP socket API on Linux (linux/sctp.h; RFC 6458)."""

import contextlib
import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_address

from rserpool.errors import RSerPoolError
from rserpool.machine.base import SctpAddress

IPPROTO_SCTP = 132
SOL_SCTP = 132

RTOINFO = 0
INITMSG = 2
NODELAY = 3
PEER_ADDR_PARAMS = 9
EVENTS = 11
GET_PEER_ADDR_INFO = 15
DELAYED_SACK = 16
RECVRCVINFO = 32
BINDX_ADD = 100
GET_PEER_ADDRS = 108
GET_LOCAL_ADDRS = 109

SNDINFO = 2
RCVINFO = 3
FLAG_UNORDERED = 0x0001
FLAG_ABORT = 0x0004
FLAG_EOF = 0x0200
MSG_NOTIFICATION = 0x8000

_RTOINFO = struct.Struct("=iIII")
_INITMSG = struct.Struct("=HHHH")
_DELAYED_SACK = struct.Struct("=iII")
# association, address, heartbeat interval, pathmaxrxt, path MTU, SACK delay, flags, flow label, DSCP
_PEER_ADDR_PARAMS = struct.Struct("=i128sIHIIIIBx")
_HEARTBEAT_ENABLE = 1
# association, address, state, congestion window, smoothed round trip, RTO, path MTU
_PEER_ADDR_INFO = struct.Struct("=i128siIIII")
_STATES_OF_CONFIRMED_PATHS = frozenset({0, 1, 2})
"""Inactive, potentially failed, active; 3 is unconfirmed, 0xffff unknown."""
_SNDINFO = struct.Struct("=HHIIi")
_RCVINFO = struct.Struct("=HHHxxIIIIi")
RCVINFO_BYTES = _RCVINFO.size


@dataclass(frozen=True, slots=True)
class Timers:
    """SCTP's timers, in ms: for a network of milliseconds, while the kernel's are for the whole world.

    With the kernel's own (1 s at least before a lost packet is repeated) a registrar's keep-alives time out
    after a single lost packet. The SACK delay must stay below the smallest repetition time.
    """

    rto_min_ms: int = 50
    rto_initial_ms: int = 100
    rto_max_ms: int = 300
    sack_delay_ms: int = 20
    heartbeat_ms: int = 1000
    init_attempts: int = 4


def set_timers(sock: socket.socket, timers: Timers) -> None:
    """Apply `timers` to all associations that the socket will have, and send small messages without delay."""
    rto = _RTOINFO.pack(0, timers.rto_initial_ms, timers.rto_max_ms, timers.rto_min_ms)
    sock.setsockopt(SOL_SCTP, RTOINFO, rto)
    sock.setsockopt(SOL_SCTP, DELAYED_SACK, _DELAYED_SACK.pack(0, timers.sack_delay_ms, 2))
    sock.setsockopt(SOL_SCTP, INITMSG, _INITMSG.pack(0, 0, timers.init_attempts, timers.rto_max_ms))
    no_address = bytes(128)
    heartbeat = _PEER_ADDR_PARAMS.pack(0, no_address, timers.heartbeat_ms, 0, 0, 0, _HEARTBEAT_ENABLE, 0, 0)
    sock.setsockopt(SOL_SCTP, PEER_ADDR_PARAMS, heartbeat)
    sock.setsockopt(SOL_SCTP, NODELAY, 1)


def read_timers(sock: socket.socket) -> Timers | None:
    """Return the timers that new associations of the socket will have; None when it doesn't tell."""
    rto = _get(sock.fileno(), RTOINFO, bytes(_RTOINFO.size), _RTOINFO.size)
    sack = _get(sock.fileno(), DELAYED_SACK, bytes(_DELAYED_SACK.size), _DELAYED_SACK.size)
    if rto is None or sack is None:
        return None
    _, initial_ms, longest_ms, shortest_ms = _RTOINFO.unpack(rto)
    return Timers(shortest_ms, initial_ms, longest_ms, _DELAYED_SACK.unpack(sack)[1])


def subscribe(sock: socket.socket) -> None:
    """Ask to be told of associations that come, end or shut down, of paths that change, and for RCVINFO with
    every message."""
    # data_io, association, address, send_failure, peer_error, shutdown, partial_delivery, adaptation
    sock.setsockopt(SOL_SCTP, EVENTS, bytes((0, 1, 1, 0, 0, 1, 0, 0)))
    sock.setsockopt(SOL_SCTP, RECVRCVINFO, 1)


def pack_send_info(association: int, ppid: int, flags: int = 0, stream: int = 0) -> bytes:
    """Return the SNDINFO that sends on a stream of `association`; `ppid` in host byte order."""
    return _SNDINFO.pack(stream, flags, socket.htonl(ppid), 0, association)


def unpack_receive_info(data: bytes) -> tuple[int, int]:
    """Return association and PPID (host byte order) of a RCVINFO."""
    _stream, _ssn, _flags, ppid, _tsn, _cumulative, _context, association = _RCVINFO.unpack_from(data)
    return int(association), socket.ntohl(ppid)


def pack_address(family: int, host: str, port: int) -> bytes:
    """Return a struct sockaddr_in or sockaddr_in6; an IPv4 address is mapped where the socket is IPv6."""
    address = ip_address(host)
    if family == socket.AF_INET:
        return struct.pack("=H", family) + struct.pack(">H", port) + address.packed + bytes(8)
    packed = address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed
    return struct.pack("=H", family) + struct.pack(">HI", port, 0) + packed + bytes(4)


_ADDRESSES_BYTES = 4096
_ADDRESSES_HEADER = struct.Struct("=iI")


def peer_endpoints(descriptor: int, association: int) -> list[SctpAddress]:
    """Return every address and port of an association's other side; empty for one that is gone."""
    return _endpoints(descriptor, association, GET_PEER_ADDRS)


def local_endpoints(descriptor: int, association: int) -> list[SctpAddress]:
    """Return every address and port of an association's own side; empty for one that is gone."""
    return _endpoints(descriptor, association, GET_LOCAL_ADDRS)


def is_confirmed(descriptor: int, family: int, association: int, peer: SctpAddress) -> bool:
    """Whether `peer` is an address of the association's other side that has proved to be there.

    An address in an INIT or INIT ACK is only a claim (RFC 9260, section 5.4). Proved are the address to which
    this side connected, the one at which the other side received its cookie, and those from which a HEARTBEAT
    was acknowledged. False for an association that is gone.
    """
    if peer not in peer_endpoints(descriptor, association):
        return False  # libusrsctp finds a path by its address alone, whatever the port
    address = pack_address(family, *peer).ljust(128, b"\0")
    asked = _PEER_ADDR_INFO.pack(association, address, 0, 0, 0, 0, 0)
    value = _get(descriptor, GET_PEER_ADDR_INFO, asked, _PEER_ADDR_INFO.size)
    return value is not None and _PEER_ADDR_INFO.unpack(value)[2] in _STATES_OF_CONFIRMED_PATHS


def _endpoints(descriptor: int, association: int, option: int) -> list[SctpAddress]:
    value = _get(descriptor, option, _ADDRESSES_HEADER.pack(association, 0), _ADDRESSES_BYTES)
    if value is None:
        return []
    return unpack_addresses(value[_ADDRESSES_HEADER.size :], _ADDRESSES_HEADER.unpack_from(value)[1])


def _get(descriptor: int, option: int, asked: bytes, size: int) -> bytes | None:
    """Python's getsockopt cannot hand in the association that is meant, hence C's; None if it fails."""
    buffer = ctypes.create_string_buffer(asked, size)
    length = ctypes.c_uint32(size)
    getsockopt = ctypes.CDLL(None).getsockopt
    if getsockopt(descriptor, SOL_SCTP, option, buffer, ctypes.byref(length)) != 0:
        return None
    return buffer.raw


def unpack_addresses(data: bytes, count: int) -> list[SctpAddress]:
    """Read `count` packed struct sockaddr_in and sockaddr_in6, an IPv4-mapped address as IPv4."""
    endpoints: list[SctpAddress] = []
    while len(endpoints) < count and len(data) >= 2:
        family = int.from_bytes(data[:2], sys.byteorder)
        port = int.from_bytes(data[2:4], "big")
        if family == socket.AF_INET and len(data) >= 16:
            address: IPv4Address | IPv6Address = IPv4Address(data[4:8])
        elif family == socket.AF_INET6 and len(data) >= 28:
            address = IPv6Address(data[8:24])
            address = address.ipv4_mapped or address
        else:
            break
        endpoints.append((str(address), port))
        data = data[16 if family == socket.AF_INET else 28 :]
    return endpoints


MAX_MESSAGE_BYTES = 0xFFFF
"""No ASAP or ENRP message is longer; what is, is dropped."""

_WITHOUT_SCTP = frozenset({errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT, errno.ECONNRESET})
"""The errors of making a socket then; the last one comes of sctpd only."""
_ANCILLARY_BYTES = socket.CMSG_SPACE(RCVINFO_BYTES) + 128


class SctpUnavailable(RSerPoolError):  # noqa: N818 - reads as a state, and is one
    """Neither the kernel nor a preloaded library offers SCTP."""


@dataclass(frozen=True, slots=True)
class SctpMessage:
    """One user message, whole."""

    association: int
    ppid: int
    data: bytes
    peer: SctpAddress


@dataclass(frozen=True, slots=True)
class AssociationUp:
    """An association was set up, by either side."""

    association: int
    peer: SctpAddress


@dataclass(frozen=True, slots=True)
class AssociationLost:
    """An association ended, or is about to: the other side is closing it."""

    association: int
    peer: SctpAddress
    reason: str


@dataclass(frozen=True, slots=True)
class AssociationRestarted:
    """The other side lost its memory and set up the same association again."""

    association: int
    peer: SctpAddress


@dataclass(frozen=True, slots=True)
class AssociationFailed:
    """An association that this side wanted could not be set up. `peer` may be unknown: ("", 0)."""

    association: int
    peer: SctpAddress


@dataclass(frozen=True, slots=True)
class PathChanged:
    """A path of an association changed: its address was confirmed, say."""

    association: int
    peer: SctpAddress


Notification = AssociationUp | AssociationLost | AssociationRestarted | AssociationFailed | PathChanged

_HEADER = struct.Struct("=HHI")
_ASSOCIATION_CHANGE = struct.Struct("=HHIHHHHi")
_PATH_CHANGE = struct.Struct("=HHI128siii")
_SHUTDOWN = struct.Struct("=HHIi")
_TYPE_ASSOCIATION_CHANGE = 0x8001
_TYPE_PATH_CHANGE = 0x8002
_TYPE_SHUTDOWN = 0x8005


class _AssociationChange(IntEnum):
    UP = 0
    LOST = 1
    RESTARTED = 2
    SHUT_DOWN = 3
    CANNOT_START = 4


def parse_notification(data: bytes, peer: SctpAddress) -> Notification | None:
    """Read a notification; None for a kind that is of no interest here, or one cut short."""
    if len(data) < _HEADER.size:
        return None
    kind = _HEADER.unpack_from(data)[0]
    if kind == _TYPE_SHUTDOWN and len(data) >= _SHUTDOWN.size:
        return AssociationLost(_SHUTDOWN.unpack_from(data)[3], peer, "the other side closes the association")
    if kind == _TYPE_PATH_CHANGE and len(data) >= _PATH_CHANGE.size:
        return PathChanged(_PATH_CHANGE.unpack_from(data)[6], peer)
    if kind != _TYPE_ASSOCIATION_CHANGE or len(data) < _ASSOCIATION_CHANGE.size:
        return None
    _, _, _, state, _, _, _, association = _ASSOCIATION_CHANGE.unpack_from(data)
    match state:
        case _AssociationChange.UP:
            return AssociationUp(association, peer)
        case _AssociationChange.LOST:
            return AssociationLost(association, peer, "the association broke")
        case _AssociationChange.RESTARTED:
            return AssociationRestarted(association, peer)
        case _AssociationChange.SHUT_DOWN:
            return AssociationLost(association, peer, "the association was closed")
        case _AssociationChange.CANNOT_START:
            return AssociationFailed(association, peer)
    return None


class SctpSocket:
    """A non-blocking one-to-many SCTP socket.

    `local_addresses`: the IP addresses to use, all of them in every association (default: every address of
    the host). `ipv6`: speak IPv6, and IPv4 too; otherwise IPv4 only. `port` 0 takes a free one. `listens`:
    others may set up associations with it. Raise SctpUnavailable, or OSError when an address is not of this
    host.
    """

    def __init__(
        self,
        *,
        local_addresses: Sequence[str] = (),
        port: int = 0,
        ipv6: bool = False,
        listens: bool = False,
        timers: Timers | None = None,
    ) -> None:
        self._family = socket.AF_INET6 if ipv6 else socket.AF_INET
        self._partial: dict[int, bytearray] = {}
        try:
            self._socket = socket.socket(self._family, socket.SOCK_SEQPACKET, IPPROTO_SCTP)
        except OSError as problem:
            if problem.errno in _WITHOUT_SCTP:
                raise SctpUnavailable(_why_there_is_none(problem.errno)) from problem
            raise
        try:
            self._socket.setblocking(False)
            set_timers(self._socket, timers or Timers())
            subscribe(self._socket)
            self._bind(local_addresses, port)
            if listens:
                self._socket.listen(16)
        except BaseException:
            self._socket.close()
            raise

    def _bind(self, addresses: Sequence[str], port: int) -> None:
        anywhere = "::" if self._family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104 - where none is given
        first, *others = addresses or (anywhere,)
        self._socket.bind(self._address((first, port)))
        for other in others:
            packed = pack_address(self._family, other, self.port)
            self._socket.setsockopt(SOL_SCTP, BINDX_ADD, packed)

    @property
    def port(self) -> int:
        """The local port."""
        return int(self._socket.getsockname()[1])

    def fileno(self) -> int:
        """Return the descriptor, for an event loop; -1 once closed."""
        return self._socket.fileno()

    def connect(self, peer: SctpAddress) -> None:
        """Begin an association; a notification tells how it went. Raise OSError for what is clear at once."""
        result = self._socket.connect_ex(self._address(peer))
        if result not in (0, errno.EINPROGRESS, errno.EALREADY, errno.EISCONN):
            raise OSError(result, os.strerror(result))

    def send(
        self, association: int, ppid: int, data: bytes, stream: int = 0, *, unordered: bool = False
    ) -> None:
        """Send one message; raise BlockingIOError when the buffer is full, OSError without association."""
        info = pack_send_info(association, ppid, FLAG_UNORDERED if unordered else 0, stream)
        self._socket.sendmsg([data], [(SOL_SCTP, SNDINFO, info)])

    def close_association(self, association: int) -> None:
        """Begin a graceful end of one association; one that is gone already is fine."""
        info = pack_send_info(association, 0, FLAG_EOF)
        try:
            self._socket.sendmsg([], [(SOL_SCTP, SNDINFO, info)])
        except OSError as problem:
            if problem.errno not in (errno.EINVAL, errno.ENOTCONN, errno.EPIPE, errno.ESHUTDOWN, errno.ESRCH):
                raise

    def abort_association(self, association: int) -> None:
        """End one association at once; one that is gone already is fine."""
        info = pack_send_info(association, 0, FLAG_ABORT)
        with contextlib.suppress(OSError):
            self._socket.sendmsg([], [(SOL_SCTP, SNDINFO, info)])

    def receive(self) -> SctpMessage | Notification | None:
        """Return what came next; None when it is of no interest, or not whole yet.

        Raise BlockingIOError when there is nothing, any other OSError when the socket itself is broken.
        """
        data, ancillary, flags, address = self._socket.recvmsg(MAX_MESSAGE_BYTES + 1, _ANCILLARY_BYTES)
        peer = _endpoint(address)
        if flags & MSG_NOTIFICATION:
            return parse_notification(data, peer)
        if not data:
            raise OSError(errno.ESHUTDOWN, "the SCTP socket was shut down")
        for level, kind, value in ancillary:
            if level == SOL_SCTP and kind == RCVINFO and len(value) >= RCVINFO_BYTES:
                association, ppid = unpack_receive_info(value)
                whole = self._collect(association, data, is_end=bool(flags & socket.MSG_EOR))
                return None if whole is None else SctpMessage(association, ppid, whole, peer)
        return None

    def _collect(self, association: int, data: bytes, *, is_end: bool) -> bytes | None:
        """Put together what arrives in pieces; an oversized message is dropped, but read to its end."""
        if is_end and association not in self._partial:
            return data if len(data) <= MAX_MESSAGE_BYTES else None
        pieces = self._partial.setdefault(association, bytearray())
        pieces += data[: MAX_MESSAGE_BYTES + 1 - len(pieces)]
        if not is_end:
            return None
        del self._partial[association]
        return bytes(pieces) if len(pieces) <= MAX_MESSAGE_BYTES else None

    def peers(self, association: int) -> list[SctpAddress]:
        """Return every address of the other side of an association; empty for one that is gone."""
        return peer_endpoints(self._socket.fileno(), association)

    def is_confirmed(self, association: int, peer: SctpAddress) -> bool:
        """Whether the other side of an association has proved that it is at the address `peer`."""
        return is_confirmed(self._socket.fileno(), self._family, association, peer)

    def locals(self, association: int) -> list[SctpAddress]:
        """Return every address of this side of an association; empty for one that is gone."""
        return local_endpoints(self._socket.fileno(), association)

    def forget(self, association: int) -> None:
        """Drop what an association that ended left half received."""
        self._partial.pop(association, None)

    def close(self) -> None:
        """Close the socket, and all its associations gracefully."""
        self._socket.close()

    def _address(self, endpoint: SctpAddress) -> SctpAddress:
        host, port = endpoint
        address = ip_address(host)
        if self._family == socket.AF_INET6 and address.version == 4:
            host = f"::ffff:{address}"
        return host, port


def _endpoint(address: object) -> SctpAddress:
    """Return host and port, an IPv4-mapped address as IPv4; ("", 0) where there is none."""
    if not isinstance(address, tuple) or len(address) < 2:
        return "", 0
    host, port = str(address[0]), int(address[1])
    if ":" in host:
        mapped = IPv6Address(host.partition("%")[0]).ipv4_mapped
        host = str(mapped) if mapped else host
    return host, port


def _why_there_is_none(code: int) -> str:
    if code == errno.ECONNRESET:
        return "no SCTP here: sctpd refuses this user, who has to be in its group (sctp), or has just ended"
    if "libsctp-userland" in os.environ.get("LD_PRELOAD", ""):
        return (
            "no SCTP here: sctpd does not run; start it (systemctl start sctpd, or any program with sctp-run)"
        )
    return "no SCTP here: load the kernel module (modprobe sctp), or start this with sctp-run"


def check_available() -> None:
    """Raise SctpUnavailable where there is no SCTP: for programs that want to say so before anything else."""
    try:
        SctpSocket().close()
    except OSError:  # another lack: whoever opens the socket says what it was for
        return
