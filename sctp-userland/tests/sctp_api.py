"""SCTP sockets as a Linux program sees them. Nothing here knows which stack answers."""

import ctypes
import ctypes.util
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

SOL_SCTP = 132
SCTP_RTOINFO, SCTP_ASSOCINFO, SCTP_INITMSG, SCTP_NODELAY, SCTP_AUTOCLOSE = range(5)
SCTP_ADAPTATION_LAYER, SCTP_PARTIAL_DELIVERY_POINT = 7, 19
SCTP_PRIMARY_ADDR, SCTP_PEER_ADDR_PARAMS, SCTP_DEFAULT_SEND_PARAM, SCTP_EVENTS = 6, 9, 10, 11
SCTP_MAXSEG, SCTP_STATUS, SCTP_GET_PEER_ADDR_INFO, SCTP_DELAYED_SACK, SCTP_RECVRCVINFO = 13, 14, 15, 16, 32
SCTP_RECVNXTINFO = 33
SCTP_GET_ASSOC_NUMBER, SCTP_GET_ASSOC_ID_LIST, SCTP_DEFAULT_SNDINFO, SCTP_EVENT = 28, 29, 34, 127
SCTP_PEELOFF, SCTP_GET_PEER_ADDRS, SCTP_GET_LOCAL_ADDRS, SCTP_CONNECTX3 = 102, 108, 109, 111
CMSG_SNDRCV, CMSG_SNDINFO, CMSG_RCVINFO = 1, 2, 3
MSG_NOTIFICATION = 0x8000
UNORDERED, ABORT, EOF = 1, 4, 0x200
ASSOC_CHANGE, PEER_ADDR_CHANGE, SEND_FAILED, REMOTE_ERROR, SHUTDOWN_EVENT = range(0x8001, 0x8006)
PARTIAL_DELIVERY_EVENT, ADAPTATION_INDICATION = 0x8006, 0x8007
COMM_UP, COMM_LOST, RESTART, SHUTDOWN_COMP, CANT_START = range(5)
ADDR_AVAILABLE, ADDR_UNREACHABLE, ADDR_CONFIRMED = 0, 1, 5
ASSOC_CHANGE_HEADER = 20  # bytes of the notification before what the peer said
USER_INITIATED_ABORT = 12
SEND_FAILED_HEADER = 48  # bytes of the notification before the message
ESTABLISHED = 4
PATH_INACTIVE, PATH_PF, PATH_ACTIVE, PATH_UNCONFIRMED = range(4)

SNDRCV = struct.Struct("=HHHxxIIIIIi")
SNDINFO = struct.Struct("=HHIIi")
RCVINFO = struct.Struct("=HHHxxIIIIi")
PATH_PARAMETERS = struct.Struct("=i128sIHIIIIBx")
PATH_INFORMATION = struct.Struct("=i128siIIII")

libc = ctypes.CDLL(None, use_errno=True)
libsctp = ctypes.CDLL("libsctp.so.1", use_errno=True)


class Received(NamedTuple):
    data: bytes
    flags: int
    address: tuple[str, int] | None
    ppid: int = 0
    stream: int = 0
    association: int = 0
    unordered: bool = False

    @property
    def is_notification(self) -> bool:
        return bool(self.flags & MSG_NOTIFICATION)

    @property
    def notification(self) -> int:
        return int.from_bytes(self.data[:2], "little") if self.is_notification else 0

    @property
    def state(self) -> int:
        """Return sac_state of an association change."""
        return int.from_bytes(self.data[8:10], "little")

    @property
    def changed_address(self) -> tuple[int, str]:
        """Return spc_state and the address of a peer address change."""
        (state,) = struct.unpack_from("=i", self.data, 136)
        return state, unpack_addresses(self.data[8:], 1)[0][0]

    @property
    def changed_association(self) -> int:
        return int.from_bytes(self.data[16:20], "little")


def loopback(family: int) -> str:
    return "::1" if family == socket.AF_INET6 else "127.0.0.1"


def one_to_one(family: int = socket.AF_INET) -> socket.socket:
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_SCTP)


def one_to_many(family: int = socket.AF_INET, events: bool = True) -> socket.socket:
    made = socket.socket(family, socket.SOCK_SEQPACKET, socket.IPPROTO_SCTP)
    if events:
        subscribe(made, data_io=True, association=True)
    return made


