"""What the lab reads out of answers."""

import dns.message
import dns.rcode
import dns.rrset
from hypothesis import given
from hypothesis import strategies as st
from rspdns_lab.observations import Recorder, read_message
from rspdns_lab.verdict import Kind


def message(*answers: str, additional: tuple[str, ...] = (), rcode: int = dns.rcode.NOERROR) -> bytes:
    query = dns.message.make_query("_sip._udp.as.demo.example.", "SRV")
    response = dns.message.make_response(query)
    response.set_rcode(dns.rcode.Rcode(rcode))
    for text in answers:
        name, kind, data = text.split(maxsplit=2)
        response.answer.append(dns.rrset.from_text(name, 1, "IN", kind, data))
    for text in additional:
        name, kind, data = text.split(maxsplit=2)
        response.additional.append(dns.rrset.from_text(name, 1, "IN", kind, data))
    return response.to_wire()[2:]


def test_srv_targets_are_resolved_by_the_additional_section() -> None:
    reading = read_message(
        message(
            "_sip._udp.as.demo.example. SRV 0 10 5060 a.u.as.demo.example.",
            "_sip._udp.as.demo.example. SRV 0 20 5060 b.u.as.demo.example.",
            additional=("a.u.as.demo.example. A 10.53.0.31", "b.u.as.demo.example. A 10.53.0.32"),
        )
    )
    assert reading.kind is Kind.ANSWER
    assert reading.names == {"10.53.0.31", "10.53.0.32"}
    assert reading.weights == (("10.53.0.31", 0, 10), ("10.53.0.32", 0, 20))


def test_a_target_without_an_address_is_not_overlooked() -> None:
    reading = read_message(message("_sip._udp.as.demo.example. SRV 0 10 5060 a.u.as.demo.example."))
    assert reading.names == {"a.u.as.demo.example."}


def test_empty_and_failed_answers_are_told_apart() -> None:
    assert read_message(message()).kind is Kind.EMPTY
    assert read_message(message(rcode=dns.rcode.NXDOMAIN)).kind is Kind.EMPTY
    assert read_message(message(rcode=dns.rcode.SERVFAIL)).kind is Kind.SERVFAIL


@given(st.binary(max_size=300))
def test_any_bytes_give_a_reading(body: bytes) -> None:
    assert read_message(body).kind in Kind


def test_a_recorder_keeps_times_and_passes_over_nonsense() -> None:
    recorder = Recorder(complete=[True])
    body = message("as.demo.example. A 10.53.0.31").hex()
    for line in (
        "R 0 0 1.0 1.1 0",
        "B 0 zz",
        f"B 0 {body}",
        "R 0 0 2.0 2.001 0",
        "T 1 0 3.0",
        "",
        "R 0 9 1 1 0",
    ):
        recorder.take(line)
    first, second = recorder.observations
    assert (first.asked_at_s, first.answered_at_s) == (2.0, 2.001)
    assert first.names == {"10.53.0.31"}
    assert (second.server, second.kind) == (1, Kind.TIMEOUT)
    assert [one.asked_at_s for one in recorder.since(2.5)] == [3.0]
