"""Arbitrary bytes give a message or a DecodeError, nothing else, in linear time."""

import contextlib
import struct
import time
from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rserpool.errors import DecodeError
from rserpool.wire import ParameterType

from rserpool import asap, enrp
from tests.rserpool import strategies as s

CODECS = {"asap": asap, "enrp": enrp}
codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def try_decode(codec: ModuleType, data: bytes) -> None:
    """Decode; what came out must encode, and be the same when decoded again."""
    try:
        message = codec.decode(data)
    except DecodeError:
        return
    assert codec.decode(codec.encode(message)) == message


@codecs
@settings(max_examples=300)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(codec: ModuleType, data: bytes) -> None:
    try_decode(codec, data)


def tlv(parameter_type: int, value: bytes) -> bytes:
    return struct.pack(">HH", parameter_type, len(value) + 4) + value + bytes(-len(value) % 4)


heads = st.sampled_from([0, 4, 8, 12]).map(bytes)
parameter_trees = st.recursive(
    st.builds(tlv, st.sampled_from(ParameterType), st.binary(max_size=24)),
    lambda inner: st.builds(
        lambda number, head, parts: tlv(number, head + b"".join(parts)),
        st.sampled_from(ParameterType),
        heads,
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)


@codecs
@settings(max_examples=200)
@given(
    number=st.integers(1, 14),
    head=st.sampled_from([0, 4, 8, 12]),
    trees=st.lists(parameter_trees, max_size=4),
)
def test_parameters_in_any_order_are_decoded_or_refused(
    codec: ModuleType, number: int, head: int, trees: list[bytes]
) -> None:
    body = bytes(head) + b"".join(trees)
    try_decode(codec, struct.pack(">BBH", number, 0, len(body) + 4) + body)


@settings(max_examples=150)
@given(message=s.any_asap | s.any_enrp, data=st.data())
def test_damaged_messages_are_decoded_or_refused(
    message: asap.AsapMessage | enrp.EnrpMessage, data: st.DataObject
) -> None:
    codec: ModuleType = asap if isinstance(message, tuple(asap.MESSAGES.values())) else enrp
    damaged = bytearray(codec.encode(message))
    for position, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255)), max_size=4)
    ):
        damaged[position] = value
    cut = data.draw(st.integers(0, len(damaged)))
    try_decode(codec, bytes(damaged))
    try_decode(codec, bytes(damaged[:cut]))


def message_of(number: int, body: bytes) -> bytes:
    return struct.pack(">BBH", number, 0, len(body) + 4) + body


HANDLE = tlv(ParameterType.POOL_HANDLE, b"P")


def tiny_unknown(size: int) -> bytes:
    """As many empty skippable parameters as fit."""
    return message_of(asap.HandleResolution.TYPE, HANDLE + tlv(0x8123, b"") * ((size - 16) // 4))


def tiny_handles(size: int) -> bytes:
    """A required parameter, again and again."""
    return message_of(asap.HandleResolution.TYPE, tlv(ParameterType.POOL_HANDLE, b"") * ((size - 16) // 4))


ROUND_ROBIN = tlv(ParameterType.POLICY, bytes.fromhex("00000001"))


def many_addresses(size: int) -> bytes:
    """One pool element with as many addresses as fit."""
    address = tlv(ParameterType.IPV4_ADDRESS, bytes(4))
    transport = tlv(ParameterType.SCTP_TRANSPORT, bytes(4) + address * ((size - 80) // 8))
    element = tlv(ParameterType.POOL_ELEMENT, bytes(12) + transport + ROUND_ROBIN)
    return message_of(asap.Registration.TYPE, HANDLE + element)


def many_elements(size: int) -> bytes:
    transport = tlv(ParameterType.SCTP_TRANSPORT, bytes(4))
    element = tlv(
        ParameterType.POOL_ELEMENT,
        bytes(12) + transport + tlv(ParameterType.POLICY, bytes.fromhex("00000001")),
    )
    return message_of(asap.HandleResolutionResponse.TYPE, HANDLE + element * ((size - 16) // len(element)))


def nested(size: int) -> bytes:
    """Pool elements within pool elements, as deep as lengths allow."""
    inner = b""
    while len(inner) < size - 64:
        inner = tlv(ParameterType.POOL_ELEMENT, bytes(12) + inner)
    return message_of(asap.Registration.TYPE, HANDLE + inner)


def nested_skippable(size: int) -> bytes:
    inner = b""
    while len(inner) < size - 64:
        inner = tlv(0x8123, inner)
    return message_of(asap.Registration.TYPE, HANDLE + inner)


def tiny_causes(size: int) -> bytes:
    value = bytes.fromhex("00000004") * ((size - 16) // 4)
    return message_of(asap.AsapError.TYPE, tlv(ParameterType.OPERATION_ERROR, value))


def tiny_pools(size: int) -> bytes:
    """A handle table of nothing but handles."""
    pools = tlv(ParameterType.POOL_HANDLE, b"") * ((size - 16) // 4)
    return message_of(enrp.HandleTableResponse.TYPE, bytes(8) + pools)


ATTACKS = [
    tiny_unknown,
    tiny_handles,
    many_addresses,
    many_elements,
    nested,
    nested_skippable,
    tiny_causes,
    tiny_pools,
]


def best_time_s(codec: ModuleType, data: bytes) -> float:
    times = []
    for _ in range(7):
        start = time.process_time()
        with contextlib.suppress(DecodeError):
            codec.decode(data)
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_time_is_linear(attack: Callable[[int], bytes]) -> None:
    """Four times the bytes cost about four times the time; a quadratic decoder would need sixteen times."""
    codec: ModuleType = enrp if attack is tiny_pools else asap
    small, large = attack(16_000), attack(64_000)
    try_decode(codec, large)
    ratios: list[float] = []
    while (
        len(ratios) < 5 and min(ratios, default=9) >= 9
    ):  # a busy machine may be slower all along one of them
        ratios.append(best_time_s(codec, large) / max(best_time_s(codec, small), 20e-6))
    assert min(ratios) < 9, f"64 kB took at least {min(ratios):.1f} times as long as 16 kB"
    assert best_time_s(codec, large) < 0.5


@codecs
def test_more_than_a_message_is_refused_at_once(codec: ModuleType) -> None:
    with pytest.raises(DecodeError, match="followed by"):
        codec.decode(tiny_unknown(64_000) + bytes(10_000_000))
