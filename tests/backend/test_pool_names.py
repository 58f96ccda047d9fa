"""Which pools a look-up is about."""

from rspdns.zones.zone import PoolNames

from tests.backend.making import TCP, UDP, ZONE, zone

NAMES = PoolNames([zone(UDP + TCP)])


def test_every_name_of_a_pool_leads_to_it() -> None:
    assert NAMES.handles(f"_sip._udp.as.{ZONE}") == ("sip-udp",)
    assert NAMES.handles(f"0000000a.u.as.{ZONE}") == ("sip-udp",)
    assert NAMES.handles(f"as.{ZONE}") == ("sip-udp", "sip-tcp")


def test_other_names_lead_nowhere() -> None:
    for name in (ZONE, f"ns1.{ZONE}", f"x.as.{ZONE}", f"a.b.u.as.{ZONE}", "", "example.com"):
        assert NAMES.handles(name) == ()


def test_a_pool_in_two_zones_and_a_sharded_one() -> None:
    sharded = UDP.replace('handle = "sip-udp"', 'handles = ["a", "b"]')
    both = PoolNames([zone(UDP), zone(sharded, name="other.example")])
    assert both.handles("_sip._udp.as.other.example") == ("a", "b")
    assert both.handles(f"_sip._udp.as.{ZONE}") == ("sip-udp",)