def subscribe(
    sock: socket.socket,
    *,
    data_io: bool = False,
    association: bool = False,
    address: bool = False,
    send_failure: bool = False,
    peer_error: bool = False,
    shutdown: bool = False,
    partial_delivery: bool = False,
    adaptation: bool = False,
) -> None:
    sock.setsockopt(
        SOL_SCTP,
        SCTP_EVENTS,
        bytes(
            [data_io, association, address, send_failure, peer_error, shutdown, partial_delivery, adaptation]
        ),
    )


def listener(family: int = socket.AF_INET, backlog: int = 16) -> socket.socket:
    made = one_to_one(family)
    made.bind((loopback(family), 0))
    made.listen(backlog)
    return made


@contextmanager
def connected(family: int = socket.AF_INET) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a one-to-one association: client, server."""
    with listener(family) as waiting, one_to_one(family) as client:
        client.connect(waiting.getsockname())
        server, _ = waiting.accept()
        with server:
            yield client, server


@contextmanager
def associated(family: int = socket.AF_INET) -> Iterator[tuple[socket.socket, int, socket.socket, int]]:
    """Yield two one-to-many sockets and their identifiers of the association between them."""
    with one_to_many(family) as server, one_to_many(family) as client:
        server.bind((loopback(family), 0))
        server.listen(5)
        send(client, b"open", to=server.getsockname())
        got = receive_data(server)
        send(server, b"opened", association=got.association)
        reply = receive_data(client)
        yield client, reply.association, server, got.association


def send(
    sock: socket.socket,
    data: bytes,
    *,
    to: tuple[str, int] | None = None,
    ppid: int = 0,
    stream: int = 0,
    flags: int = 0,
    association: int = 0,
    time_to_live_ms: int = 0,
    socket_flags: int = 0,
) -> int:
    information = SNDRCV.pack(stream, 0, flags, socket.htonl(ppid), 0, time_to_live_ms, 0, 0, association)
    ancillary = [(SOL_SCTP, CMSG_SNDRCV, information)]
    if to is None:
        return sock.sendmsg([data] if data else [], ancillary, socket_flags)
    return sock.sendmsg([data] if data else [], ancillary, socket_flags, to)


def receive(sock: socket.socket, room: int = 70000, flags: int = 0, timeout_s: float = 10) -> Received:
    """Receive once; TimeoutError after timeout_s."""
    if not readable(sock, timeout_s):
        raise TimeoutError("nothing came")
    data, ancillary, message_flags, address = sock.recvmsg(room, 1000, flags)
    got = Received(data, message_flags, address)
    for level, kind, value in ancillary:
        if level == SOL_SCTP and kind == CMSG_SNDRCV:
            stream, _, sent, ppid, _, _, _, _, association = SNDRCV.unpack(value[: SNDRCV.size])
            got = got._replace(
                ppid=socket.ntohl(ppid),
                stream=stream,
                association=association,
                unordered=bool(sent & UNORDERED),
            )
        elif level == SOL_SCTP and kind == CMSG_RCVINFO:
            stream, _, sent, ppid, _, _, _, association = RCVINFO.unpack(value[: RCVINFO.size])
            got = got._replace(
                ppid=socket.ntohl(ppid),
                stream=stream,
                association=association,
                unordered=bool(sent & UNORDERED),
            )
    return got


def receive_data(sock: socket.socket, room: int = 70000, timeout_s: float = 10) -> Received:
    """Receive the next message that isn't a notification."""
    while True:
        got = receive(sock, room, timeout_s=timeout_s)
        if not got.is_notification:
            return got


def receive_change(sock: socket.socket, state: int, timeout_s: float = 10) -> Received:
    """Receive until the association change to this state."""
    while True:
        got = receive(sock, timeout_s=timeout_s)
        if got.notification == ASSOC_CHANGE and got.state == state:
            return got


def receive_notification(sock: socket.socket, kind: int, timeout_s: float = 10) -> Received:
    """Receive until a notification of this kind."""
    while True:
        got = receive(sock, timeout_s=timeout_s)
        if got.notification == kind:
            return got


def readable(sock: socket.socket, timeout_s: float = 0) -> bool:
    return bool(select.select([sock], [], [], timeout_s)[0])


def writable(sock: socket.socket, timeout_s: float = 0) -> bool:
    return bool(select.select([], [sock], [], timeout_s)[1])


