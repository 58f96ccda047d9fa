"""The sidecar, real servers and three real registrars."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.conftest import InPool
from tests.support.backend import HANDLE
from tests.support.chain import Chain
from tests.support.namespaces import Namespace, kill
from tests.support.registrars import PoolListings
from tests.support.stalls import Mark
from tests.support.waiting import once_within, until

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


def test_a_killed_server_leaves_every_registrar_and_comes_back_as_itself(in_pool: InPool) -> None:
    chain, server, _ = in_pool
    identifier = chain.until_in()
    running = [server]

    def out_after() -> float:
        killed_s = time.time()
        kill(running.pop())
        chain.until_out(timeout_s=2)
        assert chain.sidecar.until_state("down")["reason"] == "tcp-hold: nothing listens on port 5060"
        chain.sidecar.until_status(lambda status: status["listed_by"] == [])
        running.append(chain.start_tcp())
        assert chain.until_in() == identifier
        return chain.sidecar.logged_after(killed_s, "left_pool")

    once_within(0.01, out_after, attempts=10)


def test_a_hung_sip_server_leaves_and_comes_back(chain: Chain) -> None:
    chain.sidecar.configure_server(HANDLE, "sip-options", "udp")
    server = chain.start_sip(5060)
    chain.sidecar.start()
    chain.until_in()

    def out_after() -> float:
        stopped_s = time.time()
        os.killpg(server.pid, signal.SIGSTOP)
        chain.until_out(timeout_s=4)
        assert "no answer to OPTIONS" in chain.sidecar.until_state("down")["reason"]
        os.killpg(server.pid, signal.SIGCONT)
        chain.until_in()
        return chain.sidecar.logged_after(stopped_s, "left_pool")

    once_within(1.0, out_after)


def test_drained_is_out_while_it_serves_also_after_a_restart_of_the_agent(in_pool: InPool) -> None:
    chain, server, agent = in_pool
    identifier = chain.until_in()
    assert chain.sidecar.command("drain", "one", "--wait") == "one: drained\n"
    chain.until_out(timeout_s=2)
    assert server.poll() is None
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(20) == 0
    (chain.folder / "sitecustomize.py").write_text(SLOW_DISK.format(wake=str(chain.folder / "wake")))
    chain.sidecar.start({"PYTHONPATH": str(chain.folder)})
    chain.sidecar.until_status(
        lambda status: status["state"] == "drained" and status["check"][0]["state"] == "up"
    )
    assert chain.watch.now()[chain.registrars.addresses[0]] == {}
    undraining = threading.Thread(target=chain.sidecar.command, args=["undrain"])
    undraining.start()
    assert chain.until_in() == identifier
    assert chain.sidecar.until_state("in")["drained"] is False, "it answers while the disk takes its time"
    assert undraining.is_alive()
    (chain.folder / "wake").touch()
    undraining.join()
    chain.sidecar.command("drain", "one", "--wait")
    chain.until_out(timeout_s=2)


def test_sigterm_withdraws_and_ends_quickly(in_pool: InPool) -> None:
    chain, _, agent = in_pool
    began = Mark.now()
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(60) == 0
    assert began.ran_s() < 2
    chain.until_out(timeout_s=2)
    assert not chain.sidecar.control.exists()


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


def test_while_its_event_loop_stalls_nothing_vouches_for_the_server(chain: Chain) -> None:
    wake, beat = chain.folder / "wake", chain.folder / "beat"
    (chain.folder / "sitecustomize.py").write_text(STALL.format(wake=str(wake), beat=str(beat)))
    chain.sidecar.configure_server(HANDLE, "tcp-hold", "tcp")
    chain.start_tcp()
    agent = chain.sidecar.start({"PYTHONPATH": str(chain.folder)})
    identifier = chain.until_in()
    agent.send_signal(signal.SIGUSR1)
    chain.until_out(timeout_s=8)
    beat.unlink()
    until(beat.exists)  # its process and another thread live on
    time.sleep(1)  # what is called a stall is longer than half a second, and so is the time between two looks
    wake.touch()
    assert chain.until_in() == identifier
    until(lambda: chain.sidecar.status()["loop"]["stall_count"] >= 1)


def test_load_reaches_every_registrar(in_pool: InPool) -> None:
    chain, _, _ = in_pool

    def has_load(load: float) -> Callable[[PoolListings], bool]:
        def check(view: PoolListings) -> bool:
            policies = [
                policy for each in chain.registrars.addresses for policy in (view.get(each) or {}).values()
            ]
            found = [abs(float(policy.split("load=")[1].rstrip(")")) - load) < 0.001 for policy in policies]
            return len(found) == len(chain.registrars.addresses) and all(found)

        return check

    chain.watch.until(has_load(0.25))
    chain.sidecar.set_load(0.75)
    chain.watch.until(has_load(0.75), 4)
    chain.sidecar.load_file.unlink()
    chain.watch.until(has_load(0.9), 4)
    assert "No such file" in chain.sidecar.until_state("in")["load_problem"]


def test_status_shows_people_state_checks_registrar_and_load(in_pool: InPool) -> None:
    chain, _, _ = in_pool
    chain.sidecar.until_state("in")
    time.sleep(1)  # a look-up
    shown = chain.sidecar.command("status")
    for words in ("one", "all checks pass", HANDLE, "tcp-hold", "connection held", "10.99.0.1:3865", "25%"):
        assert words in shown


def test_a_server_at_an_ipv6_address_joins_and_leaves(namespace: Namespace, tmp_path: Path) -> None:
    chain = Chain(namespace, tmp_path, address="fd99::1", registrars="alone")
    chain.sidecar.configure_server(HANDLE, "tcp-hold", "tcp")
    server = chain.start_tcp()
    chain.sidecar.start()
    chain.until_in()
    assert chain.sidecar.until_state("in")["address"] == ["fd99::1"]
    kill(server)
    chain.until_out(timeout_s=2)


def test_two_servers_of_one_agent_are_apart(chain: Chain) -> None:
    chain.sidecar.configure_server(HANDLE, "tcp-hold", "tcp")
    first = chain.sidecar.config.read_text()
    second = first[first.index("[[as]]") :].replace('"one"', '"two"').replace("5060", "5070")
    chain.sidecar.config.write_text(first + second)
    servers = {port: chain.start_tcp(port) for port in (5060, 5070)}
    chain.sidecar.start()
    everywhere = chain.registrars.addresses
    chain.watch.until(lambda view: all(len(view.get(each) or {}) == 2 for each in everywhere))
    kill(servers[5070])
    gone = chain.watch.until(lambda view: all(len(view.get(each) or {}) == 1 for each in everywhere), 2)
    chain.sidecar.command("drain", "one", "--wait")
    chain.until_out(timeout_s=2)
    chain.sidecar.command("undrain", "one")
    assert chain.until_in() in (gone[everywhere[0]] or {})
    refused = chain.sidecar.run_command("drain", "three")
    assert (refused.returncode, refused.stderr) == (
        1,
        "error: no AS named 'three' here; there is one, two\n",
    )
