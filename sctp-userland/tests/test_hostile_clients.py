"""Programs that say or send anything, or never read: sctpd goes on for the others."""

import sys
from pathlib import Path

import pytest
from daemon import BESIDE, PRELUDE, daemons, python, start, start_sctpd
from rspdns_lab.net.processes import processor_s

from tests.support.namespaces import Namespace
from tests.support.waiting import until

# ruff: noqa: E501  (programs given as text)

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("without_kernel_sctp")]


def test_garbage_on_the_control_connection_ends_only_that(namespace: Namespace) -> None:
    daemon = start_sctpd(namespace)
    code = """
import socket
for garbage in (b"\\0", b"x" * 51, b"x" * 52, b"\\xff" * 60000, b"\\1\\0\\6\\0" + b"\\xff" * 48, b"\\1\\0\\1\\0" + bytes(48) + b"extra"):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect("\\0sctp-userland")
        client.settimeout(60)
        client.send(garbage)
        try:
            assert client.recv(1000) == b""
        except ConnectionResetError:
            pass
print('done')
"""
    assert namespace.run(sys.executable, "-c", code).stdout == "done\n"
    assert daemon.poll() is None
    assert python(namespace, "import socket; socket.socket(2, 1, 132); print('made')").stdout == "made\n"


def test_descriptors_that_an_empty_message_brings_are_closed(namespace: Namespace) -> None:
    """`sctpd` would have none left for others."""
    daemon = start_sctpd(namespace)
    (pid,) = daemons(namespace)
    descriptors = Path(f"/proc/{pid}/fd")
    before = len(list(descriptors.iterdir()))
    code = """
import socket, sys
for _ in range(20):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect("\\0sctp-userland")
        client.settimeout(60)
        socket.send_fds(client, [b""], [0] * 50)
        try:
            assert client.recv(1000) == b""
        except ConnectionResetError:
            pass
print('done')
"""
    assert namespace.run(sys.executable, "-c", code).stdout == "done\n"
    until(lambda: len(list(descriptors.iterdir())) < before + 50)
    assert daemon.poll() is None


def test_socket_limit(namespace: Namespace) -> None:
    start_sctpd(namespace, "--socket-limit", "5")
    code = """
import socket
held = []
try:
    while len(held) < 100:
        held.append(socket.socket(2, 1, 132))
except OSError as error:
    print(len(held), error.errno)
"""
    assert python(namespace, code).stdout == "5 24\n"


def test_client_that_never_reads_costs_bounded_memory(namespace: Namespace) -> None:
    code = """
import socket, time
a = socket.socket(2, 1, 132); a.bind(('127.0.0.1', 0)); a.listen(64)
pairs = []
for _ in range(20):
    b = socket.socket(2, 1, 132); b.connect(a.getsockname()); pairs.append((b, a.accept()[0])); b.setblocking(False)
deadline = time.monotonic() + 3
while time.monotonic() < deadline:
    for b, _ in pairs:
        try:
            b.send(bytes(5000))
        except BlockingIOError:
            pass
print('full', flush=True)
time.sleep(20)
"""
    client = namespace.start(sys.executable, "-c", code, sctp=True)
    assert client.stdout is not None
    assert client.stdout.readline() == "full\n"
    status = Path(f"/proc/{daemons(namespace)[0]}/status").read_text()
    resident_kb = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
    assert resident_kb < 20 * 4096


def test_malformed_packets(namespace: Namespace) -> None:
    """Random bytes, and chunks with wrong lengths and right checksums: strangers' associations live on.

    They get as far as the chunks: those for a port that nobody has are answered by ABORT.
    """
    daemon = start_sctpd(namespace)
    code = (
        BESIDE
        + """
import random, socket
from raw_sctp import chunk, packet
random.seed(1)
waiting = socket.socket(2, 1, 132); waiting.bind(('127.0.0.1', 0)); waiting.listen(1)
client = socket.socket(2, 1, 132); client.connect(waiting.getsockname()); server, _ = waiting.accept()
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, 132)
raw.settimeout(0.5)
aborts = 0
def look():
    global aborts
    try:
        while True:
            aborts += raw.recv(65535)[20:33][-1:] == b'\\x06'
            raw.settimeout(0)
    except OSError:
        raw.settimeout(0.5)
for i in range(3000):
    body = random.randbytes(random.randrange(200))
    if i % 4:
        to = random.choice([5001, client.getsockname()[1], waiting.getsockname()[1]])
        kind = random.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 130, 192, 193])
        body = packet(5000, to, random.choice([0, 1]), chunk(kind, 0, body, random.choice([None, random.randrange(300)])))
    raw.sendto(body, ('127.0.0.1', 0))
    if i % 20 == 0:
        look()
look()
for number in range(10):
    client.send(b'%d' % number); assert server.recv(100) == b'%d' % number
    server.send(b'back'); assert client.recv(100) == b'back'
print(aborts)
"""
    )
    run = python(namespace, code, timeout_s=150)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 100
    assert daemon.poll() is None


WRITES_PAST_THE_LIBRARY = """
import struct
SENDTO, DATA = {"x86_64": 44, "aarch64": 206}[os.uname().machine], 1
with connected() as (client, server):
    for _ in range(3):
        client.send(b"opens the way")
        assert server.recv(100) == b"opens the way"
    for flags in (0x04, 0x200, 0x40, 0x44, 0xffff):  # SCTP_ABORT, SCTP_EOF, SCTP_SENDALL ...
        written = struct.pack("=III" "HHIIIIHH", DATA, 0, 0, 0, flags, 0, 0, 0, 0, 0, 0) + b"x" * (flags != 0x04)
        assert libc.syscall(SENDTO, client.fileno(), written, len(written), 0, None, 0) == len(written)
    client.send(b"still there")
    server.settimeout(10)
    print(server.recv(100).decode())
"""


def test_flags_that_only_a_call_may_have_come_to_nothing_on_the_one_way(namespace: Namespace) -> None:
    """Written past the library, they ended the association; some would have usrsctp keep its endpoint for ever."""
    run = namespace.run(sys.executable, "-c", PRELUDE + WRITES_PAST_THE_LIBRARY, sctp=True)
    assert run.stdout == "still there\n", run.stdout + run.stderr


SHUTS_DOWN_THE_PAIR = """
SHUTDOWN = {"x86_64": 48, "aarch64": 210}[os.uname().machine]
with connected() as (client, server):
    assert libc.syscall(SHUTDOWN, client.fileno(), socket.SHUT_WR) == 0
    print("shut", flush=True)
    time.sleep(1)
    server.send(b"x")
    assert client.recv(100) == b"x"
"""


def test_a_descriptor_that_is_shut_down_past_the_library_keeps_nobody_busy(namespace: Namespace) -> None:
    daemon = start_sctpd(namespace)
    client = start(namespace, SHUTS_DOWN_THE_PAIR, "shut")
    before_s = processor_s(daemon.pid)
    assert client.wait(30) == 0
    assert processor_s(daemon.pid) - before_s < 0.4
