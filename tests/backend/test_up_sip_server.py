"""The SIP servers of `rspdns up`: what they answer. Pure."""

import pytest
from rspdns.up.sip_server import answer

OPTIONS = (
    b"OPTIONS sip:10.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nv: SIP/2.0/UDP b\r\n"
    b"From: <sip:a@b>;tag=1\r\n"
    b"t: <sip:c@d>\r\nCall-ID: x@y\r\nCSeq: 1 OPTIONS\r\nMax-Forwards: 0\r\nContent-Length: 0\r\n\r\n"
)


def test_options_is_answered_with_what_the_client_needs_to_know_its_answer() -> None:
    assert answer(OPTIONS) == (
        b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nVia: SIP/2.0/UDP b\r\n"
        b"From: <sip:a@b>;tag=1\r\n"
        b"To: <sip:c@d>;tag=up\r\nCall-ID: x@y\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    )


def test_a_call_is_refused() -> None:
    said = answer(OPTIONS.replace(b"OPTIONS", b"INVITE"))
    assert said is not None
    assert said.startswith(b"SIP/2.0 501 Not Implemented\r\n")


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\0" * 70_000,
        b"SIP/2.0 200 OK\r\n\r\n",
        OPTIONS.replace(b"OPTIONS sip", b"ACK sip"),
        b"\xff\r\n\r\n",
    ],
)
def test_what_is_no_request_to_answer_is_not_answered(garbage: bytes) -> None:
    assert answer(garbage) is None
