"""A web server dies: its HTTPS record, the hint in it and its addresses leave DNS in the same moment."""

import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.backend import ADDRESS, POOL, ZONE
from tests.support.chain import Chain
from tests.support.namespaces import Namespace, kill
from tests.support.waiting import until

NAME = f"www.{ZONE}"
OTHER = "10.99.0.2"
WEB = (
    POOL.replace("_sip._udp", "_https._tcp")
    .replace('"u"', '"w"')
    .replace('"as"', '"www"')
    .replace("sip-udp", "sip-tcp")
    .replace(f'"{ADDRESS}/32"', '"10.99.0.0/24"')
    + 'svcb = { alpn = ["h2"] }\nmax_addresses = 16\nwhen_empty = "nodata"\n'
)
APART_S = 0.3
"""The most between two answers that name a dead server for the last time. They are asked for in turn, and
PowerDNS's purge is repeated after 50 ms."""

WATCH = r"""
import json, socket, sys, time
import dns.message, dns.rdatatype
name = sys.argv[1]
file = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
file.connect(("127.0.0.1", 53))
file.settimeout(2)
while True:
    for kind in ("HTTPS", "A"):
        question = dns.message.make_query(name, kind)
        asked_s = time.monotonic()
        file.send(question.to_wire())
        said = dns.message.from_wire(file.recv(65535), one_rr_per_rrset=True)
        hints = [[rrset[0].target.to_text(), hint] for rrset in said.answer if kind == "HTTPS"
                 for key, value in rrset[0].params.items() if int(key) == 4 for hint in value.addresses]
        beside = [[rrset.name.to_text(), rrset[0].to_text()] for rrset in said.additional]
        addresses = [rrset[0].to_text() for rrset in said.answer if rrset.rdtype == dns.rdatatype.A]
        print(json.dumps([asked_s, kind, hints, beside, addresses]), flush=True)
    time.sleep(0.002)
"""


class Seen(NamedTuple):
    """One answer: the hints by target and the addresses beside them, or the addresses of the pool's name."""

    asked_s: float
    kind: str
    hints: list[list[str]]
    beside: list[list[str]]
    addresses: list[str]


def seen(log: Path) -> list[Seen]:
    return [Seen(*json.loads(line)) for line in log.read_text().split("\n")[:-1]]


@pytest.mark.timeout(300)
def test_record_hint_and_address_of_a_killed_server_leave_together(
    namespace: Namespace, tmp_path: Path
) -> None:
    chain = Chain(namespace, tmp_path, WEB)
    namespace.ip("address", "add", f"{OTHER}/24", "dev", "eth0")
    servers = {
        address: namespace.start(
            sys.executable, "-m", "http.server", "443", "--bind", address, log=tmp_path / f"{address}.out"
        )
        for address in (ADDRESS, OTHER)
    }
    chain.sidecar.configure(
        *(
            f'[[as]]\nname = "web-{number}"\nhandle = "sip-tcp"\ntransport = "tcp"\naddress = "{address}"\n'
            'port = 443\n[[as.check]]\ntype = "tcp-hold"\n'
            '[as.damping]\nfalls = 0\n[as.load]\nsource = "none"\n'
            for number, address in enumerate(servers)
        )
    )
    chain.sidecar.start()
    chain.start()
    log = tmp_path / "watch.out"
    namespace.start(sys.executable, "-c", WATCH, NAME, log=log)

    def hints() -> set[str]:
        answers = [answer for answer in seen(log) if answer.kind == "HTTPS"]
        return {address for _, address in answers[-1].hints} if answers else set()

    until(lambda: hints() == {ADDRESS, OTHER}, 90, chain.sidecar.log)
    records = chain.pdns.short(NAME, "HTTPS")
    assert len(records) == 3, records
    assert records[-1] == '2 . alpn="h2"'
    killed_s = time.monotonic()
    kill(servers[OTHER])
    until(lambda: hints() == {ADDRESS}, 60, chain.sidecar.log)
    until(lambda: seen(log)[-1].asked_s > killed_s + 3)
    answers = seen(log)
    with_hints = [answer for answer in answers if answer.kind == "HTTPS" and answer.hints]
    for answer in with_hints:
        beside = [pair for pair in answer.beside if pair[0] != f"{NAME}."]
        assert sorted(answer.hints) == sorted(beside), "a hint without its address, or an address alone"
        own = {address for owner, address in answer.beside if owner == f"{NAME}."}
        assert own == {address for _, address in answer.hints}
    of_hint = max(a.asked_s for a in with_hints if OTHER in {address for _, address in a.hints})
    of_address = max(a.asked_s for a in answers if OTHER in a.addresses)
    assert abs(of_hint - of_address) < APART_S
    assert chain.pdns.short(NAME, "HTTPS") == [record for record in records if OTHER not in record]