def wait_for_error(sock: socket.socket, timeout_s: float = 10) -> int:
    """Return what SO_ERROR tells as soon as it tells something; 0: nothing in all that time."""
    deadline = time.monotonic() + timeout_s
    while True:
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error != 0 or time.monotonic() > deadline:
            return error
        time.sleep(0.01)


def get_option(sock: socket.socket, option: int, value: bytes, level: int = SOL_SCTP) -> bytes:
    """getsockopt() whose buffer says what is asked; OSError as usual."""
    buffer, length = ask_option(sock, option, value, level)
    return buffer[:length]


def ask_option(sock: socket.socket, option: int, value: bytes, level: int = SOL_SCTP) -> tuple[bytes, int]:
    """Do the same; return the whole buffer, and the length that is told."""
    buffer = ctypes.create_string_buffer(value, len(value))
    length = ctypes.c_uint32(len(value))
    if libc.getsockopt(sock.fileno(), level, option, buffer, ctypes.byref(length)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buffer.raw, length.value


def pack_addresses(addresses: list[tuple[str, int]]) -> bytes:
    return b"".join(
        struct.pack("=HHI", socket.AF_INET6, socket.htons(port), 0)
        + socket.inet_pton(socket.AF_INET6, host)
        + bytes(4)
        if ":" in host
        else struct.pack("=HH", socket.AF_INET, socket.htons(port)) + socket.inet_aton(host) + bytes(8)
        for host, port in addresses
    )


def unpack_addresses(data: bytes, count: int) -> list[tuple[str, int]]:
    found = []
    for _ in range(count):
        family, port = struct.unpack_from("=HH", data)
        if family == socket.AF_INET:
            found.append((socket.inet_ntoa(data[4:8]), socket.ntohs(port)))
            data = data[16:]
        else:
            found.append((socket.inet_ntop(socket.AF_INET6, data[8:24]), socket.ntohs(port)))
            data = data[28:]
    return found


def bindx(sock: socket.socket, addresses: list[tuple[str, int]], flags: int = 1) -> None:
    if libsctp.sctp_bindx(sock.fileno(), pack_addresses(addresses), len(addresses), flags) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def connectx(sock: socket.socket, addresses: list[tuple[str, int]]) -> int:
    """Connect; return the association (the option behind sctp_connectx(), which has several versions)."""
    packed = ctypes.create_string_buffer(pack_addresses(addresses))
    argument = struct.pack("@iiP", 0, len(packed) - 1, ctypes.addressof(packed))
    return int.from_bytes(get_option(sock, SCTP_CONNECTX3, argument)[:4], "little")


def peeloff(sock: socket.socket, association: int) -> socket.socket:
    fd = libsctp.sctp_peeloff(sock.fileno(), association)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return socket.socket(sock.family, socket.SOCK_STREAM, socket.IPPROTO_SCTP, fileno=fd)


def addresses_of(sock: socket.socket, association: int = 0, *, peer: bool) -> list[tuple[str, int]]:
    option = SCTP_GET_PEER_ADDRS if peer else SCTP_GET_LOCAL_ADDRS
    answer, length = ask_option(sock, option, struct.pack("=iI", association, 0) + bytes(2000))
    found = unpack_addresses(answer[8:], struct.unpack_from("=I", answer, 4)[0])
    assert length == len(pack_addresses(found)) + 8 * peer, (
        "Linux counts what is before the peer's addresses only"
    )
    return found


def path_state(sock: socket.socket, association: int, address: tuple[str, int]) -> int:
    """Return PATH_ACTIVE or what else the path to this address of the peer is."""
    asked = PATH_INFORMATION.pack(association, pack_addresses([address]), 0, 0, 0, 0, 0)
    state: int = PATH_INFORMATION.unpack(get_option(sock, SCTP_GET_PEER_ADDR_INFO, asked))[2]
    return state


def is_kernel_from(*version: int) -> bool:
    """Tell whether SCTP is a kernel's here, of this version or a later one; sctpd behaves as Linux 6.1."""
    release = os.uname().release.split("-")[0].split(".")
    return os.path.isdir("/proc/net/sctp") and [int(part) for part in release[:2]] >= list(version)


def expect(number: int, call: object, *arguments: object) -> None:
    """Assert that a call fails with this errno."""
    try:
        call(*arguments)  # type: ignore[operator]
    except OSError as error:
        got = error.errno or 0
    else:
        got = 0
    assert got == number, f"{errno.errorcode.get(got, 'no error')} instead of {errno.errorcode[number]}"
