"""Runs a loaded BPF program on one packet (BPF_PROG_TEST_RUN), without a network; makes such packets."""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

from tests.support.fast_path import CLIENT, FAST, FastStage

_SYSCALL = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
_TEST_RUN, _GET_FD_BY_ID = 10, 13
_LIBC = ctypes.CDLL(None, use_errno=True)
_MOST_BYTES = 4096
ANSWERED, PASSED, DROPPED = 7, 2**32 - 1, 2
"""TC_ACT_REDIRECT, TC_ACT_UNSPEC and TC_ACT_SHOT."""
NO_MAC = bytes(6)
PORT = 4242


class LoadedProgram:
    """The program with this identifier; as `tc filter show` tells it."""

    def __init__(self, identifier: int) -> None:
        self._file = _bpf(_GET_FD_BY_ID, bytearray(struct.pack("=III", identifier, 0, 0)))

    def run(self, packet: bytes, interface: int = 1) -> tuple[int, bytes]:
        """Return what the program returns, and the packet as it is then. Raises OSError: no packet at all.

        `interface` is the index of the one it comes in by, in this network namespace: lo, unless told.
        """
        context = ctypes.create_string_buffer(struct.pack("=40xI", interface))
        given = ctypes.create_string_buffer(packet, len(packet))
        got = ctypes.create_string_buffer(_MOST_BYTES)
        attributes = bytearray(
            struct.pack(
                "=IIIIQQIIIIQQIIII",
                *(self._file, 0, len(packet), _MOST_BYTES, ctypes.addressof(given), ctypes.addressof(got)),
                *(1, 0, len(context.raw) - 1, 0, ctypes.addressof(context), 0, 0, 0, 0, 0),
            )
        )
        _bpf(_TEST_RUN, attributes)
        _, returned, _, size = struct.unpack_from("=IIII", attributes)
        return returned, got.raw[:size]

    def close(self) -> None:
        """Let the program go."""
        os.close(self._file)


def _bpf(command: int, attributes: bytearray) -> int:
    memory = (ctypes.c_char * len(attributes)).from_buffer(attributes)
    result: int = _LIBC.syscall(_SYSCALL, command, memory, len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


@contextmanager
def loaded_program(stage: FastStage) -> Iterator[LoadedProgram]:
    """The program that the daemon of this stage loaded, with all answers."""
    stage.wait_until_ready()
    shown = stage.server.run("tc", "filter", "show", "dev", "server", "ingress").stdout
    identifier = re.search(r" id (\d+) ", shown)
    assert identifier, shown
    loaded = LoadedProgram(int(identifier[1]))
    try:
        yield loaded
    finally:
        loaded.close()


def wire_name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def question(name: str, kind: int = 33, tail: bytes = b"", count: int = 0) -> bytes:
    """A question; `count` of records are in its `tail`."""
    return (
        struct.pack("!6H", 4711, 0x100, 1, 0, 0, count) + wire_name(name) + struct.pack("!HH", kind, 1) + tail
    )


OPT = b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0)


def sum_of(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def frame(dns: bytes, source: str = CLIENT, target: str = FAST, wrong: int = 0) -> bytes:
    """An Ethernet frame with this message; `wrong` is added to its checksum."""
    sender, receiver = ip_address(source).packed, ip_address(target).packed
    size = 8 + len(dns)
    udp = struct.pack("!HHH", PORT, 53, size)
    check = (~sum_of(sender + receiver + struct.pack("!HH", 17, size) + udp + dns) & 0xFFFF or 0xFFFF) ^ wrong
    datagram = udp + struct.pack("!H", check) + dns
    if len(sender) == 16:
        return (
            NO_MAC * 2
            + b"\x86\xdd"
            + struct.pack("!IHBB", 6 << 28, size, 17, 64)
            + sender
            + receiver
            + datagram
        )
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + size, 7, 0, 64, 17, 0) + sender + receiver
    head = head[:10] + struct.pack("!H", ~sum_of(head) & 0xFFFF) + head[12:]
    return NO_MAC * 2 + b"\x08\0" + head + datagram


def answer_of(packet: bytes) -> bytes:
    """The DNS message of an answer; fails when anything about the packet is wrong."""
    is_ipv4 = packet[12:14] == b"\x08\0"
    start = 34 if is_ipv4 else 54
    ip, udp = packet[14:start], packet[start:]
    addresses = ip[12:20] if is_ipv4 else ip[8:40]
    assert struct.unpack("!HHH", udp[:6]) == (53, PORT, len(udp))
    assert sum_of(addresses + struct.pack("!HH", 17, len(udp)) + udp) == 0xFFFF
    if is_ipv4:
        assert sum_of(ip) == 0xFFFF
        assert struct.unpack("!H", ip[2:4])[0] == len(ip) + len(udp)
    else:
        assert struct.unpack("!H", ip[4:6])[0] == len(udp)
    return udp[8:]
