#!/usr/bin/python3
"""The first process of the guest that run.sh boots: has its kernel take the program, and asks it questions.

Nothing but Python, the daemon and three modules of the kernel is there. The last line tells what came of it.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
FINIT_MODULE = 313  # x86_64
POWER_OFF = 0x4321FEDC
IFF_UP, SIOCSIFFLAGS = 1, 0x8914
DAEMON, SOCKET = "/rspdns-fastpath", "/run/fastpath.sock"
GUARD = "/ppu-guard"
MODES = ("tc", "xdp-generic")
PROTOCOL_VERSION = 0  # run.sh writes the daemon's here
NAME, DEEP = "host.example", "a.b.c.d.host.example"
RECORD = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4\x0a\0\0\1"
WAIT_S = 120.0
"""A kernel in an emulated processor is slow."""


def wire(name: str) -> bytes:
    """A name in a message."""
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def message(kind: str, body: bytes = b"") -> bytes:
    """One for the daemon (daemon/messages.h)."""
    return struct.pack("=IB", 1 + len(body), ord(kind)) + body


def answers() -> bytes:
    """A greeting; a limit of 5 deep questions a second; the answer to NAME."""
    name = wire(NAME)
    put = struct.pack("=HB", 1, len(name)) + name + b"\1" + struct.pack("=HHH", 1, 0, len(RECORD)) + RECORD
    depth = bytes([2, len(wire("example"))]) + wire("example")
    return b"".join(
        (
            message("H", struct.pack("=IH", PROTOCOL_VERSION, 1232)),
            message("L", struct.pack("=IIBBH", 5, 0, 24, 56, 1)),
            message("Z", depth),
            message("P", put),
            message("C", struct.pack("=Q", 1)),
        )
    )


def ask(address: str, name: str) -> bytes | None:
    """What is answered; None: nothing, since nobody listens there."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.connect((address, 53))
        client.send(b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + wire(name) + b"\0\1\0\1")
        try:
            return client.recv(512)
        except (TimeoutError, ConnectionRefusedError):
            return None


def expect(found: object, what: str) -> None:
    """Fail without it."""
    if not found:
        raise AssertionError(f"{what} did not come")


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for it."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        expect(time.monotonic() < end_s, what)
        time.sleep(0.05)


def status() -> Any:
    """What the daemon tells."""
    said = subprocess.run([DAEMON, "status", "--socket", SOCKET], capture_output=True, check=True)
    return json.loads(said.stdout)


def connect() -> socket.socket | None:
    """A connection to the daemon; None: it does not listen yet."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(SOCKET)
    except OSError:
        connection.close()
        return None
    return connection


def try_mode(mode: str) -> None:
    """Attach the program so, and ask."""
    command = [DAEMON, "run", "--interface", "lo", "--socket", SOCKET, "--mode", mode]
    daemon = subprocess.Popen([*command, "--address", "127.0.0.1", "--address", "::1"])
    try:
        found: list[socket.socket] = []

        def listens() -> bool:
            one = connect()
            found.extend([one] if one else [])
            return bool(found)

        until(listens, "the daemon")
        with found[0] as backend:
            decisions = feed_and_ask(backend, mode)
        daemon.terminate()
        expect(daemon.wait(WAIT_S) == 0, "the end of the daemon")
    finally:
        daemon.kill()
    print(f"{mode}: answered, limited, and silent without a lease: {decisions}", flush=True)


def feed_and_ask(backend: socket.socket, mode: str) -> Any:
    """Be the backend, and a client; return what the program decided."""
    backend.settimeout(WAIT_S)
    backend.sendall(answers())
    said, files, _, _ = socket.recv_fds(backend, 7, 1)  # with memory for the lease
    (holder,) = struct.unpack("=H", said[5:7])
    lease = mmap.mmap(files[0], mmap.PAGESIZE)

    def renew() -> None:
        lease[8 * holder : 8 * holder + 8] = struct.pack("=Q", time.monotonic_ns())

    for address in ("127.0.0.1", "::1"):

        def is_answered(address: str = address) -> bool:
            renew()
            expected = b"\x12\x34\x85\0\0\1\0\1\0\0\0\0" + wire(NAME) + b"\0\1\0\1" + RECORD
            return ask(address, NAME) == expected

        def is_limited(address: str = address) -> bool:
            renew()
            said = ask(address, DEEP)
            return said is not None and said[2] == 0x83

        until(is_answered, f"an answer from {address} ({mode})")
        until(is_limited, f"TC for a deep name from {address} ({mode})")
    until(lambda: status()["lease_ms"] == 0, "the end of the lease")
    expect(ask("127.0.0.1", NAME) is None, "silence without a lease")
    decisions = status()["decisions"]
    for one in ("answered", "limited_tc", "no_lease"):
        expect(decisions[one], f"a count of {one}")
    return decisions


def prepare() -> None:
    """File systems, modules, and an interface."""
    for kind, path in (("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/run")):
        if LIBC.mount(kind.encode(), path.encode(), kind.encode(), 0, None):
            raise OSError(ctypes.get_errno(), f"mount {path}")
    for module in sorted(os.listdir("/modules")):
        with open(f"/modules/{module}", "rb") as file:
            if LIBC.syscall(FINIT_MODULE, file.fileno(), b"", 0) and ctypes.get_errno() != errno.EEXIST:
                raise OSError(ctypes.get_errno(), f"module {module}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def main() -> None:
    """Try everything."""
    release = os.uname().release
    try:
        prepare()
        for mode in ("tc", "xdp", "xdp-generic"):
            subprocess.run([DAEMON, "probe", "--mode", mode], check=True)
            print(f"Linux {release} takes the program for {mode}", flush=True)
        subprocess.run([GUARD, "--probe"], check=True)
        print(f"Linux {release} takes the program of ppu-guard", flush=True)
        for mode in MODES:
            try_mode(mode)
        print(f"\nRESULT: OK on Linux {release}", flush=True)
    except BaseException as error:  # whatever it is, it is told, and the guest ends
        print(f"\nRESULT: FAILED on Linux {release}: {error!r}", flush=True)
    os.sync()
    LIBC.reboot(POWER_OFF)


main()
