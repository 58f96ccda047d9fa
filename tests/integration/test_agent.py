"""The sidecar, real servers and three real registrars."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.agent_host import ADDRESS, HANDLE, Host, give_address, once_within
from tests.support.crowd import Crowd
from tests.support.namespaces import Namespace
from tests.support.stalls import Deadline, Mark


@pytest.fixture
def host(namespace: Namespace, tmp_path: Path) -> Host:
    return Host(namespace, tmp_path)


@pytest.fixture
def served(host: Host) -> tuple[Host, subprocess.Popen[str], subprocess.Popen[str]]:
    """A TCP server held by its agent, in its pool."""
    host.configure("tcp-hold", "tcp")
    server, agent = host.start_tcp_server(), host.start_agent()
    host.until_in()
    return host, server, agent


REFUSAL = (
    r"registrar \S+ refuses it: the policy differs from that of the pool \(cause 0x0005\S*\); next "
    r"attempt in \d+ s. The pool's other members have policy \"least-used\", this one \"round-robin\": make "
    "them agree, or take another handle"
)

# Loaded by the agent's Python before anything else: what it writes is on the disk when there is that file.
SLOW_DISK = """\
import os, time
sync = os.fsync
def fsync(descriptor):
    while not os.path.exists({wake!r}):
        time.sleep(0.05)
    sync(descriptor)
