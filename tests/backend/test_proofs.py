"""The judge of proofs (tests/support/proofs.py) is one: it takes good ones, and no others."""

import dns.dnssec
import dns.message
import pytest

from tests.support.proofs import what_is_wrong


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
