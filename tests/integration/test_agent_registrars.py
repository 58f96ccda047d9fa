"""The sidecar and its registrars: one dies, one forgets the server, none is there, one refuses it."""

import re
import signal
import time
from pathlib import Path

from rserpool import RegistrarAddress, asap
from tests.integration.conftest import InPool
from tests.support import attacks
from tests.support.backend import ADDRESS, HANDLE
from tests.support.chain import Chain
from tests.support.crowd import Crowd
from tests.support.namespaces import Namespace
from tests.support.sidecar import Sidecar, server_text
from tests.support.stalls import Mark
from tests.support.waiting import once_within, until

REFUSAL = (
    r"registrar \S+ refuses it: the policy differs from that of the pool \(cause 0x0005\S*\); next "
    r"attempt in \d+ s. The pool's other members have policy \"least-used\", this one \"round-robin\": make "
    "them agree, or take another handle"
)


def test_a_server_moves_when_its_registrar_is_killed_and_is_never_missed(in_pool: InPool) -> None:
    chain, _, _ = in_pool
    before = len(chain.watch.changes())
    killed: list[str] = []

    def elsewhere_after() -> float:
        home = chain.sidecar.until_state("in")["registrar"]
        killed.append(home)
        killed_s = time.time()
        chain.registrars.kill(chain.registrars.number_at(home))
        chain.sidecar.until_status(
            lambda status: status["state"] == "in" and status["registrar"] not in (None, home)
        )
        took_s = chain.sidecar.logged_after(killed_s, "registered")
        assert took_s < 5
        return took_s

    once_within(0.1, elsewhere_after, attempts=2)  # of three registrars one must stay
    time.sleep(3)  # longer than a takeover needs
    missed = [
        change
        for change in chain.watch.changes()[before:]
        if change["registrar"] not in killed and change["elements"] == {}
    ]
    assert not missed
    assert chain.sidecar.until_state("in")["check"][0]["state"] == "up"


def test_a_server_found_missing_registers_again_in_pools_of_every_size(chain: Chain, tmp_path: Path) -> None:
    chain.sidecar.configure_server(HANDLE, "tcp-hold", "udp")
    # So rarely renewed, it comes back in the time of this test only because it is looked up.
    chain.sidecar.config.write_text("reregistration_ms = 60000\n" + chain.sidecar.config.read_text())
    chain.start_tcp()
    chain.sidecar.start()
    identifier = chain.until_in()
    home = chain.sidecar.until_state("in")["registrar"]
    before = len(chain.watch.changes())

    def remove() -> None:
        home = chain.sidecar.until_state("in")["registrar"]
        # rspregistrar alone takes a deregistration from anybody.
        gone = asap.encode(asap.Deregistration(HANDLE.encode(), int(identifier, 16)))
        attacks.attack(chain.namespace, ADDRESS, RegistrarAddress.parse(home).endpoint, [gone])

    remove()
    chain.watch.until(lambda _: any(change["elements"] == {} for change in chain.watch.changes()[before:]), 2)
    assert chain.until_in() == identifier
    assert chain.sidecar.until_state("in")["missing_count"] >= 1

    def silences() -> int:
        return chain.sidecar.log.read_text().count("keep-alives have stopped")

    def is_alone() -> bool:
        return all(len(view or {}) < 128 for view in chain.watch.now().values())

    def is_told_by_silence() -> bool:
        """A registrar lists 128 of more members, here those with less load. False: they fell out."""
        missing_count = chain.sidecar.until_state("in")["missing_count"]
        crowd = Crowd(chain.namespace, tmp_path, ADDRESS, home, {HANDLE: (1, 140)})
        chain.watch.until(
            lambda view: all(len(view.get(each) or {}) == 128 for each in chain.registrars.addresses)
        )
        time.sleep(1.5)  # until the agent has seen that too, and learnt the step of the keep-alives
        before = silences()  # 0, on a host that keeps up
        remove()
        until(lambda: silences() > before or is_alone())
        told = silences() > before and chain.sidecar.until_state("in")["missing_count"] == missing_count
        crowd.kill()
        assert chain.until_in() == identifier
        return told

    assert any(is_told_by_silence() for _ in range(3))


def test_without_any_registrar_the_sidecar_says_so_and_still_ends_quickly(
    namespace: Namespace, tmp_path: Path
) -> None:
    chain = Chain(namespace, tmp_path, registrars="later")
    chain.sidecar.configure_server(HANDLE, "tcp-hold", "tcp")
    chain.start_tcp()
    agent = chain.sidecar.start()
    reason = chain.sidecar.until_state("joining")["reason"]
    assert reason == "registering" or re.match(r"registrar 10\.99\.0\.1\S* can't be reached", reason)
    agent.send_signal(signal.SIGTERM)
    began = Mark.now()
    assert agent.wait(60) == 0
    assert began.ran_s() < 2


def test_the_sidecar_says_why_a_registrar_refuses_it(in_pool: InPool, tmp_path: Path) -> None:
    chain, _, _ = in_pool
    identifier = chain.until_in()
    other = Sidecar(chain.namespace, tmp_path, chain.registrars.addresses, "other")
    text = server_text("one", HANDLE, "tcp", 5070, "tcp-hold").split("[as.load]")[0]
    other.configure(text.replace("\nport = 5070", '\nport = 5070\npolicy = "round-robin"'))
    chain.start_tcp(5070)
    other.start()
    other.until_status(lambda status: re.fullmatch(REFUSAL, status["reason"]) is not None)
    assert chain.until_in() == identifier
