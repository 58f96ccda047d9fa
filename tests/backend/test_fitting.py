"""Computed sizes of answers."""

import dns.message
import dns.name
import dns.rdata
import dns.rrset
from hypothesis import given
from hypothesis import strategies as st
from rspdns import fitting

LONG_ZONE = "ims.mnc001.mcc001.3gppnetwork.org"


def uncompressed(qtype: str, content: str) -> bytes:
    wire = dns.rdata.from_text("IN", qtype, content).to_wire()
    assert wire is not None
    return wire


def rendered(qname: str, qtype: str, contents: list[str]) -> int:
    """Bytes of an answer as dnspython writes it, SRV targets uncompressed as PowerDNS does."""
    message = dns.message.make_query(qname, qtype, use_edns=0)
    reply = dns.message.make_response(message)
    plain = dns.rdatatype.from_text(qtype)
    rdatas = [
        dns.rdata.GenericRdata(dns.rdataclass.IN, plain, uncompressed(qtype, content)) for content in contents
    ]
    reply.answer.append(dns.rrset.from_rdata_list(dns.name.from_text(qname), 1, rdatas))
    return len(reply.to_wire(max_size=65535))


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
names = st.lists(labels, min_size=1, max_size=5).map(".".join)


@given(names, names, st.integers(1, 12))
def test_computed_size_of_srv_is_the_rendered_size(owner: str, below: str, count: int) -> None:
    targets = [f"{number:08x}.{below}" for number in range(count)]
    computed = fitting.LIMIT - fitting.room(owner) + sum(fitting.srv_size(target, 0, 0) for target in targets)
    assert computed == rendered(owner, "SRV", [f"0 1000 5060 {target}." for target in targets])


@given(names, names)
def test_computed_size_of_naptr_is_the_rendered_size(owner: str, replacement: str) -> None:
    computed = fitting.LIMIT - fitting.room(owner) + fitting.naptr_size("s", "SIP+D2U", replacement)
    assert computed == rendered(owner, "NAPTR", [f'10 10 "s" "SIP+D2U" "" {replacement}.'])


def test_as_many_addresses_as_are_computed_fit_and_not_one_more() -> None:
    for qtype, size, base in (("A", fitting.A_DATA, "10.0.0."), ("AAAA", fitting.AAAA_DATA, "2001:db8::")):
        count = fitting.addresses_that_fit(f"as.{LONG_ZONE}", size)
        contents = [f"{base}{number}" for number in range(count + 1)]
        assert rendered(f"as.{LONG_ZONE}", qtype, contents[:-1]) <= fitting.LIMIT
        assert rendered(f"as.{LONG_ZONE}", qtype, contents) > fitting.LIMIT


def test_eight_srv_records_of_a_3gpp_name_do_not_fit() -> None:
    owner, target = f"_sip._udp.as.{LONG_ZONE}", f"00000001.u.as.{LONG_ZONE}"
    assert fitting.how_many(owner, [fitting.srv_size(target, 0, 0)] * 8) == 6
    assert fitting.how_many(owner, [fitting.srv_size(target, 1, 0)] * 8) == 5
    assert fitting.how_many(owner, [fitting.srv_size(target, 1, 1)] * 8) == 3


def test_the_size_of_powerdns_answer() -> None:
    """Measured with PowerDNS 4.7.3, dual-stack targets: 64 + 111 bytes each without EDNS."""
    owner, target = f"_sip._udp.n4.{LONG_ZONE}", f"00000000.u.n4.{LONG_ZONE}"
    assert fitting.LIMIT - fitting.room(owner) - fitting.OPT == 64
    assert fitting.srv_size(target, 1, 1) == 111
