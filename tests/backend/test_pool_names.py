"""Names: how they are written, which pools one leads to, zone numbers, and how its members are probed."""

import dns.exception
import dns.name
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_user import ProbePlan
from rspdns.answers.snapshot import ZoneNumbers, zone_id
from rspdns.names import normal, to_text
from rspdns.zones.zone import PoolNames, probing_by_handle

from tests.backend.making import TCP, UDP, ZONE, zone

NAMES = PoolNames([zone(UDP + TCP)])


def test_every_name_of_a_pool_leads_to_it() -> None:
    assert NAMES.handles(f"_sip._udp.as.{ZONE}") == ("sip-udp",)
    assert NAMES.handles(f"0000000a.u.as.{ZONE}") == ("sip-udp",)
    assert NAMES.handles(f"as.{ZONE}") == ("sip-udp", "sip-tcp")


def test_other_names_lead_nowhere() -> None:
    for name in (ZONE, f"ns1.{ZONE}", f"x.as.{ZONE}", f"a.b.u.as.{ZONE}", "", "example.com"):
        assert NAMES.handles(name) == ()


def test_names_lead_to_the_handles_of_their_own_zone_and_to_all_shards() -> None:
    sharded = UDP.replace('handle = "sip-udp"', 'handles = ["a", "b"]')
    both = PoolNames([zone(UDP), zone(sharded, name="other.example")])
    assert both.handles("_sip._udp.as.other.example") == ("a", "b")
    assert both.handles(f"_sip._udp.as.{ZONE}") == ("sip-udp",)


LABELS = st.text("ab9_-", max_size=65)


@given(st.lists(LABELS, min_size=1, max_size=9).map(".".join))
def test_a_name_in_plain_letters_is_what_dnspython_reads(text: str) -> None:
    try:
        read = to_text(dns.name.from_text(text))
    except dns.exception.DNSException:
        with pytest.raises(ValueError, match="name"):
            normal(text)
        return
    plain = all(label == label.strip("-") for label in read.split("."))
    if plain and read:
        assert normal(text) == read
    elif read:
        with pytest.raises(ValueError, match="may hold only"):
            normal(text)


@pytest.mark.parametrize(("labels", "last"), [(3, 61), (3, 62)])
def test_a_name_may_have_255_bytes(labels: int, last: int) -> None:
    text = ".".join(["a" * 63] * labels + ["b" * last])
    if last == 61:
        assert normal(text) == normal(text.upper() + ".") == text
    else:
        with pytest.raises(ValueError, match="255"):
            normal(text)


PLUMLESS, BUCKEROO = "plumless", "buckeroo"
"""Their checksums are the same."""


def test_zones_of_the_same_checksum_have_two_numbers() -> None:
    assert zone_id(PLUMLESS) == zone_id(BUCKEROO)
    numbers = ZoneNumbers().following([PLUMLESS, BUCKEROO])
    assert {numbers.zone(numbers.of(PLUMLESS)), numbers.zone(numbers.of(BUCKEROO))} == {PLUMLESS, BUCKEROO}


def test_a_zone_keeps_its_number_whatever_comes_and_goes() -> None:
    numbers = ZoneNumbers().following([PLUMLESS])
    two = numbers.following([BUCKEROO, "example.org", PLUMLESS])
    assert two.of(PLUMLESS) == numbers.of(PLUMLESS)
    three = two.following([BUCKEROO])
    assert three.of(BUCKEROO) == two.of(BUCKEROO)
    assert three.of(PLUMLESS) == -1
    assert three.zone(numbers.of(PLUMLESS)) is None
    assert three.following([BUCKEROO]) is three


def test_a_domain_id_that_is_no_number_is_of_no_zone() -> None:
    numbers = ZoneNumbers().following([PLUMLESS])
    assert numbers.zone("1") is None
    assert numbers.zone(None) is None
    assert numbers.zone(-1) is None


@pytest.mark.parametrize(
    ("service", "keys", "expected"),
    [
        ("_sip._udp", "", ProbePlan("sip-options")),
        ("_sip._tcp", "", ProbePlan("connect")),
        ("_sips._tcp", "", ProbePlan("connect")),
        ("_sip._sctp", "", ProbePlan("connect")),
        ("_other._udp", "", ProbePlan("connect")),
        ("_sip._udp", 'verify = "sip-options"', ProbePlan("sip-options", 0.1, 0.3, 1, 2, verified=True)),
        ("_sip._tcp", 'verify = "sip-options"', ProbePlan("sip-options", 0.1, 0.3, 1, 2, verified=True)),
        (
            "_sips._tcp",
            'verify = "tcp"\nverify_interval_ms = 1000\nverify_timeout_ms = 600\n'
            "verify_fall = 3\nverify_rise = 4\nreport_unreachable = true",
            ProbePlan("tcp", 1.0, 0.6, 3, 4, verified=True, report=True),
        ),
    ],
)
def test_the_plan_follows_from_service_and_verify(service: str, keys: str, expected: ProbePlan) -> None:
    pool = UDP.replace("_sip._udp", service) + keys
    assert probing_by_handle([zone(pool)])["sip-udp"].plan == expected


def test_shards_are_one_group() -> None:
    found = probing_by_handle([zone(UDP.replace('handle = "sip-udp"', 'handles = ["a", "b"]'))])
    assert {handle: plan.group for handle, plan in found.items()} == {"a": "a", "b": "a"}
