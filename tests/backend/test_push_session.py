"""Sessions of DNS Push Notifications, against messages that `push_client` writes and reads by the RFCs."""

import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import dns.edns
import dns.message
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import pytest
from dns.rcode import Rcode
from hypothesis import given
from hypothesis import strategies as st
from rspdns.news.push.dso import ALL_REMOVED, REMOVED
from rspdns.news.push.records import NameAnswer, PushedSet, RecordStore, difference
from rspdns.news.push.session import (
    MESSAGES_PER_S,
    MOST_INPUT_BYTES,
    MOST_OUTPUT_BYTES,
    PushSession,
    PushState,
)

from tests.backend.push_client import (
    KEEPALIVE,
    ONE_REMOVED,
    PADDING,
    PUSH,
    RECONFIRM,
    RETRY_DELAY,
    SET_REMOVED,
    SUBSCRIBE,
    ServerMessage,
    dso,
    keepalive,
    messages_of,
    subscribe,
    unsubscribe,
    wire,
)

OWNER = "_sip._udp.as.example.net"
HOST = "a.u.as.example.net"


def records(**rrsets: list[str]) -> dict[int, PushedSet]:
    """RRsets by type, their data as text; TTL 1."""
    made = {}
    for kind, texts in rrsets.items():
        number = dns.rdatatype.from_text(kind)
        data = [dns.rdata.from_text("IN", number, text).to_wire() for text in texts]
        made[int(number)] = PushedSet(1, frozenset(each for each in data if each is not None))
    return made


def srv(*targets: str) -> dict[int, PushedSet]:
    return records(SRV=[f"1 10 5060 {target}.u.as.example.net." for target in targets])


class Client:
    """A client and its session."""

    def __init__(
        self, answers: Mapping[str, NameAnswer], most: int = 100, *, is_surplus: bool = False
    ) -> None:
        self.store = RecordStore()
        self.answers = dict(answers)
        self.session = PushSession(self.store, 0.0, most, is_surplus=is_surplus)

    def say(self, *messages: bytes, now: float = 1.0) -> list[ServerMessage]:
        """Send messages; the backend is asked at once for what is missing."""
        self.session.receive(b"".join(messages), now)
        return self.hear(now)

    def hear(self, now: float) -> list[ServerMessage]:
        data = self.session.take_output()
        while self.store.missing:
            name = next(iter(self.store.missing))
            del self.store.missing[name]
            self.store.take(name, self.answers.get(name, {}))
            self.session.proceed(now)
            data += self.session.take_output()
        return messages_of(data)

    def change(self, name: str, answer: NameAnswer, now: float = 2.0) -> list[ServerMessage]:
        self.answers[name] = answer
        self.store.take(name, answer)
        self.session.proceed(now)
        return self.hear(now)


def test_subscription_is_answered_and_the_records_of_now_follow_at_once() -> None:
    client = Client({OWNER: srv("a", "b")})
    granted, answer, push = client.say(keepalive(7, 5_000, 1_000), subscribe(8, OWNER.upper(), "SRV"))
    assert (granted.identifier, granted.is_response, granted.rcode) == (7, True, 0)
    assert granted.value(KEEPALIVE) == (5_000, 10_000), "no keepalive interval is below 10 s"
    assert (answer.identifier, answer.is_response, answer.rcode, answer.tlvs) == (8, True, 0, [])
    assert (push.identifier, push.is_response) == (0, False)
    assert push.changes == [
        (OWNER, "SRV", 1, "1 10 5060 a.u.as.example.net."),
        (OWNER, "SRV", 1, "1 10 5060 b.u.as.example.net."),
    ]
    assert client.session.state is PushState.ESTABLISHED


def test_changes_are_told_as_the_difference() -> None:
    client = Client({OWNER: srv("a", "b"), HOST: records(A=["192.0.2.1"], TXT=["x"])})
    client.say(subscribe(1, OWNER, "SRV"), subscribe(2, HOST, "ANY"))
    (push,) = client.change(OWNER, srv("b", "c"))
    assert push.changes == [
        (OWNER, "SRV", 1, "1 10 5060 c.u.as.example.net."),
        (OWNER, "SRV", ONE_REMOVED, "1 10 5060 a.u.as.example.net."),
    ], "what comes stands before what leaves"
    (push,) = client.change(OWNER, {})
    assert push.changes == [(OWNER, "SRV", SET_REMOVED, "")]
    (push,) = client.change(HOST, records(A=["192.0.2.1"]))
    assert push.changes == [(HOST, "TXT", SET_REMOVED, "")]
    client.change(HOST, records(A=["192.0.2.1"], TXT=["x"]))
    (push,) = client.change(HOST, {})
    assert push.changes == [(HOST, "ANY", SET_REMOVED, "")]
    (push,) = client.change(HOST, {1: PushedSet(30, frozenset({b"\xc0\0\2\1"}))})
    assert push.changes == [(HOST, "A", 30, "192.0.2.1")]
    (push,) = client.change(HOST, {1: PushedSet(60, frozenset({b"\xc0\0\2\1"}))})
    assert push.changes == [(HOST, "A", 60, "192.0.2.1")], "another TTL is a change"
    assert client.change(HOST, {1: PushedSet(60, frozenset({b"\xc0\0\2\1"}))}) == []


