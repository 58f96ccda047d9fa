"""503 for a request, whatever it holds."""

import pytest
from daemon_kit.sip import parse_response, refusal
from hypothesis import given
from hypothesis import strategies as st

REQUEST = (
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


def test_refusal_has_the_fields_of_the_request_and_a_tag() -> None:
    assert refusal(REQUEST, SOURCE, "mine") == (
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
    answer = refusal(REQUEST.replace(b";tag=no>", b">;tag=dialog"), SOURCE, "mine")
    assert answer is not None
    assert b'To: "A; tag=none" <sip:service@as.example>;tag=dialog\r\n' in answer


@pytest.mark.parametrize(
    "data",
    [
        REQUEST.replace(b"INVITE", b"ACK"),
        REQUEST.replace(b"CSeq", b"X"),
        REQUEST.replace(b"Call-ID: one@example\r\n", b"Call-ID: a\r\nCall-ID: b\r\n"),
        b"SIP/2.0 200 OK\r\n\r\n",
        REQUEST.partition(b"\r\n\r\n")[0],
        REQUEST.replace(b"abc", b"\xff\xfe"),
        b"",
    ],
)
def test_ack_response_and_garbage_are_not_answered(data: bytes) -> None:
    assert refusal(data, SOURCE, "mine") is None


@given(st.binary(max_size=300), st.integers(0, 300))
def test_whatever_comes_is_answered_by_a_response_or_by_nothing(garbage: bytes, place: int) -> None:
    answer = refusal(REQUEST[:place] + garbage + REQUEST[place:], SOURCE, "mine")
    assert answer is None or parse_response(answer) is not None
    refusal(garbage, SOURCE, "mine")
