"""PowerDNS over the HTTP connector: slower, and the same answers."""

import time
from collections.abc import Iterator

import pytest

from tests.backend.making import FIXED, UDP, ZONE, member, view, views, zone
from tests.support.served import Served, served, status
from tests.support.waiting import until

OWNER = f"_sip._udp.as.{ZONE}"
ODD = "a/b A 10.0.1.9\n*.wild MX 10 mail.example.com.\n"
CUT = f"inner NS ns1\ninner DS 1 13 2 {'00' * 32}\n"
INNER = f"inner.{ZONE}"
ZONES = [zone(UDP, FIXED + ODD + CUT), zone("", FIXED, name=INNER)]
TWO = views(view(member(1), member(2, "2001:db8::2")))


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(ZONES, TWO, tmp_path_factory.mktemp("http"), connector="http:127.0.0.1:8053") as made:
        yield made


def test_answers(http: Served) -> None:
    pdns = http.pdns
    assert [line.split()[3] for line in pdns.short(OWNER, "SRV")] == [
        f"0000000{number}.u.as.{ZONE}." for number in (1, 2)
    ]
    assert pdns.short(f"as.{ZONE}", "AAAA") == ["2001:db8::2"]
    assert pdns.short(f"a/b.{ZONE}", "A") == ["10.0.1.9"]
    assert pdns.short(f"x.wild.{ZONE}", "MX") == ["10 mail.example.com."]
    assert status(pdns.dig(f"nobody.{ZONE}", "A")) == "NXDOMAIN"
    assert status(pdns.dig(f"_udp.as.{ZONE}", "A")) == "NOERROR"


def test_the_outer_zone_answers_for_the_cut_to_an_inner_zone(http: Served) -> None:
    assert len(http.pdns.short(INNER, "DS")) == 1
    assert len(http.pdns.short(INNER, "SOA")) == 1
    assert http.pdns.short(f"ns1.{INNER}", "A") == ["10.0.1.1"]


def test_changes_are_served_soon_and_the_unknown_is_servfail(http: Served) -> None:
    http.backend.publish(views(view(member(2))))
    until(lambda: len(http.pdns.short(OWNER, "SRV")) == 1)
    http.backend.set_zones(ZONES, {})
    until(lambda: status(http.pdns.dig(OWNER, "SRV")) == "SERVFAIL")
    http.backend.publish(TWO)
    until(lambda: len(http.pdns.short(OWNER, "SRV")) == 2)


def test_a_zone_is_transferred_over_the_http_connector(http: Served) -> None:
    said = http.pdns.dig("+tcp", "+noall", "+answer", ZONE, "AXFR")
    assert len([line for line in said.splitlines() if "\tSRV\t" in line]) == 2


def test_pdnsutil_can_not_sign_over_http(http: Served) -> None:
    done = http.namespace.run("pdnsutil", f"--config-dir={http.pdns.folder}", "secure-zone", ZONE)
    assert "secured" not in done.stdout


def test_powerdns_connects_again_after_an_idle_time(http: Served) -> None:
    time.sleep(1.2)  # the caches are empty
    assert len(http.pdns.short(OWNER, "SRV")) == 2