def test_changes_of_several_names_come_in_one_message() -> None:
    client = Client({OWNER: srv("a"), HOST: records(A=["192.0.2.1"])})
    client.say(subscribe(1, OWNER, "SRV"), subscribe(2, HOST, "A"), subscribe(3, HOST, "ANY"))
    client.store.take(OWNER, srv("b"))
    client.store.take(HOST, {})
    client.session.proceed(2.0)
    (push,) = client.hear(2.0)
    assert [(name, kind) for name, kind, _, _ in push.changes] == [(OWNER, "SRV")] * 2 + [(HOST, "A")]


def test_other_types_of_a_name_are_not_told_but_its_alias_is() -> None:
    client = Client({OWNER: records(TXT=["x"], A=["192.0.2.1"])})
    _, push = client.say(subscribe(1, OWNER, "A"))
    assert [kind for _, kind, _, _ in push.changes] == ["A"]
    assert client.change(OWNER, records(TXT=["y"], A=["192.0.2.1"])) == []
    (push,) = client.change(OWNER, records(CNAME=["other.example.net."]))
    assert [(kind, ttl) for _, kind, ttl, _ in push.changes] == [("CNAME", 1), ("A", SET_REMOVED)]


def test_large_sets_come_in_messages_of_the_allowed_size_that_hold_all() -> None:
    targets = [f"server-{number}" for number in range(1000)]
    client = Client({OWNER: srv(*targets)})
    for more in ((), ((PADDING, b""),)):
        _, *pushes = client.say(subscribe(1, OWNER, "SRV", 1, *more))
        assert len(pushes) > 2
        assert all(push.size <= 16_382 for push in pushes)
        assert {text.split()[3].split(".")[0] for push in pushes for *_, text in push.changes} == set(targets)
        client.say(unsubscribe(1))


def test_record_that_no_message_can_hold_is_left_out() -> None:
    client = Client({OWNER: {16: PushedSet(1, frozenset({b"\xff" + b"x" * 255} | {b"\0" * 20_000}))}})
    answer, push = client.say(subscribe(1, OWNER, "TXT"))
    assert answer.rcode == 0
    assert len(push.changes) == 1


def test_unsubscribe_ends_one_subscription_and_unknown_ones_are_ignored() -> None:
    client = Client({OWNER: srv("a"), HOST: records(A=["192.0.2.1"])})
    client.say(subscribe(1, OWNER, "SRV"), subscribe(2, HOST, "A"))
    assert client.say(unsubscribe(1), unsubscribe(99)) == []
    assert client.change(OWNER, {}) == []
    assert client.store.watched == {HOST}
    assert client.change(HOST, {}) != []
    assert len(client.say(subscribe(1, OWNER, "SRV"))) == 1, (
        "the identifier is free again; no record, no push"
    )


def test_subscription_that_is_ended_before_it_is_answered_is_answered_once() -> None:
    client = Client({OWNER: srv("a")})
    client.session.receive(subscribe(1, OWNER, "SRV") + unsubscribe(1), 1.0)
    (answer,) = client.hear(1.0)
    assert (answer.identifier, answer.rcode) == (1, 0)
    assert not client.store.watched


def test_name_outside_all_zones_and_one_without_an_answer_are_refused_with_a_delay() -> None:
    client = Client({OWNER: Rcode.SERVFAIL, "example.org": Rcode.NOTAUTH})
    failed, foreign, chaos = client.say(
        subscribe(1, OWNER, "SRV"), subscribe(2, "example.org", "A"), subscribe(3, HOST, "A", 3)
    )[:3]
    assert [each.rcode for each in (failed, foreign, chaos)] == [9, 2, 9], "those known at once come first"
    assert chaos.value(RETRY_DELAY)
    assert client.session.subscriptions == 0
    answer, _ = Client({OWNER: srv("a")}).say(subscribe(1, OWNER, "SRV", 255))
    assert answer.rcode == 0, "class ANY"


