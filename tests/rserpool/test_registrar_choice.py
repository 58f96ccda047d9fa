"""Which registrar, and which next."""

from collections import Counter

import pytest
from rserpool.machine.registrar_choice import (
    FORGIVE_AFTER_S,
    RegistrarAddress,
    Rotation,
    backoff_s,
    choose,
    preference,
)

from tests.rserpool.paper_registrars import HANDLE, REGISTRARS


@pytest.mark.parametrize(
    ("text", "endpoint", "shown"),
    [
        ("10.0.0.1", ("10.0.0.1", 3863), "10.0.0.1"),
        (" 10.0.0.1:4000 ", ("10.0.0.1", 4000), "10.0.0.1:4000"),
        ("2001:db8::1", ("2001:db8::1", 3863), "[2001:db8::1]"),
        ("[2001:DB8:0::1]", ("2001:db8::1", 3863), "[2001:db8::1]"),
        ("[::1]:4000", ("::1", 4000), "[::1]:4000"),
    ],
)
def test_reads_addresses(text: str, endpoint: tuple[str, int], shown: str) -> None:
    address = RegistrarAddress.parse(text)
    assert address.endpoint == endpoint
    assert address.enrp_port == 9901
    assert str(address) == shown
    assert RegistrarAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("registrar.example", "not an IP address"),
        ("", "not an IP address"),
        ("10.0.0.256", "not an IP address"),
        ("10.0.0.1:", "port is missing"),
        ("10.0.0.1:0", "1..65535"),
        ("10.0.0.1:65536", "1..65535"),
        ("10.0.0.1:asap", "not a port number"),
        ("10.0.0.1:²", "not a port number"),
        ("[::1", "address"),
        ("[::1]4000", "address"),
        ("[::1]:", "port is missing"),
    ],
)
def test_says_what_is_wrong_with_an_address(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        RegistrarAddress.parse(text)


def test_address_and_port_are_both_judged_in_one_sentence() -> None:
    with pytest.raises(ValueError) as error:
        RegistrarAddress.parse("x:99999")
    problem = "registrar 'x:99999': 'x' is not an IP address and port 99999 is not in 1..65535"
    assert str(error.value) == problem


def test_elements_spread_over_the_registrars_and_each_keeps_its_order() -> None:
    orders = [preference(REGISTRARS, HANDLE, identifier) for identifier in range(600)]
    assert orders == [preference(REGISTRARS[::-1], HANDLE, identifier) for identifier in range(600)]
    firsts = Counter(order[0] for order in orders)
    seconds = Counter(order[1] for order in orders if order[0] == REGISTRARS[0])
    assert set(firsts) == set(REGISTRARS)
    assert min(firsts.values()) > 120
    assert min(seconds.values()) > 50, "the elements of a dead registrar go to both others"


def test_a_registrar_given_twice_counts_once() -> None:
    assert sorted(preference(REGISTRARS * 2, HANDLE, 1)) == sorted(REGISTRARS)


def test_registrars_of_last_choice_come_after_all_others() -> None:
    for identifier in range(20):
        order = preference(REGISTRARS, HANDLE, identifier)
        last = preference(REGISTRARS, HANDLE, identifier, [order[0]])
        assert last == (*order[1:], order[0])


def test_a_registrar_that_failed_comes_last_for_a_while() -> None:
    first, second, third = REGISTRARS
    assert choose(REGISTRARS, {}, 100.0) == first
    assert choose(REGISTRARS, {first: 99.0}, 100.0) == second
    assert choose(REGISTRARS, {first: 99.0, second: 98.0, third: 97.0}, 100.0) == third
    assert choose(REGISTRARS, {first: 100.0 - FORGIVE_AFTER_S - 1}, 100.0) == first


def test_pauses_double_up_to_their_ceiling() -> None:
    assert [backoff_s(n, 0.1, 1.0) for n in range(1, 7)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert backoff_s(10**9, 0.1, 1.0) == 1.0


def test_distrusted_registrar_is_tried_when_all_others_failed() -> None:
    """A registrar that lies unsettles its peers, and takes no registrations itself."""
    first, second, third = three = [RegistrarAddress(f"10.0.0.{number}") for number in (1, 2, 3)]
    rotation = Rotation(three)
    rotation.distrust(first, 100.0)
    rotation.distrust(second, 101.0)
    assert rotation.next(102.0) == third
    rotation.failed(third, 102.0)
    assert rotation.next(102.0) == first
    rotation.failed(first, 102.0)
    assert rotation.next(102.0) == second
    assert rotation.next(102.0 + FORGIVE_AFTER_S + 1) in three
