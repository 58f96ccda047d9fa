"""Every SRV answer of an unsigned zone holds the addresses of all its targets, while members come and go."""

import itertools
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.message
import dns.rdatatype
import pytest

from tests.backend.making import UDP, ZONE, member, view, views, zone
from tests.support.meanwhile import meanwhile
from tests.support.namespaces import own_namespace
from tests.support.pdns import Pdns
from tests.support.served import ScriptedBackend, Served, SlowConnector
from tests.support.waiting import until

OWNER = f"_sip._udp.as.{ZONE}"
FIXED = "$TTL 3600\n@ SOA ns1 hostmaster 1 7200 900 1209600 300\n@ NS ns1\nns1 A 10.0.1.1\n"
SECONDS = 4.0
ASKING = """
import socket, sys, time
import dns.message
# Each of them has an entry of its own in PowerDNS's packet cache.
questions = [
    dns.message.make_query(sys.argv[1], "SRV", use_edns=True, payload=size).to_wire()
    for size in range(1200, 1240)
]
client = socket.socket(type=socket.SOCK_DGRAM)
client.connect(("127.0.0.1", 53))
client.settimeout(3)
end_s = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end_s:
    for question in questions:
        client.send(question)
    for question in questions:
        print(client.recv(4096).hex())
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """PowerDNS, whose backend is slow: changes fall between the look-ups of one question."""
    with own_namespace() as namespace:
        backend = ScriptedBackend([zone(UDP, FIXED)], tmp_path, [tmp_path / "pdns" / "pdns.controlsocket"])
        backend.start(views(view(member(1))))
        slow = SlowConnector(tmp_path / "slow.sock", tmp_path / "remote.sock", delay_s=0.002)
        pdns = Pdns(namespace, tmp_path, remote="slow.sock")
        try:
            pdns.start(ZONE)
            yield Served(namespace, backend, pdns, tmp_path)
        finally:
            slow.close()
            backend.stop()


@contextmanager
def churn(backend: ScriptedBackend) -> Iterator[None]:
    """Member 1 stays; up to four others, new ones each time, come and leave."""
    chance, turns = random.Random(1), itertools.count(1)

    def change() -> None:
        turn = next(turns)
        others = [
            member(10 * (turn // 4) + identifier, f"10.0.0.{identifier + 20}")
            for identifier in range(2, 6 - turn % 4)
        ]
        backend.publish(views(view(member(1), *others)))

    with meanwhile(change, lambda: chance.uniform(0.005, 0.04)):
        yield


def without_address(answer: dns.message.Message) -> set[str]:
    """The SRV targets of an answer that have no address in it."""
    targets = {
        str(record.target) for rrset in answer.answer for record in rrset if rrset.rdtype == dns.rdatatype.SRV
    }
    return targets - {str(rrset.name) for rrset in answer.additional}


@pytest.mark.exact
def test_no_srv_answer_names_a_target_without_its_address(served: Served) -> None:
    with churn(served.backend):
        said = served.namespace.run(sys.executable, "-c", ASKING, OWNER, str(SECONDS))
    different = {line[4:]: line for line in said.stdout.split()}
    answers = [dns.message.from_wire(bytes.fromhex(line)) for line in different.values()]
    assert len(answers) > 20, said.stdout[-200:] + said.stderr
    bad = [found for answer in answers if (found := without_address(answer))]
    assert not bad, f"{len(bad)} of {len(answers)} different answers, such as {bad[:3]}"


def test_the_name_of_a_target_that_left_is_gone_soon(served: Served) -> None:
    served.backend.publish(views(view(member(1), member(2))))
    until(lambda: len(served.pdns.short(OWNER, "SRV")) == 2)
    served.backend.publish(views(view(member(1))))
    until(lambda: len(served.pdns.short(OWNER, "SRV")) == 1)
    until(lambda: not served.pdns.short(f"00000002.u.as.{ZONE}", "A"), 20)
