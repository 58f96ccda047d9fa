"""The sidecar, real servers and three real registrars."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.agent_host import HANDLE, Host, once_within
from tests.support.agent_served import Served, agent_host, kill, served_by_agent  # noqa: F401  (fixtures)
from tests.support.namespaces import Namespace
from tests.support.stalls import Mark
from tests.support.waiting import until

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
