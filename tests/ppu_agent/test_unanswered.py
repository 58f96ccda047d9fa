"""The requests of SIP over TCP that the relay keeps, and those that it repeats to another server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ppu_agent.unanswered import (
    INVITE_FOR_S,
    MAX_HEAD_BYTES,
    MAX_KEPT_BYTES,
    MAX_MESSAGE_BYTES,
    OTHERS_FOR_S,
    Conversation,
)

from tests.ppu_agent.sip_messages import request, response


def asked(*requests: bytes) -> Conversation:
    conversation = Conversation()
    assert conversation.from_client(b"".join(requests), 0.0).to_server == b"".join(requests)
    return conversation


def test_a_request_is_repeated_until_its_final_response() -> None:
    conversation = asked(request("one"), request("two", body="v=0"))
    conversation.from_server(response(180, "one"))
    assert conversation.repeat(0.1) == [request("one"), request("two", body="v=0")]
    conversation.from_server(response(200, "one"))
    assert conversation.repeat(0.2) == [request("two", body="v=0")]
    conversation.from_server(response(486, "two"))
    assert conversation.repeat(0.3) == []
    assert not conversation.is_waiting(0.3)


def test_an_answer_belongs_to_the_request_with_its_branch_method_and_number() -> None:
    conversation = asked(request("one"), request("one", "CANCEL"))
    conversation.from_server(response(200, "one", "CANCEL"))
    assert conversation.repeat(0.1) == [request("one")]
    conversation.from_server(response(200, "one", number=2))
    assert conversation.is_waiting(0.2)


def test_header_fields_are_read_in_every_form_that_sip_allows() -> None:
    folded = request("one", body="v=0").replace(b"Via: ", b"VIA \t:\r\n\t").replace(b"Content-Length", b"L")
    conversation = asked(folded, request("two"))
    assert conversation.repeat(0.1) == [folded, request("two")]
    conversation.from_server(response(200, "one").replace(b"CSeq", b"cSEQ"))
    assert conversation.repeat(0.2) == [request("two")]


def test_an_ack_has_no_answer_and_is_not_kept() -> None:
    assert not asked(request("one", "ACK")).is_waiting(0.0)


def test_requests_of_the_server_and_their_responses_pass() -> None:
    conversation = asked(request("one"))
    assert conversation.from_server(request("hers", "BYE")).to_client == request("hers", "BYE")
    assert conversation.from_client(response(200, "hers", "BYE"), 0.1).to_server == response(
        200, "hers", "BYE"
    )
    assert conversation.repeat(0.2) == [request("one")]


def test_only_whole_messages_pass_so_that_the_server_may_change_between_any_two() -> None:
    conversation = asked(request("one"))
    half = response(200, "one")[:40]
    assert conversation.from_server(half) == (b"", b"")
    conversation.next_server()
    assert conversation.from_server(response(200, "one")).to_client == response(200, "one")
    assert conversation.from_client(request("two")[:50], 0.1) == (b"", b"")
    assert not conversation.is_waiting(0.1)
    assert conversation.from_client(request("two")[50:], 0.2).to_server == request("two")


def test_keep_alives_between_messages_pass() -> None:
    conversation = Conversation()
    assert conversation.from_client(b"\r\n\r\n" + request(), 0.0).to_server == b"\r\n\r\n" + request()
    assert conversation.from_server(b"\r\n").to_client == b"\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\n",
        b"A" * 9000,
        b"A a SIP/2.0\r\n\r\n",  # shorter than any message: many of them would cost seconds
        b"INVITE sip:x SIP/2.0\r\n" + b"X: y\r\n" * (MAX_HEAD_BYTES // 6 + 1),
        b"INVITE sip:x SIP/2.0\r\nContent-Length: %d\r\n\r\n" % MAX_MESSAGE_BYTES,
    ],
)
def test_bytes_that_are_no_sip_pass_as_they_come_and_none_is_kept(data: bytes) -> None:
    conversation = asked(request("one"))
    assert conversation.from_server(response(200, "one")[:30]) == (b"", b"")
    assert conversation.from_client(data, 0.1) == (data, response(200, "one")[:30])
    assert not conversation.is_sip
    assert not conversation.is_waiting(0.1)
    assert conversation.from_server(b"\0\1") == (b"", b"\0\1")


def test_messages_before_what_is_no_sip_are_passed_once() -> None:
    conversation = Conversation()
    data = request("one") + b"\x16\x03"
    assert conversation.from_client(data, 0.0).to_server == data


def test_a_request_that_three_servers_left_unanswered_is_refused() -> None:
    conversation = asked(request("one"))
    for _ in range(2):
        assert conversation.refuse(("10.0.0.9", 5060), all_of_them=False) == b""
        assert conversation.repeat(0.1)
    told = conversation.refuse(("10.0.0.9", 5060), all_of_them=False)
    assert told.startswith(b"SIP/2.0 503")
    assert b"z9hG4bKone" in told
    assert not conversation.repeat(0.2)


def test_all_are_refused_when_no_server_is_left() -> None:
    conversation = asked(request("one"), request("two", "OPTIONS"))
    told = conversation.refuse(("10.0.0.9", 5060), all_of_them=True)
    assert told.count(b"SIP/2.0 503") == 2
    assert not conversation.is_waiting(0.1)


def test_kept_requests_end_with_the_transaction_and_are_bounded() -> None:
    conversation = asked(request("one"), request("two", "OPTIONS"))
    assert conversation.repeat(OTHERS_FOR_S) == [request("one")]
    assert conversation.repeat(INVITE_FOR_S) == []
    large = "x" * 100_000
    for number in range(20):
        conversation.from_client(request(f"n{number}", body=large), 0.0)
    assert sum(map(len, conversation.repeat(1.0))) <= MAX_KEPT_BYTES


@given(st.lists(st.integers(1, 40), max_size=60), st.booleans())
def test_cuts_of_the_stream_change_nothing(cuts: list[int], has_garbage: bool) -> None:
    whole = request("one", body="v=0\r\n\r\n") + b"\r\n\r\n" + request("two", "OPTIONS")
    whole += b"\0garbage" if has_garbage else b""
    conversation, passed, rest = Conversation(), b"", whole
    for cut in [*cuts, len(whole)]:
        passed += conversation.from_client(rest[:cut], 0.0).to_server if rest else b""
        rest = rest[cut:]
    assert passed == whole
    assert conversation.is_waiting(0.0) is not has_garbage


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_hostile_bytes_neither_raise_nor_are_lost_or_doubled(first: bytes, second: bytes) -> None:
    conversation = Conversation()
    passed = conversation.from_client(first, 0.0).to_server + conversation.from_client(second, 0.0).to_server
    assert (first + second).startswith(passed)
    if not conversation.is_sip:
        assert passed == first + second


def test_stream_that_is_given_up_keeps_nothing() -> None:
    conversation = Conversation(room=lambda: 1000)
    half = b"INVITE sip:a SIP/2.0\r\nContent-Length: 250000\r\n\r\n" + b"x" * 200_000
    assert conversation.from_client(half, 0.0).to_server == half
    assert (conversation.is_sip, conversation.held_bytes) == (False, 0)
    tls = Conversation()
    assert tls.from_client(b"\x16\x03" * 30_000, 0.0).to_server == b"\x16\x03" * 30_000
    assert tls.held_bytes == 0


def test_more_conversations_leave_less_room_to_each() -> None:
    all_of_them: list[Conversation] = []
    for number in range(64):
        conversation = Conversation(room=lambda: 4 * MAX_KEPT_BYTES // len(all_of_them))
        all_of_them.append(conversation)
        for each in range(60):
            conversation.from_client(request(f"{number}-{each}", body="x" * 10_000), 0.0)
        for one_of_them in all_of_them:
            one_of_them.make_room()
        assert sum(one_of_them.held_bytes for one_of_them in all_of_them) <= 4 * MAX_KEPT_BYTES
    assert all(one_of_them.is_waiting(0.0) for one_of_them in all_of_them)


@pytest.mark.parametrize(
    "data",
    [
        b"PING\n",  # redis
        b"0\x0c\x02\x01\x01`\x07",  # LDAP: a bind request
        b"AMQP\0\0\x09\x01",
        b"220 mail.example.net ESMTP",
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r",
        b"GET / HTTP",
        b"INVITE sip:x SIP/3",
        b"SIP/1",
        b"SIP/2.0 9",
    ],
)
def test_first_impossible_byte_shows_that_a_stream_is_no_sip(data: bytes) -> None:
    conversation = Conversation()
    assert conversation.from_client(data, 0.0).to_server == data
    assert not conversation.is_sip
    conversation = Conversation()
    assert conversation.from_server(data).to_client == data
    assert not conversation.is_sip


@pytest.mark.parametrize("data", [request("one"), response(200, "one"), b"sip/2.0 200\r\n"])
def test_every_beginning_of_a_first_line_may_become_sip(data: bytes) -> None:
    end = data.index(b"\r\n") + 2
    for length in range(1, end + 1):
        conversation = Conversation()
        assert conversation.from_client(data[:length], 0.0) == (b"", b"")
        assert conversation.is_sip
        assert not conversation.is_in_doubt or length < end


def test_stream_in_doubt_is_taken_for_something_else_when_its_time_is_over() -> None:
    conversation = Conversation()
    assert conversation.from_client(b"PING", 0.0) == (b"", b"")
    assert conversation.is_in_doubt
    assert conversation.end_doubt() == (b"PING", b"")
    assert conversation.from_client(b" x", 0.0).to_server == b" x"
    assert not conversation.is_in_doubt


def test_sip_that_comes_in_pieces_is_in_doubt_until_its_first_line_only() -> None:
    conversation = asked(request("one"))
    conversation.from_client(request("two")[:5], 0.1)
    conversation.from_server(response(200, "one")[:20])
    assert not conversation.is_in_doubt
    assert conversation.end_doubt() == (b"", b"")
    assert conversation.is_waiting(0.2)
