"""Requests that a server leaves unanswered, read from copies of packets."""

import struct
from ipaddress import ip_address
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ppu_agent.kernel.copies import packets_of
from ppu_agent.overheard import Overheard, Refusal, segment_of

from tests.ppu_agent.sip_messages import request, response

CLIENT = (ip_address("10.0.0.9"), 40000)
SERVER = (ip_address("10.0.0.1"), 5060)
_SYN, _RST, _ACK = 2, 4, 16
_FIRST, _SERVERS_FIRST = 2**32 - 300, 7000  # the client's numbers pass the largest soon


def packet(
    data: bytes = b"",
    sequence: int = 0,
    acknowledged: int = 0,
    flags: int = _ACK,
    *,
    from_server: bool = False,
) -> bytes:
    """A packet of the connection; numbers count from the first byte of each side."""
    (source, sport), (target, dport) = (SERVER, CLIENT) if from_server else (CLIENT, SERVER)
    own, other = (_SERVERS_FIRST, _FIRST) if from_server else (_FIRST, _SERVERS_FIRST)
    tcp = struct.pack(
        ">HHIIBBHHH",
        *(sport, dport, (own + sequence) % 2**32, (other + acknowledged) % 2**32),
        *(5 << 4, flags, 1000, 0, 0),
    )
    head = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(data), 0, 0, 64, 6, 0) + source.packed + target.packed
    return head + tcp + data


def cut(data: bytes, *places: int) -> list[bytes]:
    """The client's packets with this data, cut at these places."""
    return [packet(data[begin:end], begin) for begin, end in pairwise([0, *sorted(set(places)), len(data)])]


def refusal_after(*packets: bytes) -> Refusal | None:
    overheard = Overheard([SERVER])
    overheard.feed(packets)
    return overheard.refusal(CLIENT, SERVER)


def refused(refusal: Refusal | None) -> list[str]:
    """The branches of the requests that were answered."""
    return (
        []
        if refusal is None
        else [
            line.split("z9hG4bK")[1].split(";")[0]
            for line in refusal.data.decode().splitlines()
            if "Via" in line
        ]
    )


def test_request_without_a_final_response_is_refused_where_the_connection_stands() -> None:
    first, two = request("one"), request("two", body="v=0")
    ringing, final = response(180, "two"), response(200, "one")
    refusal = refusal_after(
        *cut(first + two, 50, len(first) + 10),
        packet(final + ringing, 0, len(first + two), from_server=True),
    )
    assert refusal is not None
    assert refused(refusal) == ["two"]
    assert refusal.sequence == _SERVERS_FIRST + len(final + ringing)
    assert refusal.acknowledged == (_FIRST + len(first + two)) % 2**32
    assert refusal.requests == 1


def test_what_was_refused_once_is_not_refused_again_and_what_follows_is() -> None:
    overheard = Overheard([SERVER])
    overheard.feed([packet(request("one"))])
    first = overheard.refusal(CLIENT, SERVER)
    assert first is not None
    assert overheard.refusal(CLIENT, SERVER) is None
    overheard.feed([packet(request("two"), len(request("one")))])
    second = overheard.refusal(CLIENT, SERVER)
    assert refused(second) == ["two"]
    assert second is not None
    assert second.sequence == first.sequence + len(first.data)


def test_what_is_sent_and_not_acknowledged_is_acknowledged_without_words() -> None:
    half = request("half")[:30]
    refusal = refusal_after(packet(half, 0))
    assert refusal is not None
    assert refusal.data == b""
    assert refusal_after(packet(half, 0), packet(b"", 0, len(half), from_server=True)) is None


def test_packets_that_come_twice_or_overlap_count_once() -> None:
    data = request("one") + request("two")
    packets = cut(data, 100)
    assert refused(refusal_after(*packets, *packets, packet(data[50:], 50))) == ["one", "two"]


def test_copies_that_begin_within_a_message_go_on_with_the_next() -> None:
    old, new = request("old", body="v=0\r\n" * 20), request("new")
    assert refused(refusal_after(packet((old + new)[120 : len(old)], 120), packet(new, len(old)))) == ["new"]


def test_missing_piece_costs_no_more_than_the_message_it_is_of() -> None:
    torn, whole = request("torn"), request("whole")
    packets = [packet(torn[:40]), packet(torn[80:], 80), packet(whole, len(torn))]
    assert refused(refusal_after(*packets)) == ["whole"]


def test_new_connection_from_the_same_port_knows_nothing_of_the_former() -> None:
    again = packet(b"", -1, 0, _SYN)
    assert refusal_after(packet(request("former")), again, packet(b"", 0)) is None
    assert refusal_after(packet(request("former")), packet(b"", 0, 0, _RST | _ACK, from_server=True)) is None


@pytest.mark.parametrize("from_server", [False, True])
@pytest.mark.parametrize("flags", [_ACK, _RST | _ACK])
def test_packets_with_numbers_of_no_such_connection_change_nothing(from_server: bool, flags: int) -> None:
    forged = [
        packet(b"", 10**9, 0, flags, from_server=from_server),
        packet(request("forged"), 0, 10**9, flags, from_server=from_server),
    ]
    asked = packet(request("one")), packet(b"", 0, len(request("one")), from_server=True)
    with_them, without = refusal_after(*asked, *forged), refusal_after(*asked)
    assert with_them is not None
    assert without is not None
    assert refused(with_them) == ["one"]
    assert with_them[:2] == without[:2]


def test_nothing_is_said_behind_half_a_response() -> None:
    asked = packet(request("one") + request("two")), packet(response(200, "one")[:60], from_server=True)
    refusal = refusal_after(*asked)
    assert refusal is not None
    assert (refusal.data, refusal.requests) == (b"", 0)


def test_other_servers_packets_are_left_alone() -> None:
    overheard = Overheard([(ip_address("10.0.0.2"), 5060)])
    overheard.feed([packet(request())])
    assert overheard.connections == []
    assert overheard.refusal(CLIENT, SERVER) is None


@given(places=st.lists(st.integers(1, 700), max_size=8), twice=st.booleans())
def test_every_cut_of_a_stream_gives_the_same_requests(places: list[int], twice: bool) -> None:
    data = b"\r\n\r\n".join(request(f"r{number}", body="x" * number) for number in range(5))
    packets = cut(data, *(place for place in places if place < len(data)))
    assert refused(refusal_after(*packets, *(packets if twice else []))) == [
        f"r{number}" for number in range(5)
    ]


@given(st.lists(st.tuples(st.binary(max_size=120), st.integers(0, 400), st.booleans()), max_size=20))
def test_nothing_that_is_sent_can_stop_it(said: list[tuple[bytes, int, bool]]) -> None:
    mixed = [
        packet((request() * 2)[at : at + 90] + data, at, at, from_server=from_server)
        for data, at, from_server in said
    ]
    overheard = Overheard([SERVER])
    overheard.feed(mixed)
    overheard.refusal(CLIENT, SERVER)


@given(st.binary(max_size=100), st.integers(0, 60))
def test_no_bytes_are_taken_for_a_packet_that_they_are_not(data: bytes, length: int) -> None:
    segment_of(data)
    cut_off = packet(request())[:length]
    found = segment_of(cut_off)
    assert found is None
    for frame in packets_of(data):
        segment_of(frame)
