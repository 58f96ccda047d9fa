"""Bytes captured from rspregistrar and librsplib decode to the right values and encode to the same bytes."""

from types import ModuleType

import pytest
from rserpool.errors import UnsafeMessageError
from rserpool.rspregistrar import check_safe

from rserpool import asap, enrp
from tests.rserpool.vectors import EXPECTED, UNSAFE, VECTORS


def codec(name: str) -> ModuleType:
    return enrp if name.startswith("enrp") else asap


def test_every_vector_has_its_expected_value() -> None:
    assert EXPECTED.keys() == VECTORS.keys()


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name: str) -> None:
    value = codec(name).decode(VECTORS[name])
    assert value == EXPECTED[name]
    assert type(value) is type(EXPECTED[name])
    assert codec(name).encode(EXPECTED[name]) == VECTORS[name]


@pytest.mark.parametrize("name", [name for name in VECTORS if name != UNSAFE])
def test_captured_messages_are_safe(name: str) -> None:
    check_safe(EXPECTED[name])


def test_what_aborts_rspregistrar_is_refused() -> None:
    with pytest.raises(UnsafeMessageError, match="33 bytes"):
        check_safe(EXPECTED[UNSAFE])