def test_subscription_is_cancelled_when_its_name_has_no_answer_any_more() -> None:
    client = Client({OWNER: srv("a"), HOST: records(A=["192.0.2.1"])})
    client.say(subscribe(1, OWNER, "SRV"), subscribe(2, HOST, "A"))
    (cancelled,) = client.change(OWNER, Rcode.SERVFAIL)
    assert (cancelled.identifier, cancelled.is_response, cancelled.rcode) == (1, True, 2)
    assert client.session.subscriptions == 1
    assert client.session.state is PushState.ESTABLISHED


@pytest.mark.parametrize(
    ("message", "rcode"),
    [
        (dso(5, (SUBSCRIBE, b"\1a")), 1),
        (dso(5, (SUBSCRIBE, b"\xc0\x0c" + b"\0\1\0\1")), 1),
        (dso(5, (SUBSCRIBE, wire("a") + b"\0\1\0\1\0")), 1),
        (subscribe(5, "a", "AXFR"), 1),
        (dso(5, (KEEPALIVE, b"\0" * 4)), 1),
        (dso(5), 1),
        (dso(5, (PADDING, b"")), 1),
        (keepalive(5)[:-1].replace(b"\0\x18", b"\0\x17", 1), 1),
        (dso(5, (KEEPALIVE, b"\0" * 8), counts=1), 1),
        (dso(5, (0xF801, b"x")), 11),
    ],
)
def test_request_that_is_wrong_is_answered_by_an_error_and_the_session_goes_on(
    message: bytes, rcode: int
) -> None:
    client = Client({OWNER: srv("a")})
    (answer,) = client.say(message)
    assert (answer.identifier, answer.is_response, answer.rcode) == (5, True, rcode)
    assert answer.value(RETRY_DELAY) == (3_600_000 if rcode == 11 else 300_000,)
    assert len(client.say(subscribe(6, OWNER, "SRV"))) == 2


@pytest.mark.parametrize(
    "message",
    [
        dso(0, (KEEPALIVE, b"\0" * 8)),
        dso(0, (SUBSCRIBE, wire("a") + b"\0\1\0\1")),
        dso(5, (0x42, b"\0\1")),
        dso(0, (0x42, b"\0")),
        dso(5, (RECONFIRM, wire("a") + b"\0\1\0\1\1\2\3\4")),
        dso(0, (PUSH, wire("a") + b"\0\1\0\1\0\0\0\0\0\0")),
        dso(5, (PUSH, b"")),
        dso(5, (RETRY_DELAY, b"\0" * 4)),
        dso(0, (0xF801, b"x")),
        dso(0),
        dso(5, flags=0xB000),
        dso(0, flags=0xB000),
        struct.pack(">H", 3) + b"\0\0\0",
        struct.pack(">H", 20_000),
        subscribe(6, OWNER, "SRV"),
        subscribe(1, HOST, "SRV"),
    ],
)
def test_message_that_breaks_the_rules_aborts_the_session(message: bytes) -> None:
    client = Client({OWNER: srv("a")})
    client.say(subscribe(1, OWNER.upper(), "SRV"))
    assert client.say(message) == []
    assert client.session.state is PushState.ABORTED
    assert not client.store.watched


def test_first_message_must_be_a_request() -> None:
    client = Client({})
    client.say(unsubscribe(1))
    assert client.session.state is PushState.ABORTED


def test_reconfirm_changes_nothing() -> None:
    client = Client({OWNER: srv("a")})
    client.say(subscribe(1, OWNER, "SRV"))
    assert client.say(dso(0, (RECONFIRM, wire(OWNER) + b"\0\x21\0\1" + b"\0" * 6 + wire("a")))) == []
    assert client.session.state is PushState.ESTABLISHED


def test_question_is_refused_and_the_old_keepalive_option_aborts() -> None:
    client = Client({})
    client.say(keepalive(1))
    query = dns.message.make_query("example.net", "SOA")
    client.session.receive(query.to_wire(prepend_length=True), 1.0)
    answer = dns.message.from_wire(client.session.take_output()[2:])
    assert (answer.id, answer.rcode(), answer.question) == (query.id, Rcode.REFUSED, query.question)
    client.session.receive(struct.pack(">HHHHHHH", 12, 3, 5 << 11, 0, 0, 0, 0), 1.0)
    assert client.session.take_output()[2:6] == struct.pack(">HH", 3, 0x8000 | 5 << 11 | 4)
    option = dns.edns.GenericOption(dns.edns.OptionType(11), b"\0\1")
    query.use_edns(options=[option])
    client.session.receive(query.to_wire(prepend_length=True), 1.0)
    assert client.session.state is PushState.ABORTED


