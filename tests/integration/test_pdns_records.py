"""Records and pools on the wire, compared with PowerDNS's own answers."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rserpool import Protocol
from tests.backend.making import ZONE, member, view, views, zone
from tests.support.every_record import ALL_SHOWN, FIXED, OTHER, POOLS, SVCB_POOLS, SVCB_VIEWS, pool
from tests.support.oracle import answers, start_oracle
from tests.support.pdns import Pdns
from tests.support.served import Served, served
from tests.support.waiting import until

ZONES = [
    zone((POOLS + SVCB_POOLS).replace("slow_start_s = 0", ALL_SHOWN), FIXED),
    zone(
        pool("sip-udp", "_sip._udp", "u", "voice"),
        "$TTL 60\n@ SOA n h 1 2 3 4 5\n@ NS ns.example.net.\n",
        name=OTHER,
    ),
]
VIEWS = views(
    view(member(1, "10.0.0.1"), member(2, "2001:db8::2"), member(3, "10.0.0.3", "2001:db8::3")),
    view(member(1, "10.0.0.1", protocol=Protocol.TCP, port=5070), handle="sip-tcp"),
    view(
        member(1, "10.0.0.5", "10.9.0.5", "2001:db8::5", protocol=Protocol.SCTP),
        member(2, "10.0.0.6", "10.9.0.6", protocol=Protocol.SCTP),
        handle="sip-sctp",
    ),
    view(member(9, "10.0.0.9", protocol=Protocol.TCP, port=5061), handle="sips-tcp"),
    view(member(7, "10.0.0.7", protocol=Protocol.SCTP, port=3868), handle="diameter"),
    view(handle="empty"),
    view(member(8, "2001:db8::8", "10.0.0.8", protocol=Protocol.TCP, port=80), handle="apex"),
    *SVCB_VIEWS,
)


@dataclass(frozen=True)
class Both:
    """The same zone, served live and by PowerDNS's bind backend."""

    live: Served
    oracle: Pdns


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("records")
    with served(ZONES, VIEWS, folder) as made:
        yield Both(made, start_oracle(made, [ZONE]))


NAMES = sorted(
    {
        *("", "as", "_udp.as", "_sip._udp.as", "_sip._tcp.as", "_sip._sctp.as", "_sips._tcp.as", "u.as"),
        *("00000001.u.as", "00000003.u.as", "00000001.s.as", "00000009.u.as", "hss", "_diameter._sctp.hss"),
        *("_http._tcp", "h", "00000008.h", "ns1", "mail", "alias", "away", "old", "x.old", "txt", "ptr"),
        *(
            "host",
            "rp",
            "afs",
            "loc",
            "ssh",
            "tls",
            "uri",
            "spf",
            "kx",
            "cert",
            "pgp",
            "svcb",
            "https",
            "eui",
        ),
        *("fixed", "private", "wild", "x.wild", "x.y.wild", "a.wild", "b.a.wild", "sub", "x.sub", "ns.sub"),
        *("www", "00000002.y.www", "alt", "_https.alt", "_8443._https.alt", "res", "_dns.res"),
        *("signed", "x.signed", "c", "b.c", "a.b.c", "x.b.c", "nobody", "x.as", "x._sip._udp.as"),
    }
)
TYPES = ("ANY", "A", "SRV", "NAPTR", "MX", "TXT", "DS")
OWN_TYPES = {
    "": "SOA NS CAA",
    "www": "HTTPS",
    "_8443._https.alt": "HTTPS",
    "_dns.res": "SVCB",
    "ns1": "AAAA",
    "as": "AAAA",
    "alias": "CNAME",
    "old": "DNAME",
    "ptr": "PTR",
    "host": "HINFO",
    "rp": "RP",
    "afs": "AFSDB",
    "loc": "LOC",
    "ssh": "SSHFP",
    "tls": "TLSA",
    "uri": "URI",
    "spf": "SPF",
    "kx": "KX",
    "cert": "CERT",
    "pgp": "OPENPGPKEY",
    "svcb": "SVCB",
    "https": "HTTPS",
    "eui": "EUI48",
    "private": "TYPE65400",
    "sub": "NS",
    "signed": "NS",
}


QUESTIONS = [
    (f"{label}.{ZONE}".lstrip("."), qtype)
    for label in NAMES
    for qtype in (*TYPES, *OWN_TYPES.get(label, "").split())
]


