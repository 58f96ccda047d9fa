#!/usr/bin/python3
"""The first process of the guest that run.sh boots: has its kernel take the program, and asks it questions.

Nothing but Python, ip, the daemon and some of the kernel's modules is there. The last line tells what came
of it.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
FINIT_MODULE = 313  # x86_64
POWER_OFF = 0x4321FEDC
IFF_UP, SIOCSIFFLAGS = 1, 0x8914
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
SIOCETHTOOL, ETHTOOL_SFLAGS = 0x8946, 0x26
DAEMON, SOCKET = "/rspdns-fastpath", "/run/fastpath.sock"
GUARD = "/ppu-guard"
MODES = ("tc", "xdp-generic")
PROTOCOL_VERSION = 0  # run.sh writes the daemon's here
NAME, DEEP = "host.example", "a.b.c.d.host.example"
RECORD = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4\x0a\0\0\1"
WAIT_S = 120.0
"""A kernel in an emulated processor is slow."""
HOST, PEER, PEERS_NETWORK = "10.99.0.1", "10.99.0.2", "/run/netns/peer"
"""This guest, and a client in another network namespace of it: the interfaces server and client join them."""
MASTER_KEY = f"0x{'5a' * 32}"


def wire(name: str) -> bytes:
    """A name in a message."""
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def message(kind: str, body: bytes = b"") -> bytes:
    """One for the daemon (daemon/messages.h)."""
    return struct.pack("=IB", 1 + len(body), ord(kind)) + body


def answers() -> bytes:
    """A greeting; a limit of 5 deep questions a second; the answer to NAME."""
    name = wire(NAME)
    put = struct.pack("=HHHB", 1, 0, 0, len(name)) + name + b"\1"
    put += struct.pack("=HHH", 1, 0, len(RECORD)) + RECORD
    depth = bytes([2, len(wire("example"))]) + wire("example")
    return b"".join(
        (
            message("H", struct.pack("=IH?", PROTOCOL_VERSION, 1232, False)),
            message("L", struct.pack("=IIBBH", 5, 0, 24, 56, 1)),
            message("Z", depth),
            message("P", put),
            message("C", struct.pack("=Q", 1)),
        )
    )


def ask(address: str, name: str) -> bytes | None:
    """The answer; None: nothing, since no server listens there."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.connect((address, 53))
        client.send(b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + wire(name) + b"\0\1\0\1")
        try:
            return client.recv(512)
        except (TimeoutError, ConnectionRefusedError):
            return None


def expect(value: object, what: str) -> None:
    """Fail without it."""
    if not value:
        raise AssertionError(f"{what} did not come")


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for it."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        expect(time.monotonic() < end_s, what)
        time.sleep(0.05)


def status() -> Any:
    """The daemon's status."""
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


