"""Two hosts (network namespaces), each with an SCTP of its own, and what happens to the links between them."""

# ruff: noqa: E501  (programs given as text)

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sctp.test_daemon import SCTPD, serves, wait_for
from tests.support.namespaces import Namespace

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
PRELUDE = f"import sys; sys.path.insert(0, {str(HERE)!r})\nfrom sctp_api import *\nimport time\n"

ECHO = """
server = one_to_many()
bindx(server, [(address, 5000) for address in sys.argv[1:]]) if len(sys.argv) > 1 else server.bind(("0.0.0.0", 5000))
server.listen(16)
print("listening", flush=True)
while True:
    got = receive_data(server, timeout_s=1000)
    send(server, got.data, association=got.association)
"""


def ip(namespace: Namespace, *arguments: str) -> None:
    namespace.ip(*arguments)


@pytest.fixture
def hosts(namespaces: Callable[[], Namespace]) -> tuple[Namespace, Namespace]:
    """Return two hosts with two links: 10.1.0.0/24 and 10.2.0.0/24, the first host .1, the second .2."""
    first, second = namespaces(), namespaces()
    for link in (1, 2):
        ip(
            first,
            "link",
            "add",
            f"link{link}",
            "type",
            "veth",
            "peer",
            "name",
            f"link{link}",
            "netns",
            second.name,
        )
        for number, host in ((1, first), (2, second)):
            ip(host, "addr", "add", f"10.{link}.0.{number}/24", "dev", f"link{link}")
            ip(host, "-6", "addr", "add", f"fd00:{link}::{number}/64", "dev", f"link{link}", "nodad")
            ip(host, "link", "set", f"link{link}", "up")
    return first, second