os.fsync = fsync
"""

Served = tuple[Host, subprocess.Popen[str], subprocess.Popen[str]]


def until(condition: Callable[[], object], timeout_s: float = 40) -> None:
    deadline = Deadline(timeout_s)
    while not condition():
        assert not deadline.is_over
        time.sleep(0.02)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill what was started through a wrapper, with its whole session."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_killed_server_leaves_every_registrar_and_comes_back_as_itself(served: Served) -> None:
    host, server, _ = served
    identifier = host.until_in()
    running = [server]

    def out_after() -> float:
        killed_s = time.time()
        kill(running.pop())
        host.until_out(timeout_s=2)
        assert host.until_state("down")["reason"] == "tcp-hold: nothing listens on port 5060"
        host.until_status(lambda one: one["listed_by"] == [])
        running.append(host.start_tcp_server())
        assert host.until_in() == identifier
        return host.logged_after(killed_s, "left_pool")

    once_within(0.01, out_after, attempts=10)


def test_a_hung_sip_server_leaves_and_comes_back(host: Host) -> None:
    host.configure("sip-options", "udp")
    server = host.start_sipp()
    host.start_agent()
    host.until_in()

    def out_after() -> float:
        stopped_s = time.time()
        os.killpg(server.pid, signal.SIGSTOP)
        host.until_out(timeout_s=4)
        assert "no answer to OPTIONS" in host.until_state("down")["reason"]
        os.killpg(server.pid, signal.SIGCONT)
        host.until_in()
        return host.logged_after(stopped_s, "left_pool")

    once_within(1.0, out_after)


def test_drained_is_out_while_it_serves_also_after_a_restart_of_the_agent(served: Served) -> None:
    host, server, agent = served
    identifier = host.until_in()
    assert host.command("drain", "one", "--wait") == "one: drained\n"
    host.until_out(timeout_s=2)
    assert server.poll() is None
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(20) == 0
    (host.directory / "sitecustomize.py").write_text(SLOW_DISK.format(wake=str(host.directory / "wake")))
    host.start_agent({"PYTHONPATH": str(host.directory)})
    host.until_status(lambda one: one["state"] == "drained" and one["check"][0]["state"] == "up")
    assert host.watch.now()[host.addresses[0]] == {}
    undraining = threading.Thread(target=host.command, args=["undrain"])
    undraining.start()
    assert host.until_in() == identifier
    assert host.until_state("in")["drained"] is False, "it answers while the disk takes its time"
    assert undraining.is_alive()
    (host.directory / "wake").touch()
    undraining.join()
    host.command("drain", "one", "--wait")
    host.until_out(timeout_s=2)


def test_sigterm_withdraws_and_ends_quickly(served: Served) -> None:
    host, _, agent = served
    began = Mark.now()
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(60) == 0
    assert began.ran_s() < 2
    host.until_out(timeout_s=2)
    assert not (host.directory / "control.sock").exists()


def test_it_moves_when_its_registrar_is_killed_and_is_never_missed(served: Served) -> None:
    host, _, _ = served
    before = len(host.watch.changes())
    killed: list[str] = []

    def elsewhere_after() -> float:
        home = host.until_state("in")["registrar"]
        killed.append(home)
        killed_s = time.time()
        kill(host.registrars[home])
        host.until_status(lambda one: one["state"] == "in" and one["registrar"] not in (None, home))
        took_s = host.logged_after(killed_s, "registered")
        assert took_s < 5
        return took_s

    once_within(0.1, elsewhere_after, attempts=2)  # of three registrars one must stay
    time.sleep(3)  # longer than a takeover needs
    missed = [
        change
        for change in host.watch.changes()[before:]
        if change["registrar"] not in killed and change["elements"] == {}
    ]
    assert not missed
    assert host.until_state("in")["check"][0]["state"] == "up"


def test_found_missing_it_registers_again_in_pools_of_every_size(host: Host, tmp_path: Path) -> None:
    host.configure("tcp-hold", "udp")
    # So rarely renewed, it comes back in the time of this test only because it is looked up.
    host.config.write_text("reregistration_ms = 60000\n" + host.config.read_text())
    host.start_tcp_server()
    host.start_agent()
    identifier = host.until_in()
    # Three reports of "endpoint unreachable", from anybody, make a registrar remove a pool element.
    script = (
        "import asyncio, sys\n"
        "from rserpool.client import RegistrarClient\n"
        "from rserpool.registrar_choice import RegistrarAddress\n"
        "async def main():\n"
        "    client = RegistrarClient(RegistrarAddress.parse(sys.argv[1]))\n"
        "    client.start()\n"
        "    while not client.is_up: await asyncio.sleep(0.01)\n"
        "    for _ in range(3): client.report_unreachable(sys.argv[2].encode(), int(sys.argv[3], 16))\n"
        "    await asyncio.sleep(0.2)\n"
        "    await client.close()\n"
        "asyncio.run(main())\n"
    )
    home = host.until_state("in")["registrar"]
    before = len(host.watch.changes())

    def remove() -> None:
        home = host.until_state("in")["registrar"]
        done = host.namespace.run(sys.executable, "-c", script, home, HANDLE, identifier, sctp=True)
        assert done.returncode == 0, done.stderr

    remove()
    host.watch.until(lambda _: any(change["elements"] == {} for change in host.watch.changes()[before:]), 2)
    assert host.until_in() == identifier
    assert host.until_state("in")["missing_count"] >= 1

    def silences() -> int:
        return (tmp_path / "agent.log").read_text().count("keep-alives have stopped")

    def is_alone() -> bool:
        return all(len(view or {}) < 128 for view in host.watch.now().values())

    def is_told_by_silence() -> bool:
        """Of more than 128 members a registrar tells 128, here those with less load. False: they fell out."""
        missing_count = host.until_state("in")["missing_count"]
        crowd = Crowd(host.namespace, tmp_path, ADDRESS, home, {HANDLE: (1, 140)})
        host.watch.until(lambda view: all(len(view.get(each) or {}) == 128 for each in host.addresses))
        time.sleep(1.5)  # until the agent has seen that too, and learnt the step of the keep-alives
        before = silences()  # 0, on a host that keeps up
        remove()
        until(lambda: silences() > before or is_alone())
        told = silences() > before and host.until_state("in")["missing_count"] == missing_count
        crowd.kill()
        assert host.until_in() == identifier
        return told

    assert any(is_told_by_silence() for _ in range(3))


# Loaded by the agent's Python before anything else: SIGUSR1 holds up its event loop and no other thread.
STALL = """\
import os, signal, threading, time
def stall(*_):
    while not os.path.exists({wake!r}):
        time.sleep(0.05)
signal.signal(signal.SIGUSR1, stall)
def beat():
    while True:
        open({beat!r}, "w").close()
        time.sleep(0.05)
