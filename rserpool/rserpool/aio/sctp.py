"""A one-to-many SCTP socket, thinly wrapped: the same on kernel SCTP and where `sctp-run` provides it.

Nothing here blocks. `receive` gives one message or one thing that happened to an association at a time.
"""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv6Address, ip_address

from rserpool.aio import sctp_options as options
from rserpool.aio.sctp_options import Timers as Timers
from rserpool.errors import RSerPoolError

MAX_MESSAGE_BYTES = 0xFFFF
"""No ASAP or ENRP message is longer; what is, is dropped."""

_WITHOUT_SCTP = frozenset({errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT, errno.ECONNRESET})
"""What making a socket fails with then; the last one comes of sctpd only."""
_ANCILLARY_BYTES = socket.CMSG_SPACE(options.RCVINFO_BYTES) + 128

Endpoint = tuple[str, int]


class SctpUnavailable(RSerPoolError):  # noqa: N818
    """Neither the kernel nor a preloaded library offers SCTP."""


@dataclass(frozen=True, slots=True)
class Message:
    """One user message, whole."""

    association: int
    ppid: int
    data: bytes
    peer: Endpoint


@dataclass(frozen=True, slots=True)
class AssociationUp:
    """An association was set up, by either side."""

    association: int
    peer: Endpoint


@dataclass(frozen=True, slots=True)
class AssociationLost:
    """An association ended, or is about to: the other side is closing it."""

    association: int
    peer: Endpoint
    reason: str


@dataclass(frozen=True, slots=True)
class AssociationRestarted:
    """The other side lost its memory and set up the same association again."""

    association: int
    peer: Endpoint


@dataclass(frozen=True, slots=True)
class AssociationFailed:
    """An association that this side wanted could not be set up. `peer` may be unknown: ("", 0)."""

    association: int
    peer: Endpoint


@dataclass(frozen=True, slots=True)
class PathChanged:
    """A path of an association changed: its address was confirmed, say."""

    association: int
    peer: Endpoint


Notification = AssociationUp | AssociationLost | AssociationRestarted | AssociationFailed | PathChanged

_HEADER = struct.Struct("=HHI")
_ASSOCIATION_CHANGE = struct.Struct("=HHIHHHHi")
_PATH_CHANGE = struct.Struct("=HHI128siii")
_SHUTDOWN = struct.Struct("=HHIi")
_TYPE_ASSOCIATION_CHANGE = 0x8001
_TYPE_PATH_CHANGE = 0x8002
_TYPE_SHUTDOWN = 0x8005


class _Change(IntEnum):
    UP = 0
    LOST = 1
    RESTARTED = 2
    SHUT_DOWN = 3
    CANNOT_START = 4


