"""The OPTIONS request, and what is taken for its answer."""

import time
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
from daemon_kit.sip import OptionsRequest, new_request, parse_response, refusal
from hypothesis import given
from hypothesis import strategies as st

REQUEST = OptionsRequest(
    target=IPv4Address("10.0.0.9"),
    port=5060,
    local=IPv4Address("10.0.0.9"),
    local_port=40000,
    call_id="abc@ppe-agent",
    sequence=7,
    branch="z9hG4bK1234",
    tag="t1",
    sender="rspdns",
)
ANSWER = (
    b"SIP/2.0 200 OK\r\n"
    b"Via: SIP/2.0/UDP 10.0.0.9:40000;branch=z9hG4bK1234;rport=40000;received=10.0.0.9\r\n"
    b"From: <sip:ppe-agent@10.0.0.9:40000>;tag=t1\r\nTo: <sip:10.0.0.9:5060>;tag=x\r\n"
    b"Call-ID: abc@ppe-agent\r\nCSeq: 7 OPTIONS\r\nContent-Length: 0\r\n\r\n"
)
INVITE = (
    b"INVITE sip:service@as.example SIP/2.0\r\n"
    b"v: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bKone;rport\r\n"
    b"Via: SIP/2.0/UDP 10.0.0.9:5061;branch=z9hG4bKtwo\r\n"
    b"f: <sip:caller@10.0.0.1>;tag=abc\r\n"
    b'To: "A; tag=none" <sip:service@as.example;tag=no>\r\n'
    b"Call-ID: one@example\r\n"
    b"CSeq: 7 INVITE\r\n"
    b"Content-Length: 4\r\n\r\nbody"
)
SOURCE = ("192.0.2.7", 1024)


def test_the_request_goes_no_further_than_the_server() -> None:
    text = REQUEST.encode().decode()
    assert text.startswith("OPTIONS sip:10.0.0.9:5060 SIP/2.0\r\n")
    assert "\r\nMax-Forwards: 0\r\n" in text
    assert text.endswith("\r\nContent-Length: 0\r\n\r\n")


def test_requests_are_told_apart() -> None:
    first, second = (new_request(("10.0.0.9", 5060), ("10.0.0.8", 40000), sender="rspdns") for _ in range(2))
    assert len({first.call_id, second.call_id, first.branch, second.branch, first.tag, second.tag}) == 6
    assert "\r\nUser-Agent: rspdns\r\n" in first.encode().decode()


def test_ipv6_addresses_stand_in_brackets() -> None:
    request = replace(REQUEST, target=IPv6Address("fd00::1"), local=IPv6Address("fd00::2"))
    text = request.encode().decode()
    assert text.startswith("OPTIONS sip:[fd00::1]:5060 SIP/2.0\r\nVia: SIP/2.0/UDP [fd00::2]:40000;")


def answered_by(data: bytes) -> bool:
    response = parse_response(data)
    return response is not None and REQUEST.is_answered_by(response)


def test_an_answer_is_known_also_in_compact_form() -> None:
    assert answered_by(ANSWER)
    compact = ANSWER.replace(b"Via:", b"v :").replace(b"Call-ID:", b"i:").replace(b"CSeq", b"cseq")
    assert answered_by(compact)


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        (b"abc@ppe-agent", b"other@ppe-agent"),
        (b"CSeq: 7", b"CSeq: 6"),
        (b"7 OPTIONS", b"7 INVITE"),
        (b"z9hG4bK1234", b"z9hG4bK9999"),
        (b"SIP/2.0 200", b"SIP/3.0 200"),
        (b"SIP/2.0 200", b"SIP/2.0 700"),
        (b"SIP/2.0 200", b"SIP/2.0 2000"),
        (b"Call-ID", b"X-Call-ID"),
        (b"CSeq: 7 OPTIONS", b"CSeq: " + b"7" * 5000 + b" OPTIONS"),
    ],
)
def test_other_messages_are_not_taken_for_its_answer(part: bytes, instead: bytes) -> None:
    assert not answered_by(ANSWER.replace(part, instead, 1))


