"""The lab's reading of answers, which of them are wrong, and percentiles."""

import struct

import dns.message
import dns.rcode
import dns.rrset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rspdns_lab.observe.observations import Recorder, read_any, read_message, read_usual
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.observe.verdict import Kind, Observation, is_wrong, judge


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
    assert [observation.asked_at_s for observation in recorder.since(2.5)] == [3.0]


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


A, B, C = "10.53.0.31", "10.53.0.32", "10.53.0.33"


def answer(
    asked_at_s: float,
    *names: str,
    kind: Kind = Kind.ANSWER,
    server: int = 0,
    complete: bool = True,
    took_s: float = 0.001,
) -> Observation:
    answered = None if kind is Kind.TIMEOUT else asked_at_s + took_s
    return Observation(server, 0, complete, asked_at_s, answered, kind, frozenset(names))


@pytest.mark.parametrize(
    ("observation", "wrong"),
    [
        (answer(1, A, B), False),
        (answer(1, A, B, C), True),  # names the dead
        (answer(1, A), True),  # lacks a live one
        (answer(1, A, complete=False), False),  # an A answer need not hold all
        (answer(1, C, complete=False), True),
        (answer(1, A, B, "10.9.9.9"), True),  # names somebody who never was there
        (answer(1, kind=Kind.EMPTY), True),
        (answer(1, kind=Kind.SERVFAIL), True),
        (answer(1, kind=Kind.MALFORMED), True),
        (answer(1, kind=Kind.TIMEOUT), False),
    ],
)
def test_which_answers_are_wrong(observation: Observation, wrong: bool) -> None:
    assert is_wrong(observation, live={A, B}, dead={C}) is wrong


def test_the_last_wrong_answer_counts_from_the_fault_to_when_it_was_given() -> None:
    observations = [
        answer(9.0, A, B, C),  # asked before the fault: no matter when it is answered
        answer(10.000, A, B, C),
        answer(10.030, A, B, C, took_s=0.0079),
        answer(10.040, A, B),
    ]
    verdict = judge(observations, 10.0, live={A, B}, dead={C}, servers={0})
    assert (verdict.last_wrong_ms, verdict.wrong, verdict.answers) == (37.9, 2, 3)


def test_a_late_slip_is_not_hidden_by_right_answers_before_it() -> None:
    observations = [answer(10.0, A, B, C), answer(10.5, A, B), answer(11.0, A, B, C), answer(11.5, A, B)]
    assert judge(observations, 10.0, {A, B}, {C}, {0}).last_wrong_ms == pytest.approx(1001.0)


def test_nothing_wrong_is_zero() -> None:
    verdict = judge([answer(10.1, A, B)], 10.0, {A, B}, {C}, {0})
    assert (verdict.last_wrong_ms, verdict.wrong) == (0.0, 0)


def test_empty_servfail_and_silence_are_counted_apart() -> None:
    kinds = [Kind.EMPTY, Kind.EMPTY, Kind.SERVFAIL, Kind.TIMEOUT, Kind.MALFORMED]
    verdict = judge([answer(10.1, kind=kind) for kind in kinds], 10.0, {A}, set(), {0})
    counts = (
        verdict.empty,
        verdict.servfail,
        verdict.timeouts,
        verdict.malformed,
        verdict.wrong,
        verdict.answers,
    )
    assert counts == (2, 1, 1, 1, 4, 4)


def test_a_verdict_counts_answers_of_the_given_servers_alone() -> None:
    observations = [answer(10.1, A, server=0), answer(10.1, kind=Kind.TIMEOUT, server=1)]
    assert judge(observations, 10.0, {A}, set(), {0}).timeouts == 0


@pytest.mark.parametrize(
    ("values", "percent", "value"),
    [
        ([], 50, 0),
        ([7.0], 99, 7),
        ([1.0, 9.0], 50, 1),
        ([4.0, 3.0, 2.0, 1.0], 0, 1),
        ([4.0, 3.0, 2.0, 1.0], 50, 2),
        ([4.0, 3.0, 2.0, 1.0], 51, 3),
        (range(100, 0, -1), 7, 7),
        (range(100, 0, -1), 99, 99),
        (range(100, 0, -1), 100, 100),
    ],
)
def test_a_percentile_is_one_of_the_values(values: list[float], percent: int, value: float) -> None:
    assert percentile(values, percent) == value
