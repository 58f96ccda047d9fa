"""A zone below another zone of the same backend: each answers for its own side of the cut, signed or not.

The outer zone is signed. One of the zones below it is signed, one is not, and one has no delegation.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from rspdns.zones.zone import Zone

from tests.backend.making import FIXED, UDP, member, view, views, zone
from tests.support.oracle import answers, start_oracle
from tests.support.pdns import Pdns
from tests.support.served import Served, served
from tests.support.waiting import until

OUTER = "example.net"
SIGNED, PLAIN, BARE = f"ims.{OUTER}", f"plain.{OUTER}", f"bare.{OUTER}"
OTHER = UDP.replace("sip-udp", "other")
OWNER = f"_sip._udp.as.{SIGNED}"
DELEGATIONS = """
www       A   10.0.1.80
ims       NS  ns1.ims
ns1.ims   A   10.7.7.7
plain     NS  ns1.plain
ns1.plain A   10.7.7.8
zz        TXT "behind all of them"
"""
VIEWS = views(view(member(1), member(2, "2001:db8::2")), view(member(3), handle="other"))


def zones(ds: str = "") -> list[Zone]:
    return [
        zone(OTHER, FIXED + DELEGATIONS + ds, name=OUTER),
        zone(UDP, FIXED + "info TXT text\n*.wild TXT text\n", name=SIGNED),
        zone("", FIXED + "info TXT text\n", name=PLAIN),
        zone("", FIXED + "info TXT text\n", name=BARE),
    ]


@dataclass(frozen=True)
class Nested:
    """The same zones, served live and by PowerDNS's bind backend with the same keys."""

    live: Served
    oracle: Pdns


def key_of(pdns: Pdns, name: str) -> str:
    return next(line.split()[2] for line in pdns.util("show-zone", name).splitlines() if line[:5] == "ID = ")


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nested]:
    folder = tmp_path_factory.mktemp("nested")
    with served(zones(), VIEWS, folder, signed=True) as made:
        made.pdns.sign(SIGNED)
        told = made.pdns.util("show-zone", SIGNED)
        (digest,) = re.findall(r"^DS = .* IN (DS .* 2 \w+) ;", told, re.MULTILINE)
        made.backend.set_zones(zones(f"ims {digest}\n"), VIEWS)
        until(lambda: made.pdns.short(SIGNED, "DS"))
        oracle = start_oracle(made, [OUTER, SIGNED, PLAIN, BARE], signed=True)
        made.pdns.sign(OUTER)
        for name in (OUTER, SIGNED):
            (folder / "key").write_text(made.pdns.util("export-zone-key", name, key_of(made.pdns, name)))
            oracle.util("import-zone-key", name, str(folder / "key"), "active", "ksk")
        oracle.util("rectify-all-zones")
        for pdns in (made.pdns, oracle):
            until(lambda pdns=pdns: pdns.short(OUTER, "DNSKEY") and pdns.short(SIGNED, "DNSKEY"))  # type: ignore[misc]
        yield Nested(made, oracle)


NAMES = ("", "www", "zz", "nobody", "as", "_sip._udp.as", "ns1", "info", "x.wild", "00000001.u.as", "x.info")
QUESTIONS = [
    (f"{label}.{name}".lstrip("."), qtype)
    for name in (OUTER, SIGNED, PLAIN, BARE)
    for label in NAMES
    for qtype in ("A", "SRV", "NS", "SOA", "DS", "TXT", "DNSKEY", "MX")
]


def set_denial(pdns: Pdns, denial: str) -> None:
    for name in (OUTER, SIGNED):
        pdns.util(*(["unset-nsec3", name] if denial == "nsec" else ["set-nsec3", name, "1 0 1 ab"]))


def until_denied(nested: Nested, denial: str) -> None:
    """Until the live one has no answer of the other kind any more."""
    for name in (OUTER, SIGNED):
        asked = ("+dnssec", f"nobody.{name}", "A")
        until(lambda asked=asked: denial.upper() in nested.live.pdns.dig(*asked).split())  # type: ignore[misc]


def kinds(lines: list[str]) -> list[tuple[str, str, str]]:
    """Names and types, and what a signature is about: the rest of it differs from one to the next."""
    fields = [line.split() for line in lines]
    return sorted((row[0], row[3], row[4] if row[3] in ("RRSIG", "NSEC") else "") for row in fields)


@pytest.mark.parametrize("denial", ["nsec", "nsec3"])
def test_every_answer_is_of_the_zone_that_powerdns_itself_would_take(nested: Nested, denial: str) -> None:
    set_denial(nested.oracle, denial)
    nested.oracle.stop()  # it keeps what it was told for a minute
    nested.oracle.start(OUTER)
    set_denial(nested.live.pdns, denial)
    until_denied(nested, denial)
    live, fixed = (
        answers(nested.live, pdns, QUESTIONS, dnssec=True) for pdns in (nested.live.pdns, nested.oracle)
    )
    assert len(live) > 300
    for question, said in live.items():
        expected = fixed[question]
        assert said["head"] == expected["head"], question
        for section in ("answer", "authority", "additional"):
            assert kinds(said[section]) == kinds(expected[section]), (question, section)


@pytest.mark.parametrize("denial", ["nsec", "nsec3"])
def test_a_validator_follows_the_cut(nested: Nested, denial: str) -> None:
    set_denial(nested.live.pdns, denial)
    until_denied(nested, denial)
    for question in ((OWNER, "SRV"), (f"info.{SIGNED}", "TXT"), (SIGNED, "DS"), (SIGNED, "SOA")):
        assert "; fully validated" in nested.live.delv(*question), question
    for question in (
        (f"nobody.{SIGNED}", "A"),
        (f"nobody.{OUTER}", "A"),
        (PLAIN, "DS"),
        (f"www.{SIGNED}", "A"),
    ):
        assert "negative response, fully validated" in nested.live.delv(*question), question
    for question in ((f"info.{PLAIN}", "TXT"), (PLAIN, "SOA")):
        assert "; unsigned answer" in nested.live.delv(*question), question


def test_each_of_the_zones_changes_by_itself(nested: Nested) -> None:
    """The inner zone's members come and go; what the outer one says of the cut stays right."""
    pdns = nested.live.pdns
    for count, members in ((1, [member(1)]), (2, [member(1), member(2, "2001:db8::2")])):
        nested.live.backend.publish({**VIEWS, **views(view(*members))})
        until(lambda count=count: len(pdns.short(OWNER, "SRV")) == count)  # type: ignore[misc]
        assert "fully validated" in nested.live.delv(SIGNED, "DS")
        assert "negative response, fully validated" in nested.live.delv(PLAIN, "DS")
        assert "negative response, fully validated" in nested.live.delv(f"nobody.as.{SIGNED}", "A")
