"""Whatever can be said can be encoded, and decodes to what was said."""

from dataclasses import FrozenInstanceError, is_dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rserpool import asap, enrp, policies
from tests.rserpool import strategies as s


@pytest.mark.parametrize("message_type", asap.MESSAGES.values())
def test_asap(message_type: type[asap.AsapMessage]) -> None:
    @given(s.asap_messages[message_type])
    def round_trip(message: asap.AsapMessage) -> None:
        data = asap.encode(message)
        assert asap.decode(data) == message
        assert type(asap.decode(data)) is message_type
        assert len(data) % 4 == 0
        assert data[0] == message_type.TYPE

    round_trip()


@pytest.mark.parametrize("message_type", enrp.MESSAGES.values())
def test_enrp(message_type: type[enrp.EnrpMessage]) -> None:
    @given(s.enrp_messages[message_type])
    def round_trip(message: enrp.EnrpMessage) -> None:
        data = enrp.encode(message)
        assert enrp.decode(data) == message
        assert type(enrp.decode(data)) is message_type
        assert len(data) % 4 == 0
        assert data[0] == message_type.TYPE

    round_trip()


@given(s.any_policy)
def test_policies(policy: policies.Policy) -> None:
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
