"""The order of a zone's names for NSEC, and whether answers prove that there is nothing."""

import dns.dnssec
import dns.message
import dns.name
import pytest
from rspdns.dnssec.nsec import Chain, Nsec3Parameters

from tests.backend.making import FIXED, TCP, UDP, ZONE, answered, member, view, views, zone
from tests.support.proofs import what_is_wrong

SUB = """
sub     NS  ns.sub
ns.sub  A   10.0.1.9
safe    NS  ns.sub
safe    DS  1 13 2 abababababababababababababababababababababababababababababababab
deep.er NS  ns.sub
"""
PARAMETERS = Nsec3Parameters.parse("1 0 2 ab12")


def chain(text: str = "", pools: str = UDP, **of_pools: int) -> Chain:
    made = answered(zone(pools, FIXED + SUB), views(view(*map(member, range(1, 3)))))
    return Chain(made.zone_answers[ZONE], Nsec3Parameters.parse(text))


def names_in_order(made: Chain) -> list[str]:
    """Every name, by walking from each to the next."""
    found = [made.around("" if made.parameters is None else "0")]
    while len(found) < 2 or found[-1].name != found[0].name:
        found.append(made.around(found[-1].after))
    return [link.name for link in found[:-1]]


def test_names_in_canonical_order() -> None:
    names = names_in_order(chain())
    start = names.index(ZONE)
    ordered = [dns.name.from_text(name) for name in names[start:] + names[:start]]
    assert ordered == sorted(ordered)
    assert dns.name.from_text(f"ns.sub.{ZONE}") not in ordered, "glue"
    assert dns.name.from_text(f"_udp.as.{ZONE}") not in ordered, "an empty non-terminal"
    assert dns.name.from_text(f"sub.{ZONE}") in ordered


def test_a_name_that_exists_is_its_own_predecessor() -> None:
    made = chain()
    assert made.around("as").name == f"as.{ZONE}"
    assert made.around("").before == ""
    between = made.around("asa")
    assert (between.before, between.after) == ("00000002.u.as", "deep.er")
    assert made.around("zz").after == ""


def test_a_pool_without_members_still_exists() -> None:
    empty = answered(zone(UDP + 'when_empty = "nodata"\n'), views(view()))
    names = names_in_order(Chain(empty.zone_answers[ZONE]))
    assert {f"_sip._udp.as.{ZONE}", f"u.as.{ZONE}"} <= set(names)


@pytest.mark.parametrize("salt", ["-", "ab12"])
def test_hashes_are_those_of_dnspython(salt: str) -> None:
    parameters = Nsec3Parameters.parse(f"1 0 2 {salt}")
    assert parameters is not None
    for name in (ZONE, f"*.{ZONE}", f"a\\.b.{ZONE}", f"AS.{ZONE}"):
        expected = dns.dnssec.nsec3_hash(name, "" if salt == "-" else salt, 2, "SHA1")
        assert parameters.hash(name) == expected.lower()


def test_hashed_names_hold_empty_non_terminals_too() -> None:
    assert PARAMETERS is not None
    made = chain("1 0 2 ab12")
    for name in (ZONE, f"_udp.as.{ZONE}", f"sub.{ZONE}", f"deep.er.{ZONE}", f"er.{ZONE}"):
        digest = PARAMETERS.hash(name)
        assert made.around(digest).name == name
        assert made.around(digest).before == digest
    assert PARAMETERS.hash(f"ns.sub.{ZONE}") not in made.hashes.values()
    walked = names_in_order(made)
    assert len(walked) == len(set(walked)) == len(made.hashes)


def test_opt_out_leaves_out_unsigned_delegations() -> None:
    names = set(chain("1 1 2 ab12").hashes)
    assert f"safe.{ZONE}" in names
    assert not {f"sub.{ZONE}", f"deep.er.{ZONE}", f"er.{ZONE}"} & names


def test_hashes_are_kept_from_one_chain_to_the_next() -> None:
    first = chain("1 0 2 ab12")
    marked = {name: f"{index:032d}" for index, name in enumerate(first.hashes)}
    assert Chain(first.zone, PARAMETERS, marked).hashes == marked


@pytest.mark.parametrize("text", ["", "x", "1 0", "1 0 x -", "1 0 0 xyz"])
def test_a_text_that_is_no_nsec3_parameters_is_none(text: str) -> None:
    assert Nsec3Parameters.parse(text) is None


def test_too_many_iterations_are_lowered_as_powerdns_does() -> None:
    parameters = Nsec3Parameters.parse("1 0 60000 -")
    assert parameters is not None
    assert parameters.iterations == 100


