"""The bytes that the SCTP layer reads and writes, as the kernel lays them out (linux/sctp.h)."""

import errno
import socket
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rserpool.aio import sctp
from rserpool.aio.sctp import (
    AssociationFailed,
    AssociationLost,
    AssociationRestarted,
    AssociationUp,
    SctpMessage,
    SctpSocket,
    SctpUnavailable,
    parse_notification,
)

PEER = ("10.0.0.1", 3863)
KERNEL_SIZES = {
    "_RTOINFO": 16,
    "_INITMSG": 8,
    "_DELAYED_SACK": 12,
    "_PEER_ADDR_PARAMS": 156,
    "_SNDINFO": 16,
    "_RCVINFO": 28,
}


def association_change(state: int) -> bytes:
    return struct.pack("=HHIHHHHi", 0x8001, 0, 20, state, 0, 10, 10, 7)


@pytest.mark.parametrize(("name", "size"), KERNEL_SIZES.items())
def test_layouts_have_the_kernels_size(name: str, size: int) -> None:
    assert getattr(sctp, name).size == size


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (0, AssociationUp),
        (1, AssociationLost),
        (2, AssociationRestarted),
        (3, AssociationLost),
        (4, AssociationFailed),
    ],
)
def test_reads_association_changes(state: int, kind: type) -> None:
    notification = parse_notification(association_change(state), PEER)
    assert isinstance(notification, kind)
    assert notification
    assert (notification.association, notification.peer) == (7, PEER)


def test_a_shutdown_by_the_other_side_is_a_loss() -> None:
    lost = parse_notification(struct.pack("=HHIi", 0x8005, 0, 12, 7), PEER)
    assert isinstance(lost, AssociationLost)
    assert lost.association == 7


@pytest.mark.parametrize(
    "data", [b"", association_change(0)[:-1], association_change(9), b"\x01\x80", b"\x02\x80" + bytes(40)]
)
def test_other_notifications_are_of_no_interest(data: bytes) -> None:
    assert parse_notification(data, PEER) is None


@given(st.binary(max_size=64))
def test_any_bytes_are_a_notification_or_nothing(data: bytes) -> None:
    parse_notification(data, PEER)


@given(st.integers(0, 2**32 - 1), st.integers(-(2**31), 2**31 - 1))
def test_ppid_travels_in_network_order(ppid: int, association: int) -> None:
    info = sctp.pack_send_info(association, ppid)
    assert info[4:8] == ppid.to_bytes(4, "big")
    received = struct.pack("=HHHxx4sIIIi", 0, 0, 0, ppid.to_bytes(4, "big"), 1, 1, 0, association)
    assert sctp.unpack_receive_info(received) == (association, ppid)


def test_addresses_are_laid_out_as_sockaddr() -> None:
    four = sctp.pack_address(socket.AF_INET, "10.0.0.1", 3863)
    assert four == bytes([2, 0]) + b"\x0f\x17\x0a\x00\x00\x01" + bytes(8)
    six = sctp.pack_address(socket.AF_INET6, "fd00::1", 3863)
    assert (len(six), six[:4], six[8:24]) == (
        28,
        bytes([10, 0]) + b"\x0f\x17",
        bytes([0xFD] + [0] * 14 + [1]),
    )
    mapped = sctp.pack_address(socket.AF_INET6, "10.0.0.1", 1)
    assert mapped[8:24] == bytes(10) + b"\xff\xff\x0a\x00\x00\x01"


def test_reads_the_addresses_of_a_multihomed_peer() -> None:
    packed = (
        sctp.pack_address(socket.AF_INET, "10.0.0.1", 3863)
        + sctp.pack_address(socket.AF_INET6, "fd00::1", 3863)
        + sctp.pack_address(socket.AF_INET6, "10.0.0.2", 3863)
    )
    expected = [("10.0.0.1", 3863), ("fd00::1", 3863), ("10.0.0.2", 3863)]
    assert sctp.unpack_addresses(packed + bytes(100), 3) == expected
    assert sctp.unpack_addresses(packed + bytes(100), 9) == expected
    assert sctp.unpack_addresses(packed[:30], 3) == expected[:1]


def test_a_descriptor_that_is_no_sctp_socket_has_no_peers() -> None:
    assert sctp.peer_endpoints(-1, 1) == []


