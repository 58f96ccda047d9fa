"""Advice when a registrar refuses: words for every cause that rspregistrar has for it."""

from ipaddress import ip_address

import pytest
from ppe_agent.advice import advice

from rserpool import ErrorCause, LeastUsed, PoolElement, Protocol, RoundRobin, Transport, UnknownPolicy

MINE = PoolElement(1, 0, 6000, Transport(Protocol.UDP, 5060, (ip_address("10.0.0.9"),)), RoundRobin())
OTHER = PoolElement(2, 0, 6000, Transport(Protocol.TCP, 5060, (ip_address("10.0.0.8"),)), LeastUsed(0.1))


@pytest.mark.parametrize("code", [0x0005, 0x100B, 0xF003])
def test_a_refused_policy_is_answered_with_what_the_pool_has(code: int) -> None:
    assert advice([ErrorCause(code)], MINE, None) == (
        'set policy to that of the pool\'s other members (here it is "round-robin"), or take another handle'
    )
    assert advice([ErrorCause(code)], MINE, OTHER) == (
        'the pool\'s other members have policy "least-used", this one "round-robin": make them agree, or '
        "take another handle"
    )


@pytest.mark.parametrize("code", [0x0007, 0x100A])
def test_a_refused_transport_is_answered_with_what_the_pool_has(code: int) -> None:
    assert 'here it is "udp"' in advice([ErrorCause(code)], MINE, None)
    assert 'have transport "tcp", this one "udp"' in advice([ErrorCause(code)], MINE, OTHER)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0x0008, "which a sidecar can't: take another handle"),
        (0x0004, "a new one is taken"),
        (0xF002, "a new one is taken"),
        (0x0006, "memory and log"),
        (0xF008, "under another address than 10.0.0.9: set address"),
    ],
)
def test_every_other_cause_has_its_advice(code: int, words: str) -> None:
    assert words in advice([ErrorCause(0), ErrorCause(code)], MINE, OTHER)


def test_a_policy_without_a_name_is_told_by_its_number() -> None:
    other = PoolElement(2, 0, 6000, OTHER.user_transport, UnknownPolicy(0x77))
    assert '"0x00000077"' in advice([ErrorCause(5)], MINE, other)


def test_no_advice_is_better_than_wrong_advice() -> None:
    assert advice([ErrorCause(0)], MINE, OTHER) == ""
    assert advice([], MINE, OTHER) == ""
