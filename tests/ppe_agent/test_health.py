"""All checks of one AS together."""

from daemon_kit.finding import Finding, Life
from ppe_agent.checks.base import Timing
from ppe_agent.health import Health

ONCE = Timing(interval_ms=250, timeout_ms=250, fall=1, rise=1)
TWICE = Timing(interval_ms=250, timeout_ms=250, fall=2, rise=2)


def test_up_only_while_every_check_is_up() -> None:
    health = Health([("tcp-hold", "port 5060", ONCE), ("sip-options", "UDP port 5060", TWICE)])
    assert not health.is_up(1.5)
    assert health.reason(1.5) == "not known yet: tcp-hold: not tried yet"
    assert health.report(0, Finding(Life.ALIVE, "connection held"), 1.0)
    assert not health.report(1, Finding(Life.ALIVE, "200 OK"), 1.0)
    assert not health.is_up(1.5)
    assert health.reason(1.5) == "not known yet: sip-options: 200 OK"
    assert health.report(1, Finding(Life.ALIVE, "200 OK"), 1.1)
    assert health.is_up(1.5)
    assert health.reason(1.5) == "all checks pass"
    assert not health.report(1, Finding(Life.UNWELL, "no answer"), 1.2)
    assert health.is_up(1.5)
    assert health.report(0, Finding(Life.REFUSED, "nothing listens"), 1.3)
    assert not health.is_up(1.5)
    assert health.reason(1.5) == "tcp-hold: nothing listens"


def test_health_says_what_each_check_saw_and_when() -> None:
    health = Health([("tcp-hold", "port 5060", ONCE), ("sip-options", "UDP port 5061", TWICE)])
    health.report(0, Finding(Life.ALIVE, "connection held"), 10.0)
    health.report(0, Finding(Life.ALIVE, "connection still held"), 12.0)
    assert health.describe(12.5) == [
        {
            "type": "tcp-hold",
            "target": "port 5060",
            "state": "up",
            "since_s": 2.5,
            "last": "connection still held",
            "found": "alive",
            "last_s": 0.5,
            "expires_at_s": None,
        },
        {
            "type": "sip-options",
            "target": "UDP port 5061",
            "state": "unknown",
            "since_s": None,
            "last": None,
            "found": None,
            "last_s": None,
            "expires_at_s": None,
        },
    ]


def test_expiry_of_a_certificate_stays_known_when_it_is_refused() -> None:
    health = Health([("tls", "port 5061", ONCE)])
    health.report(0, Finding(Life.ALIVE, expires_at_s=1.9e9), 10.0)
    health.report(0, Finding(Life.UNWELL, "its certificate is refused: certificate has expired"), 11.0)
    assert health.describe(12.0)[0]["expires_at_s"] == 1.9e9
