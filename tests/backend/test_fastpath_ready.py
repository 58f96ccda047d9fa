"""Which answers are made ready, and what of them changes."""

from collections import Counter
from dataclasses import replace
from random import Random

import dns.message
import dns.rdatatype
from rspdns.answers.snapshot import Snapshot
from rspdns.fastpath import messages
from rspdns.fastpath.ready import TYPES, VARIANTS, Answer, Question, ReadyAnswers, wire_name

from tests.backend.making import FIXED, ZONE, answered, member, view, views, zone

HOST = f"as.{ZONE}"
OWNER = f"_sip._udp.{HOST}"
TWO = views(view(member(1, "10.0.0.1", "2001:db8::1"), member(2)))


def ready(snapshot: Snapshot, seed: int = 1) -> dict[Question, tuple[Answer, ...]]:
    return dict(ReadyAnswers(Random(seed)).take(snapshot, ()))


def message(question: Question, answer: Answer) -> dns.message.Message:
    """The whole answer, read by dnspython."""
    counts = b"".join(one.to_bytes(2, "big") for one in (1, answer.answers, 0, answer.additional))
    asked = wire_name(question.name) + TYPES[question.type].to_bytes(2, "big") + b"\0\1"
    return dns.message.from_wire(b"\0\1\x84\0" + counts + asked + answer.records)


def test_answers_hold_the_records_of_the_snapshot_and_the_addresses_of_srv_targets() -> None:
    snapshot = answered(zone(), TWO)
    made = ready(snapshot)
    assert {(one.name, one.type) for one in made} == {
        *((OWNER, "SRV"), (HOST, "A"), (HOST, "AAAA"), (HOST, "NAPTR")),
        *((f"00000001.u.{HOST}", "A"), (f"00000001.u.{HOST}", "AAAA"), (f"00000002.u.{HOST}", "A")),
    }
    for question, (answer,) in made.items():
        said = message(question, answer)
        records = [
            record for record in snapshot.nodes[ZONE][question.name].records if record.type == question.type
        ]
        assert sum(len(one) for one in said.answer) == len(records)
        assert {one.rdtype for one in said.answer} == {dns.rdatatype.from_text(question.type)}
        assert {one.ttl for one in said.answer} == {1}
    said = message(Question(OWNER, "SRV"), made[Question(OWNER, "SRV")][0])
    assert {(str(one.name), one.rdtype.name, str(one[0])) for one in said.additional} == {
        (f"00000001.u.{HOST}.", "A", "10.0.0.1"),
        (f"00000001.u.{HOST}.", "AAAA", "2001:db8::1"),
        (f"00000002.u.{HOST}.", "A", "10.0.0.2"),
    }


def test_unknown_pools_signed_zones_and_large_answers_are_left_to_powerdns() -> None:
    assert not ready(answered(zone(), {}))
    assert not ReadyAnswers(Random(1)).take(answered(zone(), TWO), {ZONE})
    lines = "".join(f'as NAPTR {one} 10 "s" "H323+D2U" "" _h323-{one}._udp.as\n' for one in range(20))
    made = ready(answered(zone(fixed=FIXED + lines), TWO))
    assert Question(HOST, "NAPTR") not in made
    assert Question(HOST, "A") in made


def test_names_of_a_zone_inside_another_are_its_own() -> None:
    outer = zone()
    inner = zone(fixed=FIXED, name=f"as.{ZONE}")
    made = ready(answered([outer, inner], TWO))
    assert Question(HOST, "A") not in made
    assert Question(f"as.{HOST}", "A") in made


def test_what_is_shown_by_chance_has_variants_in_which_all_are_shown() -> None:
    many = views(view(*(member(number) for number in range(1, 21))))
    made = ready(answered(zone(), many))
    for question in (Question(OWNER, "SRV"), Question(HOST, "A")):
        variants = made[question]
        assert len(variants) == VARIANTS
        shown = Counter(str(one) for variant in variants for one in message(question, variant).answer[0])
        assert len(shown) > 10
    assert len(made[Question(HOST, "NAPTR")]) == 1


def test_only_what_changed_is_told() -> None:
    answers = ReadyAnswers(Random(1))
    first = answered(zone(), TWO)
    assert len(answers.take(first, ())) == len(answers) == 7
    assert not answers.take(first, ())
    assert not answers.take(replace(first), ())
    fewer = answered(zone(), views(view(member(2))))
    changed = answers.take(fewer, ())
    assert changed[Question(f"00000001.u.{HOST}", "A")] == ()
    assert changed[Question(HOST, "AAAA")] == ()
    assert Question(f"00000002.u.{HOST}", "A") not in changed
    assert Question(HOST, "NAPTR") not in changed
    assert answers.all.keys() == {
        Question(name, kind)
        for name, kind in ((OWNER, "SRV"), (HOST, "A"), (HOST, "NAPTR"), (f"00000002.u.{HOST}", "A"))
    }
    assert answers.take(fewer, {ZONE}).keys() == {
        Question(name, kind)
        for name, kind in ((OWNER, "SRV"), (HOST, "A"), (HOST, "NAPTR"), (f"00000002.u.{HOST}", "A"))
    }


def test_replies_come_in_pieces() -> None:
    reader = messages.Reader()
    data = messages.commit(7) + messages.END
    found = [one for byte in data for one in reader.feed(bytes([byte]))]
    assert [one.kind for one in found] == ["C", "E"]
