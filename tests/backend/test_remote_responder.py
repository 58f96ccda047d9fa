"""Request bytes to reply bytes: right also when the snapshot is swapped, and never a way to stop it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rspdns.answers.purges import DEPARTED_KEPT_S
from rspdns.answers.snapshot import Snapshot
from rspdns.pdns.responder import MAX_LINES, PdnsResponder

from tests.backend.making import ZONE, answered, member, swap, view, views, zone

OWNER = f"_sip._udp.as.{ZONE}"
ZONES = zone()
ONE = answered(ZONES, views(view(member(1))))


def responder(snapshot: Snapshot = ONE) -> PdnsResponder:
    made = PdnsResponder()
    swap(made, snapshot)
    return made


def respond(made: PdnsResponder, request: bytes) -> bytes:
    reply = made.respond(request)
    assert isinstance(reply, bytes), "nothing is changed: answered at once"
    return reply


def line(qname: str = OWNER + ".", qtype: str = "ANY", method: str = "lookup") -> bytes:
    return json.dumps({"method": method, "parameters": {"qname": qname, "qtype": qtype}}).encode()


def ask(made: PdnsResponder, *arguments: str) -> Any:
    reply = respond(made, line(*arguments))
    assert reply.endswith(b"\n")
    assert reply.count(b"\n") == 1, "PowerDNS reads one line"
    return json.loads(reply)


def targets(reply: Any) -> set[str]:
    return {record["content"].split()[3].partition(".")[0] for record in reply["result"]}


def test_the_same_question_gets_the_same_answer_from_the_kept_reply() -> None:
    made = responder()
    first = respond(made, line())
    assert respond(made, line(OWNER.upper())) is first
    assert targets(json.loads(first)) == {"00000001"}


def test_an_empty_reply_is_kept_as_long_as_its_name_stays_as_it_is() -> None:
    made = responder()
    asked = (f"as.{ZONE}", "AAAA")
    assert ask(made, *asked) == ask(made, *asked) == {"result": False}
    swap(made, answered(ZONES, views(view(member(1, "2001:db8::1"))), ONE))
    assert ask(made, *asked)["result"][0]["content"] == "2001:db8::1"
    swap(made, answered(ZONES, {}))
    assert "result" not in ask(made, *asked)


def test_a_swap_is_seen_at_once_and_keeps_what_did_not_change() -> None:
    made = responder()
    assert targets(ask(made)) == {"00000001"}
    fixed = respond(made, line(f"ns1.{ZONE}"))
    swap(made, answered(ZONES, views(view(member(2))), ONE))
    assert targets(ask(made)) == {"00000002"}
    assert respond(made, line(f"ns1.{ZONE}")) is fixed
    swap(made, answered(ZONES, {}))
    assert "result" not in ask(made)
    swap(made, Snapshot())
    assert ask(made)["result"] is False


def test_a_target_that_leaves_with_a_reload_is_answered_for_a_moment() -> None:
    made = responder()
    label = "00000001.u.as." + ZONE
    swap(made, answered(zone(), views(view(member(1), member(2)))))
    addresses = ask(made, label, "A")["result"]
    assert addresses
    swap(made, answered(zone(), views(view(member(2))), made.snapshot, serial=2))
    assert targets(ask(made)) == {"00000002"}
    assert [record["content"] for record in ask(made, label, "A")["result"]] == ["10.0.0.1"]


def test_the_soa_moves_with_its_serial() -> None:
    made = responder()
    before = ask(made, ZONE, "SOA")["result"]
    swap(made, answered(ZONES, views(view(member(2))), ONE, serial=9))
    assert ask(made, ZONE, "SOA")["result"] != before


def test_strangers_questions_do_not_fill_the_memory() -> None:
    made = responder()
    for number in range(5000):
        respond(made, line(f"{number}.{ZONE}."))
        respond(made, line(OWNER, f"TYPE{number}"))
        swap(
            made,
            answered(ZONES, views(view(member(number + 1, "10.0.0.1"))))
            if number % 500 == 0
            else made.snapshot,
        )
        respond(made, line(f"{number + 1:08x}.u.as.{ZONE}"))
    assert len(made._kept) < 1200
    for number in range(MAX_LINES + 1):
        respond(made, b" " * (number % 800) + line(f"ns1.{ZONE}") + b" " * (number // 800))
    assert len(made._asked) <= MAX_LINES


NAMES = (OWNER, f"as.{ZONE}", f"00000001.u.as.{ZONE}", f"u.as.{ZONE}", ZONE, f"nobody.{ZONE}", f"ns1.{ZONE}")
CLIENTS = ("192.0.2.1", "192.0.2.2")
questions = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(("ANY", "SRV", "A", "SOA", "ENT")), st.sampled_from(CLIENTS)
)


@given(st.lists(st.one_of(st.none(), st.sets(st.integers(1, 4)), questions), max_size=40))
def test_kept_replies_equal_those_of_a_new_responder(
    steps: list[set[int] | tuple[str, str, str] | None],
) -> None:
    """The steps in between don't matter: None is a pool that no registrar lists, a set is its members.

    A second after the change, that is: until then targets that left are still answered.
    """
    made = responder()
    for turn, step in enumerate(steps):
        made.clock = lambda turn=turn: turn * 2 * DEPARTED_KEPT_S  # type: ignore[misc]
        if isinstance(step, tuple):
            name, qtype, client = step
            parameters = {"qname": f"{name}.", "qtype": qtype, "remote": client}
            request = json.dumps({"method": "lookup", "parameters": parameters}).encode()
            assert respond(made, request) == respond(responder(made.snapshot), request)
        else:
            seen = {} if step is None else views(view(*map(member, sorted(step))))
            swap(made, answered(ZONES, seen, made.snapshot, serial=turn + 2))


def test_names_are_told_and_requests_counted() -> None:
    told: list[str] = []
    made = PdnsResponder(told.append)
    swap(made, ONE)
    ask(made, OWNER.upper() + ".")
    ask(made, f"nobody.{ZONE}.")
    ask(made, "", "", "getAllDomains")
    ask(made, "", "", "no such method")
    respond(made, b"garbage")
    assert told == [OWNER, f"nobody.{ZONE}"]
    assert made.queries == {"lookup": 2, "getAllDomains": 1, "other": 1}
    assert made.failures == 1


def test_garbage_is_a_failure() -> None:
    made = responder()
    for garbage in (b"", b"\x00", b"{", b"[" * 5000, b"null", b'{"method":"lookup"}', b'"\\ud800"'):
        assert "result" not in json.loads(respond(made, garbage)), garbage
    assert targets(ask(made)) == {"00000001"}


@given(st.binary(max_size=200))
def test_any_bytes_get_one_line(data: bytes) -> None:
    reply = respond(responder(), data)
    json.loads(reply)
    assert reply.count(b"\n") == 1