def serve(host: Namespace, *addresses: str) -> subprocess.Popen[str]:
    process = host.start(sys.executable, "-c", PRELUDE + ECHO, *addresses, sctp=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    return process


def run(host: Namespace, code: str, timeout_s: float = 60) -> str:
    done = host.run(sys.executable, "-c", PRELUDE + code, sctp=True, timeout_s=timeout_s)
    assert done.returncode == 0, done.stderr
    return done.stdout


ECHO_ONCE = """
client = one_to_many()
send(client, b"x", to=({address!r}, 5000))
print(receive_data(client).data)
"""


def test_between_hosts(hosts: tuple[Namespace, Namespace]) -> None:
    serve(hosts[1])
    assert run(hosts[0], ECHO_ONCE.format(address="10.1.0.2")) == "b'x'\n"


def test_ipv6_between_hosts(hosts: tuple[Namespace, Namespace]) -> None:
    code = "client = one_to_many(socket.AF_INET6)\nsend(client, b'x', to=('fd00:1::2', 5000))\nprint(receive_data(client).data)"
    server = PRELUDE + ECHO.replace("one_to_many()", "one_to_many(socket.AF_INET6)")
    process = hosts[1].start(sys.executable, "-c", server.replace("5000", "5001"), "fd00:1::2", sctp=True)
    assert process.stdout is not None
    process.stdout.readline()
    assert run(hosts[0], code.replace("5000", "5001")) == "b'x'\n"


def test_address_that_comes_later(hosts: tuple[Namespace, Namespace]) -> None:
    """Both daemons run before the addresses exist that are used."""
    serve(hosts[1])
    run(hosts[0], "one_to_one()")
    ip(hosts[1], "addr", "add", "10.1.0.22/24", "dev", "link1")
    ip(hosts[0], "addr", "add", "10.1.0.11/24", "dev", "link1")
    code = """
client = one_to_many()
client.bind(("10.1.0.11", 0))
send(client, b"x", to=("10.1.0.22", 5000))
print(receive_data(client).data)
"""
    assert run(hosts[0], code) == "b'x'\n"


def test_address_that_went_cannot_be_bound(hosts: tuple[Namespace, Namespace]) -> None:
    serve(hosts[0])  # keeps the daemon
    ip(hosts[0], "addr", "del", "10.1.0.1/24", "dev", "link1")
    code = "try:\n    one_to_one().bind(('10.1.0.1', 0))\nexcept OSError as error:\n    print(error.strerror)"
    assert run(hosts[0], code) == "Cannot assign requested address\n"


def test_source_follows_the_routes(hosts: tuple[Namespace, Namespace]) -> None:
    ip(hosts[0], "addr", "add", "10.9.9.9/32", "dev", "lo")
    ip(hosts[1], "addr", "add", "10.8.8.8/32", "dev", "lo")
    ip(hosts[0], "route", "add", "10.8.8.8/32", "via", "10.2.0.2", "src", "10.9.9.9")
    ip(hosts[1], "route", "add", "10.9.9.9/32", "via", "10.2.0.1")
    server = """
waiting = one_to_one()
waiting.bind(("10.8.8.8", 5000))
waiting.listen(1)
print("listening", flush=True)
print(waiting.accept()[1][0], flush=True)
"""
    process = hosts[1].start(sys.executable, "-c", PRELUDE + server, sctp=True)
    assert process.stdout is not None
    process.stdout.readline()
    run(hosts[0], "one_to_one().connect(('10.8.8.8', 5000))")
    assert process.stdout.readline() == "10.9.9.9\n"


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
    assert receive_data(client, timeout_s=20).data == b"%d" % number
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
    ip(hosts[0], "link", "set", "link1", "down")
    result = talk.stdout.read().split()
    assert result, talk.stderr.read()
    assert result[0] == "True"
    assert float(result[1]) < 5


def test_failover_when_the_far_link_goes(hosts: tuple[Namespace, Namespace]) -> None:
    serve(hosts[1], "10.1.0.2", "10.2.0.2")
    talk = hosts[0].start(sys.executable, "-c", PRELUDE + TALK.format(seconds=4), sctp=True)
    assert talk.stdout is not None
    assert talk.stderr is not None
    assert talk.stdout.readline() == "ready\n"
    time.sleep(1)
    ip(hosts[1], "link", "set", "link1", "down")
    result = talk.stdout.read().split()
    assert result, talk.stderr.read()
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
    ip(hosts[0], "link", "set", "link1", "down")
    time.sleep(1.5)
    ip(hosts[0], "link", "set", "link1", "up")
    assert talk.stdout.readline() == "b'meanwhile'\n"


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


def test_closed_port_is_refused_at_once(hosts: tuple[Namespace, Namespace]) -> None:
    serve(hosts[1])
    code = """
started = time.monotonic()
try:
    one_to_one().connect(("10.1.0.2", 5999))
except ConnectionRefusedError:
    print(time.monotonic() - started < 1)
"""
    assert run(hosts[0], code) == "True\n"


def test_restarted_peer(hosts: tuple[Namespace, Namespace]) -> None:
    """The far daemon dies without a word; its successor answers the unknown association with ABORT."""
    server = serve(hosts[1], "10.1.0.2")
    code = """
client = one_to_many()
send(client, b"before", to=("10.1.0.2", 5000))
association = receive_data(client).association
print("ready", flush=True)
time.sleep(2)
try:
    send(client, b"to the dead", association=association)
except BrokenPipeError:
    pass  # a heartbeat was answered by ABORT already
receive_change(client, COMM_LOST)
send(client, b"anew", to=("10.1.0.2", 5000))
print(receive_data(client).data, flush=True)
"""
    talk = hosts[0].start(sys.executable, "-c", PRELUDE + code, sctp=True)
    assert talk.stdout is not None
    assert talk.stdout.readline() == "ready\n"
    pids = subprocess.run(
        ["ip", "netns", "pids", hosts[1].name], capture_output=True, text=True, check=True
    ).stdout.split()
    # Stopped first: a daemon that outlives its client by a moment would still say SHUTDOWN.
    subprocess.run(["kill", "-STOP", *pids], check=True)
    subprocess.run(["kill", "-9", *pids], check=True)
    server.wait(5)
    serve(hosts[1], "10.1.0.2")
    assert talk.stderr is not None
    assert talk.stdout.readline() == "b'anew'\n", talk.stderr.read()


SLOW_TIMERS = ("--rto-min", "10000", "--rto-initial", "10000", "--rto-max", "20000")


def test_end_of_a_killed_program_comes_from_the_right_address(hosts: tuple[Namespace, Namespace]) -> None:
    """Its socket is gone when SHUTDOWN goes out; on a host with several addresses it must be the association's."""
    hosts[0].start(str(SCTPD), *SLOW_TIMERS)
    assert wait_for(lambda: serves(hosts[0]))
    code = """
import os, signal
with listener() as waiting:
    pid = os.fork()
    if pid == 0:
        client = one_to_one()
        client.connect(waiting.getsockname())
        client.send(b"ready")
        signal.pause()
    server, _ = waiting.accept()
    server.recv(100)
    os.kill(pid, signal.SIGKILL)
    started = time.monotonic()
    assert receive(server, timeout_s=40).data == b""
    print(time.monotonic() - started < 6)
"""
    assert run(hosts[0], code) == "True\n"


def test_terminated_daemon_tells_the_peers(hosts: tuple[Namespace, Namespace]) -> None:
    """By ABORT: the other host's timers alone would take many times as long."""
    hosts[1].start(str(SCTPD), *SLOW_TIMERS)
    assert wait_for(lambda: serves(hosts[1]))
    server = """
with one_to_many() as server:
    server.bind(("10.1.0.2", 5000))
    server.listen(4)
    print("listening", flush=True)
    association = receive_data(server, timeout_s=60).association
    print("up", flush=True)
    print(receive_change(server, COMM_LOST, timeout_s=60).changed_association == association, flush=True)
"""
    process = hosts[1].start(sys.executable, "-c", PRELUDE + server, sctp=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    daemon = hosts[0].start(str(SCTPD))
    assert wait_for(lambda: serves(hosts[0]))
    code = "client = one_to_many()\nsend(client, b'x', to=('10.1.0.2', 5000))\ntime.sleep(100)"
    hosts[0].start(sys.executable, "-c", PRELUDE + code, sctp=True)
    assert process.stdout.readline() == "up\n"
    started_s = time.monotonic()
    daemon.terminate()
    assert process.stdout.readline() == "True\n"
    assert time.monotonic() - started_s < 8
    assert daemon.wait(20) == 0


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
    ip(hosts[0], "addr", "del", "10.1.0.1/24", "dev", "link1")
    time.sleep(1.5)
    ip(hosts[0], "addr", "add", "10.1.0.1/24", "dev", "link1")
    assert talk.stdout.readline() == "True\n", talk.stderr.read()
    code = ECHO_ONCE.format(address="10.1.0.2")
    code = code.replace("client = one_to_many()", "client = one_to_many()\nclient.bind(('10.1.0.1', 0))")
    assert run(hosts[0], code) == "b'x'\n"
