"""An admitted host registers every identifier that it sees at its own address, at real registrars.

Without keys it takes the pool. With keys no answer names it, and the servers stay in.
"""

import itertools
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.backend import ADDRESS, HANDLE, OWNER, POOL
from tests.support.chain import SIP_PORTS, Chain
from tests.support.dns_watch import Answer, DnsWatch
from tests.support.keyed import configure_keyed_sidecar
from tests.support.namespaces import REPOSITORY, Namespace, own_namespace
from tests.support.second_try import BrokenError
from tests.support.waiting import until

LIVE = set(SIP_PORTS)
STRANGER, STRANGER_PORT = "10.99.0.66", 7066
ATTACK_S = 4.0
MISSING_S = 1.5


class Attackable:
    """The chain, keyed or not, three SIP servers, and a client that asks all the time."""

    def __init__(self, namespace: Namespace, folder: Path, *, keyed: bool) -> None:
        self.namespace = namespace
        self.folder = folder
        chain = self.chain = Chain(namespace, folder)
        namespace.ip("address", "add", f"{STRANGER}/24", "dev", "eth0")
        for port in SIP_PORTS:
            chain.start_sip(port)
        pools = POOL.replace(f"{ADDRESS}/32", "10.99.0.0/24")
        if keyed:
            pools += f'key = "{configure_keyed_sidecar(chain)}"\n'
            chain.sidecar.start()
        else:
            chain.start_sidecar()
        chain.backend.write_zone(pools)
        chain.start()
        until(lambda: chain.targets_at(OWNER) == LIVE, told=chain.sidecar.log)
        self.watch = DnsWatch(namespace, OWNER, folder / "watch.txt")

    def attack(self) -> list[Answer]:
        """Let the stranger take identifiers for a while; return what was answered meanwhile."""
        began_s = time.monotonic()
        thief = self.folder / "thief.log"
        self.namespace.start(
            *(
                sys.executable,
                "-m",
                "rspdns_lab.chaos.identifier_thief",
                STRANGER,
                str(STRANGER_PORT),
                HANDLE,
            ),
            *self.chain.registrars.addresses,
            sctp=True,
            log=thief,
            environment={"PYTHONPATH": str(REPOSITORY)},
        )
        until(lambda: thief.exists() and len(thief.read_text().split()) >= len(LIVE), told=thief)
        time.sleep(ATTACK_S)
        return self.watch.since(began_s, time.monotonic() - 0.1)


@contextmanager
def attackable(folder: Path, *, keyed: bool) -> Iterator[Attackable]:
    with own_namespace() as namespace:
        yield Attackable(namespace, folder, keyed=keyed)


def longest_missing_s(answers: list[Answer], port: int) -> float:
    """The longest time between two answers that name the port."""
    named = [answers[0].asked_at_s, *(answer.asked_at_s for answer in answers if port in answer.ports)]
    named.append(answers[-1].asked_at_s)
    return max(after - before for before, after in itertools.pairwise(named))


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attackable]:
    with attackable(tmp_path_factory.mktemp("keyed"), keyed=True) as made:
        yield made


def test_without_keys_a_host_that_takes_identifiers_is_shown(tmp_path: Path) -> None:
    with attackable(tmp_path, keyed=False) as made:
        answers = made.attack()
        assert any(STRANGER_PORT in answer.ports for answer in answers)


def test_a_drain_in_a_keyed_pool_takes_the_server_out_for_good(keyed: Attackable) -> None:
    chain = keyed.chain
    port = SIP_PORTS[0]
    chain.sidecar.command("drain", f"udp-{port}")
    until(lambda: chain.targets_at(OWNER) == LIVE - {port})
    began_s = time.monotonic()
    time.sleep(1.5)  # the server answers the backend's probe all the time
    wrong = keyed.watch.wrong(LIVE - {port}, began_s + 0.1)
    assert not wrong
    assert '"event": "vanished"' not in chain.backend.log.read_text()
    chain.sidecar.command("undrain", f"udp-{port}")
    until(lambda: chain.targets_at(OWNER) == LIVE)


def test_with_keys_no_answer_names_the_stranger_and_no_live_server_is_missing_for_long(
    keyed: Attackable,
) -> None:
    answers = keyed.attack()
    if strangers := [answer for answer in answers if STRANGER_PORT in answer.ports]:
        raise BrokenError(f"in the DNS: {strangers[:3]}")
    missing_s = {port: round(longest_missing_s(answers, port), 2) for port in SIP_PORTS}
    print(json.dumps(missing_s))
    assert max(missing_s.values()) < MISSING_S
    assert keyed.chain.backend.pool()["refused"]["unproven"] > 0
    taken_by = {server["taken_by"] for server in keyed.chain.sidecar.status()["as"]}
    assert taken_by == {f"{STRANGER} port {STRANGER_PORT}"}