threading.Thread(target=beat, daemon=True).start()
"""


def test_while_its_event_loop_stalls_nothing_vouches_for_the_server(host: Host) -> None:
    wake, beat = host.directory / "wake", host.directory / "beat"
    (host.directory / "sitecustomize.py").write_text(STALL.format(wake=str(wake), beat=str(beat)))
    host.configure("tcp-hold", "tcp")
    host.start_tcp_server()
    agent = host.start_agent({"PYTHONPATH": str(host.directory)})
    identifier = host.until_in()
    agent.send_signal(signal.SIGUSR1)
    host.until_out(timeout_s=8)
    beat.unlink()
    until(beat.exists)  # its process and another thread live on
    time.sleep(1)  # what is called a stall is longer than half a second, and so is the time between two looks
    wake.touch()
    assert host.until_in() == identifier
    until(lambda: host.status()["loop"]["stall_count"] >= 1)


def test_load_reaches_every_registrar(served: Served) -> None:
    host, _, _ = served

    def has_load(load: float) -> Callable[[dict[str, dict[str, str] | None]], bool]:
        def check(view: dict[str, dict[str, str] | None]) -> bool:
            policies = [policy for each in host.addresses for policy in (view.get(each) or {}).values()]
            found = [abs(float(policy.split("load=")[1].rstrip(")")) - load) < 0.001 for policy in policies]
            return len(found) == len(host.addresses) and all(found)

        return check

    host.watch.until(has_load(0.25))
    host.set_load(0.75)
    host.watch.until(has_load(0.75), 4)
    (host.directory / "load").unlink()
    host.watch.until(has_load(0.9), 4)
    assert "No such file" in host.until_state("in")["load_problem"]


def test_status_for_people(served: Served) -> None:
    host, _, _ = served
    host.until_state("in")
    time.sleep(1)  # a look-up
    shown = host.command("status")
    for words in ("one", "all checks pass", HANDLE, "tcp-hold", "connection held", "10.99.0.1:3865", "25%"):
        assert words in shown


def test_ipv6(namespace: Namespace, tmp_path: Path) -> None:
    host = Host(namespace, tmp_path, "fd99::1")
    host.configure("tcp-hold", "tcp")
    server = host.start_tcp_server()
    host.start_agent()
    host.until_in()
    assert host.until_state("in")["address"] == ["fd99::1"]
    kill(server)
    host.until_out(timeout_s=2)


def test_two_servers_of_one_agent_are_apart(host: Host) -> None:
    host.configure("tcp-hold", "tcp")
    first = host.config.read_text()
    second = first[first.index("[[as]]") :].replace('"one"', '"two"').replace("5060", "5070")
    host.config.write_text(first + second)
    servers = {port: host.start_tcp_server(port) for port in (5060, 5070)}
    host.start_agent()
    everywhere = host.addresses
    host.watch.until(lambda view: all(len(view.get(each) or {}) == 2 for each in everywhere))
    kill(servers[5070])
    gone = host.watch.until(lambda view: all(len(view.get(each) or {}) == 1 for each in everywhere), 2)
    host.command("drain", "one", "--wait")
    host.until_out(timeout_s=2)
    host.command("undrain", "one")
    assert host.until_in() in (gone[everywhere[0]] or {})
    refused = host.run_command("drain", "three")
    assert (refused.returncode, refused.stderr) == (
        1,
        "error: no AS named 'three' here; there is one, two\n",
    )


def test_without_any_registrar_it_says_so_and_still_ends_quickly(
    namespace: Namespace, tmp_path: Path
) -> None:
    give_address(namespace, ADDRESS)
    host = Host(namespace, tmp_path, with_registrars=False)
    host.configure("tcp-hold", "tcp")
    host.start_tcp_server()
    agent = host.start_agent()
    reason = host.until_state("joining")["reason"]
    assert reason == "registering" or re.match(r"registrar 10\.99\.0\.1\S* can't be reached", reason)
    agent.send_signal(signal.SIGTERM)
    began = Mark.now()
    assert agent.wait(60) == 0
    assert began.ran_s() < 2


def test_it_says_why_a_registrar_refuses_it(served: Served, tmp_path: Path) -> None:
    host, _, _ = served
    identifier = host.until_in()
    own = tmp_path / "other"
    own.mkdir()
    other = own / "agent.toml"
    text = host.config.read_text().replace(f"{tmp_path}/", f"{own}/").split("[as.load]")[0]
    other.write_text(text.replace("\nport = 5060", '\nport = 5070\npolicy = "round-robin"'))
    host.start_tcp_server(5070)
    host.config = other
    host.start_agent()
    host.until_status(lambda one: re.fullmatch(REFUSAL, one["reason"]) is not None)
    assert host.until_in() == identifier


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_server_and_its_registrar_fail_together(served: Served, number: signal.Signals) -> None:
    host, server, _ = served
    home = host.until_state("in")["registrar"]
    others = [each for each in host.addresses if each != home]
    os.killpg(host.registrars[home].pid, number)
    kill(server)
    # A takeover would need more than 2 s.
    host.watch.until(lambda view: all(view[each] == {} for each in others), timeout_s=1.8)
