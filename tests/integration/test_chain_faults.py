"""The backend dies, while a client asks DNS all the time."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backend import OWNER
from tests.support.chain import SIP_PORTS, Chain
from tests.support.dns_watch import TIMEOUT_S, DnsWatch
from tests.support.namespaces import kill, own_namespace
from tests.support.waiting import until

ALL = set(SIP_PORTS)
SOON_S = 3.0
"""Until a backend that was started anew answers right: 1 s where nothing else runs."""


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    with own_namespace() as namespace:
        yield Chain(namespace, tmp_path)


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


def remembered(chain: Chain) -> list[int]:
    """The members that the last-known-good file names."""
    members = {int(member["identifier"], 16) for member in chain.backend.pool()["members"]}
    return sorted(members) if chain.backend.remembers(members) else []