def parse_notification(data: bytes, peer: Endpoint) -> Notification | None:
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
        case _Change.UP:
            return AssociationUp(association, peer)
        case _Change.LOST:
            return AssociationLost(association, peer, "the association broke")
        case _Change.RESTARTED:
            return AssociationRestarted(association, peer)
        case _Change.SHUT_DOWN:
            return AssociationLost(association, peer, "the association was closed")
        case _Change.CANNOT_START:
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
            self._socket = socket.socket(self._family, socket.SOCK_SEQPACKET, options.IPPROTO_SCTP)
        except OSError as problem:
            if problem.errno in _WITHOUT_SCTP:
                raise SctpUnavailable(_why_there_is_none(problem.errno)) from problem
            raise
        try:
            self._socket.setblocking(False)
            options.set_timers(self._socket, timers or Timers())
            options.subscribe(self._socket)
            self._bind(local_addresses, port)
            if listens:
                self._socket.listen(16)
        except BaseException:
            self._socket.close()
            raise

    def _bind(self, addresses: Sequence[str], port: int) -> None:
        anywhere = "::" if self._family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104
        first, *others = addresses or (anywhere,)
        self._socket.bind(self._address((first, port)))
        for other in others:
            packed = options.pack_address(self._family, other, self.port)
            self._socket.setsockopt(options.SOL_SCTP, options.BINDX_ADD, packed)

    @property
    def port(self) -> int:
        """The local port."""
        return int(self._socket.getsockname()[1])

    def fileno(self) -> int:
        """Return the descriptor, for an event loop; -1 once closed."""
        return self._socket.fileno()

    def connect(self, peer: Endpoint) -> None:
        """Begin an association; a notification tells how it went. Raise OSError for what is clear at once."""
        result = self._socket.connect_ex(self._address(peer))
        if result not in (0, errno.EINPROGRESS, errno.EALREADY, errno.EISCONN):
            raise OSError(result, os.strerror(result))

    def send(self, association: int, ppid: int, data: bytes) -> None:
        """Send one message; raise BlockingIOError when the buffer is full, OSError without association."""
        info = options.pack_send_info(association, ppid)
        self._socket.sendmsg([data], [(options.SOL_SCTP, options.SNDINFO, info)])

    def close_association(self, association: int) -> None:
        """Begin a graceful end of one association; one that is gone already is fine."""
        info = options.pack_send_info(association, 0, options.FLAG_EOF)
        try:
            self._socket.sendmsg([], [(options.SOL_SCTP, options.SNDINFO, info)])
        except OSError as problem:
            if problem.errno not in (errno.EINVAL, errno.ENOTCONN, errno.EPIPE, errno.ESHUTDOWN, errno.ESRCH):
                raise

    def abort_association(self, association: int) -> None:
        """End one association at once; one that is gone already is fine."""
        info = options.pack_send_info(association, 0, options.FLAG_ABORT)
        with contextlib.suppress(OSError):
            self._socket.sendmsg([], [(options.SOL_SCTP, options.SNDINFO, info)])

    def receive(self) -> Message | Notification | None:
        """Return what came next; None when it is of no interest, or not whole yet.

        Raise BlockingIOError when there is nothing, any other OSError when the socket itself is broken.
        """
        data, ancillary, flags, address = self._socket.recvmsg(MAX_MESSAGE_BYTES + 1, _ANCILLARY_BYTES)
        peer = _endpoint(address)
        if flags & options.MSG_NOTIFICATION:
            return parse_notification(data, peer)
        if not data:
            raise OSError(errno.ESHUTDOWN, "the SCTP socket was shut down")
        for level, kind, value in ancillary:
            if level == options.SOL_SCTP and kind == options.RCVINFO and len(value) >= options.RCVINFO_BYTES:
                association, ppid = options.unpack_receive_info(value)
                whole = self._collect(association, data, is_end=bool(flags & socket.MSG_EOR))
                return None if whole is None else Message(association, ppid, whole, peer)
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

    def peers(self, association: int) -> list[Endpoint]:
        """Return every address of the other side of an association; empty for one that is gone."""
        return options.peer_endpoints(self._socket.fileno(), association)

    def is_confirmed(self, association: int, peer: Endpoint) -> bool:
        """Whether the other side of an association has proved that it is at the address `peer`."""
        return options.is_confirmed(self._socket.fileno(), self._family, association, peer)

    def locals(self, association: int) -> list[Endpoint]:
        """Return every address of this side of an association; empty for one that is gone."""
        return options.local_endpoints(self._socket.fileno(), association)

    def forget(self, association: int) -> None:
        """Drop what an association that ended left half received."""
        self._partial.pop(association, None)

    def close(self) -> None:
        """Close the socket, and all its associations gracefully."""
        self._socket.close()

    def _address(self, endpoint: Endpoint) -> tuple[str, int]:
        host, port = endpoint
        address = ip_address(host)
        if self._family == socket.AF_INET6 and address.version == 4:
            host = f"::ffff:{address}"
        return host, port


def _endpoint(address: object) -> Endpoint:
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