def test_padding_is_answered_by_padding() -> None:
    client = Client({OWNER: srv("a")})
    client.say(keepalive(1))
    answer, push = client.say(subscribe(2, OWNER, "SRV", 1, (0xF802, b"unknown"), (PADDING, b"\0" * 50)))
    for message in (answer, push, *client.change(OWNER, {})):
        assert message.size % 468 == 0
        assert message.tlvs[-1][0] == PADDING


def state_at(session: PushSession, now: float) -> PushState:
    session.expire(now)
    return session.state


def test_session_that_is_not_used_or_silent_is_aborted_at_its_time() -> None:
    idle = Client({})
    idle.say(keepalive(1, 2_000, 60_000), now=1.0)
    idle.say(keepalive(2, 2_000, 60_000), now=4.0)  # keepalive traffic is no use
    assert idle.session.deadline_s == 5.0
    assert [state_at(idle.session, now) for now in (4.9, 5.0)] == [PushState.ESTABLISHED, PushState.ABORTED]
    unused = Client({})
    assert unused.session.deadline_s == 30.0
    silent = Client({OWNER: srv("a")})
    silent.say(keepalive(1, 0, 20_000), subscribe(2, OWNER, "SRV"), now=1.0)
    assert silent.session.deadline_s == 41.0, "twice the keepalive interval"
    silent.change(OWNER, {}, now=30.0)
    assert silent.session.deadline_s == 70.0


def test_server_that_stops_tells_when_to_come_again_and_hears_no_more() -> None:
    client = Client({OWNER: srv("a")})
    client.say(subscribe(1, OWNER, "SRV"))
    client.session.end(Rcode.NOERROR, 1234, 10.0)
    (ended,) = messages_of(client.session.take_output())
    assert (ended.identifier, ended.is_response, ended.rcode) == (0, False, 0)
    assert ended.value(RETRY_DELAY) == (1234,)
    assert client.say(keepalive(2), now=11.0) == []
    assert not client.store.watched
    assert [state_at(client.session, now) for now in (14.9, 15.0)] == [PushState.ENDING, PushState.ABORTED]


def test_client_beyond_the_limit_is_told_to_come_again() -> None:
    _, ended = Client({}, is_surplus=True).say(keepalive(1))
    assert (ended.rcode, ended.value(RETRY_DELAY)) == (2, (60_000,))
    client = Client({}, is_surplus=True)
    (refused,) = client.say(subscribe(1, OWNER, "SRV"))
    assert (refused.rcode, refused.value(RETRY_DELAY)) == (2, (60_000,))
    assert client.session.state is PushState.ENDING


def test_subscriptions_are_bounded_and_so_is_the_rate_of_messages() -> None:
    client = Client({}, most=2)
    answers = client.say(*(subscribe(number, f"n{number}.example.net", "A") for number in (1, 2, 3)))
    assert sorted(answer.rcode for answer in answers) == [0, 0, 2]
    many = [keepalive(number) for number in range(10, 10 + int(MESSAGES_PER_S) + 2)]
    assert client.say(*many)[-1].value(RETRY_DELAY) == (60_000,)
    assert client.session.state is PushState.ENDING