def test_nothing_is_denied_where_nobody_knows() -> None:
    half = answered(zone(UDP + TCP.replace('"as"', '"other"')), views(view(member(1))))
    made = Chain(half.zone_answers[ZONE])
    assert made.around("asa").known
    assert not made.around("00000001.t.other").known
    assert not made.around("_sip._tcp.other").known
    hashed = Chain(half.zone_answers[ZONE], PARAMETERS)
    assert PARAMETERS is not None
    assert hashed.around(PARAMETERS.hash(f"as.{ZONE}")).known, "that it exists is known"
    assert not hashed.around(PARAMETERS.hash(f"nobody.{ZONE}")).known


def test_names_with_dots_and_odd_bytes_in_a_label() -> None:
    odd = answered(zone(UDP, FIXED + "a\\.b TXT x\na\\200c TXT x\naz TXT x\n"), views(view(member(1))))
    names = names_in_order(Chain(odd.zone_answers[ZONE]))
    start = names.index(ZONE)
    ordered = [dns.name.from_text(name) for name in names[start:] + names[:start]]
    assert ordered == sorted(ordered)


def answer(rcode: str, question: str, *authority: str) -> dns.message.Message:
    lines = ["id 1", "opcode QUERY", f"rcode {rcode}", "flags QR AA", ";QUESTION", question, ";ANSWER"]
    return dns.message.from_text("\n".join([*lines, ";AUTHORITY", *authority, ";ADDITIONAL", ""]))


GAP = "a.z. 1 IN NSEC d.z. A RRSIG NSEC"
APEX = "z. 1 IN NSEC a.z. SOA NS RRSIG NSEC"
INNER = "a.z. 1 IN NSEC x.b.z. A RRSIG NSEC"
ANY = "b.z. IN A"


@pytest.mark.parametrize(
    ("rcode", "question", "authority"),
    [
        ("NOERROR", "a.z. IN MX", [GAP]),
        ("NOERROR", ANY, [INNER]),
        ("NXDOMAIN", ANY, [GAP, APEX]),
    ],
)
def test_answers_that_prove_that_there_is_nothing(rcode: str, question: str, authority: list[str]) -> None:
    assert what_is_wrong(answer(rcode, question, *authority)) is None


@pytest.mark.parametrize(
    ("rcode", "question", "authority", "word"),
    [
        ("NOERROR", "a.z. IN A", [GAP], "has the type"),
        ("NOERROR", ANY, [GAP], "nothing shows that the name exists"),
        ("NXDOMAIN", "a.z. IN A", [GAP, APEX], "the name isn't denied"),
        ("NXDOMAIN", "e.z. IN A", [GAP, APEX], "the name isn't denied"),
        ("NXDOMAIN", ANY, [GAP], "the wildcard *.z. isn't denied"),
        ("NXDOMAIN", ANY, [], "no proof"),
        ("REFUSED", ANY, [], "REFUSED"),
    ],
)
def test_answers_that_prove_nothing(rcode: str, question: str, authority: list[str], word: str) -> None:
    assert word in str(what_is_wrong(answer(rcode, question, *authority)))


def nsec3(name: str, after: str, types: str) -> str:
    """The record at the hash of a name, up to another hash: those of z and a.z are given below."""
    return f"{HASHES[name]}.z. 1 IN NSEC3 1 0 0 - {HASHES.get(after, after)} {types}"


HASHES = {name: dns.dnssec.nsec3_hash(f"{name}.z" if name else "z", None, 0, 1).lower() for name in ("", "a")}


def test_hashed_names() -> None:
    zero, last = "0" * 32, "v" * 32
    everything = f"{zero}.z. 1 IN NSEC3 1 0 0 - {last}"
    own = nsec3("a", last, "A RRSIG")
    assert what_is_wrong(answer("NOERROR", "a.z. IN MX", own)) is None
    assert "has the type" in str(what_is_wrong(answer("NOERROR", "a.z. IN A", own)))
    assert "exists" in str(what_is_wrong(answer("NOERROR", "a.z. IN MX", everything)))
    encloser = nsec3("", last, "SOA RRSIG")
    assert what_is_wrong(answer("NXDOMAIN", ANY, encloser, everything)) is None
    assert "no closest encloser" in str(what_is_wrong(answer("NXDOMAIN", ANY, everything)))
    nothing = f"{zero}.z. 1 IN NSEC3 1 0 0 - {zero[:-1]}1"
    alone = nsec3("", HASHES[""][:-1] + ("1" if HASHES[""][-1] == "0" else "v"), "SOA RRSIG")
    assert "isn't denied" in str(what_is_wrong(answer("NXDOMAIN", ANY, alone, nothing)))