def hide_kernel_settings() -> None:
    """As a unit may (ProcSubset=pid): what the program needs to know of the kernel, it has from elsewhere."""
    LIBC.unshare(CLONE_NEWNS)
    LIBC.mount(b"none", b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE
    LIBC.mount(b"tmpfs", b"/proc/sys/net", b"tmpfs", 0, None)


@contextmanager
def running(mode: str, interface: str, *addresses: str) -> Iterator[socket.socket]:
    """The daemon; a backend's connection to it."""
    command = [DAEMON, "run", "--interface", interface, "--socket", SOCKET, "--mode", mode]
    each = [part for address in addresses for part in ("--address", address)]
    daemon = subprocess.Popen([*command, *each], preexec_fn=hide_kernel_settings)
    try:
        connections: list[socket.socket] = []

        def listens() -> bool:
            connected = connect()
            connections.extend([connected] if connected else [])
            return bool(connections)

        until(listens, "the daemon")
        with connections[0] as backend:
            yield backend
        daemon.terminate()
        expect(daemon.wait(WAIT_S) == 0, "the end of the daemon")
    finally:
        daemon.kill()


def try_mode(mode: str) -> None:
    """Attach the program so, and ask."""
    with running(mode, "lo", "127.0.0.1", "::1") as backend:
        decisions = feed_and_ask(backend, mode)
    print(f"{mode}: answered, limited, and silent without a lease: {decisions}", flush=True)


def feed(backend: socket.socket) -> Callable[[], None]:
    """Be the backend; return what renews its lease."""
    backend.settimeout(WAIT_S)
    backend.sendall(answers())
    said, files, _, _ = socket.recv_fds(backend, 7, 1)  # with memory for the lease
    (holder,) = struct.unpack("=H", said[5:7])
    lease = mmap.mmap(files[0], mmap.PAGESIZE)

    def renew() -> None:
        lease[8 * holder : 8 * holder + 8] = struct.pack("=Q", time.monotonic_ns())

    return renew


def feed_and_ask(backend: socket.socket, mode: str) -> Any:
    """Be the backend, and a client; return what the program decided."""
    renew = feed(backend)
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
    for decision in ("answered", "limited_tc", "no_lease"):
        expect(decisions[decision], f"a count of {decision}")
    return decisions


def ip(*words: str) -> None:
    """Run the command `ip`."""
    subprocess.run(["/sbin/ip", *words], check=True)


def link_peer() -> None:
    """Make the peer, and the link to it; its VLAN tags stay in frames, which xdp-generic demands."""
    ip("netns", "add", "peer")
    ip("link", "add", "server", "type", "veth", "peer", "name", "client", "netns", "peer")
    for at, interface, address in (([], "server", HOST), (["-n", "peer"], "client", PEER)):
        ip(*at, "address", "add", f"{address}/24", "dev", interface)
        ip(*at, "link", "set", interface, "up")
    value = ctypes.create_string_buffer(struct.pack("=II", ETHTOOL_SFLAGS, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sQ16x", b"server", ctypes.addressof(value))
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)


def encrypt(*, wanted: bool) -> None:
    """Have the peer send all by an IPsec tunnel to this host, or no longer."""
    ends = ("src", PEER, "dst", HOST, "proto", "esp")
    keys = ("auth", "hmac(sha256)", MASTER_KEY, "enc", "ecb(cipher_null)", "")
    for at, direction in ([], "in"), (["-n", "peer"], "out"):
        if not wanted:
            ip(*at, "xfrm", "policy", "flush")
            ip(*at, "xfrm", "state", "flush")
            continue
        ip(*at, "xfrm", "state", "add", *ends, "spi", "0x100", "mode", "tunnel", *keys)
        traffic = ("src", f"{PEER}/32", "dst", f"{HOST}/32", "dir", direction)
        ip(*at, "xfrm", "policy", "add", *traffic, "tmpl", *ends, "mode", "tunnel")


def peers_socket() -> socket.socket:
    """A socket of the peer's that asks this host."""
    with open("/proc/self/ns/net") as here, open(PEERS_NETWORK) as there:
        LIBC.setns(there.fileno(), CLONE_NEWNET)
        try:
            asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            asking.bind((PEER, 0))
            asking.connect((HOST, 53))
        finally:
            LIBC.setns(here.fileno(), CLONE_NEWNET)
    return asking


def try_ipsec(mode: str) -> None:
    """A question that came encrypted must reach the name server; the host's policy encrypts its answer."""
    question = b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + wire(NAME) + b"\0\1\0\1"
    with (
        running(mode, "server", HOST) as backend,
        peers_socket() as client,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as name_server,
    ):
        name_server.bind((HOST, 53))
        name_server.setblocking(False)
        renew = feed(backend)

        def received(sock: socket.socket) -> bytes:
            try:
                return sock.recv(512)
            except (BlockingIOError, TimeoutError):
                return b""

        def is_answered() -> bool:
            renew()
            client.settimeout(1)
            client.send(question)
            return received(client)[2:4] == b"\x85\0"

        def reaches_name_server() -> bool:
            renew()
            client.send(question)
            time.sleep(0.1)
            return received(name_server) == question

        until(is_answered, f"an answer in clear ({mode})")
        encrypt(wanted=True)
        if mode == "xdp-generic":
            until(lambda: not status()["interfaces"][0]["attached"], "the end of xdp-generic, for IPsec")
            expect("IPsec is in use" in status()["interfaces"][0]["problem"], "the reason")
        client.setblocking(False)
        while received(client) or received(name_server):
            pass
        until(reaches_name_server, f"a question that came encrypted, at the name server ({mode})")
        before = status()["decisions"]["answered"]
        for _ in range(5):
            until(reaches_name_server, f"a question that came encrypted, at the name server ({mode})")
        expect(status()["decisions"]["answered"] == before, "silence of the program")
        expect(not received(client), "silence")
        encrypt(wanted=False)
        until(is_answered, f"an answer in clear again ({mode})")
    print(f"{mode}: what came by IPsec is left to the name server", flush=True)


def prepare() -> None:
    """File systems, modules, and an interface."""
    for kind, path in (("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/run")):
        if LIBC.mount(kind.encode(), path.encode(), kind.encode(), 0, None):
            raise OSError(ctypes.get_errno(), f"mount {path}")
    with open("/modules.order") as order:
        modules = order.read().split()
    for module in modules:
        with open(f"/modules/{module}.ko", "rb") as file:
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
        link_peer()
        for mode in MODES:
            try_ipsec(mode)
        print(f"\nRESULT: OK on Linux {release}", flush=True)
    except BaseException as error:  # whatever it is, it is told, and the guest ends
        print(f"\nRESULT: FAILED on Linux {release}: {error!r}", flush=True)
    os.sync()
    LIBC.reboot(POWER_OFF)


main()