class PaperKernel:
    """The socket that SctpSocket wraps: gives what the test put there."""

    def __init__(self, *_: object) -> None:
        self.incoming: list[tuple[bytes, list[tuple[int, int, bytes]], int, object]] = []
        self.sent: list[tuple[list[bytes], list[tuple[int, int, bytes]]]] = []
        self.bound: list[object] = []
        self.options: list[tuple[int, object]] = []
        self.fails_with: OSError | None = None

    def setblocking(self, blocking: bool) -> None:
        assert not blocking

    def setsockopt(self, level: int, option: int, value: object) -> None:
        assert level == 132
        self.options.append((option, value))

    def bind(self, address: object) -> None:
        self.bound.append(address)

    def getsockname(self) -> tuple[str, int]:
        return "10.0.1.1", 4242

    def recvmsg(self, size: int, ancillary: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
        assert ancillary >= socket.CMSG_SPACE(28)
        if not self.incoming:
            raise BlockingIOError
        return self.incoming.pop(0)

    def sendmsg(self, data: list[bytes], ancillary: list[tuple[int, int, bytes]]) -> None:
        if self.fails_with:
            raise self.fails_with
        self.sent.append((data, ancillary))

    def close(self) -> None:
        pass


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> PaperKernel:
    kernel = PaperKernel()
    monkeypatch.setattr("socket.socket", lambda *_: kernel)
    return kernel


def received(
    data: bytes, *, association: int = 7, is_end: bool = True
) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
    info = struct.pack("=HHHxx4sIIIi", 0, 0, 0, b"\0\0\0\x0b", 1, 1, 0, association)
    return data, [(132, 3, info)], socket.MSG_EOR if is_end else 0, ("10.0.0.1", 3863)


def test_a_message_is_received_with_association_protocol_and_peer(kernel: PaperKernel) -> None:
    kernel.incoming.append(received(b"hello"))
    assert SctpSocket().receive() == SctpMessage(7, 11, b"hello", PEER)


def test_puts_pieces_together_for_each_association(kernel: PaperKernel) -> None:
    sock = SctpSocket()
    kernel.incoming += [
        received(b"he", is_end=False),
        received(b"xy", association=8, is_end=False),
        received(b"llo"),
        received(b"z", association=8),
    ]
    assert [sock.receive() for _ in range(4)] == [
        None,
        None,
        SctpMessage(7, 11, b"hello", PEER),
        SctpMessage(8, 11, b"xyz", PEER),
    ]


def test_an_endless_message_takes_no_endless_memory(kernel: PaperKernel) -> None:
    sock = SctpSocket()
    kernel.incoming += [received(bytes(60_000), is_end=False) for _ in range(100)]
    for _ in range(100):
        assert sock.receive() is None
    assert sum(len(each) for each in sock._partial.values()) <= sctp.MAX_MESSAGE_BYTES + 1
    kernel.incoming += [received(b"end"), received(b"next")]
    assert sock.receive() is None
    assert sock.receive() == SctpMessage(7, 11, b"next", PEER)


def test_half_a_message_of_an_ended_association_is_forgotten(kernel: PaperKernel) -> None:
    sock = SctpSocket()
    kernel.incoming += [received(b"he", is_end=False), received(b"new")]
    sock.receive()
    sock.forget(7)
    assert sock.receive() == SctpMessage(7, 11, b"new", PEER)


def test_the_end_of_the_socket_is_an_error_not_a_loop(kernel: PaperKernel) -> None:
    kernel.incoming.append((b"", [], 0, None))
    with pytest.raises(OSError, match="shut down"):
        SctpSocket().receive()


def test_mapped_addresses_are_shown_as_ipv4(kernel: PaperKernel) -> None:
    kernel.incoming += [
        (association_change(0), [], sctp.MSG_NOTIFICATION, (host, 3863, 0, 0))
        for host in ("::ffff:10.0.0.1", "fd00::1", "fe80::1%eth0")
    ]
    sock = SctpSocket(ipv6=True)
    peers = [getattr(sock.receive(), "peer", None) for _ in range(3)]
    assert peers == [("10.0.0.1", 3863), ("fd00::1", 3863), ("fe80::1%eth0", 3863)]


def test_binds_every_address_with_one_port(kernel: PaperKernel) -> None:
    SctpSocket(local_addresses=["10.0.1.1", "10.0.2.1"])
    assert kernel.bound == [("10.0.1.1", 0)]
    added = [value for option, value in kernel.options if option == sctp.BINDX_ADD]
    assert added == [sctp.pack_address(socket.AF_INET, "10.0.2.1", 4242)]


def test_sends_on_the_association(kernel: PaperKernel) -> None:
    SctpSocket().send(7, 11, b"data")
    assert kernel.sent == [([b"data"], [(132, 2, sctp.pack_send_info(7, 11))])]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTCONN, errno.EPIPE])
def test_closing_what_is_gone_is_fine(kernel: PaperKernel, code: int) -> None:
    kernel.fails_with = OSError(code, "gone")
    SctpSocket().close_association(7)


def test_says_whom_sctpd_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    monkeypatch.setattr("socket.socket", refuse)
    with pytest.raises(SctpUnavailable, match=r"refuses this user, who has to be in its group \(sctp\)"):
        SctpSocket()


@pytest.mark.parametrize("code", [errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT])
def test_says_what_to_do_without_sctp(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, "not here")

    monkeypatch.setattr("socket.socket", refuse)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    with pytest.raises(SctpUnavailable, match="or start this with sctp-run"):
        SctpSocket()
    monkeypatch.setenv("LD_PRELOAD", "/usr/local/lib/libsctp-userland.so")
    with pytest.raises(SctpUnavailable, match="sctpd does not run"):
        SctpSocket()


def test_the_layout_of_structures_is_for_little_and_big_endian_hosts_alike() -> None:
    assert sctp.pack_send_info(1, 11)[12:16] == (1).to_bytes(4, sys.byteorder)
