"""Throw mutated calls and mutated packets at the sctpd of this network namespace. Arguments: what, seconds, seed.

Run under sctp-run. It prints how many it threw; status 1 when a bystander's association suffers. Whether sctpd (best built by `make asan`) lives is
for the caller to see.
"""

# ruff: noqa: E501 - packets and calls, a line each

import array
import contextlib
import os
import random
import socket
import stat
import struct
import sys
import threading
import time

from raw_sctp import with_checksum

REQUEST = struct.Struct("=HH4iHHIIIIHHII")
OPERATIONS = range(16)
INTERESTING = (0, 1, 2, 3, 4, 5, 8, 16, 100, 132, 255, 256, 4096, 65535, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def number(chance: random.Random) -> int:
    """Return a number worth trying."""
    return chance.choice(INTERESTING) if chance.random() < 0.7 else chance.getrandbits(32)


def signed(value: int) -> int:
    """Return the 32-bit two's complement."""
    return value - (1 << 32) if value & 0x80000000 else value


def addresses(chance: random.Random) -> bytes:
    """Return packed addresses, often broken."""
    packed = b""
    for _ in range(chance.choice((0, 1, 1, 1, 2, 5, 80))):
        if chance.random() < 0.7:
            packed += struct.pack(
                "=HH4s8x", chance.choice((2, 2, 2, 10, 1, 0)), chance.getrandbits(16), b"\x7f\0\0\1"
            )
        else:
            packed += struct.pack("=HHI16sI", 10, chance.getrandbits(16), 0, bytes(15) + b"\1", 0)
    return packed[: chance.choice((len(packed), len(packed), chance.randrange(len(packed) + 1)))]


def call(chance: random.Random, control: socket.socket, passed: list[socket.socket]) -> None:
    """Make one call with a valid frame and wild contents."""
    address, data = (
        addresses(chance)[:2048],
        chance.randbytes(chance.choice((0, 4, 8, 12, 14, 140, 176, 1000))),
    )
    arguments = [signed(number(chance)) for _ in range(4)]
    operation = chance.choice(OPERATIONS)
    if operation in (9, 10):
        arguments[0] = chance.choice((132, 132, 132, 1, 0, 41))
        arguments[1] = chance.choice((chance.randrange(135), chance.randrange(135), arguments[1]))
    frame = REQUEST.pack(
        1, operation, *arguments, chance.randrange(65536) if chance.random() < 0.2 else 0, chance.choice((0, 1, 4, 0x40, 0x200, 0xFFFF)),
        number(chance), number(chance), number(chance), number(chance), chance.choice((0, 0x10, 0x20, 0xFFFF)), chance.randrange(2),
        len(address), len(data),
    )  # fmt: skip
    rights = []
    if passed and chance.random() < 0.9:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [chance.choice(passed).fileno()]))]
    control.sendmsg([frame, address, data], rights)
    _, ancillary, _, _ = control.recvmsg(100000, socket.CMSG_SPACE(4))
    for _, _, value in ancillary:
        if not stat.S_ISSOCK(os.fstat(int.from_bytes(value[:4], sys.byteorder)).st_mode):
            os.close(int.from_bytes(value[:4], sys.byteorder))  # the states' memory
            continue
        made = socket.socket(
            socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=int.from_bytes(value[:4], sys.byteorder)
        )
        if len(passed) < 30:
            passed.append(made)
        else:
            made.close()
    if passed and chance.random() < 0.02:
        passed.pop(chance.randrange(len(passed))).close()


def fuzz_calls(seconds: float, seed: int) -> None:
    """Mutated calls, each control connection used until sctpd drops it."""
    chance, end = random.Random(seed), time.monotonic() + seconds
    passed: list[socket.socket] = []
    made = 0
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
            control.connect("\0sctp-userland")
            control.settimeout(10)
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                for _ in range(500):
                    call(chance, control, passed)
                    made += 1
    print(made)


def mutate(chance: random.Random, packet: bytes) -> bytes:
    """Change a packet here and there; lengths and types more often than the rest."""
    changed = bytearray(packet)
    for _ in range(chance.choice((0, 1, 1, 2, 3, 8))):
        if len(changed) <= 12:
            break
        offset = chance.randrange(12, len(changed))
        kind = chance.randrange(5)
        if kind == 0:
            changed[offset] = chance.getrandbits(8)
        elif kind == 1:
            changed[offset] ^= 1 << chance.randrange(8)
        elif kind == 2 and len(changed) >= 16:
            changed[14:16] = struct.pack("!H", chance.choice(INTERESTING) & 0xFFFF)
        elif kind == 3:
            del changed[offset : offset + chance.randrange(20)]
        else:
            changed[offset:offset] = chance.randbytes(chance.randrange(20))
    return with_checksum(bytes(changed)) if len(changed) >= 12 else bytes(changed)


def fuzz_packets(seconds: float, seed: int) -> None:
    """Live associations on loopback; their packets come once more, mutated, with right tags and checksums."""
    chance, end = random.Random(seed), time.monotonic() + seconds
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP)
    raw.settimeout(0.2)
    stop = threading.Event()
    waiting = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
    waiting.bind(("127.0.0.1", 0))
    waiting.listen(1)
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
    client.connect(waiting.getsockname())
    server, _ = waiting.accept()
    bystanders = {waiting.getsockname()[1], client.getsockname()[1]}
    thrown = 0

    def traffic() -> None:
        while not stop.is_set():
            with (
                contextlib.suppress(OSError),
                socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, socket.IPPROTO_SCTP) as server,
            ):
                server.bind(("127.0.0.1", 0))
                server.listen(5)
                server.settimeout(0.2)
                with socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, socket.IPPROTO_SCTP) as client:
                    client.settimeout(0.2)
                    for size in (10, 3000, 100, 20000, 1):
                        client.sendto(bytes(size), server.getsockname())
                        server.recv(100000)

    thread = threading.Thread(target=traffic, daemon=True)
    thread.start()
    while time.monotonic() < end:
        with contextlib.suppress(TimeoutError, PermissionError, OSError):
            packet = raw.recv(70000)[20:]
            if bystanders & set(struct.unpack("!HH", packet[:4])):
                continue
            for _ in range(3):
                raw.sendto(mutate(chance, packet), ("127.0.0.1", 0))
                thrown += 1
    stop.set()
    thread.join(5)
    for ours, theirs in ((client, server), (server, client)):
        theirs.settimeout(30)
        ours.send(b"still here")
        if theirs.recv(100) != b"still here":
            sys.exit("an association that nobody attacked has ended")
    print(thrown)


if __name__ == "__main__":
    {"calls": fuzz_calls, "packets": fuzz_packets}[sys.argv[1]](float(sys.argv[2]), int(sys.argv[3]))