def test_client_that_does_not_read_skips_what_is_over_and_its_input_waits() -> None:
    large = {16: PushedSet(1, frozenset(b"\xff" + bytes([number]) * 255 for number in range(200)))}
    client = Client({f"n{number}.example.net": large for number in range(40)})
    wanted = [subscribe(number + 1, f"n{number}.example.net", "TXT") for number in range(40)]
    client.say(*wanted[:2])
    other = PushSession(client.store, 0.0, 100)
    for name in client.answers:
        client.store.watch(name, other)  # so that answers are known at once
        client.store.take(name, large)
    client.session.receive(b"".join(wanted[2:]), 1.0)
    first = client.session.take_output()
    assert MOST_OUTPUT_BYTES <= len(first) < 2 * MOST_OUTPUT_BYTES
    assert client.session.subscriptions < 40
    while client.session.subscriptions < 40:
        client.session.proceed(1.0)
        assert 0 < len(client.session.take_output()) < 2 * MOST_OUTPUT_BYTES
    assert client.session.subscriptions == 40
    client.say(*(unsubscribe(number + 1) for number in range(2, 40)))
    client.session.receive(b"".join(wanted[2:]), 1.0)
    client.session.receive(keepalive(99) * (MOST_INPUT_BYTES // 20), 1.0)
    assert client.session.state is PushState.ABORTED, "it sends without end and does not read"


TYPES = st.dictionaries(
    st.sampled_from([1, 28, 33, 16]),
    st.builds(PushedSet, st.integers(0, 2), st.frozensets(st.binary(min_size=7, max_size=8), min_size=1)),
    max_size=3,
)


@given(st.lists(TYPES, max_size=5), st.none() | st.frozensets(st.sampled_from([1, 28, 33, 16])))
def test_client_that_applies_the_changes_has_the_records(
    steps: list[dict[int, PushedSet]], types: frozenset[int] | None
) -> None:
    known: dict[tuple[int, bytes], int] = {}
    told: dict[int, PushedSet] = {}
    for answer in steps:
        for change in difference(OWNER, told, answer, types):
            if change.ttl == ALL_REMOVED:
                known = {key: ttl for key, ttl in known.items() if change.type not in (255, key[0])}
            elif change.ttl == REMOVED:
                del known[change.type, change.data]
            else:
                known[change.type, change.data] = change.ttl
        told = answer
        wanted = {
            (number, data): rrset.ttl
            for number, rrset in answer.items()
            if types is None or number in types
            for data in rrset.data
        }
        assert known == wanted


PIECES = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda body: struct.pack(">H", len(body)) + body, st.binary(max_size=80)),
    st.builds(
        lambda identifier, number, data, more: dso(identifier, (number, data), *more),
        st.sampled_from([0, 1, 2]),
        st.sampled_from([1, 2, 3, 0x40, 0x41, 0x42, 0x43, 0xF801]),
        st.binary(max_size=300),
        st.lists(st.tuples(st.integers(0, 70), st.binary(max_size=20)), max_size=2),
    ),
    st.builds(
        lambda query, tail: struct.pack(">H", len(query + tail)) + query + tail,
        st.just(dns.message.make_query("example.net", "SOA", use_edns=True).to_wire()),
        st.binary(max_size=20),
    ),
    st.builds(subscribe, st.integers(1, 9), st.sampled_from([OWNER, HOST]), st.sampled_from(["SRV", "ANY"])),
    st.builds(unsubscribe, st.integers(0, 9)),
    st.just(keepalive(3)),
)


@given(st.lists(PIECES, max_size=20), st.booleans(), st.integers(1, 7))
def test_any_bytes_raise_nothing_and_leave_nothing_behind(
    pieces: list[bytes], is_surplus: bool, cut: int
) -> None:
    client = Client({OWNER: srv("a"), HOST: Rcode.SERVFAIL}, most=3, is_surplus=is_surplus)
    data = b"".join(pieces)
    size = max(1, len(data) // cut)
    for start in range(0, len(data), size):
        client.session.receive(data[start : start + size], 1.0)
        client.session.take_output()
        while client.store.missing:
            name = next(iter(client.store.missing))
            del client.store.missing[name]
            client.store.take(name, client.answers.get(name, {}))
        client.session.proceed(1.0)
        assert client.session.subscriptions <= 3
    client.session.take_output()
    client.session.close()
    assert not client.store.watched


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_wireshark_reads_what_the_session_says(tmp_path: Path) -> None:
    """Wireshark knows the TLVs of RFC 8490; those of RFC 8765 it shows as their bytes."""
    client = Client({OWNER: srv("a")})
    client.session.receive(keepalive(7, 5_000, 30_000) + subscribe(8, OWNER, "SRV", 1, (PADDING, b"")), 1.0)
    client.store.take(OWNER, srv("a"))
    client.session.proceed(1.0)
    client.session.end(Rcode.NOERROR, 1234, 2.0)
    stream = client.session.take_output()
    dump = "".join(f"{at:06x} {stream[at : at + 16].hex(' ')}\n" for at in range(0, len(stream), 16))
    (tmp_path / "hex").write_text(dump)
    capture = tmp_path / "capture.pcap"
    subprocess.run(
        ["text2pcap", "-T", "53,40000", tmp_path / "hex", capture], check=True, capture_output=True
    )
    shown = subprocess.run(["tshark", "-r", capture, "-V"], check=True, capture_output=True, text=True).stdout
    lines = [line.strip() for line in shown.splitlines()]
    assert sum("DNS Stateful operations (DSO)" in line for line in lines) >= 4, shown
    for words in ("Inactivity Timeout: 5000", "Keepalive Interval: 30000", "Retry Delay: 1234"):
        assert any(words in line for line in lines), shown
    assert "Malformed" not in shown
