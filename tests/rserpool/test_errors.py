"""Errors say what is wrong; values out of range never reach the wire."""

from collections.abc import Callable
from ipaddress import IPv4Address

import pytest
from rserpool.errors import CauseCode, EncodeError, ErrorCause, RegistrationRejected, RSerPoolError
from rserpool.parameters import PoolElement, Protocol, ServerInformation, Transport
from rserpool.policies import LeastUsed, Policy, RoundRobin, UnknownPolicy, WeightedRandom

from rserpool import asap, enrp

SCTP = Transport(Protocol.SCTP, 7000, (IPv4Address("192.0.2.1"),))


def registration(
    identifier: int = 1, life_ms: int = 1, transport: Transport = SCTP, policy: Policy | None = None
) -> asap.Registration:
    return asap.Registration(b"P", PoolElement(identifier, 0, life_ms, transport, policy or RoundRobin()))


OUT_OF_RANGE: dict[str, Callable[[], bytes]] = {
    "identifier": lambda: asap.encode(registration(identifier=1 << 32)),
    "life": lambda: asap.encode(registration(life_ms=-1)),
    "port": lambda: asap.encode(registration(transport=Transport(Protocol.SCTP, 65536, ()))),
    "control": lambda: asap.encode(
        registration(transport=Transport(Protocol.UDP, 1, (), control_channel=True))
    ),
    "load above": lambda: asap.encode(registration(policy=LeastUsed(1.01))),
    "load below": lambda: asap.encode(registration(policy=LeastUsed(-0.01))),
    "load not a number": lambda: asap.encode(registration(policy=LeastUsed(float("nan")))),
    "weight": lambda: asap.encode(registration(policy=WeightedRandom(1 << 32))),
    "policy type": lambda: asap.encode(registration(policy=UnknownPolicy(1 << 32))),
    "items": lambda: asap.encode(asap.HandleResolution(b"P", items=-1)),
    "handle": lambda: asap.encode(asap.HandleResolution(b"P" * 65532)),
    "message": lambda: asap.encode(asap.HandleResolution(b"P" * 65528)),
    "cause": lambda: asap.encode(asap.AsapError((ErrorCause(65536),))),
    "checksum": lambda: enrp.encode(enrp.Presence(1, 2, 65536, ServerInformation(1, SCTP))),
    "sender": lambda: enrp.encode(enrp.ListRequest(-1, 2)),
}


@pytest.mark.parametrize("encode", OUT_OF_RANGE.values(), ids=OUT_OF_RANGE)
def test_out_of_range_values_are_refused(encode: Callable[[], bytes]) -> None:
    with pytest.raises(EncodeError) as caught:
        encode()
    assert isinstance(caught.value, RSerPoolError)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) > 10


def test_the_longest_message_fits() -> None:
    message = asap.HandleResolution(b"P" * 65524, items=None)
    assert asap.decode(asap.encode(message)) == message


@pytest.mark.parametrize("code", [*CauseCode, 0x100A, 0x100B, *range(0xF000, 0xF009)])
def test_causes_are_explained_with_their_code(code: int) -> None:
    words = ErrorCause(code).explain()
    assert f"0x{code:04x}" in words
    assert "unknown cause" not in words


def test_unknown_causes_show_what_came_with_them() -> None:
    assert ErrorCause(0x4242, b"\x01\x02").explain() == "unknown cause (cause 0x4242: 0102)"


def test_a_rejection_says_why() -> None:
    assert "policy" in str(RegistrationRejected([ErrorCause(CauseCode.INCONSISTENT_POLICY)]))
    assert "no reason" in str(RegistrationRejected([]))
