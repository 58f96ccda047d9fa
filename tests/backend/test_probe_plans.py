"""How the members of each pool are probed, as its zone says."""

import pytest
from pool_user.probe.probing import Plan
from rspdns.zones.zone import probing_by_handle

from tests.backend.making import UDP, zone


@pytest.mark.parametrize(
    ("service", "keys", "expected"),
    [
        ("_sip._udp", "", Plan("sip-options")),
        ("_sip._tcp", "", Plan("connect")),
        ("_sips._tcp", "", Plan("connect")),
        ("_sip._sctp", "", Plan("connect")),
        ("_other._udp", "", Plan("connect")),
        ("_sip._udp", 'verify = "sip-options"', Plan("sip-options", 0.1, 0.3, 1, 2, verified=True)),
        ("_sip._tcp", 'verify = "sip-options"', Plan("sip-options", 0.1, 0.3, 1, 2, verified=True)),
        (
            "_sips._tcp",
            'verify = "tcp"\nverify_interval_ms = 1000\nverify_timeout_ms = 600\n'
            "verify_fall = 3\nverify_rise = 4\nreport_unreachable = true",
            Plan("tcp", 1.0, 0.6, 3, 4, verified=True, report=True),
        ),
    ],
)
def test_the_plan_follows_from_service_and_verify(service: str, keys: str, expected: Plan) -> None:
    pool = UDP.replace("_sip._udp", service) + keys
    assert probing_by_handle([zone(pool)])["sip-udp"].plan == expected


def test_shards_are_one_group() -> None:
    found = probing_by_handle([zone(UDP.replace('handle = "sip-udp"', 'handles = ["a", "b"]'))])
    assert {handle: one.group for handle, one in found.items()} == {"a": "a", "b": "a"}
