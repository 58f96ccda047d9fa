"""Two hosts, each with an SCTP of its own: addresses, routes, refusals, and how ends are told."""

# ruff: noqa: E501  (programs given as text)
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from daemon import PRELUDE, daemons, sctpd, serves
from two_hosts import ECHO, ECHO_ONCE, run, serve

from tests.support.namespaces import Namespace
from tests.support.stalls import Mark
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.usefixtures("sanitized_daemon")]


def test_between_hosts(hosts: tuple[Namespace, Namespace], sanitized_daemon: Path) -> None:
    serve(hosts[1])
    assert [Path(f"/proc/{pid}/exe").readlink() for pid in daemons(hosts[1])] == [sanitized_daemon]
    assert run(hosts[0], ECHO_ONCE.format(address="10.1.0.2")) == "b'x'\n"


def test_ipv6_between_hosts(hosts: tuple[Namespace, Namespace]) -> None:
    code = "client = one_to_many(socket.AF_INET6)\nsend(client, b'x', to=('fd00:1::2', 5000))\nprint(receive_data(client).data)"
    server = PRELUDE + ECHO.replace("one_to_many()", "one_to_many(socket.AF_INET6)")
    process = hosts[1].start(sys.executable, "-c", server.replace("5000", "5001"), "fd00:1::2", sctp=True)
    assert process.stdout is not None
    process.stdout.readline()
    assert run(hosts[0], code.replace("5000", "5001")) == "b'x'\n"


def test_link_local_addresses_are_refused_at_once(namespace: Namespace) -> None:
    """Nothing could be sent there: no call may wait for its timers to tell."""
    namespace.ip("link", "add", "link1", "type", "veth", "peer", "name", "link2")
    namespace.ip("addr", "add", "fe80::1/64", "dev", "link1", "nodad")
    namespace.ip("link", "set", "link1", "up")
    code = """
address = ("fe80::1", 5000, 0, socket.if_nametoindex("link1"))
number = errno.EADDRNOTAVAIL
expect(number, one_to_one(socket.AF_INET6).bind, address)
expect(number, bindx, one_to_one(socket.AF_INET6), [("::1", 0), ("fe80::1", 0)])
expect(number, one_to_one(socket.AF_INET6).connect, address)
expect(number, connectx, one_to_many(socket.AF_INET6), [("::1", 5000), ("fe80::1", 5000)])
expect(number, lambda: send(one_to_many(socket.AF_INET6), b"x", to=address))
print("refused")
"""
    assert run(namespace, code) == "refused\n"


def test_address_that_comes_later(hosts: tuple[Namespace, Namespace]) -> None:
    """Both daemons run before the addresses exist that are used."""
    serve(hosts[1])
    run(hosts[0], "one_to_one()")
    hosts[1].ip("addr", "add", "10.1.0.22/24", "dev", "link1")
    hosts[0].ip("addr", "add", "10.1.0.11/24", "dev", "link1")
    code = """
client = one_to_many()
client.bind(("10.1.0.11", 0))
send(client, b"x", to=("10.1.0.22", 5000))
print(receive_data(client).data)
"""
    assert run(hosts[0], code) == "b'x'\n"


def test_address_that_went_cannot_be_bound(hosts: tuple[Namespace, Namespace]) -> None:
    serve(hosts[0])  # keeps the daemon
    hosts[0].ip("addr", "del", "10.1.0.1/24", "dev", "link1")
    code = "try:\n    one_to_one().bind(('10.1.0.1', 0))\nexcept OSError as error:\n    print(error.strerror)"
    assert run(hosts[0], code) == "Cannot assign requested address\n"