@pytest.mark.parametrize(
    ("status", "life"),
    [(200, True), (404, True), (483, True), (500, True), (603, True), (408, False), (503, False)],
)
def test_any_final_response_but_503_and_408_is_life(status: int, life: bool) -> None:
    response = parse_response(ANSWER.replace(b"200", str(status).encode(), 1))
    assert response is not None
    assert response.is_final
    assert response.shows_life is life


def test_provisional_responses_are_not_final() -> None:
    response = parse_response(ANSWER.replace(b"200 OK", b"100 Trying", 1))
    assert response is not None
    assert not response.is_final
    assert str(response) == "100 Trying"


def test_the_phrase_of_a_response_is_short_and_printable() -> None:
    response = parse_response(ANSWER.replace(b"OK", b"\x1b[31m\xff" + b"A" * 5000, 1))
    assert response is not None
    assert response.phrase.isprintable()
    assert len(response.phrase) <= 60


@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda tail: ANSWER[: len(tail)] + tail))
def test_arbitrary_bytes_never_raise(data: bytes) -> None:
    parse_response(data)


@pytest.mark.parametrize(
    "data",
    [
        b"SIP/2.0 200 " + b" " * 16000,
        b"SIP/2.0 200 OK\r\nCSeq: 7" + b" " * 15000 + b"x\r\n\r\n",
        b"SIP/2.0 200 OK\r\nCSeq: 7 OPTIONS\r\nCall-ID: a\r\nVia: " + b"; branch " * 1800,
        b"SIP/2.0 200 OK\r\n" + b"a:\r\n" * 4000,
        b"SIP/2.0 200 OK\r\n" + b"x" * 10_000_000,
    ],
)
def test_hostile_bytes_take_no_time(data: bytes) -> None:
    began = time.process_time()
    parse_response(data)
    assert time.process_time() - began < 0.5


def test_refusal_has_the_fields_of_the_request_and_a_tag() -> None:
    assert refusal(INVITE, SOURCE, "mine") == (
        b"SIP/2.0 503 Service Unavailable\r\n"
        b"Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bKone;rport=1024;received=192.0.2.7\r\n"
        b"Via: SIP/2.0/UDP 10.0.0.9:5061;branch=z9hG4bKtwo\r\n"
        b"From: <sip:caller@10.0.0.1>;tag=abc\r\n"
        b'To: "A; tag=none" <sip:service@as.example;tag=no>;tag=mine\r\n'
        b"Call-ID: one@example\r\n"
        b"CSeq: 7 INVITE\r\n"
        b"Content-Length: 0\r\n\r\n"
    )


def test_tag_of_a_dialog_stays() -> None:
    answer = refusal(INVITE.replace(b";tag=no>", b">;tag=dialog"), SOURCE, "mine")
    assert answer is not None
    assert b'To: "A; tag=none" <sip:service@as.example>;tag=dialog\r\n' in answer


@pytest.mark.parametrize(
    "data",
    [
        INVITE.replace(b"INVITE", b"ACK"),
        INVITE.replace(b"CSeq", b"X"),
        INVITE.replace(b"Call-ID: one@example\r\n", b"Call-ID: a\r\nCall-ID: b\r\n"),
        b"SIP/2.0 200 OK\r\n\r\n",
        INVITE.partition(b"\r\n\r\n")[0],
        INVITE.replace(b"abc", b"\xff\xfe"),
        b"",
    ],
)
def test_ack_response_and_garbage_are_not_answered(data: bytes) -> None:
    assert refusal(data, SOURCE, "mine") is None


@given(st.binary(max_size=300), st.integers(0, 300))
def test_garbage_is_answered_by_a_response_or_by_nothing(garbage: bytes, offset: int) -> None:
    answer = refusal(INVITE[:offset] + garbage + INVITE[offset:], SOURCE, "mine")
    assert answer is None or parse_response(answer) is not None
    refusal(garbage, SOURCE, "mine")
