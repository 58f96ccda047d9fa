"""Parts of the whole chain die, while a client asks DNS all the time."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.backend import OWNER, other_pool
from tests.support.chain import SIP_PORTS, TCP_OWNER, TCP_PORTS, Chain
from tests.support.dns_watch import TIMEOUT_S, DnsWatch
from tests.support.namespaces import kill, own_namespace
from tests.support.waiting import until

ALL = set(SIP_PORTS)
SOON_S = 3.0
"""Until a backend that was started anew answers right: 1 s where nothing else runs."""


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    with own_namespace() as namespace:
        yield Chain(namespace, tmp_path, other_pool("tcp", "t"))


def test_a_killed_backend_is_soon_back_and_its_cached_answers_go_on(chain: Chain) -> None:
    for port in SIP_PORTS:
        chain.start_sip(port)
    chain.start_sidecar()
    backend = chain.start()
    until(lambda: chain.targets_at(OWNER) == ALL, told=chain.sidecar.log)
    watch = DnsWatch(chain.namespace, OWNER, chain.folder / "watch.txt")
    until(lambda: len(remembered(chain)) == len(ALL))
    # Every cache is filled anew from here, and holds for 1 s at least.
    said = chain.namespace.run("pdns_control", f"--socket-dir={chain.pdns.folder}", "purge")
    assert said.returncode == 0, said.stderr
    until(lambda: chain.targets_at(OWNER) == ALL)
    killed_at_s = time.monotonic()
    kill(backend)
    time.sleep(0.5)
    started_at_s = time.monotonic()
    chain.backend.start()
    answers_at_s = time.monotonic()
    time.sleep(SOON_S + TIMEOUT_S)  # so that an unanswered question is told as such
    cached = watch.since(killed_at_s, started_at_s)
    assert len(cached) > 20
    assert {answer.ports for answer in cached} == {frozenset(ALL)}, "cached answers go on"
    wrong = watch.wrong(ALL, killed_at_s)
    assert {answer.problem for answer in wrong} <= {"SERVFAIL"}, "an empty or incomplete answer"
    assert not [answer for answer in wrong if answer.asked_at_s > answers_at_s + SOON_S]
    assert watch.since(answers_at_s + SOON_S)


def test_without_registrars_answers_go_on_and_the_dead_are_still_dropped(chain: Chain) -> None:
    sip = {port: chain.start_sip(port) for port in SIP_PORTS}
    tcp = {port: chain.start_tcp(port) for port in TCP_PORTS}
    chain.start_sidecar(SIP_PORTS, TCP_PORTS)
    chain.start()
    until(lambda: chain.targets_at(OWNER) == ALL and chain.targets_at(TCP_OWNER) == set(TCP_PORTS))
    watch = DnsWatch(chain.namespace, OWNER, chain.folder / "watch.txt")
    began_at_s = time.monotonic()
    chain.registrars.kill()
    until(lambda: all(pool["stale_s"] is not None for pool in pools(chain)))
    assert all(member["stale"] for pool in pools(chain) for member in pool["members"])
    time.sleep(3)
    assert not watch.wrong(ALL, began_at_s)
    assert chain.targets_at(TCP_OWNER) == set(TCP_PORTS)

    died_at_s = time.monotonic()
    kill(sip[5061])
    kill(tcp[5071])
    until(lambda: chain.targets_at(OWNER) == ALL - {5061}, 8, chain.backend.log)
    until(lambda: chain.targets_at(TCP_OWNER) == {5070}, 8, chain.backend.log)
    dropped_at_s = time.monotonic()
    time.sleep(3)
    assert not watch.wrong(ALL - {5061}, dropped_at_s), "who answers the probes stays"
    assert {answer.ports for answer in watch.since(died_at_s)} <= {frozenset(ALL), frozenset(ALL - {5061})}
    reasons = {out["port"]: out["reason"] for pool in pools(chain) for out in pool["out"]}
    assert set(reasons) == {5061, 5071}, reasons

    chain.start_sip(5061)
    until(lambda: chain.targets_at(OWNER) == ALL, 8, chain.backend.log)


def remembered(chain: Chain) -> list[int]:
    """The members that the last-known-good file names."""
    members = {int(member["identifier"], 16) for member in chain.backend.pool()["members"]}
    return sorted(members) if chain.backend.remembers(members) else []


def pools(chain: Chain) -> list[dict[str, Any]]:
    said = chain.backend.command("status", "--json")
    assert said.returncode == 0, said.stderr
    return [pool for zone in json.loads(said.stdout)["zones"] for pool in zone["pools"]]
