"""Messages and their bytes: captured ones, random ones there and back, parameters that are not known."""

import struct
from dataclasses import FrozenInstanceError, is_dataclass
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rserpool.errors import CauseCode, DecodeError, UnsafeMessageError
from rserpool.parameters import UnknownParameter
from rserpool.rspregistrar import check_safe
from rserpool.wire import ParameterType

from rserpool import asap, enrp, policies
from tests.rserpool import strategies as s
from tests.rserpool.vectors import EXPECTED, UNSAFE, VECTORS


def codec(name: str) -> ModuleType:
    return enrp if name.startswith("enrp") else asap


def test_every_vector_has_its_expected_value() -> None:
    assert EXPECTED.keys() == VECTORS.keys()


@pytest.mark.parametrize("name", VECTORS)
def test_each_vector_is_decoded_and_encoded_byte_for_byte(name: str) -> None:
    value = codec(name).decode(VECTORS[name])
    assert value == EXPECTED[name]
    assert type(value) is type(EXPECTED[name])
    assert codec(name).encode(EXPECTED[name]) == VECTORS[name]


@pytest.mark.parametrize("name", [name for name in VECTORS if name != UNSAFE])
def test_captured_messages_are_safe(name: str) -> None:
    check_safe(EXPECTED[name])


def test_a_message_that_aborts_rspregistrar_is_refused() -> None:
    with pytest.raises(UnsafeMessageError, match="33 bytes"):
        check_safe(EXPECTED[UNSAFE])


@pytest.mark.parametrize("message_type", asap.MESSAGES.values())
def test_every_asap_message_survives_encoding_and_decoding(message_type: type[asap.AsapMessage]) -> None:
    @given(s.asap_messages[message_type])
    def round_trip(message: asap.AsapMessage) -> None:
        data = asap.encode(message)
        assert asap.decode(data) == message
        assert type(asap.decode(data)) is message_type
        assert len(data) % 4 == 0
        assert data[0] == message_type.TYPE

    round_trip()


@pytest.mark.parametrize("message_type", enrp.MESSAGES.values())
def test_every_enrp_message_survives_encoding_and_decoding(message_type: type[enrp.EnrpMessage]) -> None:
    @given(s.enrp_messages[message_type])
    def round_trip(message: enrp.EnrpMessage) -> None:
        data = enrp.encode(message)
        assert enrp.decode(data) == message
        assert type(enrp.decode(data)) is message_type
        assert len(data) % 4 == 0
        assert data[0] == message_type.TYPE

    round_trip()


@given(s.any_policy)
def test_every_policy_survives_encoding_and_decoding(policy: policies.Policy) -> None:
    assert policies.decode_policy(policies.encode_policy(policy)) == policy


@given(s.uint32)
def test_every_load_on_the_wire_survives(number: int) -> None:
    value = policies.LeastUsed.TYPE.to_bytes(4, "big") + number.to_bytes(4, "big")
    policy = policies.decode_policy(value)
    assert isinstance(policy, policies.LeastUsed)
    assert 0.0 <= policy.load <= 1.0
    assert policies.encode_policy(policy) == value


@given(st.floats(0.0, 1.0))
def test_every_load_is_kept_to_wire_precision(load: float) -> None:
    decoded = policies.decode_policy(policies.encode_policy(policies.LeastUsed(load)))
    assert isinstance(decoded, policies.LeastUsed)
    assert abs(decoded.load - load) <= 0.5 / 0xFFFFFFFF + 1e-15


@given(s.any_asap | s.any_enrp)
def test_messages_are_values(message: asap.AsapMessage | enrp.EnrpMessage) -> None:
    assert is_dataclass(message)
    assert hash(message) == hash(message)
    assert not hasattr(message, "__dict__")
    with pytest.raises((FrozenInstanceError, TypeError)):
        message.unknown = ()  # type: ignore[misc]


HANDLE = bytes.fromhex("0009000550000000")


def resolution(extra: bytes) -> bytes:
    return struct.pack(">BBH", 5, 0, 4 + len(HANDLE) + len(extra)) + HANDLE + extra


@pytest.mark.parametrize(("number", "report"), [(0x8123, False), (0xC123, True)])
def test_skippable_parameters_are_kept(number: int, report: bool) -> None:
    data = resolution(struct.pack(">HH", number, 7) + b"abc\0")
    message = asap.decode(data)
    assert message == asap.HandleResolution(b"P", None, unknown=(UnknownParameter(number, b"abc"),))
    assert message.unknown[0].report is report
    assert asap.encode(message) == data


def test_a_parameter_that_forbids_processing_drops_the_message_silently() -> None:
    with pytest.raises(DecodeError, match="0x0123") as caught:
        asap.decode(resolution(bytes.fromhex("01230004")))
    assert caught.value.cause is None


def test_a_parameter_that_forbids_processing_is_reported_when_it_asks_for_it() -> None:
    with pytest.raises(DecodeError, match="0x4777") as caught:
        asap.decode(resolution(bytes.fromhex("477700087a7a7a7a")))
    assert caught.value.cause is not None
    assert caught.value.cause.code == CauseCode.UNRECOGNIZED_PARAMETER
    assert caught.value.cause.data == bytes.fromhex("477700087a7a7a7a")


def test_a_parameter_where_it_does_not_belong_is_unknown() -> None:
    with pytest.raises(DecodeError, match="0x000d"):
        asap.decode(resolution(bytes.fromhex("000d0004")))
    keep_alive = asap.encode(asap.EndpointKeepAliveAck(b"P", 1))
    item_count = bytes.fromhex("803f000800000080")
    data = keep_alive[:2] + struct.pack(">H", len(keep_alive) + 8) + keep_alive[4:] + item_count
    unknown = (UnknownParameter(ParameterType.ITEM_COUNT, bytes.fromhex("00000080")),)
    assert asap.decode(data) == asap.EndpointKeepAliveAck(b"P", 1, unknown)


def test_unknown_messages_are_named_and_reported() -> None:
    for codec in (asap, enrp):
        with pytest.raises(DecodeError, match="unknown message type 0x7b") as caught:
            codec.decode(bytes.fromhex("7b000008deadbeef"))
        assert caught.value.cause is not None
        assert caught.value.cause.code == CauseCode.UNRECOGNIZED_MESSAGE


def test_order_does_not_matter_but_repetition_does() -> None:
    message = EXPECTED["asap_registration_response_reject_ctrlch"]
    assert isinstance(message, asap.RegistrationResponse)
    data = asap.encode(message)
    handle, rest = data[4:16], data[16:]
    assert asap.decode(data[:4] + rest + handle) == message
    doubled = data[:2] + struct.pack(">H", len(data) + len(handle)) + data[4:] + handle
    with pytest.raises(DecodeError, match="POOL_HANDLE is there 2 times"):
        asap.decode(doubled)


def test_padding_may_be_missing_at_the_end_and_hold_anything() -> None:
    expected = asap.HandleResolution(b"P", None)
    assert asap.decode(bytes.fromhex("05000009 0009000550")) == expected
    assert asap.decode(bytes.fromhex("05000009 0009000550 000000")) == expected
    assert asap.decode(bytes.fromhex("0500000c 0009000550 ffffff")) == expected


def test_a_handle_table_must_name_the_pool_of_each_element() -> None:
    table = enrp.encode(EXPECTED["enrp_handle_table_response_2PEs"])  # type: ignore[arg-type]
    without_handle = table[:2] + struct.pack(">H", len(table) - 8) + table[4:12] + table[20:]
    with pytest.raises(DecodeError, match="instead of a pool handle"):
        enrp.decode(without_handle)