def test_source_follows_the_routes(hosts: tuple[Namespace, Namespace]) -> None:
    """As they are, and as they become while sctpd runs; IPv4 and IPv6."""
    first, second = hosts
    for address in ("10.9.9.9/32", "10.9.9.10/32", "fd09::9/128", "fd09::10/128"):
        first.ip("addr", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))
    second.ip("addr", "add", "10.8.8.8/32", "dev", "lo")
    second.ip("addr", "add", "fd08::8/128", "dev", "lo", "nodad")
    second.ip("route", "add", "10.9.9.0/24", "via", "10.2.0.1")
    second.ip("route", "add", "fd09::/64", "via", "fd00:2::1")
    server = """
waiting = one_to_one(socket.AF_INET6)
waiting.bind(("::", 5000))
waiting.listen(1)
print("listening", flush=True)
while True:
    print(waiting.accept()[1][0].removeprefix("::ffff:"), flush=True)
"""
    process = second.start(sys.executable, "-c", PRELUDE + server, sctp=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    serve(first)  # keeps its sctpd
    for last in ("9", "10"):
        first.ip("route", "replace", "10.8.8.8/32", "via", "10.2.0.2", "src", f"10.9.9.{last}")
        first.ip("-6", "route", "replace", "fd08::8/128", "via", "fd00:2::2", "src", f"fd09::{last}")
        run(first, "one_to_one().connect(('10.8.8.8', 5000))")
        assert process.stdout.readline() == f"10.9.9.{last}\n"
        run(first, "one_to_one(socket.AF_INET6).connect(('fd08::8', 5000))")
        assert process.stdout.readline() == f"fd09::{last}\n"


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


def test_restarted_peer(hosts: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    """The far daemon dies without a word; its successor answers the unknown association with ABORT."""
    server = serve(hosts[1], "10.1.0.2")
    restarted = tmp_path / "restarted"
    code = f"""
import os
client = one_to_many()
send(client, b"before", to=("10.1.0.2", 5000))
association = receive_data(client).association
print("ready", flush=True)
while not os.path.exists({str(restarted)!r}):
    time.sleep(0.02)
send(client, b"to the dead", association=association)
receive_change(client, COMM_LOST, timeout_s=100)
send(client, b"anew", to=("10.1.0.2", 5000))
print(receive_data(client, timeout_s=100).data, flush=True)
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
    server.wait()
    serve(hosts[1], "10.1.0.2")
    restarted.touch()
    assert talk.stderr is not None
    assert talk.stdout.readline() == "b'anew'\n", talk.stderr.read()


SHOWS_PEERS = """
server = one_to_many()
server.bind(("0.0.0.0", 5000))
server.listen(16)
print("listening", flush=True)
while True:
    got = receive_data(server, timeout_s=1000)
    print(*sorted(address for address, _ in addresses_of(server, got.association, peer=True)), flush=True)
    send(server, got.data, association=got.association)
"""
TALKS = """
client = one_to_one()
client.settimeout(30)
client.bind(({address!r}, 6000))
client.connect(("10.1.0.2", 5000))
for number in range(5):
    client.send(b"%d" % number)
    assert client.recv(100) == b"%d" % number
print("talked", flush=True)
client.recv(100) if {stays} else None
"""


def test_peer_that_restarts_with_fewer_addresses(hosts: tuple[Namespace, Namespace]) -> None:
    """The association goes on with those that are left; nothing is sent to the others, nor freed too soon."""
    server = hosts[1].start(sys.executable, "-c", PRELUDE + SHOWS_PEERS, sctp=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "listening\n"
    first = hosts[0].start(
        sys.executable, "-c", PRELUDE + TALKS.format(address="0.0.0.0", stays=True), sctp=True
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "talked\n"
    pids = [str(first.pid), *map(str, daemons(hosts[0]))]
    subprocess.run(["kill", "-STOP", *pids], check=True)  # first: nobody says goodbye
    subprocess.run(["kill", "-9", *pids], check=True)
    first.wait()
    assert run(hosts[0], TALKS.format(address="10.1.0.1", stays=False)) == "talked\n"
    shown = [server.stdout.readline() for _ in range(10)]
    assert shown == ["10.1.0.1 10.2.0.1\n"] * 5 + ["10.1.0.1\n"] * 5


SLOW_TIMERS = ("--rto-min", "10000", "--rto-initial", "10000", "--rto-max", "20000")


def test_end_of_a_killed_program_comes_from_the_right_address(hosts: tuple[Namespace, Namespace]) -> None:
    """Its socket is gone when SHUTDOWN goes out; on a host with several addresses it must be the association's."""
    hosts[0].start(sctpd(), *SLOW_TIMERS)
    until(lambda: serves(hosts[0]))
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
    hosts[1].start(sctpd(), *SLOW_TIMERS)
    until(lambda: serves(hosts[1]))
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
    daemon = hosts[0].start(sctpd())
    until(lambda: serves(hosts[0]))
    code = "client = one_to_many()\nsend(client, b'x', to=('10.1.0.2', 5000))\ntime.sleep(100)"
    hosts[0].start(sys.executable, "-c", PRELUDE + code, sctp=True)
    assert process.stdout.readline() == "up\n"
    terminated = Mark.now()
    daemon.terminate()
    assert process.stdout.readline() == "True\n"
    assert terminated.ran_s() < 8
    assert daemon.wait(60) == 0


def test_address_on_no_interface_is_its_binders_alone(hosts: tuple[Namespace, Namespace]) -> None:
    """An address that one program has bound, loopback or of a local route, isn't announced elsewhere for
    the wildcard sockets of others.

    Its own binder announces one of a local route, beside those of interfaces.
    """
    hosts[0].ip("route", "add", "local", "10.66.0.0/24", "dev", "lo")
    hosts[1].ip("route", "add", "10.66.0.0/24", "via", "10.1.0.1")
    binds = """
held = [one_to_one(), one_to_one(), one_to_one(socket.AF_INET6), one_to_many()]
held[0].bind(("127.0.0.2", 0))
held[1].bind(("10.66.0.5", 5001))
held[1].listen(1)
held[2].bind(("::1", 0))
bindx(held[3], [("10.1.0.1", 5002), ("10.66.0.6", 5002), ("127.0.0.3", 5002)])
print("bound", flush=True)
held[1].accept()[0].recv(10)
send(held[3], b"x", to=("10.1.0.2", 5000))
time.sleep(100)
"""
    holder = hosts[0].start(sys.executable, "-c", PRELUDE + binds, sctp=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "bound\n"
    server = """
server = one_to_many()
server.bind(("10.1.0.2", 5000))
server.listen(4)
print("listening", flush=True)
association = receive_data(server, timeout_s=60).association
print(sorted(address[0] for address in addresses_of(server, association, peer=True)), flush=True)
client = one_to_one()
client.connect(("10.66.0.5", 5001))
print(addresses_of(client, peer=True), flush=True)
client.send(b"x")
association = receive_data(server, timeout_s=60).association
print(sorted(address[0] for address in addresses_of(server, association, peer=True)), flush=True)
"""
    process = hosts[1].start(sys.executable, "-c", PRELUDE + server, sctp=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    run(hosts[0], "client = one_to_many()\nsend(client, b'x', to=('10.1.0.2', 5000))\ntime.sleep(1)")
    assert process.stdout.readline() == "['10.1.0.1', '10.2.0.1']\n"
    assert process.stdout.readline() == "[('10.66.0.5', 5001)]\n"
    assert process.stdout.readline() == "['10.1.0.1', '10.66.0.6']\n", "its binder tells of it"


def test_address_on_two_interfaces(hosts: tuple[Namespace, Namespace]) -> None:
    """It stays an address of the host until the last of them has lost it."""
    serve(hosts[0])  # keeps the daemon
    hosts[0].ip("addr", "add", "10.5.0.1/24", "dev", "link1")
    hosts[0].ip("addr", "add", "10.5.0.1/24", "dev", "link2")
    code = """
listening = one_to_one()
listening.bind(("10.5.0.1", 0))
listening.listen(1)
client = one_to_one()
client.settimeout(20)
client.connect(listening.getsockname())
print("connected")
"""
    for link in ("link2", "link1"):
        assert run(hosts[0], code) == "connected\n"
        hosts[0].ip("addr", "del", "10.5.0.1/24", "dev", link)
    assert (
        run(hosts[0], "expect(errno.EADDRNOTAVAIL, one_to_one().bind, ('10.5.0.1', 0))\nprint('gone')")
        == "gone\n"
    )


def test_changes_of_addresses_that_were_lost(hosts: tuple[Namespace, Namespace]) -> None:
    """More change than the kernel keeps while sctpd stands still: it reads all of them anew.

    Also when that happens while it reads: 3000 addresses take it some time.
    """
    serve(hosts[0])  # keeps the daemon
    (daemon,) = daemons(hosts[0])
    many = [f"10.{number // 250 + 20}.{number % 250}.1/32 dev lo" for number in range(3000)]
    batch = hosts[0].command("ip", "-batch", "-")
    subprocess.run(batch, input="\n".join(f"addr add {address}" for address in many), text=True, check=True)
    churn = "\n".join(
        f"addr {change} 10.8.{number}.1/32 dev lo" for number in range(250) for change in ("add", "del")
    )
    for pause_ms in (1, 3, 5):
        os.kill(daemon, signal.SIGSTOP)
        subprocess.run(batch, input=f"{churn}\n{churn}", text=True, check=True)
        os.kill(daemon, signal.SIGCONT)
        time.sleep(pause_ms / 1000)
    os.kill(daemon, signal.SIGSTOP)
    flush = "\n".join(f"addr del {address}" for address in many)
    subprocess.run(batch, input=flush, text=True, check=True)
    os.kill(daemon, signal.SIGCONT)
    checked = (
        "try:\n    one_to_one().bind(('10.31.249.1', 0))\nexcept OSError as error:\n    print(error.strerror)"
    )
    until(lambda: run(hosts[0], checked) == "Cannot assign requested address\n", 20)
    changes = [
        f"addr {change} 10.9.{number}.1/32 dev lo" for number in range(250) for change in ("add", "del")
    ]
    os.kill(daemon, signal.SIGSTOP)
    try:
        command = hosts[0].command("ip", "-batch", "-")
        changes += ["addr del 10.1.0.1/24 dev link1", *changes, "addr add 10.1.0.77/24 dev link1"]
        subprocess.run(command, input="\n".join(changes), text=True, check=True)
    finally:
        os.kill(daemon, signal.SIGCONT)
    code = """
try:
    one_to_one().bind(("10.1.0.1", 0))
except OSError as error:
    print(error.strerror)
client = one_to_many()
client.bind(("0.0.0.0", 0))
print(sorted(address[0] for address in addresses_of(client, peer=False)))
"""
    expected = ["10.1.0.77", "10.2.0.1", "127.0.0.1"]
    assert run(hosts[0], code) == f"Cannot assign requested address\n{expected}\n"
