"""A zone signed by PowerDNS, its backend scripted: fixtures for whole modules of tests."""

from collections.abc import Iterator

import pytest

from tests.backend.making import TCP, UDP, ZONE, member, view, views, zone
from tests.support.served import Served, served
from tests.support.waiting import until

OWNER = f"_sip._udp.as.{ZONE}"
FIXED = """
$TTL 3600
@      SOA   ns1 hostmaster 1 7200 900 1209600 300
@      NS    ns1
ns1    A     10.0.1.1
info   TXT   "some text"
alias  CNAME info
*.wild MX    10 mail.example.com.
sub    NS    ns.sub
ns.sub A     10.0.1.9
safe   NS    ns.sub
safe   DS    12345 13 2 10bdbc7827d9efb7ec0deee234671a8f0fb0a83126268eb5d9ed8cd4982aacbf
a.b.c  A     10.0.1.2
"""
EMPTY_POOL = TCP.replace('"as"', '"other"') + 'when_empty = "nodata"\n'
ZONES = [zone(UDP + EMPTY_POOL, FIXED)]
TWO = views(view(member(1), member(2, "2001:db8::2")), view(handle="sip-tcp"))


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(ZONES, TWO, tmp_path_factory.mktemp("signed"), signed=True) as made:
        made.pdns.sign(ZONE)
        yield made


@pytest.fixture
def two_members(signed: Served) -> None:
    """Begin with two members in DNS."""
    signed.backend.publish(TWO)
    until(lambda: len(signed.pdns.short(OWNER, "SRV")) == 2)
