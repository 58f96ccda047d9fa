"""Two hosts, and what happens to the links and addresses between them while associations live."""

import subprocess
import sys
import time

import pytest

from tests.sctp.two_hosts import ECHO, ECHO_ONCE, PRELUDE, run, serve
from tests.support.exact import BrokenError
from tests.support.namespaces import Namespace

pytestmark = pytest.mark.integration


TALK = """
client = one_to_many()
bindx(client, [("10.1.0.1", 0)])
bindx(client, [("10.2.0.1", client.getsockname()[1])])
association = connectx(client, [("10.1.0.2", 5000)])
print("ready", flush=True)
number, end = 0, time.monotonic() + {seconds}
longest = 0.0
while time.monotonic() < end:
    sent = time.monotonic()
    send(client, b"%d" % number, association=association)
    assert receive_data(client, timeout_s=30).data == b"%d" % number
    longest = max(longest, time.monotonic() - sent)
    number += 1
    time.sleep(0.01)
print(number > 50, longest, flush=True)
"""


def test_multihomed_failover(hosts: tuple[Namespace, Namespace]) -> None:
    """The path in use is cut on the sender's own host: nothing is lost, the other path takes over."""
    serve(hosts[1], "10.1.0.2", "10.2.0.2")
    talk = hosts[0].start(sys.executable, "-c", PRELUDE + TALK.format(seconds=4), sctp=True)
    assert talk.stdout is not None
    assert talk.stderr is not None
    assert talk.stdout.readline() == "ready\n"
    time.sleep(1)
    hosts[0].ip("link", "set", "link1", "down")
    result = talk.stdout.read().split()
    if not result:
        raise BrokenError(talk.stderr.read())  # a message lost, or another one in its place
    assert result[0] == "True"
    assert float(result[1]) < 5


def test_failover_when_the_far_link_goes(hosts: tuple[Namespace, Namespace]) -> None:
    serve(hosts[1], "10.1.0.2", "10.2.0.2")
    talk = hosts[0].start(sys.executable, "-c", PRELUDE + TALK.format(seconds=4), sctp=True)
    assert talk.stdout is not None
    assert talk.stderr is not None
    assert talk.stdout.readline() == "ready\n"
    time.sleep(1)
    hosts[1].ip("link", "set", "link1", "down")
    result = talk.stdout.read().split()
    if not result:
        raise BrokenError(talk.stderr.read())  # a message lost, or another one in its place
    assert result[0] == "True"


def test_link_down_and_up_again(hosts: tuple[Namespace, Namespace]) -> None:
    """A single-homed association outlives a link that is down for a while: retransmission goes on."""
    serve(hosts[1], "10.1.0.2")
    code = """
client = one_to_many()
client.bind(("10.1.0.1", 0))
send(client, b"before", to=("10.1.0.2", 5000))
association = receive_data(client).association
print("ready", flush=True)
sys.stdin.readline()
time.sleep(0.5)
send(client, b"meanwhile", association=association)
print(receive_data(client, timeout_s=20).data, flush=True)
"""
    code = code.replace("sys.stdin.readline()", "")
    talk = hosts[0].start(sys.executable, "-c", PRELUDE + code, sctp=True)
    assert talk.stdout is not None
    assert talk.stdout.readline() == "ready\n"
    hosts[0].ip("link", "set", "link1", "down")
    time.sleep(1.5)
    hosts[0].ip("link", "set", "link1", "up")
    assert talk.stdout.readline() == "b'meanwhile'\n"


@pytest.mark.exact
def test_nothing_lost_nothing_twice_under_loss(hosts: tuple[Namespace, Namespace]) -> None:
    rules = """add table inet loss
add chain inet loss input { type filter hook input priority 0; }
add rule inet loss input meta l4proto 132 numgen random mod 100 < 2 drop
"""
    for host in hosts:
        subprocess.run([*host.command("nft"), "-f", "-"], input=rules, text=True, check=True)
    serve(hosts[1], "10.1.0.2")
    code = """
import threading
client = one_to_many()
send(client, b"start", to=("10.1.0.2", 5000))
association = receive_data(client).association
count = 3000
def write():
    for number in range(count):
        send(client, b"%d" % number, association=association)
thread = threading.Thread(target=write)
thread.start()
for number in range(count):
    assert receive_data(client, timeout_s=30).data == b"%d" % number, number
thread.join()
print("all", not readable(client, 0.5))
"""
    assert run(hosts[0], code, timeout_s=100) == "all True\n"


MIXED = """
client = one_to_many(socket.AF_INET6)
bindx(client, [("fd00:2::1", 0)])
port = client.getsockname()[1]
bindx(client, [("10.1.0.1", port)])
association = connectx(client, [("10.1.0.2", 5000), ("fd00:2::2", 5000)])
send(client, b"first", association=association)
assert receive_data(client).data == b"first"
assert {host for host, _ in addresses_of(client, association, peer=True)} == {"::ffff:10.1.0.2", "fd00:2::2"}
print("mixed", flush=True)
number, end = 0, time.monotonic() + 4
while time.monotonic() < end:
    send(client, b"%d" % number, association=association)
    assert receive_data(client, timeout_s=30).data == b"%d" % number
    number += 1
    time.sleep(0.01)
print(number > 50, flush=True)
"""


def test_address_removed_and_added_while_an_ipv4_and_ipv6_association_lives(
    hosts: tuple[Namespace, Namespace],
) -> None:
    """The IPv4 address goes: IPv6 carries on, nothing is lost; it comes back and serves new sockets."""
    server = PRELUDE + ECHO.replace("one_to_many()", "one_to_many(socket.AF_INET6)")
    process = hosts[1].start(sys.executable, "-c", server, "fd00:2::2", "10.1.0.2", sctp=True)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "listening\n", process.stderr.read()
    talk = hosts[0].start(sys.executable, "-c", PRELUDE + MIXED, sctp=True)
    assert talk.stdout is not None
    assert talk.stderr is not None
    assert talk.stdout.readline() == "mixed\n", talk.stderr.read()
    time.sleep(1)
    hosts[0].ip("addr", "del", "10.1.0.1/24", "dev", "link1")
    time.sleep(1.5)
    hosts[0].ip("addr", "add", "10.1.0.1/24", "dev", "link1")
    if not (result := talk.stdout.readline()):
        raise BrokenError(talk.stderr.read())
    assert result == "True\n"
    code = ECHO_ONCE.format(address="10.1.0.2")
    code = code.replace("client = one_to_many()", "client = one_to_many()\nclient.bind(('10.1.0.1', 0))")
    assert run(hosts[0], code) == "b'x'\n"
