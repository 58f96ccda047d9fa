"""The rules of the loop of sctpd (`sctp-userland/sctpd/loop.h`): no turn waits, nor the next one."""

import json
import sys

import pytest
from daemon import PRELUDE, SCTPD, start, start_sctpd

from tests.support.namespaces import Namespace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

LATEST_S = 1.0
"""Timers of 0.1 and 0.2 s ran after 2 s where a turn forgot them."""


def figures(namespace: Namespace) -> dict[str, int]:
    shown = json.loads(namespace.run(str(SCTPD), "--status", "--json").stdout)
    return {name: value for name, value in shown.items() if name != "sockets"}


LOSES_THE_FIRST = """add table inet loss
add chain inet loss input { type filter hook input priority 0; }
add rule inet loss input sctp chunk data exists numgen inc mod 1000 < 1 drop
"""
TIMES_A_MESSAGE = """
import subprocess
with connected() as (client, server):
    client.send(b"a call: the next goes one way")
    assert server.recv(100)
    time.sleep(0.3)
    subprocess.run(["nft", "-f", "-"], input=sys.argv[1], text=True, check=True)
    begun = time.monotonic()
    client.send(b"lost once")
    assert server.recv(100) == b"lost once"
    print(time.monotonic() - begun)
"""


def test_lost_message_comes_again_after_the_timeout_on_an_idle_host(namespace: Namespace) -> None:
    start_sctpd(namespace, "--rto-min", "100", "--rto-initial", "100")
    run = namespace.run(sys.executable, "-c", PRELUDE + TIMES_A_MESSAGE, LOSES_THE_FIRST, sctp=True)
    assert run.returncode == 0, run.stderr
    assert 0.05 < float(run.stdout) < LATEST_S


TIMES_ACKNOWLEDGEMENTS = """
SACK = 3
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, 132)
raw.settimeout(10)
with connected() as (client, server):
    for _ in range(5):
        time.sleep(0.3)
        raw.setblocking(False)
        try:
            while raw.recv(70000):
                pass
        except BlockingIOError:
            raw.settimeout(10)
        begun = time.monotonic()
        client.send(b"x")
        while raw.recv(70000)[32] != SACK:
            pass
        print(time.monotonic() - begun)
"""


def test_delayed_acknowledgements_come_after_their_delay_on_an_idle_host(namespace: Namespace) -> None:
    start_sctpd(namespace)
    run = namespace.run(sys.executable, "-c", PRELUDE + TIMES_ACKNOWLEDGEMENTS, sctp=True)
    assert run.returncode == 0, run.stderr
    delays_s = [float(line) for line in run.stdout.split()]
    assert len(delays_s) == 5
    assert max(delays_s) < LATEST_S


BUSY = """
import threading
def read(sock, bytes_):
    while bytes_ > 0:
        bytes_ -= len(sock.recv(70000))
for size, count in ((20000, 60), (100, 4000)):
    with connected() as (client, server):
        slow = threading.Thread(target=lambda: (time.sleep(0.4), read(server, size * count)))
        slow.start()
        for _ in range(count):
            client.send(bytes(size))
        slow.join()
    with associated() as (client, association, server, back):
        slow = threading.Thread(target=lambda: (time.sleep(0.4), read(server, size * count)))
        subscribe(server)
        slow.start()
        for _ in range(count):
            send(client, bytes(size), association=association)
        slow.join()
    with connected() as (client, server):
        for _ in range(20):
            client.send(bytes(20000))
        client.close()
        time.sleep(0.2)
        read(server, 400000)
print("done", flush=True)
time.sleep(2.5)
"""


def test_net_below_the_wake_ups_finds_nothing(namespace: Namespace) -> None:
    """Senders wait for room, and sockets close with messages on their way: each goes on by a wake-up."""
    start_sctpd(namespace)
    busy = start(namespace, BUSY, "done")
    assert busy.wait(60) == 0
    found = figures(namespace)
    assert found["found_by_net"] == 0
    assert found["longest_turn_us"] < 1_000_000
    assert found["latest_timer_ms"] < 1_000


LINGERS = """
import array, os, signal, socket, struct, sys, threading, time

def lingering():
    # A TCP connection to a peer that reads nothing: its close() waits for as long as SO_LINGER says.
    waiting = socket.socket()
    waiting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    waiting.bind(("127.0.0.1", 0))
    waiting.listen(1)
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 4))
    made.connect(waiting.getsockname())
    made.setblocking(False)
    try:
        while True:
            made.send(bytes(100000))
    except BlockingIOError:
        held.append(waiting)
        return made

held = []
REQUEST = struct.pack("=HH4i", 1, 13, 0, 0, 0, 0) + bytes(24 + 8)

def throw(way, number):
    # The last holder of the descriptor is the message that is under way.
    made = [lingering() for _ in range(number)]
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [one.fileno() for one in made]))]
    target = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    target.connect("\\0sctp-userland")
    if way == "pair":
        target.send(struct.pack("=HH4i", 1, 1, socket.AF_INET, socket.SOCK_SEQPACKET, 0, 0) + bytes(24 + 8))
        fileno = int.from_bytes(target.recvmsg(100, 100)[1][0][2], "little")
        held.append(target)
        target = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=fileno)
    stop(signal.SIGSTOP)  # else it may close before this process has
    try:
        target.sendmsg([REQUEST], rights)
        if way == "unread":
            target.sendmsg([REQUEST], rights)
    except BrokenPipeError:
        pass
    for one in made:
        one.close() if sys.argv[2:] else threading.Thread(target=one.close, daemon=True).start()
    stop(signal.SIGCONT)
    held.append(target)

def stop(number):
    if sys.argv[2:]:
        os.kill(int(sys.argv[2]), number)

for number in (1, 3):
    throw(sys.argv[1], number)
print("thrown", flush=True)
time.sleep(0.5)
os._exit(0)
"""
BYSTANDER = """
with connected() as (client, server):
    print("connected", flush=True)
    longest, end = 0, time.monotonic() + 1.5
    while time.monotonic() < end:
        begun = time.monotonic()
        client.send(b"x")
        assert server.recv(100) == b"x"
        longest = max(longest, time.monotonic() - begun)
        time.sleep(0.005)
print(longest)
"""


@pytest.mark.parametrize("way", ["admitted", "unread", "pair", "refused"])
def test_passed_descriptors_that_linger_freeze_nobody(way: str, namespace: Namespace) -> None:
    """Closing each of them takes 4 s.

    They come by a call, unread behind a call that ends the connection, down the descriptor of a socket, or
    from a user who is not served.
    """
    daemon = start_sctpd(namespace)
    bystander = start(namespace, BYSTANDER, "connected")
    thrower: list[str] = [sys.executable, "-c", LINGERS, way, str(daemon.pid)]
    if way == "refused":
        thrower = ["setpriv", "--reuid", "12345", "--clear-groups", "/usr/bin/python3", *thrower[1:4]]
    run = namespace.run(*thrower)
    assert run.stdout == "thrown\n", run.stderr
    longest_s, problems = bystander.communicate(timeout=60)
    assert bystander.returncode == 0, problems
    assert float(longest_s) < 0.5
    assert figures(namespace)["longest_turn_us"] < 500_000
