"""The daemon gets to know the networks of `near` bit by bit, and forgets them when no answer needs them."""

import struct
from ipaddress import ip_network

import pytest
from rspdns.fastpath import near
from rspdns.fastpath.near import NumberedClasses
from rspdns.zones.zone import Zone, make_zone

from tests.backend.making import SITES, UDP, zone


def near_zone(*networks: str, name: str = "one.example") -> Zone:
    table = ", ".join(f'"{network}" = ["us"]' for network in networks)
    made = zone(f'{UDP}order = ["eu", "us"]\nnear = {{ {table} }}\n', name=name)
    return make_zone(made.config, made.static, sites_of_all=SITES)


MANY = tuple(f"10.{n >> 8}.{n & 255}.{n % 256}/32" for n in range(100))


def messages_left(classes: NumberedClasses) -> list[tuple[str, int]]:
    """The kind of every message until nothing is left, and the number of the classes that it is about."""
    found = []
    while not classes.is_told:
        message = classes.next_message()
        found.append((chr(message[4]), struct.unpack_from("=H", message, 5)[0]))
    return found


def test_many_blocks_are_told_in_several_messages_and_known_with_the_last() -> None:
    numbered = NumberedClasses()
    numbered.want([near_zone(*MANY)])
    assert [len(numbered.known) for _ in range(2) if numbered.next_message()] == [0, 1]
    assert messages_left(numbered) == []
    assert list(numbered.known.values()) == [1]
    assert numbered.next_message() == b"", "nothing is left"


def test_same_networks_after_a_reload_are_not_told_again() -> None:
    numbered = NumberedClasses()
    numbered.want([near_zone("10.0.0.0/8")])
    assert messages_left(numbered) == [("N", 1)]
    numbered.want([near_zone("10.0.0.0/8")])
    assert numbered.is_told
    assert numbered.forget_all_but(()) == b""


def test_networks_are_forgotten_when_no_answer_needs_them_and_their_number_rests() -> None:
    numbered = NumberedClasses()
    numbered.want([near_zone("10.0.0.0/8")])
    messages_left(numbered)
    numbered.want([near_zone("11.0.0.0/8")])
    assert messages_left(numbered) == [("N", 2)]
    assert numbered.forget_all_but([1, 2]) == b"", "answers need them still"
    assert chr(numbered.forget_all_but([2])[4]) == "F"
    assert list(numbered.known.values()) == [2]
    numbered.want([near_zone("12.0.0.0/8")])
    assert messages_left(numbered) == [("N", 3)]


def test_reload_in_the_midst_of_telling_ends_it() -> None:
    numbered = NumberedClasses()
    numbered.want([near_zone(*MANY)])
    numbered.next_message()
    numbered.want([])
    assert messages_left(numbered) == [("F", 1)]
    assert not numbered.known


def test_too_many_blocks_are_left_to_powerdns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "MOST_BLOCKS", 700)
    numbered = NumberedClasses()
    numbered.want([near_zone(*MANY), near_zone("10.0.0.0/8", name="two.example")])
    assert messages_left(numbered) == [("N", 1), ("F", 1), ("N", 2)]
    assert list(numbered.known.values()) == [2]
    assert len(numbered.too_large) == 1
    numbered.want([near_zone(str(ip_network("10.0.0.0/8")), name="two.example")])
    assert not numbered.too_large
