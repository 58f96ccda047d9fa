"""Clients that speak with sctpd without the library: whatever they send or pass harms nobody."""

import sys

import pytest
from daemon import BESIDE, resident_mb

from tests.support.namespaces import Namespace

pytestmark = pytest.mark.integration

RAW = """
import array, ctypes, os, resource, signal, socket, struct, sys, time
if os.environ.pop("LD_PRELOAD", None):  # the library would take sendmsg() for one of SCTP
    os.execv(sys.executable, sys.orig_argv)
SOCKET, BIND, CONNECT, SET_OPTION = 1, 2, 6, 9
def connected():
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.connect("\\0sctp-userland")
    control.settimeout(20)
    return control
def ask(control, operation, *arguments, address=b"", data=b"", fd=None):
    head = struct.pack("HH4i24xII", 1, operation, *(*arguments, 0, 0, 0, 0)[:4], len(address), len(data))
    rights = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    control.sendmsg([head + address + data], rights)
def answer(control):
    data, rights, *_ = control.recvmsg(1 << 17, socket.CMSG_SPACE(4))
    error = struct.unpack_from("ii", data)[1]
    return error, struct.unpack("i", rights[0][2])[0] if rights else -1
def call(control, *arguments, **more):
    ask(control, *arguments, **more)
    return answer(control)
def new_socket(control, style=socket.SOCK_STREAM):
    return socket.socket(fileno=call(control, SOCKET, socket.AF_INET, style)[1])
"""
SETS_MANY_OPTIONS = """
with connected() as control:
    held = [new_socket(control) for _ in range(300)]
    for one in held:
        for level, option in ((0, 1), (132, 2)):
            for _ in range(64):
                call(control, SET_OPTION, level, option, data=bytes(4096), fd=one.fileno())
    print("set", flush=True)
    sys.stdin.readline()
"""
KEPT_MB = 30
"""Far below what these options would take if all were kept (150 MB)."""


def test_options_are_kept_within_bounds(shared: Namespace) -> None:
    before_mb = resident_mb(shared)
    client = shared.start(sys.executable, "-c", RAW + SETS_MANY_OPTIONS)
    assert client.stdout is not None
    assert client.stdout.readline() == "set\n"
    assert resident_mb(shared) < before_mb + KEPT_MB
    client.terminate()
    client.wait(10)


GIVES_ADDRESSES = (
    BESIDE
    + """
from raw_sctp import chunk, packet
import socket, struct, time
def begins(tag, addresses):
    fixed = struct.pack(">IIHHI", tag, 100000, 10, 10, 1)
    given = b"".join(struct.pack(">HH4B", 5, 8, 10, 9, 9, number) for number in range(addresses))
    raw.sendto(packet(5777, 5700, 0, chunk(1, 0, fixed + given)), ("127.0.0.1", 0))
with socket.socket(socket.AF_INET, socket.SOCK_RAW, 132) as raw:
    raw.settimeout(20)
    begins(1111, 65)
    begins(2222, 64)
    while True:
        data = raw.recv(65535)[20:]
        if struct.unpack(">HH", data[:4]) == (5700, 5777):
            print(struct.unpack(">I", data[4:8])[0], data[12])
            break
"""
)
LISTENS = """
import socket, time
held = socket.socket(2, 1, 132)
held.bind(("127.0.0.1", 5700))
held.listen(5)
print("listening", flush=True)
time.sleep(100)
"""


def test_a_peer_gives_few_addresses(shared: Namespace) -> None:
    """Each costs memory and time: an INIT with more than 64 is discarded."""
    listener = shared.start(sys.executable, "-c", LISTENS, sctp=True)
    assert listener.stdout is not None
    assert listener.stdout.readline() == "listening\n"
    run = shared.run(sys.executable, "-c", GIVES_ADDRESSES)
    listener.terminate()
    listener.wait(10)
    assert run.stdout == "2222 2\n", run.stdout + run.stderr
