"""Which answers are made ready, and what of them changes."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random

import dns.message
import dns.rdatatype
from rspdns.answers.change import difference
from rspdns.answers.snapshot import SiteAnswers, Snapshot
from rspdns.fastpath import messages
from rspdns.fastpath.ready import (
    MOST_DEPTH,
    TYPES,
    VARIANTS,
    Answer,
    Question,
    ReadyAnswers,
    depths,
    node_answers,
)
from rspdns.rrset import AddressData, Node, OtherData, Record, SrvData, wire_name

from rserpool import LeastUsed, Protocol
from tests.backend.making import FIXED, NOW, TCP, UDP, ZONE, answered, built, member, view, views, zone

HOST = f"as.{ZONE}"
OWNER = f"_sip._udp.{HOST}"
TWO = views(view(member(1, "10.0.0.1", "2001:db8::1"), member(2)))


def ready(snapshot: Snapshot, seed: int = 1) -> dict[Question, tuple[Answer, ...]]:
    answers = ReadyAnswers(Random(seed))
    answers.take(snapshot, ())
    draw_all(answers)
    return dict(answers.all)


def draw_all(answers: ReadyAnswers) -> dict[Question, tuple[Answer, ...]]:
    """Draw what is to be drawn; return what changed by that."""
    changed: dict[Question, tuple[Answer, ...]] = {}
    while not answers.is_drawn:
        changed |= answers.draw_next()
    return changed


def shown(question: Question, variants: Iterable[Answer]) -> set[str]:
    """All records that any of the variants shows."""
    return {str(rrset) for variant in variants for rrset in message(question, variant).answer[0]}


def message(question: Question, answer: Answer, one_rr_per_rrset: bool = False) -> dns.message.Message:
    """The whole answer, read by dnspython."""
    counts = b"".join(count.to_bytes(2, "big") for count in (1, answer.answers, 0, answer.additional))
    asked = wire_name(question.name) + TYPES[question.type].to_bytes(2, "big") + b"\0\1"
    wire = b"\0\1\x84\0" + counts + asked + answer.records
    return dns.message.from_wire(wire, one_rr_per_rrset=one_rr_per_rrset)


def test_answers_hold_the_records_of_the_snapshot_and_the_addresses_of_srv_targets() -> None:
    snapshot = answered(zone(), TWO)
    made = ready(snapshot)
    assert {(question.name, question.type) for question in made} == {
        *((OWNER, "SRV"), (HOST, "A"), (HOST, "AAAA"), (HOST, "NAPTR")),
        *((f"00000001.u.{HOST}", "A"), (f"00000001.u.{HOST}", "AAAA"), (f"00000002.u.{HOST}", "A")),
    }
    for question, (answer, *_) in made.items():
        said = message(question, answer)
        records = [
            record for record in snapshot.nodes[ZONE][question.name].records if record.type == question.type
        ]
        assert sum(len(rrset) for rrset in said.answer) == len(records)
        assert {rrset.rdtype for rrset in said.answer} == {dns.rdatatype.from_text(question.type)}
        assert {rrset.ttl for rrset in said.answer} == {1}
    said = message(Question(OWNER, "SRV"), made[Question(OWNER, "SRV")][0])
    assert {(str(rrset.name), rrset.rdtype.name, str(rrset[0])) for rrset in said.additional} == {
        (f"00000001.u.{HOST}.", "A", "10.0.0.1"),
        (f"00000001.u.{HOST}.", "AAAA", "2001:db8::1"),
        (f"00000002.u.{HOST}.", "A", "10.0.0.2"),
    }


def test_answers_of_ttl_zero_are_those_of_any_other() -> None:
    made = ready(answered(zone(head="ttl = 0"), TWO))
    assert len(made) == 7
    for question, (answer, *_) in made.items():
        assert {rrset.ttl for rrset in message(question, answer).answer} == {0}


def test_unknown_pools_signed_zones_and_large_answers_are_left_to_powerdns() -> None:
    assert not ready(answered(zone(), {}))
    assert not ReadyAnswers(Random(1)).take(answered(zone(), TWO), {ZONE})
    lines = "".join(
        f'as NAPTR {number} 10 "s" "H323+D2U" "" _h323-{number}._udp.as\n' for number in range(20)
    )
    made = ready(answered(zone(fixed=FIXED + lines), TWO))
    assert Question(HOST, "NAPTR") not in made
    assert Question(HOST, "A") in made


def test_record_that_can_not_be_written_is_left_to_powerdns_and_hides_no_other() -> None:
    strange = [Record(HOST, kind, OtherData(kind, "?"), 1) for kind in TYPES]
    strange.append(Record(HOST, "SRV", SrvData(0, 0, 70000, "a.b"), 1))
    nodes = {f"{number}.{ZONE}": Node((record,)) for number, record in enumerate(strange)}
    nodes[HOST] = Node((Record(HOST, "A", AddressData(bytes((10, 0, 0, 1))), 1),))
    assert node_answers(nodes).keys() == {Question(HOST, "A")}


def test_names_of_a_zone_inside_another_are_its_own() -> None:
    outer = zone()
    inner = zone(fixed=FIXED, name=f"as.{ZONE}")
    made = ready(answered([outer, inner], TWO))
    assert Question(HOST, "A") not in made
    assert Question(f"as.{HOST}", "A") in made


def test_members_drawn_by_chance_are_all_shown_by_some_variant() -> None:
    many = views(view(*(member(number) for number in range(1, 21))))
    made = ready(answered(zone(), many))
    for question in (Question(OWNER, "SRV"), Question(HOST, "A")):
        variants = made[question]
        assert len(variants) == VARIANTS
        assert len(shown(question, variants)) > 10
    assert len(made[Question(HOST, "NAPTR")]) == 1


def in_order(question: Question, answer: Answer) -> tuple[list[str], list[str]]:
    """The records of both sections in their order, with their owners."""
    said = message(question, answer, one_rr_per_rrset=True)
    return [str(rrset) for rrset in said.answer], [str(rrset) for rrset in said.additional]


def test_each_record_is_the_first_of_one_variant_where_all_are_shown() -> None:
    """Many clients take the first: PowerDNS shuffles what it answers."""
    hosts = (member(number, f"10.0.0.{number}", f"2001:db8::{number}") for number in range(1, 4))
    made = ready(answered(zone(UDP + "slow_start_s = 0\nmax_addresses = 16\n"), views(view(*hosts))))
    for question, count in (
        *((Question(HOST, kind), 3) for kind in ("A", "AAAA")),
        (Question(OWNER, "SRV"), 3),
        (Question(f"00000001.u.{HOST}", "A"), 1),
    ):
        said = [in_order(question, variant) for variant in made[question]]
        assert len(said) == len(said[0][0]) == count
        assert {answers[0] for answers, _ in said} == set(said[0][0])
        for answers, additional in said:
            assert sorted(answers) == sorted(said[0][0])
            assert sorted(additional) == sorted(said[0][1])


def test_whole_pool_is_answered_while_it_fits_and_left_to_powerdns_beyond() -> None:
    own = zone(UDP + 'slow_start_s = 0\nanswers = "all"\n')
    few, some, many = (views(view(*(member(n) for n in range(1, count + 1)))) for count in (7, 20, 40))
    answers = ReadyAnswers(Random(3))
    before = answered(own, few)
    answers.take(before, ())
    services, addresses = Question(OWNER, "SRV"), Question(HOST, "A")
    assert answers.all[services][0].answers == answers.all[addresses][0].answers == 7
    for pool, expected in ((some, (False, True)), (many, (False, False)), (few, (True, True))):
        after = answered(own, pool, before)
        answers.apply(difference(before, after), ())
        assert (services in answers.all, addresses in answers.all) == expected
        before = after


def test_addresses_of_a_single_target_come_first_in_turn() -> None:
    before = views(view(member(1, "10.0.0.1", "10.9.0.1", "2001:db8::1")))
    question = Question(OWNER, "SRV")
    said = [in_order(question, variant)[1] for variant in ready(answered(zone(), before))[question]]
    assert len(said) == len({additional[0] for additional in said}) == 3
    assert {tuple(sorted(additional)) for additional in said} == {tuple(sorted(said[0]))}


def test_drawn_members_are_in_an_order_drawn_too() -> None:
    """Any of those shown comes first: the order says nothing about weights."""
    many = views(view(*(member(number) for number in range(1, 21))))
    question, positions = Question(HOST, "A"), set()
    for seed in range(20):
        first, *_ = ready(answered(zone(), many), seed)[question]
        shown_first = in_order(question, first)[0]
        positions.add(sorted(shown_first).index(shown_first[0]))
    assert len(positions) > 1


def test_orders_are_kept_by_changes_that_leave_their_records_and_drawn_again_by_no_other() -> None:
    answers = ReadyAnswers(Random(1))
    two = (member(1, "10.0.0.1", "10.9.0.1"), member(2))
    answers.take(answered(zone(), views(view(*two))), ())
    draw_all(answers)
    target = Question(f"00000001.u.{HOST}", "A")
    before = answers.all[target]
    assert len(before) == 2
    answers.draw_again({target.name, OWNER, HOST})
    assert answers.is_drawn
    changed = answers.take(answered(zone(), views(view(*two, member(3)))), ())
    assert len(changed[Question(HOST, "A")]) == 1
    assert target not in changed
    assert target not in draw_all(answers)
    assert answers.all[target] == before


def test_change_is_ready_before_chance_draws_anything() -> None:
    """Sixteen draws take sixteen times as long: a member that is dead is shown no longer meanwhile."""
    drawn = 0

    def counted(site: SiteAnswers) -> SiteAnswers:
        def redraw(chance: Random) -> Mapping[str, Node]:
            nonlocal drawn
            drawn += 1
            assert site.redraw is not None
            return site.redraw(chance)

        return site._replace(redraw=redraw)

    def of(count: int) -> Snapshot:
        snapshot = answered(zone(), views(view(*(member(number) for number in range(1, count + 1)))))
        own = snapshot.zone_answers[ZONE]
        return replace(snapshot, zone_answers={ZONE: replace(own, sites=tuple(map(counted, own.sites)))})

    question = Question(OWNER, "SRV")
    answers = ReadyAnswers(Random(1))
    assert {len(variants) for variants in answers.take(of(20), ()).values()} == {1}
    assert drawn == 0
    assert len(draw_all(answers)[question]) == VARIANTS
    assert len(answers.all[question]) == VARIANTS
    drawn = 0
    gone = "00000014.u"
    assert gone in " ".join(shown(question, answers.all[question]))
    assert len(answers.take(of(19), ())[question]) == 1
    assert drawn == 0
    assert gone not in " ".join(shown(question, answers.all[question]))
    answers.draw_next()
    answers.take(of(18), ())  # in the midst of the draws: what was drawn of nineteen counts no more
    assert len(draw_all(answers)[question]) == VARIANTS
    assert "00000013.u" not in " ".join(shown(question, answers.all[question]))


def test_load_of_a_member_that_is_not_shown_now_changes_every_variant() -> None:
    """The snapshot shows the same as before then; variants of the ready answers showed the other weight."""
    few = UDP + "max_answers = 2\nmax_addresses = 2\nslow_start_s = 0\n"
    pools, first = zone(few), [member(1), member(2)]
    question, idle = Question(OWNER, "SRV"), f"0 1000 5060 00000003.u.{HOST}."
    busy = views(view(*first, member(3, policy=LeastUsed(0.9))))
    for seed in range(1000):
        before = answered(pools, views(view(*first, member(3))), seed=seed)
        after = answered(pools, busy, before, now=NOW + 60, seed=seed)
        if before.zone_answers[ZONE].sites[0].nodes == after.zone_answers[ZONE].sites[0].nodes:
            break
    else:
        raise AssertionError("the third was shown in every draw")
    answers = ReadyAnswers(Random(1))
    answers.take(before, ())
    draw_all(answers)
    assert idle in shown(question, answers.all[question])
    assert idle not in shown(question, answers.take(after, ())[question])
    draw_all(answers)
    assert idle not in shown(question, answers.all[question])


def test_address_of_a_target_that_changes_is_renewed_in_every_answer_that_holds_it() -> None:
    answers = ReadyAnswers(Random(1))
    answers.take(answered(zone(), TWO), ())
    moved = views(view(member(1, "10.0.0.1", "2001:db8::1"), member(2, "10.0.0.77")))
    changed = answers.take(answered(zone(), moved), ())
    assert changed.keys() >= {
        Question(name, kind) for name, kind in ((OWNER, "SRV"), (HOST, "A"), (f"00000002.u.{HOST}", "A"))
    }
    said = message(Question(OWNER, "SRV"), changed[Question(OWNER, "SRV")][0])
    assert {str(rrset[0]) for rrset in said.additional} == {"10.0.0.1", "2001:db8::1", "10.0.0.77"}
    assert not any(
        b"\x0a\x00\x00\x02" in variant.records for many in answers.all.values() for variant in many
    )


def test_zones_that_are_read_again_are_not_made_again() -> None:
    """A reload of a thousand pools would hold up the changes behind it."""
    answers = ReadyAnswers(Random(1))
    first = answered(zone(), TWO)
    answers.take(first, ())
    again = answered(zone(), TWO, first)
    assert again.zone_answers[ZONE].fixed is not first.zone_answers[ZONE].fixed
    assert not answers.take(again, ())
    assert not answers.take(replace(again, zone_answers={}), ()).keys() ^ answers_of(first)
    assert not len(answers)


def answers_of(snapshot: Snapshot) -> set[Question]:
    return set(ready(snapshot))


def test_draws_of_names_that_are_asked_about_come_again() -> None:
    many = views(view(*(member(number) for number in range(1, 21))))
    answers = ReadyAnswers(Random(1))
    answers.take(answered(zone(), many), ())
    draw_all(answers)
    answers.draw_again({f"nobody.{ZONE}"})
    assert answers.is_drawn
    before = dict(answers.all)
    answers.draw_again({OWNER})
    assert draw_all(answers)[Question(OWNER, "SRV")] != before[Question(OWNER, "SRV")]


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
    data = messages.commit(7) + messages.STATUS_OF_ALL
    found = [told for byte in data for told in reader.feed(bytes([byte]))]
    assert [told.kind for told in found] == ["C", "S"]


def test_depth_of_a_zone_is_that_of_its_deepest_name_with_or_without_members() -> None:
    target_labels = f"00000001.u.{HOST}".count(".") + 1
    assert depths([zone()]) == {ZONE: target_labels}
    assert depths([zone(fixed=FIXED + "a.b.c.d.e.f A 10.0.0.1\n")]) == {ZONE: ZONE.count(".") + 7}


def test_names_of_a_zone_that_others_may_extend_are_never_too_deep() -> None:
    inner = zone(name=f"inner.{ZONE}")
    for line in ("*.wild A 10.0.0.1\n", "sub NS ns.example.org.\n", "gone DNAME example.org.\n"):
        assert depths([zone(fixed=FIXED + line)]) == {ZONE: MOST_DEPTH}
    handed_over = zone(fixed=FIXED + "inner NS ns\n")
    assert depths([handed_over, inner])[ZONE] < MOST_DEPTH
    assert depths([handed_over])[ZONE] == MOST_DEPTH
    untold = zone(name=f"{'a' * 60}.{'b' * 60}.{ZONE}")
    assert depths([zone(), untold]) == {ZONE: MOST_DEPTH}


def test_parts_of_a_status_are_one_message_and_others_come_between_them() -> None:
    parts = ((b"p", b'{"a"'), (b"c", b"between"), (b"p", b": "), (b"s", b"1}"), (b"s", b"{}"))
    data = b"".join(struct.pack("=I", 1 + len(body)) + kind + body for kind, body in parts)
    assert messages.Reader().feed(data) == [("c", b"between"), ("s", b'{"a": 1}'), ("s", b"{}")]


def test_changes_give_the_answers_of_the_snapshots_that_they_lead_to() -> None:
    rng, inner = Random(1), "in." + ZONE
    zones = [zone(UDP + TCP), zone(UDP.replace("as", "other"), name=inner)]
    before, answers = Snapshot(), ReadyAnswers(Random(1))
    for turn in range(60):
        if turn % 20 == 19:
            zones = [zone(UDP + TCP), *zones[1:]] if turn < 30 else zones[:1]
        udp = view(*(member(number) for number in rng.sample(range(1, 9), rng.randint(0, 8))))
        tcp = view(*(member(7, protocol=Protocol.TCP) for _ in range(turn % 2)), handle="sip-tcp")
        change = built(zones, views(udp, tcp), before, NOW + turn, turn, rng)
        signed = {inner} if turn % 7 == 0 else set[str]()
        if turn % 7 < 2:
            answers.take(before, signed)
        answers.apply(change, signed)
        whole = ReadyAnswers(Random(1))
        whole.take(change.after, signed)
        assert {question: variants[0] for question, variants in answers.all.items()} == {
            question: variants[0] for question, variants in whole.all.items()
        }
        before = change.after