def test_every_answer_is_as_powerdns_gives_it_for_a_fixed_zone(both: Both) -> None:
    live, fixed = (answers(both.live, pdns, QUESTIONS) for pdns in (both.live.pdns, both.oracle))
    assert len(live) > 300
    for question, said in live.items():
        assert said == fixed[question], question
    for label, types in OWN_TYPES.items():
        for qtype in types.split():
            said = live[f"{label}.{ZONE} {qtype}".lstrip(".")]
            assert said["head"].startswith("NOERROR"), (label, qtype, said)
            assert said["answer"] or label in ("sub", "signed"), (label, qtype, said)


def test_several_transports_of_a_service_have_naptr_records_in_order(both: Both) -> None:
    pdns = both.live.pdns
    assert pdns.short(f"as.{ZONE}", "NAPTR") == [
        f'10 10 "s" "SIP+D2U" "" _sip._udp.as.{ZONE}.',
        f'10 10 "s" "SIPS+D2T" "" _sips._tcp.as.{ZONE}.',
        f'10 20 "s" "SIP+D2T" "" _sip._tcp.as.{ZONE}.',
        f'20 10 "s" "SIP+D2S" "" _sip._sctp.as.{ZONE}.',
        f'50 50 "s" "H323+D2U" "" _h323._udp.as.{ZONE}.',
    ]
    assert pdns.short(f"hss.{ZONE}", "NAPTR") == [
        f'10 10 "s" "aaa+ap1:diameter.sctp" "" _diameter._sctp.hss.{ZONE}.'
    ]
    assert pdns.short(f"_sip._tcp.as.{ZONE}", "SRV") == [f"0 1000 5070 00000001.t.as.{ZONE}."]


def test_ipv6_dual_stack_and_multihomed_members_have_all_their_addresses(both: Both) -> None:
    pdns = both.live.pdns
    found = {
        name: (pdns.short(f"{name}.as.{ZONE}", "A"), pdns.short(f"{name}.as.{ZONE}", "AAAA"))
        for name in ("00000001.u", "00000002.u", "00000003.u", "00000001.s")
    }
    assert found == {
        "00000001.u": (["10.0.0.1"], []),
        "00000002.u": ([], ["2001:db8::2"]),
        "00000003.u": (["10.0.0.3"], ["2001:db8::3"]),
        "00000001.s": (["10.0.0.5", "10.9.0.5"], ["2001:db8::5"]),
    }


def test_a_pool_at_the_apex_and_a_pool_in_two_zones_are_answered(both: Both) -> None:
    pdns = both.live.pdns
    assert pdns.short(ZONE, "AAAA") == ["2001:db8::8"]
    assert len(pdns.short(f"_sip._udp.voice.{OTHER}", "SRV")) == len(
        pdns.short(f"_sip._udp.as.{ZONE}", "SRV")
    )
    both.live.backend.publish({**VIEWS, **views(view(member(1)))})
    until(lambda: len(pdns.short(f"_sip._udp.voice.{OTHER}", "SRV")) == 1)
    until(lambda: len(pdns.short(f"_sip._udp.as.{ZONE}", "SRV")) == 1)
    both.live.backend.publish(VIEWS)
    until(lambda: len(pdns.short(f"_sip._udp.voice.{OTHER}", "SRV")) == 3)


def test_the_serial_of_each_zone_moves_with_its_own_changes(both: Both) -> None:
    pdns, backend = both.live.pdns, both.live.backend

    def serial(name: str) -> int:
        return int(pdns.short(name, "SOA")[0].split()[2])

    backend.publish(VIEWS)
    time.sleep(5)  # until neither cache of PowerDNS holds an SOA from before that, which nobody purges
    before = serial(ZONE), serial(OTHER)
    backend.publish({**VIEWS, **views(view(member(5, protocol=Protocol.TCP), handle="sip-tcp"))})
    until(lambda: serial(ZONE) > before[0])
    assert serial(OTHER) == before[1]
    backend.publish(VIEWS)
    until(lambda: "10.0.0.1" in pdns.short(f"00000001.t.as.{ZONE}", "A"))
    until(lambda: serial(ZONE) > before[0] + 1)  # PowerDNS may hold the SOA for a moment longer


def test_a_dname_is_followed(both: Both) -> None:
    said = both.live.pdns.dig("+noall", "+answer", f"x.old.{ZONE}", "A").splitlines()
    records = {tuple(line.split()) for line in said}
    assert (f"old.{ZONE}.", "3600", "IN", "DNAME", "new.example.com.") in records
    assert {record[-2:] for record in records if record[0] == f"x.old.{ZONE}."} == {
        ("CNAME", "x.new.example.com.")
    }
