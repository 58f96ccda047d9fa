"""Numbers and layouts of the SCTP socket API on Linux (linux/sctp.h; RFC 6458), and the timers used here."""

import ctypes
import socket
import struct
import sys
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

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


def pack_send_info(association: int, ppid: int, flags: int = 0) -> bytes:
    """Return the SNDINFO that sends on stream 0 of `association`; `ppid` in host byte order."""
    return _SNDINFO.pack(0, flags, socket.htonl(ppid), 0, association)


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


def peer_endpoints(descriptor: int, association: int) -> list[tuple[str, int]]:
    """Return every address and port of an association's other side; empty for one that is gone."""
    return _endpoints(descriptor, association, GET_PEER_ADDRS)


def local_endpoints(descriptor: int, association: int) -> list[tuple[str, int]]:
    """Return every address and port of an association's own side; empty for one that is gone."""
    return _endpoints(descriptor, association, GET_LOCAL_ADDRS)


def is_confirmed(descriptor: int, family: int, association: int, peer: tuple[str, int]) -> bool:
    """Whether `peer` is an address of the association's other side that has proved to be there.

    What an INIT or INIT ACK lists is only a claim (RFC 9260, section 5.4). Proved are the address to which
    this side connected, the one at which the other side received its cookie, and those from which a HEARTBEAT
    was acknowledged. False for an association that is gone.
    """
    if peer not in peer_endpoints(descriptor, association):
        return False  # libusrsctp finds a path by its address alone, whatever the port
    address = pack_address(family, *peer).ljust(128, b"\0")
    asked = _PEER_ADDR_INFO.pack(association, address, 0, 0, 0, 0, 0)
    value = _get(descriptor, GET_PEER_ADDR_INFO, asked, _PEER_ADDR_INFO.size)
    return value is not None and _PEER_ADDR_INFO.unpack(value)[2] in _STATES_OF_CONFIRMED_PATHS


def _endpoints(descriptor: int, association: int, option: int) -> list[tuple[str, int]]:
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


def unpack_addresses(data: bytes, count: int) -> list[tuple[str, int]]:
    """Read `count` packed struct sockaddr_in and sockaddr_in6, an IPv4-mapped address as IPv4."""
    endpoints: list[tuple[str, int]] = []
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
