"""What the lab reads out of answers."""

import struct

import dns.message
import dns.rcode
import dns.rrset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rspdns_lab.observe.observations import Recorder, read_any, read_message, read_usual
from rspdns_lab.observe.verdict import Kind


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


SRV = tuple(
    f"_sip._udp.as.demo.example. SRV {n % 2} {n} 5060 {n:08x}.u.as.demo.example." for n in range(1, 8)
)
HOSTS = tuple(f"{n:08x}.u.as.demo.example. A 10.53.0.{30 + n}" for n in range(1, 8))


def test_the_quick_reader_reads_what_dnspython_reads() -> None:
    for body in (
        message(*SRV, additional=HOSTS),
        message(*SRV[:1], additional=(*HOSTS[:1], "00000001.u.as.demo.example. AAAA fd00::1")),
        message("as.demo.example. A 10.53.0.31", "as.demo.example. A 10.53.0.32"),
        message("as.demo.example. AAAA fd00::1"),
        message(SRV[0].replace("00000001.u", "A.U"), additional=("a.u.as.demo.example. A 10.53.0.31",)),
    ):
        assert read_usual(body) == read_any(body)


def test_a_name_that_goes_round_ends() -> None:
    body = bytearray(message(*SRV[:1], additional=HOSTS[:1]))
    body[10:14] = b"\x01a\xc0\x0c"  # a label, and a pointer back to it
    with pytest.raises(ValueError, match="without end"):
        read_usual(bytes(body))


@settings(derandomize=True, deadline=None)
@given(st.data())
def test_a_damaged_answer_is_read_as_dnspython_reads_it_or_not_at_all(data: st.DataObject) -> None:
    body = bytearray(message(*SRV[:2], additional=HOSTS[:2]))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    for damaged in (bytes(body), cut):
        try:
            reading = read_usual(damaged)
        except (struct.error, LookupError, ValueError):
            continue
        expected = read_any(damaged)
        if expected.kind is Kind.ANSWER:
            assert reading.names <= expected.names


def test_an_address_of_another_class_is_none() -> None:
    body = bytearray(message("as.demo.example. A 10.53.0.31"))
    index = bytes(body).rindex(b"\x00\x01\x00\x01")
    body[index + 3] = 3  # CH
    assert read_message(bytes(body)).kind in (Kind.EMPTY, Kind.MALFORMED)
